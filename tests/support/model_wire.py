"""Requests of the model as bytes, and replies as fates.

Spec: docs/lending.md#guards
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Final

from tests.support.apps import pattern_of, receipt_of
from tests.support.ids import ids_of_shard
from tests.support.model import NOBODY, Ask, Fate, Form, Seen, State
from tests.support.model_app import FLOOD_BYTES, HELD_BYTES, STALLED_BYTES
from tests.support.raw import AsyncRawConnection, request_bytes
from tests.support.replies import ConnectionEndedError, Reply, ReplyCutError

UPLOAD_BYTES: Final = 200_000
BIG_BYTES: Final = 2_400_000  # about what the kernel takes of a reply that nobody reads
_CHUNK_BYTES: Final = 3000
_EARLY_BYTES: Final = 100
_DRIP_BYTES: Final = 2000
_ROUTES: Final = {
    State.HALF_HEAD: "echo",
    State.WAITING: "hold",
    State.UPLOADING: "hold",
    State.EXPECTING: "hold",
    State.PIPELINED: "hold",
    State.DISCARDING: "echo",
    State.STALLED: "stall",
    State.FLOODED: "flood",
    State.DONE: "done",
    State.ENDING: "echo",
}
_QUERIES: Final = {
    State.HALF_HEAD: f"&out={HELD_BYTES}",
    State.DISCARDING: "&early=1",
    State.ENDING: f"&out={HELD_BYTES}&cl=1",
}
_LENGTHS: Final = {
    State.STALLED: STALLED_BYTES,
    State.FLOODED: FLOOD_BYTES,
    State.DISCARDING: _EARLY_BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as bytes, and what its own reply is.

    Attributes:
        first_bytes: How much is sent to get into the request's state; all of it otherwise.
        receipt: Of its body; empty if the application does not read it.
    """

    seed: str
    data: bytes
    first_bytes: int
    owner: int
    status: int
    reply: bytes
    receipt: str = ""
    is_head: bool = False
    is_probe: bool = False
    is_held: bool = False


def target_of(shard: int, shards: int, route: str, seed: str, more: str) -> str:
    """A target in a session of this shard, or in none."""
    prefix = "/plain" if shard == NOBODY else f"/sessions/{ids_of_shard(shard, shards)[0]}"
    return f"{prefix}/{route}?id={seed}{more}"


def request_of_state(state: State, seed: str, shard: int, shards: int, *, is_chunked: bool) -> Sent:
    """The request that brings a connection into a state other than IDLE."""
    is_get = state in (State.STALLED, State.FLOODED, State.DONE)
    has_big_body = state in (State.UPLOADING, State.EXPECTING, State.DISCARDING)
    body = pattern_of(f"body {seed}", UPLOAD_BYTES if has_big_body else 0 if is_get else 90)
    data = request_bytes(
        "GET" if is_get else "POST",
        target_of(shard, shards, _ROUTES[state], seed, _QUERIES.get(state, "")),
        [("Expect", "100-continue")] if state is State.EXPECTING else [],
        body,
        chunk_bytes=_CHUNK_BYTES if is_chunked and has_big_body else 0,
    )
    head_bytes = data.index(b"\r\n\r\n") + 4
    first_bytes = {
        State.HALF_HEAD: head_bytes - 7,
        State.UPLOADING: head_bytes + UPLOAD_BYTES // 2,
        State.DISCARDING: head_bytes + UPLOAD_BYTES // 2,
        State.EXPECTING: head_bytes,
    }
    is_early = state is State.DISCARDING
    return Sent(
        seed=seed,
        data=data,
        first_bytes=first_bytes.get(state, len(data)),
        owner=shard,
        status=413 if is_early else 200,
        reply=pattern_of(seed, _LENGTHS.get(state, HELD_BYTES)),
        receipt="" if is_early else receipt_of(body),
        is_held=_ROUTES[state] == "hold",
    )


def request_of_ask(ask: Ask, seed: str, shard: int, shards: int) -> Sent:
    """An ordinary request."""
    if ask.form is Form.PROBE:
        data = request_bytes("GET", "/livez")
        return Sent(
            seed=seed,
            data=data,
            first_bytes=len(data),
            owner=NOBODY,
            status=200,
            reply=b"",
            is_probe=True,
        )
    out = {Form.DRIP: _DRIP_BYTES, Form.BIG: BIG_BYTES, Form.EARLY: _EARLY_BYTES}
    out_bytes = out.get(ask.form, ask.out)
    if ask.form is Form.BIG:  # from less than that to more, since what it leaves over matters
        out_bytes += 10 * ask.size
    more = {
        Form.EARLY: "&early=1",
        Form.DRIP: "&drip=1",
        Form.LATE: "&sleep=0.02",
        Form.LAST: "&cl=1",
    }
    query = f"&out={out_bytes}" + more.get(ask.form, "")
    has_body = ask.form in (Form.POST, Form.CHUNKED, Form.EARLY, Form.EXPECT)
    body = pattern_of(f"body {seed}", ask.size if has_body else 0)
    data = request_bytes(
        "HEAD" if ask.form is Form.HEAD else "POST" if has_body else "GET",
        target_of(shard, shards, "echo", seed, query),
        [("Expect", "100-continue")] if ask.form is Form.EXPECT else [],
        body,
        chunk_bytes=_CHUNK_BYTES if ask.form is Form.CHUNKED else 0,
        version="1.0" if ask.form is Form.OLD else "1.1",
    )
    return Sent(
        seed=seed,
        data=data,
        first_bytes=len(data),
        owner=shard,
        status=413 if ask.form is Form.EARLY else 200,
        reply=b"" if ask.form is Form.HEAD else pattern_of(seed, out_bytes),
        receipt="" if ask.form is Form.EARLY else receipt_of(body),
        is_head=ask.form is Form.HEAD,
    )


async def read_seen(connection: AsyncRawConnection, sent: Sent) -> tuple[Seen, bool]:
    """Read what became of a request.

    Returns:
        What was seen, and whether the connection ended with a reset.

    Raises:
        AssertionError: A reply is no reply, or that of another request.
        TimeoutError: Nothing came.
    """
    try:
        reply = await connection.read_reply(head_only=sent.is_head)
    except ReplyCutError as error:
        return Seen(fate=_fate_of_cut(error.head, error.body, sent)), False
    except ConnectionEndedError:
        return Seen(fate=Fate.LOST), False
    except TimeoutError:
        raise
    except OSError:
        connection.parser.feed(b"")
        with contextlib.suppress(ConnectionEndedError):  # nothing came before the reset
            try:
                whole = connection.parser.next_reply(head_only=sent.is_head)
            except ReplyCutError as error:
                return Seen(fate=_fate_of_cut(error.head, error.body, sent)), True
            if whole is not None:
                return _seen_of(whole, sent), True
        return Seen(fate=Fate.LOST), True
    return _seen_of(reply, sent), False


def _fate_of_cut(head: bytes, body: bytes, sent: Sent) -> Fate:
    assert sent.reply.startswith(body), f"{sent.seed}: cut in the reply of another request"
    assert b"\r\n\r\n" not in head or f"x-id: {sent.seed}\r\n".encode() in head, (sent.seed, head)
    return Fate.CUT


def _seen_of(reply: Reply, sent: Sent) -> Seen:
    says_close = (reply.header("connection") or "").lower() == "close"
    if sent.is_probe and reply.status == 200:
        assert reply.header("x-id") is None, f"{sent.seed}: the reply of another request"
        return Seen(fate=Fate.REPLY, says_close=says_close, status=200)
    if reply.status == sent.status and reply.header("x-id") is not None:
        assert reply.header("x-id") == sent.seed, f"{sent.seed}: reply of {reply.header('x-id')}"
        assert reply.body == sent.reply, f"{sent.seed}: wrong body"
        assert reply.header("x-got") in (sent.receipt or None, sent.receipt), sent.seed
        return Seen(fate=Fate.REPLY, says_close=says_close, status=reply.status)
    assert reply.header("x-id") is None, f"{sent.seed}: status {reply.status}"
    if not sent.is_head:
        assert set(json.loads(reply.body)) == {"error"}, f"{sent.seed}: {reply.body[:200]!r}"
    return Seen(fate=Fate.REFUSED, says_close=says_close, status=reply.status)
