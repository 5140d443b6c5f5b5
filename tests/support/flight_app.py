"""The `cases` application with exchanges that stay where they are until a test releases them.

`…/hold` reads the body, waits, and answers; `…/stall` waits in the middle of its reply; `…/drip`
sends a piece every 20 ms until it is released; `…/flood` sends more than any buffer takes;
`…/done` sends its whole reply and does not return, `…/eat` takes memory until the process is
killed. `…/release` ends the waiting of one process, `…/begun` tells which exchanges wait there.
Replies are patterns of the query's `id`, as in `cases`.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs

from tests.support.apps import (
    PIECE_BYTES,
    App,
    Headers,
    Message,
    Receive,
    Send,
    cases,
    pattern_of,
    read_receipt,
)

FLOOD_BYTES: Final = 12 << 20  # over the 4 MiB of a TCP send buffer and what a receiver adds
STALL_BYTES: Final = 20_000
REPLY_BYTES: Final = 500
DRIP_BYTES: Final = 640  # a multiple of the pattern's 64, so that a whole drip is a pattern
_EAT_MIB: Final = 1024  # an end for a machine that does not kill
_DRIP_PAUSE_S: Final = 0.02


class _Waiting:
    """The exchanges of one process that wait, and the event that releases them."""

    def __init__(self) -> None:
        self.seeds: list[str] = []
        self.released = asyncio.Event()


def flights() -> App:
    """The application; one per process."""
    waiting = _Waiting()
    routes: dict[str, Callable[[_Waiting, str, Receive, Send], Awaitable[None]]] = {
        "hold": _hold,
        "stall": _stall,
        "drip": _drip,
        "flood": _flood,
        "done": _done,
        "release": _release,
        "begun": _begun,
        "eat": _eat,
    }
    others = cases()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            answer = routes.get(scope["path"].rpartition("/")[2])
            if answer is not None:
                query = parse_qs(scope["query_string"].decode())
                await answer(waiting, query.get("id", [""])[0], receive, send)
                return
        await others(scope, receive, send)

    return app


async def _hold(waiting: _Waiting, seed: str, receive: Receive, send: Send) -> None:
    waiting.seeds.append(seed)
    receipt = await read_receipt(receive)
    if receipt is None:
        return
    await waiting.released.wait()
    await _reply(send, pattern_of(seed, REPLY_BYTES), [(b"x-got", receipt.encode())])


async def _stall(waiting: _Waiting, seed: str, _receive: Receive, send: Send) -> None:
    body = pattern_of(seed, STALL_BYTES)
    half = STALL_BYTES // 2
    await _start(send, [(b"content-length", b"%d" % STALL_BYTES)])
    await send({"type": "http.response.body", "body": body[:half], "more_body": True})
    waiting.seeds.append(seed)
    await waiting.released.wait()
    await send({"type": "http.response.body", "body": body[half:]})


async def _drip(waiting: _Waiting, seed: str, _receive: Receive, send: Send) -> None:
    await _start(send, [])
    waiting.seeds.append(seed)
    piece = pattern_of(seed, DRIP_BYTES)
    while not waiting.released.is_set():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(_DRIP_PAUSE_S)
    await send({"type": "http.response.body", "body": b""})


async def _flood(waiting: _Waiting, seed: str, _receive: Receive, send: Send) -> None:
    await _start(send, [(b"content-length", b"%d" % FLOOD_BYTES)])
    waiting.seeds.append(seed)
    piece = pattern_of(seed, PIECE_BYTES)
    for sent in range(0, FLOOD_BYTES, PIECE_BYTES):
        more = sent + PIECE_BYTES < FLOOD_BYTES
        await send({"type": "http.response.body", "body": piece, "more_body": more})


async def _done(waiting: _Waiting, seed: str, _receive: Receive, send: Send) -> None:
    await _reply(send, pattern_of(seed, REPLY_BYTES), [])
    await waiting.released.wait()


async def _release(waiting: _Waiting, _seed: str, _receive: Receive, send: Send) -> None:
    waiting.released.set()
    await _reply(send, b"", [])


async def _begun(waiting: _Waiting, _seed: str, _receive: Receive, send: Send) -> None:
    await _reply(send, json.dumps(waiting.seeds).encode(), [])


async def _start(send: Send, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _reply(send: Send, body: bytes, headers: Headers) -> None:
    await _start(send, [*headers, (b"content-length", b"%d" % len(body))])
    await send({"type": "http.response.body", "body": body})


async def _eat(_waiting: _Waiting, _seed: str, _receive: Receive, _send: Send) -> None:
    eaten = []
    for _ in range(_EAT_MIB):
        eaten.append(bytearray(b"x") * (1 << 20))
        await asyncio.sleep(0)
