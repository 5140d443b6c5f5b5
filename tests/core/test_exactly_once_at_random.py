"""Random attempts, ends of turns and hang-ups on one session, against a simple model.

The model knows nothing of tasks or digests: it says which attempts share a turn, what each client
gets, and what must be recorded.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.http_exchange.client_request import ClientRequest
from sessions.engine.engine import EngineReply, EngineRequest, OpenSink
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.engine import EngineTimeoutError
from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from tests.support.desk import Desk, assistant, is_recorded, user
from tests.support.engines import ScriptedEngine

_STEPS_OF_THE_LOOP = 40
HUNG_UP = "499"


class HeldEngine:
    """An engine whose every request waits until the test ends it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._held: list[asyncio.Future[str]] = []
        desk.engine.exchange = self.exchange  # type: ignore[method-assign]

    @property
    def count(self) -> int:
        return len(self._held)

    def end(self, number: int, text: str) -> None:
        """End a request with a sampled text, or with a failure if that is empty."""
        self._held[number].set_result(text)

    async def exchange(
        self, request: EngineRequest, open_sink: OpenSink | None = None
    ) -> EngineReply:
        held: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._held.append(held)
        text = await held
        if not text:
            raise EngineTimeoutError("silent")
        return await ScriptedEngine(self._desk.says(text)).exchange(request, open_sink)


@dataclass(eq=False)
class Turn:
    """A turn of the model: at the engine, then perhaps recorded."""

    body: bytes
    key: str
    number: int  # of its request at the engine
    said: str  # by the user
    base: Turn | None
    head: Turn | None
    clients: list[Client] = field(default_factory=list)
    reply: str = ""
    is_continued: bool = False

    @property
    def path(self) -> list[Any]:
        """The conversation up to the reply."""
        before = self.base.path if self.base is not None else []
        return [*before, user(self.said), assistant(self.reply)]


@dataclass(eq=False)
class Client:
    """One attempt: what it waits for, and what it must get in the end."""

    task: asyncio.Task[str]
    gone: asyncio.Event
    turn: Turn | None
    due: str = ""


class Play:
    """One session and its model."""

    def __init__(self, desk: Desk, *, is_tree: bool) -> None:
        self.is_tree = is_tree
        self.desk = desk
        self.engine = HeldEngine(desk)
        self.session = desk.open(mode="tree" if is_tree else "linear")
        self.turns: list[Turn] = []
        self.running: list[Turn] = []
        self.keys: dict[str, bytes] = {}
        self.clients: list[Client] = []

    @property
    def head(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    async def send(self, kind: str, said: str, seed: int, mark: str) -> None:
        """An attempt: the next turn, the newest one again, or a conversation from its start."""
        base = None if kind == "root" else self.head
        if kind == "again" and self.head is not None:
            base, said = self.head.base, self.head.said
        path = base.path if base is not None else []
        body = json.dumps({"messages": [*path, user(said)], "seed": seed}).encode()
        client = self._attempt(body, mark)
        key = mark if mark.startswith("k") else ""
        is_retry = mark == "again" or key in self.keys
        if key and self.keys.setdefault(key, body) != body:
            client.due = "idempotency_key_reused"
        elif is_retry and key and (own := self._kept(body, key)):
            client.due = own.reply
        elif (like := self._like(body, key)) and (is_retry or not self.is_tree):
            client.turn = like
            like.clients.append(client)
        elif is_retry and (kept := self._kept(body)):
            client.due = kept.reply
        elif not self.is_tree and self._dropped_by(base) > 1:
            client.due = "history_mismatch"
        else:
            turn = Turn(body, key, self.engine.count, said, base, self.head, [client])
            client.turn = turn
            self.running.append(turn)
        await self._settle()

    async def end(self, index: int, *, is_good: bool) -> None:
        """The engine ends one of the turns that it has."""
        if not self.running:
            return
        turn = self.running.pop(index % len(self.running))
        turn.reply = f"reply {turn.number}" if is_good else ""
        self.engine.end(turn.number, turn.reply)
        can_commit = self.is_tree or turn.head is self.head
        for client in turn.clients:
            client.turn = None
            client.due = "engine_timeout"
            if is_good:
                client.due = turn.reply if can_commit else f"{turn.reply} unrecorded"
        if is_good and can_commit:
            self._commit(turn)
        await self._settle()

    async def hang_up(self, index: int) -> None:
        """One of the clients that wait is gone; its turn with it if nobody else waits."""
        waiting = [client for client in self.clients if client.turn is not None]
        if not waiting:
            return
        client = waiting[index % len(waiting)]
        turn, client.turn, client.due = client.turn, None, HUNG_UP
        assert turn is not None
        turn.clients.remove(client)
        if not turn.clients:
            self.running.remove(turn)
        client.gone.set()
        await self._settle()

    async def check(self) -> None:
        """What is recorded is what the model says."""
        assert await self.desk.contents(self.session) == [turn.reply for turn in self.turns]

    def _commit(self, turn: Turn) -> None:
        if not self.is_tree:
            del self.turns[self.turns.index(turn.base) + 1 if turn.base is not None else 0 :]
        if turn.base is not None:
            turn.base.is_continued = True
        self.turns.append(turn)

    def _dropped_by(self, base: Turn | None) -> int:
        kept = self.turns.index(base) + 1 if base is not None else 0
        return len(self.turns) - kept

    def _like(self, body: bytes, key: str) -> Turn | None:
        like = [turn for turn in self.running if turn.body == body]
        own = [turn for turn in like if key and turn.key == key]
        return (own or like or [None])[-1]  # type: ignore[list-item]

    def _kept(self, body: bytes, key: str = "") -> Turn | None:
        """The newest turn with that body, and key, of those that are the end of a branch."""
        ends = self.turns[-1:] if not self.is_tree else self.turns
        kept = [
            turn
            for turn in ends
            if turn.body == body and not turn.is_continued and (not key or turn.key == key)
        ]
        return kept[-1] if kept else None

    def _attempt(self, body: bytes, mark: str) -> Client:
        gone = asyncio.Event()
        headers = {"again": [(b"x-stainless-retry-count", b"1")], "first": []}.get(
            mark, [(b"idempotency-key", mark.encode())]
        )

        async def wait_gone() -> None:
            await gone.wait()

        async def run() -> str:
            request = ClientRequest(
                method="POST", query=b"", headers=headers, body=body, wait_gone=wait_gone
            )
            try:
                reply = await self.desk.core.chat(self.session, request)
            except ClientVisibleError as error:
                return error.code
            if reply.status_code != 200:
                return str(reply.status_code)
            text: str = json.loads(bytes(reply.body))["choices"][0]["message"]["content"]
            return text if is_recorded(reply) else f"{text} unrecorded"

        client = Client(asyncio.create_task(run()), gone, None)
        self.clients.append(client)
        return client

    async def _settle(self) -> None:
        """Let everything happen that can, then compare."""
        for _ in range(_STEPS_OF_THE_LOOP):
            await asyncio.sleep(0)
        for client in self.clients:
            if client.turn is not None:
                assert not client.task.done()
            else:
                assert client.task.done()
                assert client.task.result() == client.due
        self.clients = [client for client in self.clients if client.turn is not None]
        assert len(self.desk.core.turns) == len(self.running)


SEND = st.tuples(
    st.just("send"),
    st.sampled_from(["next", "next", "again", "again", "root"]),
    st.sampled_from("ab"),
    st.integers(0, 1),
    st.sampled_from(["first", "first", "again", "k1", "k2", "k3"]),
)
END = st.tuples(st.just("end"), st.integers(0, 3), st.sampled_from([True, True, True, False]))
HANG_UP = st.tuples(st.just("hang up"), st.integers(0, 5))
STEPS = st.lists(SEND | SEND | END | END | HANG_UP, max_size=25)


@pytest.fixture(scope="module")
def prompts() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3")


@pytest.mark.parametrize("is_tree", [False, True], ids=["linear", "tree"])
@given(steps=STEPS)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_attempts_share_turns_and_turns_are_recorded_as_the_model_says(
    prompts: PromptBuilder, steps: list[Any], *, is_tree: bool
):
    async def run() -> None:
        desk = Desk(prompts, cancel_on_disconnect=True)
        play = Play(desk, is_tree=is_tree)
        for name, *given_ in steps:
            if name == "send":
                await play.send(*given_)
            elif name == "end":
                await play.end(given_[0], is_good=given_[1])
            else:
                await play.hang_up(*given_)
        await play.check()
        while play.running:
            await play.end(0, is_good=True)
        await play.check()
        await desk.core.close()

    asyncio.run(run())
