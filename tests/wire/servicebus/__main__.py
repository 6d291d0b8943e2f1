"""A broker for several processes: `python -m tests.wire.servicebus --port 5672`.

Prints its connection string, then serves until it is told to stop. Nothing is kept.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from tests.wire.servicebus.broker import ServiceBusBroker


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.servicebus", description=__doc__)
    parser.add_argument("--port", type=int, default=5672, help="0: any free one (default 5672)")
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    broker = ServiceBusBroker(port=parser.parse_args().port).start()
    sys.stdout.write(broker.connection_string + "\n")
    sys.stdout.flush()
    stopped.wait()
    broker.stop()


if __name__ == "__main__":
    main()
