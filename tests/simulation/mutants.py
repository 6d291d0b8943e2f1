"""Deliberate faults in the engine. A simulation that does not find them proves nothing.

A mutant replaces a piece of a function's text. If the piece is not there any more, the engine has
changed and the mutant must be written anew: it says so instead of quietly changing nothing.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from orchestrator.domain import applying, compensating, join, reopening, starting, working
from orchestrator.engine import (
    advance,
    claims,
    commit,
    facts,
    leases,
    leasing,
    letters_act,
    letters_wish,
    outbox,
    relay,
    replay,
    results,
    sweep,
)


@dataclass(frozen=True)
class Mutant:
    """`name` in `module` (dotted for a method) with `old` replaced by `new`; `also`: modules that
    imported it by name."""

    title: str
    module: ModuleType
    name: str
    old: str
    new: str
    also: tuple[ModuleType, ...] = ()
    feature: str = ""  # only seeds that exercise this part, see `run.KINDS`
    first: int = 0  # seeds are searched from here on, shortly before one that finds this one

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Until the test ends."""
        owner: Any = self.module
        *path, name = self.name.split(".")
        for part in path:
            owner = getattr(owner, part)
        source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
        assert source.count(self.old) == 1, f"{self.title}: the engine has changed, mend the mutant"
        text = source.replace(self.old, self.new)
        flags = __future__.annotations.compiler_flag
        made: dict[str, Any] = {}
        exec(compile(text, f"<mutant: {self.title}>", "exec", flags), vars(self.module), made)
        for place in (owner, *self.also):
            monkeypatch.setattr(place, name, made[name])


MUTANTS = (
    Mutant(
        "outbox deleted before it is sent",
        relay,
        "send_now",
        "            sending = outbox.messages(docs, link)\n",
        "            sending = outbox.messages(docs, link)\n"
        "            await _forget(engine, docs)\n",
    ),
    Mutant(
        "outbox deleted although sending failed",
        relay,
        "send_now",
        "        return False\n",
        '        engine.spawn(_forget(engine, docs), "weft-outbox-delete")\n        return False\n',
    ),
    Mutant(
        "lease of another worker not respected",
        claims,
        "claim",
        'if doc["lease"]["until"] > now:',
        "if False:",
    ),
    Mutant(
        "expired attempt not counted",
        claims,
        "_take",
        'body["attempt"] += 1',
        'body["attempt"] += doc is None or doc["status"] != TaskStatus.RUNNING.value',
    ),
    Mutant(
        "final task claimed again",
        claims,
        "claim",
        'if doc is not None and doc["status"] in task_docs.FINAL:',
        "if False:",
    ),
    Mutant(
        "claim with an unclear answer believed",
        leasing,
        "held",
        'doc.body.get("lease", {}).get("token") != token',
        "False",
        also=(claims,),
    ),
    Mutant(
        "claim without if_match",
        claims,
        "_take",
        "if_match=etag",
        "",
    ),
    Mutant(
        "result recorded without if_match",
        results,
        "_write",
        "Replace(doc, etag)",
        "Replace(doc)",
        first=28,
    ),
    Mutant(
        "commit that ignores the ETag",
        commit,
        "commit",
        "[Replace(body, aggregate.etag), Create(record)]",
        "[Replace(body), Upsert(record)]",
        also=(advance,),
    ),
    Mutant(
        "outbox ids that are not fresh",
        outbox,
        "_documents",
        "ID_PREFIX + engine.ids.new()",
        'ID_PREFIX + f"{partition[1]}-{outgoing[start].message.task or 0}"',
    ),
    Mutant(
        "leases not renewed",
        leases,
        "LeaseKeeper._renew",
        "async with claim.lock:",
        "return\n    async with claim.lock:",
    ),
    Mutant(
        "sweeper switched off",
        sweep,
        "_overdue",
        "for _ in range(MAX_PAGES):",
        "for _ in range(0):",
    ),
    Mutant(
        "sweeper that forgets executions",
        sweep,
        "sweep",
        "await _overdue(engine, kind, now)",
        '[] if kind == "execution" else await _overdue(engine, kind, now)',
    ),
    Mutant(
        "join decided at the first need that settles",
        join,
        "judge",
        "return Verdict.WAIT",
        "continue",
        also=(starting,),
    ),
    Mutant(
        "doubled result applied twice",
        applying,
        "_item_result",
        " and state.items[item] == Code.QUEUED",
        "",
        first=2,
    ),
    Mutant(
        "signal that was taken is taken in again",
        working,
        "WorkingState.knows_signal",
        "return buffered or id in self.consumed.values() or mark_of(id) in self.taken.values()",
        "return buffered",
        first=108,
    ),
    Mutant(
        "sweeper that forgets signals",
        sweep,
        "sweep",
        "await _overdue(engine, kind, now)",
        "[] if kind == signal_docs.TYPE else await _overdue(engine, kind, now)",
        first=30,
    ),
    Mutant(
        "undone in the order of completion",
        compensating,
        "compensate",
        "reversed(fold.undo)",
        "fold.undo",
        first=11,
    ),
    Mutant(
        "undone while others are in flight",
        compensating,
        "compensate",
        "if fold.unsettled():",
        "if False:",
        first=36,
    ),
    Mutant(
        "the last compensation forgotten",
        compensating,
        "compensate",
        "in reversed(fold.undo)",
        "in fold.undo[:0:-1]",
    ),
    Mutant(
        "compensation given back because the execution is failing",
        compensating,
        "gives_back",
        "spec.undoes is not None or ",
        "",
        also=(claims, facts),
    ),
    Mutant(
        "letter missing in the batch that gives a task up",
        results,
        "_write",
        "operations.append(Create(letter))",
        "pass",
    ),
    Mutant(
        "letter not marked in the batch that retries",
        letters_act,
        "_change",
        "[letters_wish.marked(letter, wish, now) for letter in done]",
        "[]",
    ),
    Mutant(
        "letter marked and its task left as it is",
        letters_act,
        "_change",
        "    if wish.action is not Action.FAIL:",
        "    if False:",
    ),
    Mutant(
        "ETag of the letter ignored",
        letters_wish,
        "marked",
        ", letter.etag)",
        ")",
    ),
    Mutant(
        "attempts not granted by a retry",
        letters_wish,
        "again",
        '"granted": doc.body["attempt"],',
        "",
    ),
    Mutant(
        "completed tasks judged again",
        reopening,
        "_reset",
        "codes[task] in SKIPPED_CODES",
        "codes[task] in SKIPPED_CODES | {Code.COMPLETED}",
        first=65,
    ),
    Mutant(
        "the same wish heard again is refused",
        letters_act,
        "_known",
        'letter.get("wish") != wish.digest',
        "True",
    ),
    Mutant(
        "action not audited when the answer was lost",
        letters_act,
        "_known",
        "await audit_letter(engine, letter)",
        "pass",
        first=40,
    ),
    Mutant(
        "replay that copies and does not say so",
        replay,
        "replay",
        "header, workflow, kept)",
        "header, workflow)",
    ),
    Mutant(
        "replay that copies what lies behind its start",
        replay,
        "_kept",
        "at not in behind\n        and ",
        "",
    ),
)
