"""YAML to the value that the same text would have as JSON, or a clear refusal.

PyYAML reads YAML 1.1: `on` becomes True, `012` ten, `08:30` 510, `2027-01-01` a date. Here a plain
scalar is null, true, false or a decimal number, as in YAML 1.2, and everything else is text: also
`on`, `no`, `012`, `0o17`, `0x1F`, `1_000`, times and dates. Built from parser events, so no tag can
construct anything and nesting cannot exhaust the stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, cast

import yaml

from orchestrator.domain.errors import MalformedError
from orchestrator.domain.failure import scrub
from orchestrator.domain.jsontypes import Json
from orchestrator.domain.jsonvalues import child_path
from orchestrator.domain.textrules import (
    MAX_FAULTS,
    Fault,
    decode,
    duplicate_key,
    malformed,
    not_finite,
    raise_faults,
    read_float,
    read_int,
    too_deep,
)
from orchestrator.domain.topology import MAX_BODY_BYTES, MAX_NESTING

MAX_ALIAS_NODES: Final = 100_000
"""Values that aliases may add to a document, all together ("billion laughs")."""
MAX_ALIAS_CHARS: Final = 1024 * 1024
"""Characters that aliases may add: one long text repeated is a bomb of few nodes."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_parse: Final[Callable[..., Iterator[yaml.Event]]] = getattr(yaml, "parse")  # noqa: B009

_CONSTANTS: Final[dict[str, bool | None]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_NUMBER_STARTS: Final = frozenset("+-.0123456789")
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG: Final = "tag:yaml.org,2002:"

Scalar: TypeAlias = bool | int | float | str | None


def parse_yaml(
    data: bytes, *, max_bytes: int = MAX_BODY_BYTES, max_depth: int = MAX_NESTING
) -> Json:
    """The value of a YAML text in UTF-8: exactly one document.

    Raises `TooLargeError` over `max_bytes`; `MalformedError` if it is not YAML, or for duplicate or
    non-text keys, merge keys, tags, `.nan` and `.inf`, alias bombs and cycles, several documents;
    `InvalidError` for numbers out of range and nesting deeper than `max_depth`.
    """
    text = decode(data, max_bytes, "YAML")
    builder = _Builder(max_depth)
    try:
        for event in _parse(text, Loader=_LOADER):
            builder.feed(event)
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in (error.problem or ""):  # libyaml has its own limit, 1,000
            raise too_deep(max_depth, "$") from None
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        message = f"the text is not YAML: {error.problem}{place}"
        raise malformed(message, "NOT_YAML", hint=_tab_hint(text, mark)) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # ValueError: an escape beyond Unicode in the pure Python scanner.
        reason = str(error).splitlines()[0] if str(error) else "unreadable"
        raise malformed(f"the text is not YAML: {reason}", "NOT_YAML") from None
    return builder.result()


def _tab_hint(text: str, mark: yaml.Mark | None) -> str:
    """What the parsers call a character that cannot start a token is mostly this one."""
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    return "indent with spaces: YAML knows no tabs there" if "\t" in indent else ""


def resolve(text: str) -> Scalar | Fault:
    """The value of a plain (unquoted, untagged) scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _INT.fullmatch(text):
        return read_int(text)
    if _FLOAT.fullmatch(text):
        return read_float(text)
    if _NOT_FINITE.fullmatch(text):
        return not_finite(text)
    return text


class _Frame:
    """A list or mapping that is still open."""

    __slots__ = ("anchor", "chars", "items", "key", "keys", "nodes")

    def __init__(self, is_map: bool, anchor: str | None) -> None:
        self.items: list[Any] = []
        self.keys: dict[str, Any] | None = {} if is_map else None
        self.key: str | None = None  # of the value that comes next
        self.anchor = anchor
        self.nodes = 1  # size after expansion, itself included
        self.chars = 0


class _Builder:
    """Turns parser events into a value, with an explicit stack."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # value, nodes, characters
        self._open: set[str] = set()
        self._alias_nodes = 0
        self._alias_chars = 0
        self._documents = 0
        self._root: Any = None
        self._faults: list[tuple[str, Fault]] = []

    def feed(self, event: yaml.Event) -> None:
        """Take the next event. Raises for what makes going on pointless."""
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._start(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._end()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise malformed(
                    f"more than one YAML document (line {_line(event)}): send them one by one",
                    "SEVERAL_DOCUMENTS",
                )

    def result(self) -> Json:
        """The document's value. Raises the faults that were collected."""
        raise_faults(self._faults, "YAML")
        if not self._documents:
            raise malformed("the text is empty", "NOT_YAML")
        return cast("Json", self._root)

    def _fault(self, path: str, fault: Fault, event: yaml.Event) -> None:
        message = f"{fault.message} (line {_line(event)})"
        self._faults.append((path, Fault(fault.code, message, fault.malformed)))
        if len(self._faults) >= MAX_FAULTS:
            raise_faults(self._faults, "YAML")

    def _path(self) -> str:
        """Path of the value that comes next."""
        path = "$"
        for frame in self._stack:
            if frame.keys is None:
                path = child_path(path, len(frame.items))
            elif frame.key is not None:
                path = child_path(path, frame.key)
        return path

    def _wants_key(self) -> bool:
        return bool(self._stack) and (top := self._stack[-1]).keys is not None and top.key is None

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = event.value
        if _LOADER is yaml.SafeLoader:  # libyaml refuses such escapes itself
            text = scrub(text)
        plain = event.tag is None and event.implicit[0]
        value: Scalar | Fault = resolve(text) if plain else text
        if event.tag not in (None, "!", _TAG + "str"):
            value = _tag_fault(event.tag)
        if self._wants_key():
            self._key(event, text, value, plain)
            return
        if isinstance(value, Fault):
            self._fault(self._path(), value, event)
            value = None
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1, len(text))
        self._place(value, 1, len(text))

    def _key(self, event: yaml.ScalarEvent, text: str, value: Scalar | Fault, plain: bool) -> None:
        frame = self._stack[-1]
        path = child_path(self._path(), text)
        if isinstance(value, Fault):
            self._fault(path, value, event)
        elif not isinstance(value, str):
            shown = text or "(empty)"
            fault = Fault("BAD_KEY", f"the key {shown} is not text: quote it, or choose another")
            self._fault(path, fault, event)
        elif text == "<<" and plain:
            fault = Fault("MERGE_KEY", "merge keys (<<) are not supported: write the fields out")
            self._fault(path, fault, event)
        elif frame.keys is not None and text in frame.keys:
            self._fault(path, duplicate_key(text), event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (text, 1, len(text))
        frame.key = text
        frame.nodes += 1
        frame.chars += len(text)

    def _start(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        is_map = isinstance(event, yaml.MappingStartEvent)
        if self._wants_key():
            raise _key_error(self._path(), event)
        if len(self._stack) >= self._max_depth:
            raise too_deep(self._max_depth, self._path())
        if event.tag not in (None, "!", _TAG + ("map" if is_map else "seq")):
            self._fault(self._path(), _tag_fault(event.tag), event)
        if event.anchor is not None:
            self._open.add(event.anchor)
            self._anchors.pop(event.anchor, None)  # from here on the name means this node
        self._stack.append(_Frame(is_map, event.anchor))

    def _end(self) -> None:
        frame = self._stack.pop()
        value: Any = frame.items if frame.keys is None else frame.keys
        if frame.anchor is not None:
            self._open.discard(frame.anchor)
            self._anchors[frame.anchor] = (value, frame.nodes, frame.chars)
        self._place(value, frame.nodes, frame.chars)

    def _alias(self, event: yaml.AliasEvent) -> None:
        name, line = event.anchor, _line(event)
        if self._wants_key():
            raise _key_error(self._path(), event)
        if name not in self._anchors:
            if name in self._open:
                message = f"the alias *{name} (line {line}) is inside its own anchor: a cycle"
                raise malformed(message, "ALIAS_CYCLE")
            message = f"the alias *{name} (line {line}) has no anchor before it"
            raise malformed(message, "NOT_YAML")
        value, nodes, chars = self._anchors[name]
        self._alias_nodes += nodes
        self._alias_chars += chars
        if self._alias_nodes > MAX_ALIAS_NODES or self._alias_chars > MAX_ALIAS_CHARS:
            raise malformed(
                f"aliases expand to more than {MAX_ALIAS_NODES:,} values or {MAX_ALIAS_CHARS:,} "
                f"characters (line {line}): write the values out",
                "ALIAS_BOMB",
            )
        depth = len(self._stack) + _depth(value)
        if depth > self._max_depth:
            raise too_deep(self._max_depth, self._path())
        self._place(value, nodes, chars)

    def _place(self, value: Any, nodes: int, chars: int) -> None:
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        frame.nodes += nodes
        frame.chars += chars
        if frame.keys is None:
            frame.items.append(value)
        elif frame.key is not None:
            frame.keys[frame.key] = value
            frame.key = None


def _line(event: yaml.Event) -> int:
    mark: Any = event.start_mark
    return int(mark.line) + 1


def _tag_fault(tag: str | None) -> Fault:
    shown = (tag or "").replace(_TAG, "!!")[:80]
    return Fault("YAML_TAG", f"the tag {shown} is not supported: write a plain value")


def _key_error(path: str, event: yaml.Event) -> MalformedError:
    return malformed(f"{path}: a key is not text (line {_line(event)})", "BAD_KEY", path)


def _depth(value: Any) -> int:
    """Levels of lists and objects in `value`. Bounded, since every value was depth-checked."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, cast("dict[str, Any]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, cast("list[Any]", value)), default=0)
    return 0
