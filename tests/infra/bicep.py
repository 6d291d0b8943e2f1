"""Just enough of Bicep to say what a template would deploy with given parameters.

The true compiler is no package of a registry, so where it is missing the files are read with
tree-sitter's grammar and evaluated here: parameters and their bounds, variables, loops, conditions,
modules, references. What Azure itself would fill in (addresses, principals) gets values of the same
form. Anything unknown raises: a check that skips what it does not understand proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_bicep
from tree_sitter import Node

from tests.infra.bicep_functions import FUNCTIONS, runtime_value

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"
_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bicep.language()))
DECLARATIONS = {
    "parameter_declaration",
    "variable_declaration",
    "resource_declaration",
    "module_declaration",
    "output_declaration",
}


class BicepError(Exception):
    """The template says something that cannot be so, or that this reader does not know."""


@dataclass(eq=False)
class Resource:
    """One resource as it would be deployed; also what its symbol stands for in expressions."""

    file: str
    type: str
    version: str
    name: str  # the last segment
    id: str
    body: dict[str, Any]
    existing: bool
    scope: str  # id of what an extension resource (role, diagnostics) belongs to
    children: dict[str, Resource] = field(default_factory=dict)

    @property
    def properties(self) -> dict[str, Any]:
        return self.body.get("properties", {})

    def get(self, name: str) -> Any:
        if name in ("id", "name", "type"):
            return getattr(self, name)
        given = self.body.get(name)
        if name in ("properties", "identity"):
            return _Live(self, name, given or {})
        if given is None:
            raise BicepError(f"{self.type} has no {name}")
        return given


@dataclass
class _Live:
    """`properties` of a deployed resource: what the template says, else what Azure adds."""

    resource: Resource
    section: str
    given: dict[str, Any]

    def get(self, name: str) -> Any:
        if name in self.given:
            return self.given[name]
        return runtime_value(self.resource.type, self.section, name, self.resource.name)


def text_of(node: Node) -> str:
    return (node.text or b"").decode()


def parse(source: str, *, parameters: bool = False) -> Node:
    """The syntax tree. `parameters`: a .bicepparam file, whose assignments read as variables.
    Raises `BicepError` at the first place that is no Bicep."""
    if parameters:
        lines = [line for line in source.splitlines() if not line.startswith("using ")]
        source = "\n".join(
            "var " + line[6:] if line.startswith("param ") else line for line in lines
        )
    root = _PARSER.parse(source.encode()).root_node
    for node in walk(root):
        if node.is_error or node.is_missing:
            raise BicepError(f"line {node.start_point[0] + 1}: not understood: {text_of(node)!r}")
    return root


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def named(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type != "comment"]


@dataclass
class Template:
    """One evaluated file: `outputs`, and everything that it and its modules deploy."""

    path: Path
    given: Mapping[str, Any]
    root_scope: str
    environment: Mapping[str, str]
    deployed: list[Resource] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.declared: dict[str, Node] = {}
        self.decorators: dict[str, list[Node]] = {}
        self.values: dict[str, Any] = {}
        self.busy: set[str] = set()
        outputs: dict[str, Node] = {}
        pending: list[Node] = []
        tree = parse(self.path.read_text("utf-8"), parameters=self.path.suffix == ".bicepparam")
        for node in named(tree):
            if node.type == "decorators":
                pending = named(node)
                continue
            if node.type in DECLARATIONS:
                symbol = text_of(named(node)[0])
                target = outputs if node.type == "output_declaration" else self.declared
                if symbol in target:
                    raise BicepError(f"{self.path.name}: {symbol} is declared twice")
                target[symbol] = node
                if target is self.declared:  # an output may have the name of a parameter
                    self.decorators[symbol] = pending
            pending = []
        unknown = set(self.given) - {
            name for name, node in self.declared.items() if node.type == "parameter_declaration"
        }
        if unknown:
            raise BicepError(f"{self.path.name}: no parameters {sorted(unknown)}")
        for symbol in self.declared:
            self.symbol(symbol)
        self.outputs = {name: self._value(named(node)[-1], {}) for name, node in outputs.items()}

    def symbol(self, name: str) -> Any:
        """The value behind a declared name, evaluated once."""
        if name not in self.values:
            if name in self.busy:
                raise BicepError(f"{self.path.name}: {name} refers to itself")
            self.busy.add(name)
            self.values[name] = self._declared(name, self.declared[name])
        return self.values[name]

    def _declared(self, name: str, node: Node) -> Any:
        parts = named(node)
        if node.type == "variable_declaration":
            return self._value(parts[-1], {})
        if node.type == "parameter_declaration":
            return self._parameter(name, parts)
        if node.type == "module_declaration":
            return self._each(parts[2], {}, lambda body, local: self._module(parts, body, local))
        return self._each(parts[2], {}, lambda body, local: self._resource(node, body, local, None))

    def _parameter(self, name: str, parts: list[Node]) -> Any:
        if name in self.given:
            value = self.given[name]
        elif len(parts) > 2:
            value = self._value(parts[2], {})
        else:
            raise BicepError(f"{self.path.name}: parameter {name} is missing")
        kind = text_of(parts[1])
        expected = {"string": str, "int": int, "bool": bool, "object": dict}.get(kind, list)
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            raise BicepError(f"{self.path.name}: parameter {name} is not of type {kind}")
        for decorator in self.decorators.get(name, []):
            call = named(decorator)[0]
            rule, arguments = text_of(named(call)[0]), named(named(call)[1])
            limit = self._value(arguments[0], {})
            fits = {
                "allowed": lambda limit=limit: value in limit,
                "minValue": lambda limit=limit: value >= limit,
                "maxValue": lambda limit=limit: value <= limit,
                "minLength": lambda limit=limit: len(value) >= limit,
                "maxLength": lambda limit=limit: len(value) <= limit,
                "description": lambda: True,
            }[rule]()
            if not fits:
                raise BicepError(f"{self.path.name}: {name} = {value!r} breaks @{rule}({limit})")
        return value

    def _each(self, node: Node, local: dict[str, Any], make: Any) -> Any:
        """Runs `make(body, names)` for a body that may be conditional, a loop, or both."""
        if node.type == "for_statement":
            return [self._each(body, inner, make) for body, inner in self._loop(node, local)]
        if node.type == "if_statement":
            condition, body = named(node)
            return make(body, local) if self._bool(condition, local) else None
        return make(node, local)

    def _loop(self, node: Node, local: dict[str, Any]) -> Iterator[tuple[Node, dict[str, Any]]]:
        head, source, body = named(node)
        names = [text_of(part) for part in named(head)] or [text_of(head)]
        for index, item in enumerate(self._value(source, local)):
            yield body, {**local, **dict(zip(names, (item, index), strict=False))}

    def _module(self, parts: list[Node], body: Node, local: dict[str, Any]) -> Template:
        fields = self._fields(body)
        scope = self._value(fields["scope"], local) if "scope" in fields else None
        inner = Template(
            self.path.parent / self._value(parts[1], {}),
            self._value(fields["params"], local) if "params" in fields else {},
            scope.id if isinstance(scope, Resource) else self.root_scope,
            self.environment,
            self.deployed,
        )
        self._depends(fields, local)
        return inner

    def _depends(self, fields: dict[str, Node], local: dict[str, Any]) -> None:
        if "dependsOn" in fields:
            self._value(fields["dependsOn"], local)

    def _fields(self, body: Node) -> dict[str, Node]:
        pairs = [named(child) for child in named(body) if child.type == "object_property"]
        return {text_of(pair[0]): pair[1] for pair in pairs if len(pair) == 2}

    def _resource(
        self, node: Node, body: Node, local: dict[str, Any], parent: Resource | None
    ) -> Resource:
        fields = self._fields(body)
        kind, _, version = self._value(named(node)[1], local).partition("@")
        if "parent" in fields:
            parent = self._value(fields["parent"], local)
        elif parent is not None:
            kind, version = f"{parent.type}/{kind}", parent.version
        scope = self._value(fields["scope"], local) if "scope" in fields else None
        name = self._value(fields["name"], local)
        if parent is not None:
            own = f"{parent.id}/{kind.rsplit('/', 1)[1]}/{name}"
        elif kind == "Microsoft.Resources/resourceGroups":
            own = f"{self.root_scope}/resourceGroups/{name}"
        else:
            own = f"{scope.id if scope else self.root_scope}/providers/{kind}/{name}"
        skipped = {"parent", "scope", "dependsOn"}
        self._depends(fields, local)
        resource = Resource(
            file=self.path.name,
            type=kind,
            version=version,
            name=name,
            id=own,
            body={k: self._value(v, local) for k, v in fields.items() if k not in skipped},
            existing=any(child.type == "existing" for child in node.children),
            scope=scope.id if scope else "",
        )
        if not resource.existing:
            self.deployed.append(resource)
        for child in (part for prop in named(body) for part in named(prop)):
            if child.type == "resource_declaration":
                symbol, _, inner = named(child)
                resource.children[text_of(symbol)] = self._resource(child, inner, local, resource)
        return resource

    # --- expressions ------------------------------------------------------------------------

    def _bool(self, node: Node, local: dict[str, Any]) -> bool:
        value = self._value(node, local)
        if not isinstance(value, bool):
            raise BicepError(f"{self.path.name}: not a condition: {text_of(node)}")
        return value

    def _value(self, node: Node, local: dict[str, Any]) -> Any:
        handler = getattr(self, f"_on_{node.type}", None)
        if handler is None:
            raise BicepError(f"{self.path.name}: {node.type} is not known here: {text_of(node)}")
        return handler(node, local)

    def _on_number(self, node: Node, local: dict[str, Any]) -> int:
        return int(text_of(node))

    def _on_boolean(self, node: Node, local: dict[str, Any]) -> bool:
        return text_of(node) == "true"

    def _on_null(self, node: Node, local: dict[str, Any]) -> None:
        return None

    def _on_string(self, node: Node, local: dict[str, Any]) -> str:
        if text_of(node).startswith("'''"):
            return text_of(node)[3:-3].removeprefix("\n")
        pieces: list[str] = []
        for child in named(node):
            if child.type == "interpolation":
                pieces.append(str(self._value(named(child)[0], local)))
            elif child.type == "escape_sequence":
                pieces.append({"\\n": "\n", "\\t": "\t"}.get(text_of(child), text_of(child)[1:]))
            else:
                pieces.append(text_of(child))
        return "".join(pieces)

    def _on_array(self, node: Node, local: dict[str, Any]) -> list[Any]:
        return [self._value(child, local) for child in named(node)]

    def _on_object(self, node: Node, local: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for child in named(node):
            key, value = named(child)
            name = text_of(key) if key.type == "identifier" else self._value(key, local)
            if name in made:
                raise BicepError(f"{self.path.name}: {name} stands twice in one object")
            made[name] = self._value(value, local)
        return made

    def _on_for_statement(self, node: Node, local: dict[str, Any]) -> list[Any]:
        return [self._value(body, inner) for body, inner in self._loop(node, local)]

    def _on_parenthesized_expression(self, node: Node, local: dict[str, Any]) -> Any:
        return self._value(named(node)[0], local)

    def _on_unary_expression(self, node: Node, local: dict[str, Any]) -> bool:
        return not self._bool(named(node)[0], local)

    def _on_ternary_expression(self, node: Node, local: dict[str, Any]) -> Any:
        condition, yes, no = named(node)
        return self._value(yes if self._bool(condition, local) else no, local)

    def _on_binary_expression(self, node: Node, local: dict[str, Any]) -> Any:
        left, right = named(node)
        sign = next(text_of(child) for child in node.children if not child.is_named)
        if sign in ("&&", "||"):
            first = self._bool(left, local)
            return self._bool(right, local) if first == (sign == "&&") else first
        one, two = self._value(left, local), self._value(right, local)
        return {"==": one == two, "!=": one != two}[sign] if sign in ("==", "!=") else one > two

    def _on_identifier(self, node: Node, local: dict[str, Any]) -> Any:
        name = text_of(node)
        if name in local:
            return local[name]
        if name not in self.declared:
            raise BicepError(f"{self.path.name}: {name} is not declared")
        return self.symbol(name)

    def _on_resource_expression(self, node: Node, local: dict[str, Any]) -> Any:
        owner, child = named(node)
        return self._value(owner, local).children[text_of(child)]

    def _on_subscript_expression(self, node: Node, local: dict[str, Any]) -> Any:
        owner, key = named(node)
        return self._value(owner, local)[self._value(key, local)]

    def _on_member_expression(self, node: Node, local: dict[str, Any]) -> Any:
        owner, key = self._value(named(node)[0], local), text_of(named(node)[-1])
        if isinstance(owner, Template) and key == "outputs":
            return owner.outputs
        if isinstance(owner, Resource | _Live):
            return owner.get(key)
        if isinstance(owner, dict) and key in owner:
            return owner[key]
        raise BicepError(f"{self.path.name}: nothing at {text_of(node)}")

    def _on_call_expression(self, node: Node, local: dict[str, Any]) -> Any:
        name = text_of(named(node)[0])
        if name not in FUNCTIONS:
            raise BicepError(f"{self.path.name}: function {name} is not known here")
        arguments = [self._value(child, local) for child in named(named(node)[1])]
        return FUNCTIONS[name](self, *arguments)


def deployment(folder: Path, parameters: str, environment: Mapping[str, str]) -> Template:
    """What `main.bicep` in `folder` deploys with the parameter file `parameters`."""
    given = Template(folder / parameters, {}, SUBSCRIPTION, environment)
    names = [
        line.split()[1]
        for line in (folder / parameters).read_text("utf-8").splitlines()
        if line.startswith("param ")
    ]
    values = {name: given.values[name] for name in names}
    return Template(folder / "main.bicep", values, SUBSCRIPTION, environment)
