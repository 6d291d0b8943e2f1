"""What a code workflow must not do, by the name it is done with, and what to do instead."""

from __future__ import annotations

from typing import Final

NOW: Final = "use ctx.now"
SLEEP: Final = "use `yield ctx.sleep(…)`"
ID: Final = "use ctx.new_id()"
CHANCE: Final = "draw it in an activity, or use ctx.new_id()"
SETTING: Final = "read it in an activity, or take it as input: it may differ at the next replay"
OUTSIDE: Final = "do it in an activity and yield ctx.call_activity(…)"
LOG: Final = "use ctx.log, which says everything once"
PARALLEL: Final = "yield ctx.all([…]) or ctx.any([…])"

RULES: Final[dict[str, tuple[str, str]]] = {
    "datetime.datetime.now": ("clock", NOW),
    "datetime.datetime.utcnow": ("clock", NOW),
    "datetime.datetime.today": ("clock", NOW),
    "datetime.date.today": ("clock", NOW),
    "time.time": ("clock", NOW),
    "time.time_ns": ("clock", NOW),
    "time.monotonic": ("clock", NOW),
    "time.monotonic_ns": ("clock", NOW),
    "time.perf_counter": ("clock", NOW),
    "time.perf_counter_ns": ("clock", NOW),
    "time.process_time": ("clock", NOW),
    "time.localtime": ("clock", NOW),
    "time.gmtime": ("clock", NOW),
    "time.ctime": ("clock", NOW),
    "time.sleep": ("sleep", SLEEP),
    "uuid.uuid1": ("random", ID),
    "uuid.uuid4": ("random", ID),
    "uuid.uuid6": ("random", ID),
    "uuid.uuid7": ("random", ID),
    "random": ("random", CHANCE),
    "secrets": ("random", CHANCE),
    "numpy.random": ("random", CHANCE),
    "os.urandom": ("random", CHANCE),
    "hash": ("random", "hash() differs from process to process; use hashlib"),
    "id": ("random", "id() differs from process to process; use ctx.new_id()"),
    "os.environ": ("environment", SETTING),
    "os.getenv": ("environment", SETTING),
    "os.getpid": ("environment", SETTING),
    "os.cpu_count": ("environment", SETTING),
    "platform": ("environment", SETTING),
    "socket": ("io", OUTSIDE),
    "open": ("io", OUTSIDE),
    "input": ("io", OUTSIDE),
    "os": ("io", OUTSIDE),
    "shutil": ("io", OUTSIDE),
    "tempfile": ("io", OUTSIDE),
    "glob": ("io", OUTSIDE),
    "subprocess": ("io", OUTSIDE),
    "sqlite3": ("io", OUTSIDE),
    "requests": ("io", OUTSIDE),
    "httpx": ("io", OUTSIDE),
    "aiohttp": ("io", OUTSIDE),
    "urllib.request": ("io", OUTSIDE),
    "urllib3": ("io", OUTSIDE),
    "http.client": ("io", OUTSIDE),
    "smtplib": ("io", OUTSIDE),
    "azure": ("io", OUTSIDE),
    "print": ("log", LOG),
    "logging": ("log", LOG),
    "asyncio": ("async", PARALLEL),
    "threading": ("thread", PARALLEL),
    "multiprocessing": ("thread", PARALLEL),
    "concurrent.futures": ("thread", PARALLEL),
}
"""A dotted name, or a module with all that is below it, -> code and mend. The longest name wins."""

STEPS: Final = frozenset(
    {"all", "any", "call_activity", "call_workflow", "sleep", "wait_for_signal"}
)
"""Methods of the context that make a task: it begins when it is yielded."""
_ENTITIES: Final = (
    "code workflows have no entities: keep the state in the input of the next generation "
    "(ctx.continue_as_new), or where an activity can reach it"
)
DURABLE: Final[dict[str, str]] = {
    "call_activity_with_retry": "use `yield ctx.call_activity(…, retry=Retry(…))`",
    "call_entity": _ENTITIES,
    "call_http": "write an activity that does it, and yield ctx.call_activity(…)",
    "call_sub_orchestrator": "use `yield ctx.call_workflow(…)`",
    "call_sub_orchestrator_with_retry": "use `yield ctx.call_workflow(…)`, in a loop of your own",
    "create_timer": "use `yield ctx.sleep(…)`",
    "current_utc_datetime": NOW,
    "get_input": "take it as the second parameter of the function",
    "instance_id": "use ctx.execution",
    "lock": _ENTITIES,
    "new_guid": ID,
    "new_uuid": ID,
    "set_custom_status": "use ctx.set_status(…)",
    "signal_entity": _ENTITIES,
    "task_all": PARALLEL,
    "task_any": PARALLEL,
    "wait_for_any": PARALLEL,
    "wait_for_external_event": "use `yield ctx.wait_for_signal(…)`",
    "when_all": PARALLEL,
    "when_any": PARALLEL,
}
"""What Durable Functions' own context has, and what stands for it here."""

HARMLESS: Final = frozenset({"os.path", "os.sep", "os.linesep", "os.fspath", "os.PathLike"})
"""Exceptions below a module of `RULES`."""
TOUCHES_FILES: Final = frozenset({"exists", "isfile", "isdir", "getsize", "getmtime", "realpath"})
"""Of `os.path`: these do look at the disk."""
FILE_METHODS: Final = frozenset({"read_text", "read_bytes", "write_text", "write_bytes"})
"""Methods of `pathlib.Path`, on whatever they are called."""
CHANGES: Final = frozenset(
    {
        "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
        "remove", "reverse", "setdefault", "sort", "update",
    }
)  # fmt: skip
"""Methods that change what they are called on."""


def rule_of(name: str) -> tuple[str, str] | None:
    """Code and mend for a dotted name, None if it is harmless."""
    if name.startswith("os.path."):
        return RULES["os"] if name.rpartition(".")[2] in TOUCHES_FILES else None
    if name in HARMLESS:
        return None
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        found = RULES.get(".".join(parts[:length]))
        if found is not None:
            return found
    return None
