"""The driver: agents that hold conversations, each turn one chat and one tool result.

An agent sends the whole conversation over one kept connection, gets a small reply (the replay stays
in the server), appends it and a tool's result of the right length, and goes on. What it sends is
rendered once, so that the driver stays cheap. It checks every reply.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from benchmarks.load import LoadError
from benchmarks.shape import replay_bytes, text_of_tokens
from sessions.routing.ids import owner_of
from tests.support.raw import Address, AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import Reply, ReplyError

_TIMEOUT_S: Final = 1800.0  # for one reply; a full server is slow, not dead
_SAMPLED_TOKENS: Final = 40  # of a reply, before one is known
_TEMPLATE_TOKENS: Final = 16  # around a message, about
_OPENED_MAX: Final = 10_000
_TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": "Run a command.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
        },
    }
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as the driver saw it.

    Attributes:
        number: Of the turn in its session, from 0.
        tokens: Of prompt and reply together.
        body_bytes: Replay in the engine's reply.
        begun_s: When it was sent, on the monotonic clock.
        took_s: Until its reply was whole.
    """

    number: int
    tokens: int
    body_bytes: int
    begun_s: float
    took_s: float


@dataclass(slots=True, kw_only=True)
class Talk:
    """What became of some conversations.

    Attributes:
        turns: In the order in which they ended.
        failures: What went wrong, in words.
    """

    turns: list[Turn] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class Conversation:
    """One session and what was said in it; made by `open_conversation`."""

    def __init__(
        self,
        connection: AsyncRawConnection,
        session_id: str,
        targets: Sequence[int],
        row_bytes: int,
    ) -> None:
        """Begin with nothing said.

        Args:
            connection: Its own.
            session_id: An open session.
            targets: Tokens of prompt and reply together after each turn.
            row_bytes: Replay of one token before base64.
        """
        self.session_id: Final = session_id
        self._connection = connection
        self._targets = targets
        self._row_bytes = row_bytes
        self._messages: list[bytes] = []
        self._calls: list[dict[str, Any]] = []
        self._turns = 0
        self._tokens = 0
        self._sampled = _SAMPLED_TOKENS

    @property
    def turns_left(self) -> int:
        """Turns that are still to do."""
        return len(self._targets) - self._turns

    async def turn(self) -> Turn:
        """Do the next turn.

        Raises:
            LoadError: The reply is not what it must be.
        """
        body = self._next_body()
        path = f"/sessions/{self.session_id}/v1/chat/completions"
        begun_s = time.monotonic()
        reply = await self._connection.ask(request_bytes("POST", path, body=body))
        took_s = time.monotonic() - begun_s
        self._take(reply)
        self._turns += 1
        return Turn(
            number=self._turns - 1,
            tokens=self._tokens,
            body_bytes=replay_bytes(self._tokens, self._row_bytes),
            begun_s=begun_s,
            took_s=took_s,
        )

    async def delete(self) -> None:
        """End the session.

        Raises:
            LoadError: The server did not.
        """
        await delete_session(self._connection, self.session_id)

    def _next_body(self) -> bytes:
        self._messages.append(orjson.dumps(self._next_message()))
        extras = {
            "model": "sim",
            "tools": _TOOLS,
            "sim": {
                "reasoning": f"Step {self._turns}.",
                "content": "",
                "tool_calls": [{"name": "run", "arguments": {"command": f"step {self._turns}"}}],
            },
        }
        head = orjson.dumps(extras)[:-1]
        return head + b',"messages":[' + b",".join(self._messages) + b"]}"

    def _next_message(self) -> dict[str, Any]:
        wanted = self._targets[self._turns] - self._tokens - self._sampled - _TEMPLATE_TOKENS
        text = text_of_tokens(wanted, f"{self.session_id} {self._turns}")
        if not self._calls:
            return {"role": "user", "content": text}
        return {"role": "tool", "tool_call_id": self._calls[0]["id"], "content": text}

    def _take(self, reply: Reply) -> None:
        if reply.status != 200 or reply.header("x-turn-recorded") is not None:
            raise LoadError(f"turn {self._turns} got {reply.status}: {reply.body[:300]!r}")
        if b"routed_experts" in reply.body:
            raise LoadError(f"turn {self._turns}: replay reached the client")
        found = orjson.loads(reply.body)
        message = found["choices"][0]["message"]
        if not message["tool_calls"]:
            raise LoadError(f"turn {self._turns}: no tool was called")
        self._messages.append(orjson.dumps(message))
        self._calls = message["tool_calls"]
        self._sampled = found["usage"]["completion_tokens"]
        self._tokens = found["usage"]["total_tokens"]


async def create_session(connection: AsyncRawConnection) -> str:
    """Open a session; its id.

    Raises:
        LoadError: The server did not.
    """
    reply = await connection.ask(request_bytes("POST", "/sessions"))
    if reply.status not in (200, 201):
        raise LoadError(f"creating a session got {reply.status}: {reply.body[:300]!r}")
    session_id: str = orjson.loads(reply.body)["session_id"]
    return session_id


async def delete_session(connection: AsyncRawConnection, session_id: str) -> None:
    """End a session.

    Raises:
        LoadError: The server did not.
    """
    reply = await connection.ask(request_bytes("DELETE", f"/sessions/{session_id}"))
    if reply.status != 204:
        raise LoadError(f"deleting a session got {reply.status}: {reply.body[:300]!r}")


async def create_on_shards(address: Address, wanted: Sequence[int], shards: int) -> list[str]:
    """Open sessions until each wanted shard owns one; those in excess are deleted.

    Args:
        address: Of the server.
        wanted: Indices of shards, one per session.
        shards: How many the group has.

    Returns:
        Ids in the order of `wanted`.

    Raises:
        LoadError: The server refused one, or a shard gets none.
    """
    found: dict[int, str] = {}
    async with open_raw(address, timeout_s=_TIMEOUT_S) as connection:
        for _ in range(_OPENED_MAX):
            if len(found) == len(wanted):
                return [found[place] for place in range(len(wanted))]
            session_id = await create_session(connection)
            owner = owner_of(session_id, shards)
            places = [n for n, shard in enumerate(wanted) if shard == owner and n not in found]
            if places:
                found[places[0]] = session_id
            else:
                await delete_session(connection, session_id)
    raise LoadError(f"no session on each of shards {sorted(set(wanted))} in {_OPENED_MAX} tries")


@asynccontextmanager
async def open_conversations(
    address: Address,
    targets: Sequence[int],
    row_bytes: int,
    *,
    count: int = 0,
    session_ids: Sequence[str] = (),
) -> AsyncIterator[list[Conversation]]:
    """Conversations, each on a connection of its own; ids that are not given are created.

    The sessions are not deleted at the end.

    Raises:
        LoadError: The server refused a session.
    """
    async with AsyncExitStack() as opened:
        found = []
        for number in range(max(count, len(session_ids))):
            connection = await opened.enter_async_context(open_raw(address, timeout_s=_TIMEOUT_S))
            known = number < len(session_ids)
            session_id = session_ids[number] if known else await create_session(connection)
            found.append(Conversation(connection, session_id, targets, row_bytes))
        yield found


async def converse(
    conversations: Sequence[Conversation], *, turns: int = 0, tool_s: float = 0.0
) -> Talk:
    """Hold all conversations at once.

    Args:
        conversations: The agents.
        turns: How many of each; 0 = all that are left.
        tool_s: Seconds that each tool takes.

    Returns:
        What became of it. A conversation ends with its first failure; the others go on.
    """
    talk = Talk()

    async def hold(conversation: Conversation) -> None:
        left = turns or conversation.turns_left
        try:
            for _ in range(min(left, conversation.turns_left)):
                talk.turns.append(await conversation.turn())
                await asyncio.sleep(tool_s)
        except (LoadError, ReplyError, OSError) as error:  # a time-out is an OSError too
            talk.failures.append(f"session {conversation.session_id}: {error}")

    async with asyncio.TaskGroup() as tasks:
        for conversation in conversations:
            tasks.create_task(hold(conversation))
    return talk
