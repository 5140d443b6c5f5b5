"""The `cases` application with gates that a test opens one by one, and a journal of what was run.

`…/hold` reads the body, waits at its gate and answers; `…/stall` waits in the middle of its reply;
`…/flood` sends more than any buffer takes; `…/done` answers and waits before it returns. A gate is
named by the query's `id`; `…/open` opens it, now or ahead. `…/journal` tells how often each id was
run and whose client went away at a gate. A test asks for both over the shard socket, so neither a
slow router nor the connection under test is in the way.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Final
from urllib.parse import parse_qs

from tests.support.apps import App, Headers, Message, Receive, Send, cases, pattern_of, receipt_of

HELD_BYTES: Final = 500
STALLED_BYTES: Final = 20_000
FLOOD_BYTES: Final = 6 << 20  # over the 4 MiB of a TCP send buffer
_PIECE_BYTES: Final = 65536  # a multiple of the pattern's 64, so that pieces make a pattern


class _Gates:
    """What one process knows of its exchanges."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.left: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    def gate(self, seed: str) -> asyncio.Event:
        return self._gates.setdefault(seed, asyncio.Event())

    async def passed(self, seed: str, receive: Receive) -> bool:
        """Wait at a gate; False if the client went away first."""
        opened = asyncio.ensure_future(self.gate(seed).wait())
        gone = asyncio.ensure_future(receive())
        try:
            await asyncio.wait({opened, gone}, return_when=asyncio.FIRST_COMPLETED)
            if opened.done():
                return True
            self.left.append(seed)
            return False
        finally:
            for task in (opened, gone):
                task.cancel()
            await asyncio.gather(opened, gone, return_exceptions=True)


def gated() -> App:
    """The application; one per process."""
    gates = _Gates()
    routes = {"hold": _hold, "stall": _stall, "flood": _flood, "done": _done}
    asked = {"open": _open, "journal": _journal}
    others = cases()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await others(scope, receive, send)
            return
        route = scope["path"].rpartition("/")[2]
        seed = parse_qs(scope["query_string"].decode()).get("id", [""])[0]
        if route in asked:
            await asked[route](gates, seed, send)
            return
        gates.runs[seed] += 1
        if route in routes:
            await routes[route](gates, seed, receive, send)
        else:
            await others(scope, receive, send)

    return app


async def _hold(gates: _Gates, seed: str, receive: Receive, send: Send) -> None:
    receipt = await _read_receipt(receive)
    if receipt is None:
        gates.left.append(seed)
    elif await gates.passed(seed, receive):
        await _reply(send, pattern_of(seed, HELD_BYTES), _named(seed, receipt))


async def _stall(gates: _Gates, seed: str, receive: Receive, send: Send) -> None:
    receipt = await _read_receipt(receive)
    body, half = pattern_of(seed, STALLED_BYTES), STALLED_BYTES // 2
    await _start(send, [*_named(seed, receipt or ""), (b"content-length", b"%d" % len(body))])
    await send({"type": "http.response.body", "body": body[:half], "more_body": True})
    if await gates.passed(seed, receive):
        await send({"type": "http.response.body", "body": body[half:]})


async def _flood(_gates: _Gates, seed: str, receive: Receive, send: Send) -> None:
    receipt = await _read_receipt(receive)
    await _start(send, [*_named(seed, receipt or ""), (b"content-length", b"%d" % FLOOD_BYTES)])
    piece = pattern_of(seed, _PIECE_BYTES)
    for sent in range(0, FLOOD_BYTES, _PIECE_BYTES):
        more = sent + _PIECE_BYTES < FLOOD_BYTES
        await send({"type": "http.response.body", "body": piece, "more_body": more})


async def _done(gates: _Gates, seed: str, receive: Receive, send: Send) -> None:
    receipt = await _read_receipt(receive)
    await _reply(send, pattern_of(seed, HELD_BYTES), _named(seed, receipt or ""))
    await gates.gate(seed).wait()


async def _open(gates: _Gates, seed: str, send: Send) -> None:
    gates.gate(seed).set()
    await _reply(send, b"", [])


async def _journal(gates: _Gates, seed: str, send: Send) -> None:
    """Of all ids that begin so."""
    runs = {key: count for key, count in gates.runs.items() if key.startswith(seed)}
    left = [key for key in gates.left if key.startswith(seed)]
    await _reply(send, json.dumps({"runs": runs, "left": left}).encode(), [])


async def _read_receipt(receive: Receive) -> str | None:
    """Of the whole body; None if the client has gone."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return receipt_of(body)


def _named(seed: str, receipt: str) -> Headers:
    return [(b"x-id", seed.encode()), (b"x-got", receipt.encode())]


async def _start(send: Send, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _reply(send: Send, body: bytes, headers: Headers) -> None:
    await _start(send, [*headers, (b"content-length", b"%d" % len(body))])
    await send({"type": "http.response.body", "body": body})
