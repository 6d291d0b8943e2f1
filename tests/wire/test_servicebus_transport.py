"""Sending through the real SDK: what is sent, how it is split, what is refused.

Runs against our broker, or against the one that `WEFT_TEST_SERVICEBUS_CONNECTION` names (see
`servicebus_support`); what needs a look inside the broker is skipped there.
"""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from orchestrator.adapters.azure.servicebus_lane import BATCH_BYTES
from orchestrator.adapters.azure.servicebus_transport import ServiceBusTransport
from orchestrator.domain.topology import (
    MAX_MESSAGE_BYTES,
    ORCHESTRATION_QUEUE,
    QUEUES,
    TASKS_STANDARD_QUEUE,
)
from orchestrator.ports import MessageTooLarge, OutMessage, QueueNotFound, TransportError
from tests.wire.servicebus import ServiceBusBroker
from tests.wire.servicebus_support import ServiceBusPair

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUEUE = ORCHESTRATION_QUEUE
TASKS = TASKS_STANDARD_QUEUE
WAIT_MS = 10_000


@pytest_asyncio.fixture(loop_scope="session")
async def pair(servicebus_links: ServiceBusPair) -> AsyncIterator[ServiceBusPair]:
    named = ServiceBusPair.named()
    if named is not None:
        yield named
        await named.close()
    else:
        servicebus_links.reset()
        yield servicebus_links


@pytest.fixture
def broker(pair: ServiceBusPair) -> ServiceBusBroker:
    if pair.broker is None:
        pytest.skip("this broker cannot be looked into")
    return pair.broker


def fresh(count: int = 1, queue: str = QUEUE, **fields: object) -> list[OutMessage]:
    """Messages with ids that no broker has seen."""
    run = uuid.uuid4().hex
    body = fields.pop("body", b'{"v":1}')
    return [
        OutMessage(queue=queue, body=body, message_id=f"{run}.{n}", **fields)  # type: ignore[arg-type]
        for n in range(count)
    ]


def ids(messages: list[OutMessage]) -> list[str]:
    return [message.message_id for message in messages]


async def drained(pair: ServiceBusPair, count: int, queue: str = QUEUE) -> list[str]:
    """The ids of the messages that arrived, in order. Ours is looked into: quicker."""
    if pair.broker is not None:
        return [message.message_id for message in pair.broker.messages(queue)]
    seen: list[str] = []
    while len(seen) < count and (some := await pair.receive(queue, 100, WAIT_MS)):
        await pair.complete_many(some)
        seen += [received.message_id for received in some]
    return seen


async def test_a_message_arrives_with_its_properties_and_content_type(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    properties = {"type": "runTask", "tenant": "t", "traceparent": "00-ab-cd-01", "hops": "3"}
    (sent,) = fresh(properties=properties)
    await pair.send([sent])
    (stored,) = broker.messages(QUEUE)
    assert (stored.message_id, stored.body, stored.due_at) == (sent.message_id, sent.body, None)
    assert stored.properties == properties
    assert stored.content_type == "application/json"
    assert await drained(pair, 1) == [sent.message_id]


async def test_links_stay_open_one_per_queue(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    await pair.send([*fresh(), *fresh(queue=TASKS)])
    before = broker.operations().get("connections", 0)
    for _ in range(10):
        await pair.send([*fresh(), *fresh(queue=TASKS)])
    assert broker.operations().get("connections", 0) == before
    assert broker.operations()["transfers"] == 22


async def test_a_thousand_messages_go_in_as_few_transfers_as_their_size_allows(
    pair: ServiceBusPair,
) -> None:
    messages = fresh(1_000, body=b"x" * 1_000)
    await pair.send(messages)
    if pair.broker is not None:
        sent = pair.broker.counters.bytes_in
        assert pair.broker.operations()["transfers"] == -(-sent // BATCH_BYTES)
        assert pair.broker.operations()["messages"] == 1_000
    assert await drained(pair, 1_000) == ids(messages)


async def test_small_and_large_messages_keep_their_order_when_split(pair: ServiceBusPair) -> None:
    sizes = [10, 200_000, 10, 100_000, MAX_MESSAGE_BYTES - 600, 10, 10]
    messages = [message for size in sizes for message in fresh(body=b"x" * size)]
    await pair.send(messages)
    assert await drained(pair, len(messages)) == ids(messages)


@pytest.mark.parametrize("spare", [0, 60, 200, 900, 1_100])
async def test_a_full_batch_is_not_over_the_brokers_limit(pair: ServiceBusPair, spare: int) -> None:
    """The SDK does not count the envelope of a batch, with its copy of a long message id."""
    half = MAX_MESSAGE_BYTES // 2
    long = "i" * 90
    messages = [
        OutMessage(queue=QUEUE, body=b"x" * size, message_id=f"{uuid.uuid4().hex}{long}"[:128])
        for size in (half, MAX_MESSAGE_BYTES - half - spare - 400)
    ]
    await pair.send(messages)
    assert await drained(pair, 2) == ids(messages)


@pytest.mark.parametrize("room", [400, 150, 100, 60, 20, 0])
async def test_near_the_limit_a_message_is_refused_or_arrives(
    pair: ServiceBusPair, room: int
) -> None:
    (message,) = fresh(body=b"x" * (MAX_MESSAGE_BYTES - room))
    try:
        await pair.send([message])
    except MessageTooLarge:
        assert room < 150
    else:
        assert room > 20
        assert await drained(pair, 1) == [message.message_id]


async def test_a_message_that_is_too_large_keeps_all_others_back(pair: ServiceBusPair) -> None:
    (large,) = fresh(body=b"x" * (MAX_MESSAGE_BYTES - 70))
    (after,) = fresh()
    with pytest.raises(MessageTooLarge):
        await pair.send([*fresh(), *fresh(queue=TASKS), large])
    await pair.send([after])
    assert await drained(pair, 1) == [after.message_id]
    if pair.broker is not None:
        assert pair.broker.operations()["messages"] == 1


async def test_a_scheduled_message_is_kept_until_it_is_due(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    (later,) = fresh(due_at=pair.clock.now() + 60_000)
    (past,) = fresh(due_at=pair.clock.now() - 60_000)
    await pair.send([later, past])
    assert broker.counts(QUEUE).scheduled == 1
    assert broker.operations()["scheduled"] == 1
    assert [one.message_id for one in await pair.receive(QUEUE, 10, 0)] == [past.message_id]


async def test_an_unknown_queue_is_known_by_the_brokers_answer(pair: ServiceBusPair) -> None:
    """The transport itself lets it pass here, as if the queue had been deleted."""
    if pair.broker is None:
        pytest.skip("needs the connection string of our broker")
    transport = ServiceBusTransport.from_connection_string(
        pair.broker.connection_string, clock=pair.clock, queues={*QUEUES, "nowhere"}
    )
    with pytest.raises(QueueNotFound):
        await transport.send(fresh(queue="nowhere"))
    await transport.close()


async def test_many_small_sends_at_once_travel_together(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    messages = fresh(100)
    await asyncio.gather(*(pair.send([message]) for message in messages))
    assert broker.operations()["transfers"] <= 3
    assert sorted(await drained(pair, 100)) == sorted(ids(messages))


async def test_a_caller_that_gives_up_does_not_harm_the_link(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    await pair.send(fresh())
    before = broker.operations().get("connections", 0)
    for steps in range(12):
        sending = asyncio.ensure_future(pair.send(fresh(20, body=b"x" * 1_000)))
        for _ in range(steps):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        (message,) = fresh(queue=QUEUE)
        await pair.send([message])
    assert broker.operations().get("connections", 0) == before


async def test_the_links_can_be_opened_ahead(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    transport = ServiceBusTransport.from_connection_string(
        broker.connection_string, clock=pair.clock
    )
    await transport.warm_up()
    assert broker.operations()["connections"] == len(QUEUES)
    await transport.send([*fresh(), *fresh(queue=TASKS)])
    assert broker.operations()["connections"] == len(QUEUES)
    await transport.close()


async def test_closing_ends_what_is_being_sent_and_leaves_nothing_open(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    transport = ServiceBusTransport.from_connection_string(
        broker.connection_string, clock=pair.clock
    )
    messages = fresh(3)
    sending = asyncio.ensure_future(transport.send(messages))
    await asyncio.sleep(0)
    await transport.close()
    await sending
    await transport.close()
    with pytest.raises(TransportError, match="closed"):
        await transport.send(fresh())
    assert await drained(pair, 3) == ids(messages)
    gc.collect()  # an unclosed socket is a warning here, and warnings are errors


class NoToken:
    """A credential that has no token to give."""

    async def get_token(self, *scopes: str, **kwargs: object) -> AccessToken:
        raise ClientAuthenticationError("no identity here")

    async def close(self) -> None: ...

    async def __aenter__(self) -> NoToken:
        return self

    async def __aexit__(self, *error: object) -> None: ...


async def test_nothing_of_the_sdk_crosses_the_border(pair: ServiceBusPair) -> None:
    """No broker with TLS on this machine: the connection, or the token, fails."""
    transport = ServiceBusTransport.from_credential("127.0.0.1", NoToken(), clock=pair.clock)
    with pytest.raises(TransportError) as caught:
        await transport.send(fresh())
    assert caught.value.__cause__ is not None
    await transport.close()


async def test_a_ping_opens_one_link_and_fails_without_a_broker(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    transport = ServiceBusTransport.from_connection_string(
        broker.connection_string, clock=pair.clock
    )
    await transport.ping()
    await transport.ping()
    assert broker.operations()["connections"] == 1
    await transport.close()
    nobody = "Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey=a2V5;"
    gone = ServiceBusTransport.from_connection_string(
        f"{nobody}UseDevelopmentEmulator=true;", clock=pair.clock
    )
    with pytest.raises(TransportError):
        await gone.ping()
    await gone.close()
