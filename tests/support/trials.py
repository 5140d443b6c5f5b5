"""Trials: one session of two turns, the second of which is tried again and again with faults.

After each fault a trial can tell whether the session reads as before byte for byte, whether as many
bytes are held as before, and whether the next turn is recorded.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from sessions.tokens.prompts import PromptBuilder
from tests.support.raw_engine import Answer, Asked, raw_engine
from tests.support.raw_replies import length_reply
from tests.support.rollouts import CHAT, Rollouts, ask, create, error_of, open_parts, user
from tests.support.turn_replies import Sampler, answers_with_faults
from tests.support.waiting import wait_until_async

# Makes what the engine sends from a fault's number and the body of a good reply to the second turn,
# whose rows begin like those of the stored one and go on differently.
FaultOf = Callable[[int, bytes], Answer]


def no_fault(_: int, body: bytes) -> Answer:
    """A good reply."""
    return Answer(length_reply(body))


class Trial:
    """One session of two turns, the second of which is tried again and again.

    Attributes:
        body: The body of a reply that a fault spoils.
    """

    def __init__(self, rollouts: Rollouts, sampler: Sampler, session: str) -> None:
        self.body = b""
        self.rollouts = rollouts
        self.path = f"/sessions/{session}"
        self._sampler = sampler
        self._before = b""
        self._kept = (0, 0)

    async def turn(self, count: int = 2, **fields: object) -> httpx.Response:
        """The first or the second turn."""
        messages = [user("hi"), {"role": "assistant", "content": "ok"}, user("more")]
        body = {"messages": messages[: 2 * count - 1], **fields}
        text = json.dumps(body, separators=(",", ":")).encode()
        return await ask(self.rollouts.asgi, "POST", self.path + CHAT, text)

    async def go_on(self, count: int = 2) -> None:
        """The next turn is recorded and can be read."""
        response = await self.turn(count)
        assert response.status_code == 200, response.text
        assert "x-turn-recorded" not in response.headers
        self._before = (await ask(self.rollouts.asgi, "GET", self.path)).content
        self._kept = self.rollouts.kept_bytes
        records = json.loads(self._before)["records"]
        assert len(records) == count
        asked = Asked((), json.dumps(records[-1]["request"]).encode(), 0)
        experts = records[-1]["response"]["choices"][0]["meta_info"]["routed_experts"]
        assert experts == self._sampler.experts(asked)
        self.body = self._sampler.body(asked, is_other=True)

    async def is_unchanged(self) -> None:
        """After a fault: it reads as before and nothing more is held."""
        await wait_until_async(lambda: self.rollouts.kept_bytes == self._kept, "bytes as before")
        assert (await ask(self.rollouts.asgi, "GET", self.path)).content == self._before

    async def fails(self, number: int, status: int, *codes: str) -> None:
        """A fault is told in our shape, changes nothing, and the next turn is recorded."""
        response = await self.turn(fault=number, stream=bool(number % 2))
        assert error_of(response, status)["code"] in codes, number
        assert response.headers["x-should-retry"] == "true"
        assert response.headers["x-turn-recorded"] == "false"
        assert self.tells_nothing(response)
        await self.is_unchanged()
        await self.go_on()

    def tells_nothing(self, response: httpx.Response) -> bool:
        """Whether a reply is without a part of a replay blob."""
        return self._sampler.experts_of(2)[40:80] not in response.text


@asynccontextmanager
async def trials(
    prompts: PromptBuilder, fault_of: FaultOf, *, layers: int = 1, topk: int = 8, **settings: str
) -> AsyncIterator[Callable[[], Any]]:
    """The application on an engine with faults; gives a maker of trials.

    In the end no turn is left, and after the sessions are deleted nothing is stored.
    """
    sampler = Sampler(prompts, layers=layers, topk=topk)

    def answer_of(number: int, asked: Asked) -> Answer:
        return fault_of(number, sampler.body(asked, is_other=True))

    async with (
        raw_engine(answers_with_faults(sampler, answer_of)) as engine,
        open_parts(prompts, f"http://127.0.0.1:{engine.port}", **settings) as rollouts,
    ):
        made: list[Trial] = []

        async def begin() -> Trial:
            trial = Trial(rollouts, sampler, (await create(rollouts.client))["session_id"])
            made.append(trial)
            await trial.go_on(1)
            await trial.go_on(2)
            return trial

        yield begin
        assert not rollouts.core.turns
        for trial in made:
            assert (await rollouts.client.delete(trial.path)).status_code == 204
        await wait_until_async(lambda: rollouts.kept_bytes == (0, 0), "nothing is kept")
