"""A client in a process of its own, so that its work is not counted as the platform's.

    python -m bench.client URL WORKFLOW COUNT

Starts one execution after the other and waits for each by long poll. Prints a JSON list of
`[execution id, ms to the answer of the start, ms to the answer that it has ended]`.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit


def main() -> None:
    url, workflow, count = urlsplit(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    connection = http.client.HTTPConnection(str(url.hostname), url.port or 80)

    def ask(method: str, path: str, expected: int, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if content else {}
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != expected:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:500]!r}")
        return json.loads(text)

    results: list[tuple[str, float, float]] = []
    for _ in range(count):
        began = time.perf_counter()
        id = ask("POST", f"/v1/workflows/{workflow}/start", 202, {})["id"]
        accepted = time.perf_counter()
        seen = ask("GET", f"/v1/executions/{id}?wait=30s", 200)
        ended = time.perf_counter()
        if seen["status"] != "COMPLETED":
            raise SystemExit(f"execution {id} is {seen['status']}")
        results.append((id, (accepted - began) * 1000, (ended - began) * 1000))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
