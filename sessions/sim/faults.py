"""Scripted faults: how a reply is spoilt, in its document or in its bytes on the wire.

A fault of the document is a change of the dict before it is written. A fault of the wire needs
more than an ASGI server gives: the simulated engine's own server puts a `Wire` into the scope's
extensions, and the bytes are written there by hand.

Must not know sampling.

Spec: docs/sim.md#faults
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from sessions.errors.unseen import SimRefusalError
from sessions.sim.experts import Blob, Piece
from sessions.sim.reply import Body
from sessions.sim.script import Fault, FaultKind

WIRE_EXTENSION: Final = "sessile.sim.wire"
_KEYS_MAX: Final = 4096

Headers = list[tuple[str, str]]


class Wire(Protocol):
    """The client's connection, under the ASGI server's feet."""

    @property
    def standard_headers(self) -> Headers:
        """Headers that the server adds to each reply."""

    def drop_standard_headers(self) -> None:
        """Send this exchange's reply without them."""

    async def write(self, data: Piece) -> None:
        """Send bytes as they are; returns when there is room for more."""

    def close(self) -> None:
        """End the connection once all bytes are sent."""

    def reset(self) -> None:
        """End the connection at once with a TCP reset."""


class FaultCounter:
    """Counts faults that are to happen only some times."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def due(self, fault: Fault | None) -> Fault | None:
        """The fault if it happens this time, and counts it."""
        if fault is None or not fault.times:
            return fault
        key = f"{fault.kind.value}:{fault.key}"
        count = self._counts.get(key, 0) + 1
        if key not in self._counts and len(self._counts) >= _KEYS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = count
        return fault if count <= fault.times else None


def status_reply(
    fault: Fault, error_of: Callable[[SimRefusalError], dict[str, Any]]
) -> tuple[int, Headers, bytes]:
    """Status, headers and body of a `status` fault; the body is the engine's own unless given."""
    if fault.text is not None:
        kind, body = "text/plain; charset=utf-8", fault.text.encode()
    else:
        error = SimRefusalError("scripted fault", status=fault.status, type="InternalServerError")
        given = error_of(error) if fault.body is None else fault.body
        kind, body = "application/json", json.dumps(given).encode()
    if not any(name.lower() == "content-type" for name, _ in fault.headers):
        return fault.status, [("content-type", kind), *fault.headers], body
    return fault.status, list(fault.headers), body


def experts_ids(ids: list[int], fault: Fault | None) -> list[int]:
    """The ids that get rows: those given, or `by` rows too many or too few."""
    if fault is None or fault.kind is not FaultKind.ROWS:
        return ids
    return ids + ids[-1:] * fault.by if fault.by > 0 else ids[: max(0, len(ids) + fault.by)]


def flawed_blob(blob: Blob, fault: Fault | None) -> Blob:
    """The blob, with one character in its middle that is no base64 if that is the fault."""
    if fault is None or fault.kind is not FaultKind.BAD_BASE64:
        return blob
    return blob.flawed(len(blob) // 2)


def spoil(document: dict[str, Any], fault: Fault) -> bool:
    """Change a document as a fault says.

    Args:
        document: Changed in place.
        fault: Of any kind; a kind that is not about the document changes nothing.

    Returns:
        Whether the document must be written loosely (NaN, lone surrogates).
    """
    change = _CHANGES.get(fault.kind)
    if change is not None:
        change(document, fault)
    return fault.kind in {FaultKind.NAN_LOGPROBS, FaultKind.LONE_SURROGATE}


def _no_choices(document: dict[str, Any], _fault: Fault) -> None:
    document["choices"] = []


def _null_content(document: dict[str, Any], _fault: Fault) -> None:
    document["choices"][0]["message"]["content"] = None


def _lone_surrogate(document: dict[str, Any], _fault: Fault) -> None:
    message = document["choices"][0]["message"]
    message["content"] = "\ud83d" + (message["content"] or "")


def _no_meta_info(document: dict[str, Any], _fault: Fault) -> None:
    for choice in document["choices"]:
        choice.pop("meta_info", None)
        choice.pop("token_ids", None)


def _no_logprobs(document: dict[str, Any], _fault: Fault) -> None:
    for choice in document["choices"]:
        choice.get("meta_info", {}).pop("output_token_logprobs", None)
        if "token_ids" in choice:  # vLLM has no other place for them
            choice["logprobs"] = None


def _nan_logprobs(document: dict[str, Any], _fault: Fault) -> None:
    choice = document["choices"][0]
    values = (math.nan, math.inf, -math.inf)
    entries = choice.get("meta_info", {}).get("output_token_logprobs", [])
    for value, entry in zip(values, entries, strict=False):
        entry[0] = value
    content = (choice["logprobs"] or {"content": []})["content"]
    for value, entry in zip(values, content, strict=False):
        entry["logprob"] = value


def _token_count(document: dict[str, Any], fault: Fault) -> None:
    for holder in _token_counts(document):
        holder["completion_tokens"] += fault.by


def _no_token_count(document: dict[str, Any], _fault: Fault) -> None:
    for holder in _token_counts(document):
        del holder["completion_tokens"]


def _token_counts(document: dict[str, Any]) -> list[dict[str, Any]]:
    choices = document["choices"]
    return [choice["meta_info"] for choice in choices if "meta_info" in choice] + [
        document["usage"]
    ]


def _prompt_ids(document: dict[str, Any], _fault: Fault) -> None:
    for holder in (document, *document["choices"]):
        if holder.get("prompt_token_ids"):
            holder["prompt_token_ids"] = [*holder["prompt_token_ids"][:-1], 0]


_CHANGES: Final[dict[FaultKind, Callable[[dict[str, Any], Fault], None]]] = {
    FaultKind.NO_CHOICES: _no_choices,
    FaultKind.NULL_CONTENT: _null_content,
    FaultKind.LONE_SURROGATE: _lone_surrogate,
    FaultKind.NO_META_INFO: _no_meta_info,
    FaultKind.NO_LOGPROBS: _no_logprobs,
    FaultKind.NAN_LOGPROBS: _nan_logprobs,
    FaultKind.TOKEN_COUNT: _token_count,
    FaultKind.NO_TOKEN_COUNT: _no_token_count,
    FaultKind.PROMPT_IDS: _prompt_ids,
}


async def send_faulty(
    wire: Wire | None, wait_gone: Callable[[], Awaitable[None]], body: Body, fault: Fault
) -> None:
    """Send a reply by hand, broken as a wire fault says.

    Args:
        wire: The client's connection, or None behind another server.
        wait_gone: Returns when the client is gone.
        body: The whole reply.
        fault: One of `WIRE_FAULTS`.

    Raises:
        SimRefusalError: 501: another server runs the application.
    """
    if wire is None:
        raise SimRefusalError(f"fault {fault.kind.value} needs the own server", status=501)
    if fault.kind is FaultKind.LENGTH:
        await wire.write(_head(wire, len(body) + fault.by))
        for piece in body.pieces():
            await wire.write(piece)
        wire.close()
    else:
        if fault.after_bytes is not None:
            await wire.write(_head(wire, len(body)))
            for piece in first_bytes(body, fault.after_bytes):
                await wire.write(piece)
        if fault.kind is FaultKind.CUT:
            wire.close()
        elif fault.kind is FaultKind.RESET:
            wire.reset()
    await wait_gone()


def first_bytes(body: Body, count: int) -> Iterator[Piece]:
    """The first bytes of a body, or all if it has fewer."""
    for piece in body.pieces():
        if count <= 0:
            return
        yield memoryview(piece)[:count]
        count -= len(piece)


def _head(wire: Wire, length: int) -> bytes:
    lines = [f"{name}: {value}" for name, value in wire.standard_headers]
    lines += ["content-type: application/json", f"content-length: {length}", "connection: close"]
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "\r\n"]).encode("latin-1")
