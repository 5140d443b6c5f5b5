"""Clients of the model of conversations: an attempt at a turn, and what it got, as values.

An attempt has a connection of its own and a task that reads; cancelling the task hangs up. A plain
reply, a stream, and a stream that began before its turn ended all become the same `Outcome`.

Spec: docs/sessions.md#model
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.raw import Address, open_raw, request_bytes
from tests.support.replies import Reply
from tests.support.talk_model import Message, Turn

_TIMEOUT_S: Final = 30.0
_PATIENCE_S: Final = 60.0  # far over a script's whole time
_UNRECORDED: Final = ": x-turn-recorded: false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an attempt got.

    Attributes:
        status: 0 if the failure was told in a stream that had begun.
        code: Of an error of ours; `engine` if the engine's own was passed on; empty if none.
        is_recorded: Whether it says that its turn is part of the session.
        message: What the assistant said, or None.
    """

    status: int
    code: str = ""
    is_recorded: bool = False
    message: Message | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """One attempt that is under way.

    Attributes:
        labels: What kind of attempt it is, for the count.
        task: Its outcome.
        turn: What it waits for.
        sent: Set when its request is on its way.
    """

    labels: list[str]
    task: asyncio.Task[Outcome]
    turn: Turn | None = None
    sent: asyncio.Event = field(default_factory=asyncio.Event)


def start_client(
    address: Address, path: str, body: bytes, headers: list[tuple[str, str]], labels: list[str]
) -> Client:
    """Make an attempt at a turn of the session at a path."""
    sent = asyncio.Event()

    async def run() -> Outcome:
        # A stream that waits has comments, so no wait for bytes alone would ever end.
        deadline, opened = asyncio.timeout(_PATIENCE_S), open_raw(address, timeout_s=_TIMEOUT_S)
        async with deadline, opened as connection:
            target = f"{path}/v1/chat/completions"
            await connection.send(request_bytes("POST", target, headers, body))
            sent.set()
            return outcome_of(await connection.read_reply())

    return Client(labels=labels, task=asyncio.create_task(run()), sent=sent)


async def ask(address: Address, method: str, target: str, body: bytes = b"") -> tuple[int, Any]:
    """Any other request; status and JSON of its reply."""
    async with open_raw(address, timeout_s=_TIMEOUT_S) as connection:
        reply = await connection.ask(request_bytes(method, target, body=body))
    return reply.status, json.loads(reply.body) if reply.body else None


def outcome_of(reply: Reply) -> Outcome:
    """What a reply to a chat says."""
    is_recorded = reply.header("x-turn-recorded") is None
    if (reply.header("content-type") or "").startswith("text/event-stream"):
        return _outcome_of_stream(reply, is_recorded=is_recorded)
    document = json.loads(reply.body)
    if reply.status != 200:
        code = document["error"]["code"] if "error" in document else "engine"
        return Outcome(status=reply.status, code=code, is_recorded=is_recorded)
    message = bare(document["choices"][0]["message"])
    return Outcome(status=200, is_recorded=is_recorded, message=message)


def bare(message: Message) -> Message:
    """A message as an agent keeps it: what matters, calls without their place in a stream."""
    kept: Message = {n: message[n] for n in ("role", "content", "tool_call_id") if n in message}
    if message.get("reasoning_content"):
        kept["reasoning_content"] = message["reasoning_content"]
    if message.get("tool_calls"):
        names = ("id", "type", "function")
        kept["tool_calls"] = [{n: call[n] for n in names} for call in message["tool_calls"]]
    return kept


def _outcome_of_stream(reply: Reply, *, is_recorded: bool) -> Outcome:
    blocks = reply.body.decode().split("\n\n")
    is_recorded = is_recorded and _UNRECORDED not in blocks
    told = [block.removeprefix("data: ") for block in blocks if block.startswith("data: ")]
    if told[-1] != "[DONE]":
        error = json.loads(told[-1])["error"]
        return Outcome(status=0, code=error["code"], is_recorded=is_recorded)
    message: Message = {"role": "assistant", "content": "", "reasoning_content": ""}
    calls: dict[int, Message] = {}
    for text in told[:-1]:
        for choice in json.loads(text)["choices"]:
            _add(choice["delta"], message, calls)
    message["tool_calls"] = list(calls.values())
    return Outcome(status=reply.status, is_recorded=is_recorded, message=bare(message))


def _add(delta: Message, message: Message, calls: dict[int, Message]) -> None:
    for name in ("content", "reasoning_content"):
        message[name] += delta.get(name) or ""
    for piece in delta.get("tool_calls") or []:
        if piece["index"] not in calls:
            calls[piece["index"]] = {**piece, "function": {"arguments": "", **piece["function"]}}
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
