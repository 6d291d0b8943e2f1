"""`weft replay-check` and `weft code export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from activities.code import registry as code_registry
from orchestrator.local.durable import clients
from orchestrator.local.durable import events as ev
from orchestrator.local.durable.protocol import Turn
from orchestrator.local.durable.replay_files import check_files
from orchestrator.local.durable.store import DurableStore
from tests.support.code_samples import load

HISTORIES = Path(__file__).parents[2] / "upgrade" / "histories"
pytestmark = pytest.mark.filterwarnings("ignore:azure.functions df_:DeprecationWarning")


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a sample, perhaps changed, what the app has."""
    monkeypatch.setattr("activities.registry.discover", lambda: None)

    def use(*changes: tuple[str, str]) -> None:
        monkeypatch.setattr(code_registry, "_DEFAULT", load("expense", *changes).code)

    return use


def test_a_folder_of_histories_that_still_hold(sample: Any, offline: Any) -> None:
    sample()
    done = offline("replay-check", "expense", "--history", str(HISTORIES))
    assert done.exit_code == 0, done.stderr
    assert f"{HISTORIES / 'expense-late.json'}: same (version 1, 5 steps)" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "5 histories of expense: 5 same, 0 diverged, 0 unusable; 12 of others skipped"
    )


def test_a_divergence_is_told_with_both_sides_and_a_hint(sample: Any, offline: Any) -> None:
    sample(('"expenses.remind", expense)', '"expenses.nag", expense)'))
    file = str(HISTORIES / "expense-late.json")
    done = offline("replay-check", "expense", "--history", file)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{file}: diverged at step 2, recorded 2027-01-17T08:00:00")
    assert lines[1:3] == [
        "  recorded: activity expenses.remind",
        "  now:      activity expenses.nag",
    ]
    assert lines[3].startswith("  hint: ")
    assert lines[4] == "1 history of expense: 0 same, 1 diverged, 0 unusable"


def test_as_json(sample: Any, offline: Any) -> None:
    sample(('"expenses.remind", expense)', '"expenses.nag", expense)'))
    files = [HISTORIES / f"expense-{name}.json" for name in ("late", "waiting")]
    options = [part for file in files for part in ("--history", str(file))]
    done = offline("replay-check", "expense", *options, "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["same"], told["diverged"], told["unusable"]) == (1, 1, 0)
    late, waiting = told["histories"]
    assert (waiting["result"], waiting["divergence"]) == ("same", None)
    assert late["divergence"]["recorded"] == "activity expenses.remind"
    assert late["divergence"]["current"] == "activity expenses.nag"
    assert (late["divergence"]["step"], late["version"], late["instance"]) == (2, 1, "i")


def test_what_cannot_be_used_is_told(sample: Any, offline: Any, tmp_path: Path) -> None:
    sample()
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    done = offline("replay-check", "expense", "--history", str(tmp_path))
    assert (done.exit_code, done.stdout.count("unusable: ")) == (2, 2)
    good = str(HISTORIES / "expense-late.json")
    done = offline("replay-check", "expense", "--history", str(bad), "--history", good)
    assert done.exit_code == 2
    assert f"{bad}: unusable: it holds no history" in done.stdout
    assert "1 same, 0 diverged, 1 unusable" in done.stdout
    other = str(HISTORIES / "report.json")
    done = offline("replay-check", "expense", "--history", other)
    assert (done.exit_code, "it is not a history of expense" in done.stdout) == (2, True)


@pytest.mark.parametrize("value", [None, []], ids=str)
def test_a_damaged_history_is_told_or_diverges_whatever_the_damage(
    sample: Any, tmp_path: Path, value: Any
) -> None:
    """Each field of each event, one by one."""
    sample()
    text = (HISTORIES / "expense-approved.json").read_text(encoding="utf-8")
    results: set[str] = set()
    for place, event in enumerate(json.loads(text)["history"]):
        for key in event:
            body = json.loads(text)
            body["history"][place][key] = value
            file = tmp_path / "damaged.json"
            file.write_text(json.dumps(body), encoding="utf-8")
            (found,) = check_files(code_registry.default_code_registry(), "expense", [file]).checked
            results.add(found.result)
    assert results == {"same", "diverged", "unusable"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nothing", "--history", str(HISTORIES)], "no code workflow nothing here"),
        (["expence", "--history", str(HISTORIES)], "expense"),
        (["expense", "--history", "no-such-file"], "no-such-file"),
        (["expense", "--history", str(HISTORIES), "--version", "7"], "version 7 is not deployed"),
        (["expense", "--history", str(HISTORIES.parents[1] / "unit" / "cli")], "no history of"),
        (["expense"], "--history"),
    ],
)
def test_wrong_usage(sample: Any, offline: Any, args: list[str], said: str) -> None:
    sample()
    done = offline("replay-check", *args)
    assert done.exit_code == 2
    assert said in done.stderr


def test_an_exported_history_can_be_replayed(sample: Any, offline: Any, tmp_path: Path) -> None:
    """While the server has the file open."""
    body = json.loads((HISTORIES / "expense-waiting.json").read_text(encoding="utf-8"))
    events = body["history"]
    started = next(e for e in events if e["EventType"] == ev.EXECUTION_STARTED)
    store = DurableStore(tmp_path / "durable.db")
    clients.start(store, "i", started["Name"], started["Input"], 0, "x")
    (claim,) = store.claim_turns("me", 0, 1_000, 1)
    store.commit_turn(claim, Turn(events=events), 1, "fresh")
    file = tmp_path / "out.json"
    done = offline("code", "export", "i", "--data", str(tmp_path), "-o", str(file))
    assert done.exit_code == 0, done.stderr
    written = json.loads(file.read_text(encoding="utf-8"))
    assert (written["instanceId"], written["name"]) == ("i", "code_expense_v1")
    assert written["history"] == events
    sample()
    assert offline("replay-check", "expense", "--history", str(file)).exit_code == 0
    assert offline("code", "export", "i", "--data", str(tmp_path)).stdout == file.read_text()
    gone = offline("code", "export", "e2", "--data", str(tmp_path))
    assert (gone.exit_code, "no instance e2" in gone.stderr) == (3, True)
    store.close()
    none = offline("code", "export", "i", "--data", str(tmp_path / "none"))
    assert (none.exit_code, "durable.db" in none.stderr) == (2, True)
