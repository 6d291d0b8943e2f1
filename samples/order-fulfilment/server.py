"""The payment service and the carrier of the order-fulfilment sample, in memory.

Behaves as real ones do when it matters: the first two attempts of each charge fail with 503, a
charge over the limit is refused for good (402), and a repeated Idempotency-Key gives the first
answer again instead of a second charge. The carrier refuses orders for NOWHERE (422).

    python samples/order-fulfilment/server.py --port 7080
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, Final

from aiohttp import web

FAILURES: Final = 2  # 503 answers before a charge goes through
LIMIT: Final = 10_000  # amount above which a card is declined


class Shop:
    """What was charged and shipped. One per server."""

    def __init__(self) -> None:
        self.attempts: Counter[str] = Counter()  # by idempotency key
        self.charges: dict[str, dict[str, Any]] = {}  # by idempotency key
        self.shipments: dict[str, dict[str, Any]] = {}  # by idempotency key

    async def charge(self, request: web.Request) -> web.Response:
        """POST /charges"""
        key = request.headers.get("Idempotency-Key", "")
        order = await request.json()
        if key in self.charges:
            return web.json_response(self.charges[key], status=200)
        self.attempts[key] += 1
        if self.attempts[key] <= FAILURES:
            return _error(503, "the payment service is restarting")
        if order["amount"] > LIMIT:
            return _error(402, f"declined: more than {LIMIT}")
        made = {"id": f"ch-{len(self.charges) + 1}", "attempts": self.attempts[key], **order}
        self.charges[key] = made
        return web.json_response(made, status=201)

    async def list_charges(self, request: web.Request) -> web.Response:
        """GET /charges"""
        return web.json_response(list(self.charges.values()))

    async def refund(self, request: web.Request) -> web.Response:
        """DELETE /charges/{id}"""
        wanted = request.match_info["id"]
        for charge in self.charges.values():
            if charge["id"] == wanted:
                charge["refunded"] = True
                return web.json_response(charge)
        return _error(404, f"no charge {wanted}")

    async def ship(self, request: web.Request) -> web.Response:
        """POST /shipments"""
        key = request.headers.get("Idempotency-Key", "")
        parcels = await request.json()
        if "NOWHERE" in parcels["title"]:
            return _error(422, "there is no such address")
        if key not in self.shipments:
            tracking = f"TRK-{len(self.shipments) + 1:06d}"
            self.shipments[key] = {"tracking": tracking, **parcels}
        return web.json_response(self.shipments[key], status=201)


def application() -> web.Application:
    """The routes, over a new shop."""
    shop = Shop()
    app = web.Application()
    app.add_routes(
        [
            web.post("/charges", shop.charge),
            web.get("/charges", shop.list_charges),
            web.delete("/charges/{id}", shop.refund),
            web.post("/shipments", shop.ship),
        ]
    )
    return app


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


def main() -> None:
    """Serve on 127.0.0.1 until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Payment service and carrier of the sample")
    parser.add_argument("--port", type=int, default=7080)
    port = parser.parse_args().port
    print(f"Shop is at http://127.0.0.1:{port}, Ctrl-C stops it", flush=True)
    web.run_app(application(), host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main()
