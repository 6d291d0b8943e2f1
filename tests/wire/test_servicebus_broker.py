"""The tests' own broker: what the transport does not use, but hosts, users and tests do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient

from orchestrator.adapters.azure.servicebus_transport import ServiceBusTransport
from orchestrator.domain.topology import ORCHESTRATION_QUEUE, TASKS_STANDARD_QUEUE
from orchestrator.ports import OutMessage
from tests.support.world import ManualClock
from tests.wire.servicebus_support import ServiceBusPair

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUEUE = ORCHESTRATION_QUEUE
TASKS = TASKS_STANDARD_QUEUE
WAIT_S = 20


@pytest_asyncio.fixture(loop_scope="session")
async def client(servicebus_links: ServiceBusPair) -> AsyncIterator[ServiceBusClient]:
    servicebus_links.reset()
    assert servicebus_links.broker is not None
    text = servicebus_links.broker.connection_string
    async with ServiceBusClient.from_connection_string(text, retry_total=0) as opened:
        yield opened


async def test_messages_can_be_scheduled_and_cancelled_by_number(
    servicebus_links: ServiceBusPair, client: ServiceBusClient
) -> None:
    broker = servicebus_links.broker
    assert broker is not None
    clock = servicebus_links.clock.current = ManualClock()
    due = datetime.fromtimestamp(clock.now() / 1000 + 60, tz=UTC)
    async with client.get_queue_sender(QUEUE) as sender:
        numbers = await sender.schedule_messages(
            [ServiceBusMessage(b"x", message_id=id) for id in ("a", "b", "c")], due
        )
        assert broker.counts(QUEUE).scheduled == 3
        await sender.cancel_scheduled_messages(numbers[1])
    await clock.advance(60_000)
    assert broker.counts(QUEUE).active == 2
    after = broker.messages(QUEUE)
    assert [message.message_id for message in after] == ["a", "c"]
    assert min(message.sequence_number for message in after) > max(numbers)


async def test_receive_and_delete_leaves_nothing(
    servicebus_links: ServiceBusPair, client: ServiceBusClient
) -> None:
    await servicebus_links.send(
        [OutMessage(queue=TASKS, body=b"x", message_id=id) for id in ("a", "b")]
    )
    receiver = client.get_queue_receiver(
        TASKS, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )
    received = await receiver.receive_messages(2, max_wait_time=WAIT_S)
    assert [message.message_id for message in received] == ["a", "b"]
    counts = await servicebus_links.counts(TASKS)
    assert (counts.active, counts.locked) == (0, 0)


async def test_a_broker_of_its_own_process_serves_others(servicebus_links: ServiceBusPair) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.wire.servicebus", "--port", "0"),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    text = (await process.stdout.readline()).decode().strip()
    transport = ServiceBusTransport.from_connection_string(text, clock=servicebus_links.clock)
    await transport.send([OutMessage(queue=QUEUE, body=b"x", message_id="a")])
    await transport.close()
    process.terminate()
    assert await process.wait() == 0
