"""ASGI applications that tests and benchmarks put behind a group as SESSIONS_APP.

Each public function is a factory: it takes nothing and returns the application. `cases` answers by
the last part of the path, so every case can be asked for inside of a session's path or outside.
Nothing in a reply tells which process made it, except `where`, so that replies can be compared
over topologies.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

# ASGI's own loose shapes: a border, so Any is allowed here.
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Query = dict[str, list[str]]

PIECE_BYTES: Final = 65536
BIG_BYTES: Final = 1 << 30
TRIVIAL_BYTES: Final = 1024
SPRUNG: Final = "a trap was sprung"
_EARLY_BYTES: Final = 100
_DRIP_PAUSE_S: Final = 0.005
_HANG_S: Final = 300.0  # longer than any boot deadline of a test, and no for ever
_TRIVIAL_BODY: Final = b'{"pad":"' + b"x" * (TRIVIAL_BYTES - 10) + b'"}'
_TRIVIAL_HEADERS: Final[Headers] = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % TRIVIAL_BYTES),
]


def pattern_of(seed: str, size_bytes: int) -> bytes:
    """Bytes that only this seed gives, so that a spliced reply shows."""
    block = hashlib.blake2b(seed.encode()).digest()
    return (block * (size_bytes // len(block) + 1))[:size_bytes]


def receipt_of(body: bytes) -> str:
    """The value of `x-got` for a request body: its length and a digest."""
    return f"{len(body)}-{hashlib.blake2b(body).hexdigest()[:16]}"


def cases() -> App:
    """`…/echo`, `…/told`, `…/trivial`, `…/big`, `…/where`, `…/trap`, `…/exit`, else a 404."""
    routes = {
        "echo": _echo,
        "told": _told,
        "trivial": _trivial,
        "big": _big,
        "where": _where,
        "trap": _trap,
        "exit": _exit,
    }

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        answer = routes.get(scope["path"].rpartition("/")[2], _not_found)
        await answer(scope, receive, send)

    return app


def trivial() -> App:
    """Every path: reads the body, answers 1 KiB of JSON, at the least cost."""
    return _only(_trivial)


def big() -> App:
    """Every path: a framed reply of 1 GiB in pieces of 64 KiB; `?bytes=` for another size."""
    return _only(_big)


def boot_failure() -> App:
    """A factory that raises."""
    raise RuntimeError("this application cannot boot")


def boot_hang() -> App:
    """A factory that does not return before every boot deadline has passed."""
    threading.Event().wait(_HANG_S)
    raise RuntimeError("nobody ended the hang")


def boot_hang_but_two() -> App:
    """A factory that returns in two processes of a group, and hangs in the others."""
    for name in ("booted-first", "booted-second"):
        with contextlib.suppress(FileExistsError):
            (Path(os.environ["SESSIONS_RUNTIME_DIR"]) / name).touch(exist_ok=False)
            return cases()
    return boot_hang()


def boot_exit() -> App:
    """A factory that ends the process with exit code 3 and says nothing."""
    os._exit(3)


def _only(answer: App) -> App:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        else:
            await answer(scope, receive, send)

    return app


async def _live(receive: Receive, send: Send) -> None:
    """The lifespan protocol: nothing to set up, nothing to undo."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _echo(scope: Message, receive: Receive, send: Send) -> None:
    """Digest the body, answer a pattern.

    Query: `id` seed of the reply; `out` its bytes; `sleep` seconds to wait, after the body was
    read or, with `pre`, before; `early` = 413 at once, body unread; `ch` = chunked reply;
    `cl` = connection: close; `drip` = pieces of 1/20 with pauses; `status`.
    """
    query = parse_qs(scope["query_string"].decode(), keep_blank_values=True)
    seed = query.get("id", [""])[0]
    if "early" in query:
        early = pattern_of(seed, _EARLY_BYTES)
        await _start(send, 413, [(b"content-length", b"%d" % len(early)), *_named(seed)])
        await send({"type": "http.response.body", "body": early})
        return
    sleep_s = float(query.get("sleep", ["0"])[0])
    if "pre" in query:
        await asyncio.sleep(sleep_s)
    receipt = await read_receipt(receive)
    if receipt is None:  # the client has gone: there is nobody to answer
        return
    if "pre" not in query:
        await asyncio.sleep(sleep_s)
    body = pattern_of(seed, int(query.get("out", ["0"])[0]))
    await _start(send, int(query.get("status", ["200"])[0]), _echo_headers(query, receipt, body))
    piece_bytes = max(1, len(body) // 20) if "drip" in query else PIECE_BYTES
    await _send_pieces(send, body, piece_bytes, _DRIP_PAUSE_S if "drip" in query else 0.0)


def _named(seed: str) -> Headers:
    return [(b"x-id", seed.encode("latin-1"))]


def _echo_headers(query: Query, receipt: str, body: bytes) -> Headers:
    headers = [*_named(query.get("id", [""])[0]), (b"x-got", receipt.encode())]
    if "ch" not in query:
        headers.append((b"content-length", b"%d" % len(body)))
    if "cl" in query:
        headers.append((b"connection", b"close"))
    return headers


async def read_receipt(receive: Receive) -> str | None:
    """`receipt_of` the body, read piece by piece; None if the client has gone."""
    digest = hashlib.blake2b()
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece = message.get("body", b"")
        digest.update(piece)
        size += len(piece)
        more = message.get("more_body", False)
    return f"{size}-{digest.hexdigest()[:16]}"


async def _send_pieces(send: Send, body: bytes, piece_bytes: int, pause_s: float) -> None:
    for at in range(0, len(body), piece_bytes):
        piece = body[at : at + piece_bytes]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        if pause_s:
            await asyncio.sleep(pause_s)
    await send({"type": "http.response.body", "body": b""})


async def _trivial(_scope: Message, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body", False):
        pass
    await _start(send, 200, _TRIVIAL_HEADERS)
    await send({"type": "http.response.body", "body": _TRIVIAL_BODY})


async def _big(scope: Message, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body", False):
        pass
    query = parse_qs(scope["query_string"].decode())
    left = int(query.get("bytes", [str(BIG_BYTES)])[0])
    await _start(send, 200, [(b"content-length", b"%d" % left)])
    piece = pattern_of("big", PIECE_BYTES)
    while left > 0:
        await send(
            {"type": "http.response.body", "body": piece[:left], "more_body": left > len(piece)}
        )
        left -= len(piece)


async def _where(_scope: Message, receive: Receive, send: Send) -> None:
    """The pid of the process that answers, as text."""
    while (await receive()).get("more_body", False):
        pass
    await _send_text(send, 200, str(os.getpid()).encode())


async def _told(scope: Message, receive: Receive, send: Send) -> None:
    """What the application was told of the request, as text: request line, then headers."""
    if await read_receipt(receive) is None:
        return
    target = scope["raw_path"] + b"?" + scope["query_string"]
    lines = [b"%b %b %b" % (scope["method"].encode(), target, scope["http_version"].encode())]
    lines += [b"%b: %b" % header for header in scope["headers"]]
    body = b"".join(line + b"\n" for line in lines)
    await _start(send, 200, [(b"content-length", b"%d" % len(body)), *_named("told")])
    await send({"type": "http.response.body", "body": body})


async def _trap(scope: Message, _receive: Receive, send: Send) -> None:
    """For requests that must never be run: says so on stderr, which a group's log keeps."""
    os.write(2, b"%b by %b\n" % (SPRUNG.encode(), scope["query_string"]))
    await _start(send, 200, [(b"content-length", b"0"), *_named("trap")])
    await send({"type": "http.response.body", "body": b""})


async def _exit(_scope: Message, _receive: Receive, _send: Send) -> None:
    """Ends the process in silence, as if all were well."""
    os._exit(0)


async def _not_found(_scope: Message, _receive: Receive, send: Send) -> None:
    await _send_text(send, 404, b"no such case")


async def _send_text(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
    await _start(send, status, headers)
    await send({"type": "http.response.body", "body": text})


async def _start(send: Send, status: int, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
