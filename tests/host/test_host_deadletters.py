"""What the broker gave up is kept by the app's own triggers, and can be sent again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_host_end_to_end import running

from orchestrator import bootstrap
from orchestrator.domain.messages import Message, MessageType
from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.ports import OutMessage
from orchestrator.settings import load_settings

FAILS = {
    "name": "fails",
    "tasks": {"a": {"type": "transform", "output": "${input.nothing}"}},
}


async def give_up(data: Path, body: bytes) -> None:
    """With no host listening: put a message into each dead-letter queue."""
    engine = await bootstrap.build(load_settings({"WEFT_DATA_DIR": str(data)}))
    broker: Any = engine.transport
    for queue in (TASKS_STANDARD_QUEUE, ORCHESTRATION_QUEUE):
        await broker.send([OutMessage(queue=queue, body=body, message_id=f"late-{queue}")])
        (message,) = await broker.receive(queue, 1, 0)
        await broker.dead_letter(message, "TooOften", "it crashed")
    await engine.close()


async def test_the_brokers_dead_letters_become_records_linked_to_their_task(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (host, client):
        await client.post("/v1/workflows", json=FAILS)
        started = await client.post("/v1/workflows/fails/start", json={"input": {}})
        id = started.json()["id"]
        await host.run_until_idle()
        (own,) = (await client.get("/v1/deadletters")).json()["items"]
        assert (own["kind"], own["task"], own["status"]) == ("task", "a", "OPEN")
    body = Message(MessageType.RUN_TASK, "default", id, "a").encode()
    await give_up(tmp_path, body)
    async with running(tmp_path) as (host, client):
        await host.run_until_idle()
        page = (await client.get("/v1/deadletters")).json()["items"]
        found = [letter for letter in page if letter["kind"] == "message"]
        assert len(found) == 2
        for letter in found:
            assert (letter["task"], letter["execution"], letter["workflow"]) == ("a", id, "fails")
            assert letter["reason"] == "TooOften: it crashed"
        shown = (await client.get(f"/v1/deadletters/{found[0]['id']}")).json()
        assert shown["message"] == body.decode()
        retried = await client.post(f"/v1/deadletters/{found[0]['id']}/retry", json={})
        assert retried.json()["status"] == "RETRIED"
        refused = await client.post(f"/v1/deadletters/{found[1]['id']}/skip", json={})
        assert refused.status_code == 409
        await host.run_until_idle()
        broker: Any = host._broker
        for queue in (TASKS_STANDARD_QUEUE, ORCHESTRATION_QUEUE):
            assert (await broker.counts(queue)).dead == 0
