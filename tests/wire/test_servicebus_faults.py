"""Bad weather between us and the broker: detaches, lost connections, refusals, silence.

Needs faults, so always our own broker.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator

import pytest
import pytest_asyncio
from azure.core.exceptions import AzureError
from azure.servicebus import exceptions as sdk

from orchestrator.adapters.azure.servicebus_errors import (
    link_is_sound,
    translate,
    worth_a_fresh_link,
)
from orchestrator.adapters.azure.servicebus_lane import Limits
from orchestrator.adapters.azure.servicebus_transport import ServiceBusTransport
from orchestrator.domain.topology import ORCHESTRATION_QUEUE
from orchestrator.ports import MessageTooLarge, OutMessage, QueueNotFound, TransportError
from tests.support.world import ManualClock
from tests.wire.servicebus import ServiceBusBroker
from tests.wire.servicebus.faults import INTERNAL
from tests.wire.servicebus_support import ServiceBusPair

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUEUE = ORCHESTRATION_QUEUE


@pytest_asyncio.fixture(loop_scope="session")
async def pair(servicebus_links: ServiceBusPair) -> ServiceBusPair:
    """With an open link and nothing in the queues."""
    servicebus_links.reset()
    await servicebus_links.send([out("first")])
    servicebus_links.reset()
    return servicebus_links


@pytest.fixture
def broker(pair: ServiceBusPair) -> ServiceBusBroker:
    assert pair.broker is not None
    return pair.broker


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    """An unclosed socket is a warning, and warnings are errors."""
    yield
    gc.collect()


def out(id: str) -> OutMessage:
    return OutMessage(queue=QUEUE, body=b"{}", message_id=id)


def connected(
    broker: ServiceBusBroker, pair: ServiceBusPair, limits: Limits | None = None
) -> ServiceBusTransport:
    """A transport of its own, which does not disturb the shared links."""
    return ServiceBusTransport.from_connection_string(
        broker.connection_string, clock=pair.clock, limits=limits
    )


def arrived(broker: ServiceBusBroker) -> list[str]:
    """The ids in the queue, in order."""
    return [message.message_id for message in broker.messages(QUEUE)]


async def test_a_link_that_was_detached_is_opened_again_within_the_call(
    pair: ServiceBusPair, broker: ServiceBusBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assert broker.faults.detach(publishers_only=True) >= 1
    with caplog.at_level(logging.INFO, "orchestrator"):
        await pair.send([out("a"), out("b")])
    assert arrived(broker) == ["a", "b"]
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert actions.count("servicebus.reopen") == 1


async def test_ten_minutes_without_use_detach_a_link_and_the_next_send_works(
    pair: ServiceBusPair,
) -> None:
    clock = ManualClock()
    broker = ServiceBusBroker(now=clock.now).start()
    transport = connected(broker, pair)
    await transport.send([out("a")])
    await clock.advance(599_999)
    assert broker.tick() == 1
    await clock.advance(1)
    assert broker.tick() == 0
    await transport.send([out("b")])
    assert arrived(broker) == ["a", "b"]
    await transport.close()
    broker.stop()


async def test_a_link_not_used_for_long_is_not_trusted(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    """A frozen process has not heard of the detach: no send is risked on such a link."""
    transport = connected(broker, pair, Limits(idle=0.0))
    for n in range(2):
        await transport.send([out(f"m{n}")])
    await transport.close()
    assert broker.operations()["connections"] == 2
    assert arrived(broker) == ["m0", "m1"]


@pytest.mark.parametrize("abrupt", [True, False])
async def test_a_lost_connection_is_opened_again_within_the_call(
    pair: ServiceBusPair, broker: ServiceBusBroker, abrupt: bool
) -> None:
    broker.faults.disconnect(abrupt=abrupt, publishers_only=True)
    await pair.send([out("a")])
    assert arrived(broker) == ["a"]


@pytest.mark.parametrize(("moment", "duplicates"), [("before", 0), ("after", 3)])
async def test_a_disconnect_in_the_middle_of_a_send_loses_and_doubles_nothing(
    pair: ServiceBusPair, broker: ServiceBusBroker, moment: str, duplicates: int
) -> None:
    broker.faults.disconnect_on_send = moment  # type: ignore[assignment]
    await pair.send([out("a"), out("b"), out("c")])
    assert broker.operations()["transfers"] == 2
    assert broker.operations().get("duplicates", 0) == duplicates
    assert arrived(broker) == ["a", "b", "c"]


async def test_only_what_was_not_confirmed_is_sent_again(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    large = [OutMessage(queue=QUEUE, body=b"x" * 150_000, message_id=f"large{n}") for n in range(3)]
    await pair.send(large[:1])
    broker.faults.reject_sends, broker.faults.condition = 1, INTERNAL
    await pair.send(large[1:])
    assert broker.operations()["transfers"] == 4
    assert broker.operations().get("duplicates", 0) == 0
    assert arrived(broker) == ["large0", "large1", "large2"]


async def test_a_broker_that_takes_and_never_answers_is_asked_again(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    transport = connected(broker, pair, Limits(first=0.1))
    broker.faults.ignore_sends = 1
    await transport.send([out("a")])
    await transport.close()
    assert broker.operations()["duplicates"] == 1
    assert arrived(broker) == ["a"]


async def test_a_busy_broker_is_not_pressed_and_the_link_stays(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    broker.faults.reject_sends = 1
    with pytest.raises(TransportError, match="ServerBusy"):
        await pair.send([out("a")])
    assert broker.operations() == {"transfers": 1}
    await pair.send([out("a")])
    assert "connections" not in broker.operations()
    assert arrived(broker) == ["a"]


async def test_a_broker_that_refuses_and_recovers(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    broker.faults.refuse_connections = True
    broker.faults.disconnect(publishers_only=True)
    with pytest.raises(TransportError):
        await pair.send([out("a")])
    broker.faults.refuse_connections = False
    await pair.send([out("a"), out("b")])
    assert arrived(broker) == ["a", "b"]


async def test_a_refused_token_names_the_role_that_is_missing(
    pair: ServiceBusPair, broker: ServiceBusBroker
) -> None:
    transport = connected(broker, pair)
    broker.faults.refuse_tokens = 1
    with pytest.raises(TransportError, match="Service Bus Data Sender"):
        await transport.send([out("a")])
    await transport.send([out("a")])
    assert arrived(broker) == ["a"]
    await transport.close()


async def test_a_broker_that_is_gone_and_comes_back(
    pair: ServiceBusPair, unused_tcp_port: int
) -> None:
    broker = ServiceBusBroker(port=unused_tcp_port)
    transport = connected(broker, pair)
    with pytest.raises(TransportError):
        await transport.send([out("a")])
    broker.start()
    await transport.send([out("a")])
    assert arrived(broker) == ["a"]
    broker.stop()
    with pytest.raises(TransportError):
        await transport.send([out("b")])
    await transport.close()


async def test_a_broker_that_never_says_a_word_ends_with_the_time_limit(
    pair: ServiceBusPair,
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=k;SharedAccessKey=a2V5;"
    transport = ServiceBusTransport.from_connection_string(
        text + "UseDevelopmentEmulator=true;",
        clock=pair.clock,
        limits=Limits(open=0.3, close=0.05),
    )
    with pytest.raises(TransportError):
        await transport.send([out("a")])
    await transport.close()
    server.close()
    await server.wait_closed()


class Refused(Exception):
    """As the SDK keeps it in `inner_exception`."""

    def __init__(self, status_code: int) -> None:
        super().__init__()
        self.status_code = status_code


MAPPED: list[tuple[Exception, type[TransportError], bool, bool]] = [
    (sdk.MessagingEntityNotFoundError(), QueueNotFound, False, False),
    (sdk.MessageSizeExceededError(), MessageTooLarge, False, True),
    (sdk.ServiceBusServerBusyError(), TransportError, False, True),
    (sdk.ServiceBusQuotaExceededError(), TransportError, False, True),
    (sdk.MessagingEntityDisabledError(), TransportError, False, False),
    (sdk.ServiceBusAuthorizationError(), TransportError, False, False),
    (sdk.ServiceBusAuthenticationError(error=Refused(401)), TransportError, False, False),
    (sdk.ServiceBusAuthenticationError(error=Refused(404)), QueueNotFound, False, False),
    (sdk.ServiceBusConnectionError(), TransportError, True, False),
    (sdk.ServiceBusCommunicationError(), TransportError, True, False),
    (sdk.OperationTimeoutError(), TransportError, True, False),
    (sdk.ServiceBusError("?"), TransportError, True, False),
    (AzureError("?"), TransportError, True, False),
    (TimeoutError(), TransportError, True, False),
    (OSError(), TransportError, True, False),
    (AttributeError(), TransportError, True, False),
]


@pytest.mark.parametrize(("error", "port_error", "again", "sound"), MAPPED, ids=lambda value: "")
async def test_what_the_sdk_raises_is_mapped(
    error: Exception, port_error: type[TransportError], again: bool, sound: bool
) -> None:
    assert type(translate(error, "q")) is port_error
    assert worth_a_fresh_link(error) is again
    assert link_is_sound(error) is sound
