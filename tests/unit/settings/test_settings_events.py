"""`WEFT_PUBLISH_TARGETS`."""

from __future__ import annotations

import pytest

from orchestrator.settings import SettingsError, load_settings

GRID = "eventgrid:https://shop.westeurope-1.eventgrid.azure.net/api/events"


def targets(text: str) -> dict[str, str]:
    return load_settings({"WEFT_PUBLISH_TARGETS": text}).publish_targets


def test_left_out_there_are_none() -> None:
    assert load_settings({}).publish_targets == {}


def test_all_kinds() -> None:
    text = f" orders=queue:orders-out, mail=topic:mail/v1 ,grid={GRID},"
    assert targets(text) == {"orders": "queue:orders-out", "mail": "topic:mail/v1", "grid": GRID}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("orders", "'orders' is not NAME=queue:QUEUE"),
        ("Orders=queue:q", "'Orders' is no name"),
        ("events=queue:q", "events: is always there"),
        ("a=queue:q,a=queue:r", "a: given twice"),
        ("a=queue:", "a: '' is no name of a queue"),
        ("a=topic:/x", "a: '/x' is no name of a topic"),
        ("a=queue:tasks-standard", "a: tasks-standard is a queue of the platform itself"),
        ("a=https://x", "a: the address is not NAME=queue:QUEUE"),
        ("a=eventgrid:http://t.x-1.eventgrid.azure.net/api/events", "a: not the https endpoint"),
        ("a=eventgrid:https://evil.example/api/events", "a: not the https endpoint"),
        ("a=eventgrid:https://evil.example/.eventgrid.azure.net", "a: not the https endpoint"),
        ("a=eventgrid:https://x.eventgrid.azure.net.evil.example/", "a: not the https endpoint"),
    ],
)
def test_faults_say_which_target_and_why(text: str, fault: str) -> None:
    with pytest.raises(SettingsError, match="WEFT_PUBLISH_TARGETS") as error:
        targets(text)
    assert fault in str(error.value)


def test_all_faults_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        targets("B=queue:q,c=nothing")
    assert "'B' is no name" in str(error.value)
    assert "c: the address" in str(error.value)
