"""The Service Bus emulator's configuration, made of the one list of queues.

    python infra/emulator/servicebus_config.py > infra/emulator/servicebus-config.json

A queue that the emulator does not have is an endless reconnect of its trigger.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # run as a file: the repository is not on the path
    sys.path.insert(0, str(Path(__file__).parents[2]))

from orchestrator.domain.topology import QUEUES, QueueSpec

NAMESPACE: Final = "sbemulatorns"  # the only name that the emulator takes
MAX_LOCK_SECONDS: Final = 300
MAX_DUPLICATE_WINDOW_SECONDS: Final = 300  # Azure allows 7 days
MAX_DELIVERIES: Final = 10
TIME_TO_LIVE: Final = "PT1H"  # the most that the emulator allows; Azure: 14 days


def config() -> dict[str, Any]:
    """The whole file. Where the emulator allows less than a queue wants, its most."""
    queues = [{"Name": spec.name, "Properties": _properties(spec)} for spec in QUEUES.values()]
    return {
        "UserConfig": {
            "Namespaces": [{"Name": NAMESPACE, "Queues": queues, "Topics": []}],
            "Logging": {"Type": "Console"},
        }
    }


def text() -> str:
    """The file's content."""
    return json.dumps(config(), indent=2) + "\n"


def _properties(spec: QueueSpec) -> dict[str, Any]:
    window = min(spec.duplicate_window_seconds, MAX_DUPLICATE_WINDOW_SECONDS)
    return {
        "LockDuration": f"PT{min(spec.lock_seconds, MAX_LOCK_SECONDS)}S",
        "MaxDeliveryCount": min(spec.max_delivery_count, MAX_DELIVERIES),
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": f"PT{window}S",
        "DeadLetteringOnMessageExpiration": spec.dead_letter_on_expiration,
        "DefaultMessageTimeToLive": TIME_TO_LIVE,
        "RequiresSession": False,
    }


if __name__ == "__main__":
    sys.stdout.write(text())
