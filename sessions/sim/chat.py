"""`POST /v1/chat/completions`: one request from its body to its last reply byte.

Checks the body, waits as long as a model would take, samples, and sends: a whole document in pieces
that yield to the loop, events, or a scripted fault. A client that goes away ends the request, as
engines end the generation.

Spec: docs/sim.md#requests
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from sessions.errors.unseen import SimRefusalError
from sessions.sim.body import ChatBody
from sessions.sim.dialects import DIALECTS
from sessions.sim.experts import Blob, Rows
from sessions.sim.faults import (
    WIRE_EXTENSION,
    FaultCounter,
    Headers,
    experts_ids,
    first_bytes,
    flawed_blob,
    send_faulty,
    spoil,
    status_reply,
)
from sessions.sim.journal import Journal
from sessions.sim.options import Copies, SimOptions
from sessions.sim.reply import Body, Origin, render
from sessions.sim.sampler import Sample, Sampler
from sessions.sim.script import WIRE_FAULTS, Fault, FaultKind
from sessions.sim.stream import events_of
from sessions.tokens.tokenizer import Tokenizer

_LAYOUTS_MAX: Final = 8  # widths in use at once; a layout's texts take up to 7 MiB
_BASE64_PER_RAW: Final = 4 / 3


class ChatEndpoint:
    """The ASGI application of the chat route.

    Attributes:
        running: Requests that were read and are not answered.
    """

    def __init__(self, options: SimOptions, tokenizer: Tokenizer, journal: Journal) -> None:
        """Prepare.

        Args:
            options: Of the engine.
            tokenizer: Makes and reads ids.
            journal: Records the requests.

        Raises:
            SettingsError: The tokenizer is none for ChatML.
        """
        self.running = 0
        self._options = options
        self._dialect = DIALECTS[options.dialect]
        self._vocab_size = tokenizer.vocab_size
        self._journal = journal
        self._sampler = Sampler(options, tokenizer)
        self._faults = FaultCounter()
        self._layouts: dict[int, Rows] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            SimRefusalError: The request is refused; nothing was sent.
        """
        arrival = time.perf_counter()
        request = Request(scope, receive)
        try:
            raw = await request.body()
        except ClientDisconnect:
            return
        self.running += 1
        try:
            await self._answer(scope, receive, send, raw, arrival)
        finally:
            self.running -= 1

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, raw: bytes, arrival: float
    ) -> None:
        document, body = self._dialect.parse_body(raw, self._vocab_size)
        self._journal.add(
            headers=scope["headers"],
            query=scope["query_string"],
            body=document,
            body_bytes=len(raw),
        )
        fault = self._faults.due(body.script.fault)
        if fault is not None and body.stream and fault.kind is not FaultKind.STATUS:
            raise SimRefusalError("only status faults can be scripted with stream", param="sim")
        delay_s = body.script.delay_s
        if delay_s is None:
            delay_s = self._options.latency_s
        if fault is not None and fault.kind is FaultKind.STATUS:
            if await _waited(receive, delay_s):
                status, headers, content = status_reply(fault, self._dialect.error_of)
                await _send_whole(send, status, headers, content)
            return
        prompt = self._sampler.prompt_of(body)
        samples = self._samples(body, prompt)
        if not body.stream:
            delay_s += self._options.token_s * sum(len(sample.ids) for sample in samples)
        if not await _waited(receive, delay_s):
            return
        reply = self._document(body, prompt, samples, fault, arrival)
        if body.stream:
            await self._stream(receive, send, body, reply)
            return
        loosely = spoil(reply, fault) if fault is not None else False
        await _send_reply(scope, receive, send, render(reply, loosely=loosely), fault)

    def _samples(self, body: ChatBody, prompt: Sequence[int]) -> list[Sample]:
        self._dialect.check_start(body.routed_experts_start_len or 0, len(prompt))
        room = self._sampler.room_for(body, len(prompt))
        return [self._sampler.sample(body, prompt, i, room) for i in range(body.n or 1)]

    def _document(
        self,
        body: ChatBody,
        prompt: list[int],
        samples: Sequence[Sample],
        fault: Fault | None,
        arrival: float,
    ) -> dict[str, Any]:
        origin = Origin(
            reply_id=secrets.token_hex(16),
            model=body.model or self._options.model,
            weight_version=self._options.weight_version,
            created=int(time.time()),
            latency_s=time.perf_counter() - arrival,
            cached_count=self._sampler.cached_count(body, prompt),
            has_both_copies=(body.script.copies or self._options.copies) is Copies.BOTH,
        )
        blobs: list[Blob] = []
        if self._options.replay and body.return_routed_experts and not body.stream:
            blobs = [self._blob(body, prompt + sample.ids, fault) for sample in samples]
        return self._dialect.document_of(
            body,
            prompt,
            samples,
            blobs=blobs,
            origin=origin,
            sampler=self._sampler,
        )

    def _blob(self, body: ChatBody, ids: list[int], fault: Fault | None) -> Blob:
        """The experts of a sequence: every token but the last has a row."""
        start = body.routed_experts_start_len or 0
        with_rows = experts_ids(ids[:-1], fault)
        pad = body.script.pad or self._options.pad
        if body.script.blob_mib:
            rows = max(1, len(with_rows) - start)
            row_chars = rows * self._layout(1).row_bytes * _BASE64_PER_RAW
            pad = max(1, -int(-body.script.blob_mib * (1 << 20) // row_chars))
        return flawed_blob(self._layout(pad).blob(with_rows, start), fault)

    def _layout(self, pad: int) -> Rows:
        found = self._layouts.pop(pad, None)
        if found is None:
            options = self._options
            found = self._dialect.layout_of(
                layers=options.layers,
                topk=options.topk,
                experts=options.experts,
                seed=options.seed,
                pad=pad,
            )
            if len(self._layouts) >= _LAYOUTS_MAX:
                del self._layouts[next(iter(self._layouts))]
        self._layouts[pad] = found
        return found

    async def _stream(
        self, receive: Receive, send: Send, body: ChatBody, reply: dict[str, Any]
    ) -> None:
        wants_usage = bool((body.stream_options or {}).get("include_usage"))
        events = list(events_of(reply, with_usage=wants_usage))
        pause_s = self._options.token_s * reply["usage"]["completion_tokens"] / len(events)
        headers = [("content-type", "text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": _encoded(headers)})
        for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
            if not await _waited(receive, pause_s):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_reply(
    scope: Scope, receive: Receive, send: Send, body: Body, fault: Fault | None
) -> None:
    if fault is not None and fault.kind in WIRE_FAULTS:
        wire = scope.get("extensions", {}).get(WIRE_EXTENSION)
        await send_faulty(wire, _gone_waiter(receive), body, fault)
        return
    length, pieces = len(body), body.pieces()
    if fault is not None and fault.kind is FaultKind.BROKEN_JSON:
        length = max(1, length // 2)
        pieces = first_bytes(body, length)
    headers = [("content-type", "application/json")]
    if fault is None or fault.kind is not FaultKind.CHUNKED:
        headers.append(("content-length", str(length)))
    await send({"type": "http.response.start", "status": 200, "headers": _encoded(headers)})
    for piece in pieces:
        length -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": length > 0})
        if length > 0:
            # A reader that keeps up never fills the socket, so without this the loop would starve.
            await asyncio.sleep(0)


async def _send_whole(send: Send, status: int, headers: Headers, body: bytes) -> None:
    has_length = any(name.lower() == "content-length" for name, _ in headers)
    if not has_length:
        headers = [*headers, ("content-length", str(len(body)))]
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


async def _waited(receive: Receive, seconds: float) -> bool:
    """Wait; False as soon as the client is gone."""
    if seconds <= 0:
        return True
    try:
        async with asyncio.timeout(seconds):
            await _gone_waiter(receive)()
    except TimeoutError:
        return True
    return False


def _gone_waiter(receive: Receive) -> Callable[[], Awaitable[None]]:
    async def wait_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return wait_gone
