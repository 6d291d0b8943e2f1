"""A receiver of completion notifications: verifies, remembers, answers; prints what is new.

    PAYOUT_HOOK=s3cret python samples/payout/receiver.py --port 7090

The first delivery of every event is answered with 503, as if this service were restarting: Weft
sends it again, under the same id.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import time
from typing import Any, Final

from aiohttp import web

TOLERANCE_S: Final = 300  # of the sender's clock


class Books:
    """What was told, once each. One per server."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.seen: set[str] = set()
        self.entries: dict[str, dict[str, Any]] = {}

    def genuine(self, headers: Any, body: bytes) -> bool:
        """Whether the sender knows the secret, and sent this just now."""
        sent = headers.get("Weft-Timestamp", "")
        if not sent.isdecimal() or abs(time.time() - int(sent)) > TOLERANCE_S:
            return False
        signed = sent.encode() + b"." + body
        expected = "v1=" + hmac.new(self.secret.encode(), signed, hashlib.sha256).hexdigest()
        return hmac.compare_digest(headers.get("Weft-Signature", ""), expected)

    async def receive(self, request: web.Request) -> web.Response:
        """POST /payouts"""
        body = await request.read()
        if not self.genuine(request.headers, body):
            return web.Response(status=401, text="no valid signature")
        event = json.loads(body)
        if event["id"] not in self.seen:
            self.seen.add(event["id"])
            return web.Response(status=503, text="restarting")
        if event["id"] not in self.entries:
            self.entries[event["id"]] = event
            print(event["type"], event["execution"], event.get("output"), flush=True)
        return web.Response(status=204)


def application(secret: str) -> web.Application:
    """The server. `secret`: what the workflow's `webhook.secret` resolves to."""
    app = web.Application()
    books = app[BOOKS] = Books(secret)
    app.router.add_post("/payouts", books.receive)
    return app


BOOKS: Final = web.AppKey("books", Books)

if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=7090)
    web.run_app(
        application(os.environ["PAYOUT_HOOK"]),
        host="127.0.0.1",
        port=options.parse_args().port,
        print=None,
    )
