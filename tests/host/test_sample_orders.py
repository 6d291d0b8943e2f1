"""The order-fulfilment sample on a real platform, with its bundled server: what its README says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.local.testing import platform

SAMPLE = Path(__file__).parents[2] / "samples/order-fulfilment"
Run = Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, dict[str, Any]]]]


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(SAMPLE / "server.py"), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        url = f"http://127.0.0.1:{port}"
        transport = httpx.HTTPTransport(retries=5)  # it says so just before it listens
        with httpx.Client(transport=transport) as client:
            client.get(f"{url}/charges")
        yield url
        process.terminate()


@pytest.fixture(scope="module")
def run(shop: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs an order to its end: the execution, and its tasks by id."""
    definition = (SAMPLE / "workflow.yaml").read_bytes()
    for as_written, here in (
        (b"http://127.0.0.1:7080", shop.encode()),
        (b"duration: 1s", b"duration: 50ms"),  # nobody waits for a carrier here
        (b"initialInterval: 500ms", b"initialInterval: 20ms"),
    ):
        assert definition.count(as_written) > 0, as_written
        definition = definition.replace(as_written, here)
    with platform(tmp_path_factory.mktemp("data")) as client:
        client.publish(definition, content_type="application/yaml", dry_run=False)

        def start(order: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
            id = client.start("order-fulfilment", {"input": order})["id"]
            execution = client.execution(id, wait_ms=50_000)
            assert client.verify(id)["ok"]
            return execution, {task["id"]: task for task in client.tasks(id)["items"]}

        yield start


@pytest.fixture
def order() -> dict[str, Any]:
    return json.loads((SAMPLE / "order.json").read_text())


def statuses(tasks: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {id: task["status"] for id, task in tasks.items()}


def test_flaky_payment_is_retried_and_charged_once(
    run: Run, shop: str, order: dict[str, Any]
) -> None:
    before = len(httpx.get(f"{shop}/charges").json())
    execution, tasks = run(order)
    assert execution["status"] == "COMPLETED", execution["error"]
    assert set(statuses(tasks).values()) == {"COMPLETED"}
    assert tasks["charge"]["attempt"] == 3
    assert execution["output"]["tracking"].startswith("TRK-")
    assert execution["output"]["total"] == 124.5
    charges = httpx.get(f"{shop}/charges").json()
    assert [charge["amount"] for charge in charges[before:]] == [124.5]


def test_nothing_to_pay_skips_the_charge_and_ships_nevertheless(
    run: Run, order: dict[str, Any]
) -> None:
    for line in order["lines"]:
        line["unitPrice"] = 0
    execution, tasks = run(order)
    assert execution["status"] == "COMPLETED", execution["error"]
    assert (tasks["charge"]["status"], tasks["charge"]["reason"]) == ("SKIPPED", "condition")
    assert tasks["ship"]["status"] == "COMPLETED"


def test_declined_card_fails_without_more_attempts_and_tidies_up(
    run: Run, order: dict[str, Any]
) -> None:
    order["lines"][0] |= {"quantity": 1000, "unitPrice": 100}
    execution, tasks = run(order)
    assert execution["status"] == "FAILED"
    assert execution["error"]["type"] == "HttpClientError"
    assert execution["error"]["task"] == "charge"
    assert statuses(tasks) == {
        "validate": "COMPLETED",
        "charge": "DEAD_LETTERED",
        "pack": "CANCELLED",
        "cutoff": "CANCELLED",
        "label": "CANCELLED",
        "ship": "CANCELLED",
        "tidy": "COMPLETED",
    }
    assert tasks["charge"]["attempt"] == 3  # two answers 503, then 402 for good


def test_an_order_that_cannot_be_shipped_is_refunded(
    run: Run, shop: str, order: dict[str, Any]
) -> None:
    order["orderId"] = "NOWHERE"
    execution, tasks = run(order)
    assert execution["status"] == "FAILED"
    assert execution["error"]["task"] == "ship"
    assert execution["compensation"]["status"] == "complete"
    assert (tasks["charge~undo"]["status"], tasks["tidy"]["status"]) == ("COMPLETED", "COMPLETED")
    assert httpx.get(f"{shop}/charges").json()[-1]["refunded"] is True
