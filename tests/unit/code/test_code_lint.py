"""The determinism lint: every rule, its place and its mend; what it must leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.code.lint import CONTEXT, lint, lint_paths
from activities.code.lint_rules import DURABLE

ROOT = Path(__file__).parents[3]
HEAD = """\
import asyncio, datetime as dt, logging, os, random, requests, secrets, threading, time, uuid
import os.path
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from pathlib import Path
from uuid import uuid4 as fresh
import activities
from activities import CodeContext, activity, code_workflow
CACHE = {}
logger = logging.getLogger("x")
"""


def body(*lines: str, define: str = "def") -> str:
    text = "".join(f"    {line}\n" for line in lines)
    head = f'{HEAD}@code_workflow("flow")\n{define} flow(ctx, order):\n'
    return f'{head}{text}    yield ctx.sleep("1s")\n'


@pytest.mark.parametrize(
    ("line", "code", "mend"),
    [
        ("at = datetime.now()", "clock", "ctx.now"),
        ("at = datetime.utcnow()", "clock", "ctx.now"),
        ("at = dt.datetime.now(dt.UTC)", "clock", "ctx.now"),
        ("at = date.today()", "clock", "ctx.now"),
        ("at = time.time()", "clock", "ctx.now"),
        ("at = time.monotonic()", "clock", "ctx.now"),
        ("clock = time.time", "clock", "ctx.now"),
        ("time.sleep(1)", "sleep", "yield ctx.sleep"),
        ("n = random.randint(1, 6)", "random", "activity"),
        ("n = secrets.token_hex()", "random", "activity"),
        ("n = uuid.uuid4()", "random", "ctx.new_id()"),
        ("n = fresh()", "random", "ctx.new_id()"),
        ("n = uuid.uuid1()", "random", "ctx.new_id()"),
        ("n = hash(order)", "random", "hashlib"),
        ("n = os.urandom(4)", "random", "activity"),
        ("key = os.environ['KEY']", "environment", "input"),
        ("key = os.getenv('KEY')", "environment", "input"),
        ("open('f')", "io", "ctx.call_activity"),
        ("Path('f').read_text()", "io", "ctx.call_activity"),
        ("os.remove('f')", "io", "ctx.call_activity"),
        ("os.path.exists('f')", "io", "ctx.call_activity"),
        ("requests.get('http://x')", "io", "ctx.call_activity"),
        ("urllib.request.urlopen('http://x')", "io", "ctx.call_activity"),
        ("import httpx; httpx.get('http://x')", "io", "ctx.call_activity"),
        ("import socket as s; s.create_connection(('x', 1))", "io", "ctx.call_activity"),
        ("print(order)", "log", "ctx.log"),
        ("logger.info('x')", "log", "ctx.log"),
        ("logging.info('x')", "log", "ctx.log"),
        ("asyncio.run(order)", "async", "ctx.all"),
        ("async def inner(): pass", "async", "ctx.all"),
        ("threading.Thread()", "thread", "ctx.all"),
        ("ThreadPoolExecutor()", "thread", "ctx.all"),
        ("for one in {1, 2}: pass", "order", "sorted"),
        ("for one in set(order): pass", "order", "sorted"),
        ("names = set(order); x = [n for n in names]", "order", "sorted"),
        ("names = {n for n in order}; x = list(names | {1})", "order", "sorted"),
        ("names = frozenset(order); x = names.pop()", "order", "sorted"),
        ("global CACHE", "state", "local variable"),
        ("CACHE['a'] = 1", "state", "local variable"),
        ("CACHE.update(a=1)", "state", "local variable"),
        ("del CACHE['a']", "state", "local variable"),
        ("ctx.call_activity('a', order)", "yield", "yield it"),
        ("ctx.all([ctx.call_activity('a')])", "yield", "yield it"),
        ("ctx.sleep('1s')", "yield", "yield it"),
        ("yield ctx.call_http('GET', 'http://x')", "context", "ctx.call_activity"),
        ("yield ctx.call_entity(order, 'add')", "context", "no entities"),
        ("ctx.signal_entity(order, 'add')", "context", "no entities"),
        ("yield ctx.task_any([])", "context", "ctx.any"),
        ("yield ctx.wait_for_any([])", "context", "ctx.any"),
        ("yield ctx.wait_for_external_event('go')", "context", "ctx.wait_for_signal"),
        ("yield ctx.create_timer(ctx.now)", "context", "ctx.sleep"),
        ("at = ctx.current_utc_datetime", "context", "ctx.now"),
        ("yield ctx.cal_activity('a')", "context", "call_activity"),
    ],
)
def test_what_differs_in_a_replay_is_found(line: str, code: str, mend: str) -> None:
    (found, *more) = lint(body(line), "flow.py")
    assert {one.code for one in more} <= {code}
    assert (found.path, found.line, found.code) == ("flow.py", 14, code)
    assert mend in found.mend
    assert str(found).startswith("flow.py:14:")


@pytest.mark.parametrize(
    "line",
    [
        "at = ctx.now",
        "at = datetime(2026, 1, 1) + dt.timedelta(days=1)",
        "n = ctx.new_id(); m = uuid.uuid5(uuid.NAMESPACE_URL, n)",
        "for one in sorted(set(order)): pass",
        "found = 3 in {1, 2, 3}; n = len({1, 2})",
        "path = os.path.join('a', 'b')",
        "kept = {}; kept['a'] = 1; kept.update(b=2); seen = []; seen.append(1)",
        "known = CACHE.get('a')",
        "ctx.log.info('x')",
        "time = order.time; at = time.time",
        "for a, b in order.items(): pass",
        "n = order.pop(0)",
        "task = ctx.call_activity('a'); yield ctx.all([task])",
        "ctx.set_status(1); ctx.continue_as_new(order)",
        "order.create_timer()",
    ],
)
def test_what_is_the_same_in_every_replay_is_left_alone(line: str) -> None:
    assert lint(body(line)) == []


def test_an_async_workflow_is_found() -> None:
    (found,) = lint(body("pass", define="async def"))
    assert (found.code, found.mend) == ("async", "use `def` and `yield`")


def test_only_workflows_and_what_they_call_here_are_looked_at() -> None:
    source = f"""{HEAD}
@activity("a")
def work(ctx): return time.time()

def helper(): return inner()

def inner(): return random.random()

def other(): return time.time()

@activities.code_workflow("flow", 2)
def flow(ctx):
    yield ctx.call_activity("a", helper())
"""
    (found,) = lint(source)
    line = source[: source.index("random.random")].count("\n") + 1
    assert (found.code, found.line) == ("random", line)


def test_a_context_that_is_handed_on_is_known_by_its_type() -> None:
    source = f"""{HEAD}
def helper(c: CodeContext, other): other.call_http(); return (yield c.call_http("GET"))

@code_workflow("flow")
def flow(context, order):
    yield from helper(context, order)
    context.sleep("1s")
"""
    assert [one.code for one in lint(source)] == ["context", "yield"]


def test_what_durables_own_context_has_is_known_or_here_too() -> None:
    import azure.durable_functions as df

    theirs = {name for name in dir(df.DurableOrchestrationContext) if name[0] != "_"}
    calls = {
        name
        for name in theirs
        if name.startswith(("call_", "create_", "signal_", "wait_", "task_", "new_", "set_"))
    }
    assert calls - CONTEXT <= DURABLE.keys()


def test_a_line_may_be_allowed() -> None:
    assert lint(body("at = time.time()  # weft: allow (only logged)")) == []
    assert lint(body("at = time.time()  # noqa")) != []


def test_folders_are_read_whole_and_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.py").write_text(body("time.sleep(1)"))
    (tmp_path / "a.py").write_text(body("print(1)", "print(2)"))
    (tmp_path / "c.txt").write_text(body("print(1)"))
    found = [(Path(one.path).name, one.line) for one in lint_paths([tmp_path])]
    assert found == [("a.py", 14), ("a.py", 15), ("b.py", 14)]


def test_ours_are_clean() -> None:
    places = [ROOT / "activities", ROOT / "samples", ROOT / "tests" / "host"]
    assert [str(one) for one in lint_paths(places)] == []
