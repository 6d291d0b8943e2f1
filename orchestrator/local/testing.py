"""A platform for tests of workflows: a real one, of its own, gone when the test is over.

The same process that `weft up` starts, on a free port and with a folder of its own, reached over
HTTP only: what passes here is what a user gets. docs/testing.md shows how to use it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from orchestrator.local.cli_faults import UNREACHABLE, Fault
from orchestrator.local.cli_input import media_type
from orchestrator.local.cli_show import TaskClient

STOP_SECONDS: Final = 30.0
LOG_LINES: Final = 30  # of the platform's log, shown if it does not start
LOG: Final = "platform.log"
LONGEST_POLL_MS: Final = 20_000


class Platform(TaskClient):
    """A platform and what a test does with it; `url` for everything else. Refusals raise `Fault`,
    whose `code` and `details` are those of the API."""

    def publish_file(self, path: str | Path) -> int:
        """Publish a definition (YAML or JSON); its version."""
        source = Path(path).read_bytes()
        content_type = media_type(str(path), source)
        return self.publish(source, content_type=content_type, dry_run=False)["version"]

    def begin(self, workflow: str, input: Any = None) -> str:
        """Start an execution; its id."""
        return self.start(workflow, {"input": input})["id"]

    def end_of(self, execution: str, seconds: float = 30) -> dict[str, Any]:
        """The execution when it has ended, whatever way: `status`, `output`, `error`. Raises
        `TimeoutError`, naming what it waits for, if it takes longer than `seconds`."""
        until = time.monotonic() + seconds
        while True:
            left_ms = max(0, int((until - time.monotonic()) * 1000))
            found = self.execution(execution, wait_ms=min(left_ms, LONGEST_POLL_MS))
            if found["endedAt"] is not None:
                return found
            if not left_ms:
                tasks = self.tasks(execution)["items"]
                open_ = [f"{t['id']} {t['status']}" for t in tasks if t["endedAt"] is None]
                raise TimeoutError(f"{execution} is {found['status']}: {', '.join(open_)}")

    def run(self, workflow: str, input: Any = None, seconds: float = 30) -> dict[str, Any]:
        """Start an execution and wait for its end; see `end_of`."""
        return self.end_of(self.begin(workflow, input), seconds)


@contextmanager
def platform(data: Path, env: Mapping[str, str] | None = None) -> Iterator[Platform]:
    """A platform as a child process, with its files (and its log) in the folder `data` and `env`
    added to the environment. Stopped at the end, whatever happens.

    In a session of its own: Ctrl-C then reaches the caller alone, who stops it in order. Raises
    `Fault` with the end of the log if it does not start.
    """
    command = [sys.executable, "-m", "orchestrator", "up", "--port", "0", "--json"]
    log_path = data / LOG
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--data", str(data)],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        # Ends at the platform's first line, or at its end: no time limit is needed.
        with Platform(_url(process.stdout, log_path)) as found:
            yield found
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _url(output: IO[bytes], log_path: Path) -> str:
    line = output.readline()
    try:
        return json.loads(line)["url"]
    except (ValueError, KeyError, TypeError) as error:
        # An error is several lines, and the last thing that it prints.
        said = (line + output.read()).decode(errors="replace").strip()
        log = log_path.read_text(errors="replace").splitlines()
        last = "\n".join(log[-LOG_LINES:])
        raise Fault(
            "NOT_STARTED",
            f"The platform did not start. {said}\n{last}".rstrip(),
            exit_code=UNREACHABLE,
        ) from error
