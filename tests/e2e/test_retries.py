"""The OpenAI SDK's own retries, driven by real time-outs, against real groups.

C-T47 of docs/cases.md: the client gives up an attempt while the engine samples, and its SDK sends
the same body again with `x-stainless-retry-count`. The second attempt comes either while the turn
is in flight, or when it is recorded and its reply lost; each test decides which.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio.from_thread
import httpx2
import openai
import pytest

from sessions.client.sync_client import SessionClient
from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from tests.support.group import RunningGroup, open_groups
from tests.support.raw_engine import Answer, Asked, RawEngine, raw_engine
from tests.support.raw_replies import length_reply
from tests.support.turn_replies import Sampler
from tests.support.waiting import wait_until

TIMEOUT_S = 0.3
MESSAGES: Any = [{"role": "user", "content": "hi"}]
Hook = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A group, and an engine that answers when it is let."""

    group: RunningGroup
    engine: RawEngine
    portal: anyio.from_thread.BlockingPortal

    def hold(self) -> None:
        self.portal.call(self.engine.gate.clear)

    def release(self) -> None:
        self.portal.call(self.engine.gate.set)

    @property
    def chats(self) -> list[Any]:
        """The bodies of the chats that the engine got."""
        return [
            json.loads(asked.body)
            for asked in list(self.engine.asked)
            if asked.target.startswith("/v1/chat")
        ]


@pytest.fixture(scope="module")
def prompts() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3")


@pytest.fixture(scope="module", params=[1, 3], ids=["lone shard", "three shards"])
def stage(request: pytest.FixtureRequest, prompts: PromptBuilder) -> Iterator[Stage]:
    sampler = Sampler(prompts)
    numbers = itertools.count()

    def answer_of(asked: Asked) -> Answer:
        document = sampler.document(asked)
        document["id"] = f"chat-{next(numbers)}"  # no two samples are equal
        return Answer(length_reply(json.dumps(document).encode()))

    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(raw_engine(answer_of)) as engine,
        open_groups() as groups,
    ):
        env = {
            "SESSIONS_ENGINE_URL": f"http://127.0.0.1:{engine.port}",
            "SESSIONS_ENGINE_DIALECT": "sglang",
            "SESSIONS_PROMPT_ECHO": "optional",
            "SESSIONS_TOKENIZER": "pkg:qwen3",
        }
        group = groups.start(shards=request.param, env=env)
        yield Stage(group=group, engine=engine, portal=portal)


@contextmanager
def sdk(base_url: str, before_attempt: Hook, *, timeout_s: float) -> Iterator[openai.OpenAI]:
    """An SDK client that tells of each of its attempts, counted from 0, before it is sent."""

    def on_request(request: httpx2.Request) -> None:
        before_attempt(int(request.headers["x-stainless-retry-count"]))

    with (
        httpx2.Client(event_hooks={"request": [on_request]}) as http,
        openai.OpenAI(
            base_url=base_url, api_key="x", max_retries=5, timeout=timeout_s, http_client=http
        ) as client,
    ):
        yield client


def ask(client: openai.OpenAI, *, stream: bool) -> tuple[str, str]:
    """(id, text) of one turn."""
    create: Any = client.chat.completions.create
    if not stream:
        reply = create(model="m", messages=MESSAGES)
        return reply.id, reply.choices[0].message.content
    chunks = list(create(model="m", messages=MESSAGES, stream=True))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    return chunks[0].id, "".join(texts)


def only_record(sessions: SessionClient, session_id: str) -> Any:  # noqa: ANN401 - JSON
    (record,) = sessions.records(session_id).records
    return record


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_retry_while_the_turn_is_in_flight_gets_that_turn(stage: Stage, *, stream: bool):
    attempts: list[int] = []
    with (
        SessionClient(stage.group.url) as sessions,
        ThreadPoolExecutor(1) as threads,
    ):
        session = sessions.create()
        before = len(stage.chats)
        stage.hold()
        with sdk(session.base_url, attempts.append, timeout_s=TIMEOUT_S) as client:
            reply = threads.submit(ask, client, stream=stream)
            # Only then has the second one found the turn in flight, and been given up, too.
            wait_until(lambda: len(attempts) >= 3, "the SDK tries for the third time")
            stage.release()
            found = reply.result(timeout=30)
        assert attempts == list(range(len(attempts)))
        assert len(stage.chats) == before + 1
        record = only_record(sessions, session.session_id)
        assert found == (record["response"]["id"], "ok")
        sessions.delete(session.session_id)


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_retry_after_the_turn_was_recorded_gets_its_reply(stage: Stage, *, stream: bool):
    attempts: list[int] = []
    with SessionClient(stage.group.url) as sessions:
        session = sessions.create()
        before = len(stage.chats)

        def is_recorded() -> bool:
            return len(sessions.records(session.session_id).records) == 1

        def before_attempt(number: int) -> None:
            attempts.append(number)
            if number == 1:  # the first one is given up by now
                stage.release()
                wait_until(is_recorded, "the turn is recorded")

        stage.hold()
        with sdk(session.base_url, before_attempt, timeout_s=TIMEOUT_S) as client:
            found = ask(client, stream=stream)
        assert attempts[:2] == [0, 1]
        assert len(stage.chats) == before + 1
        record = only_record(sessions, session.session_id)
        assert found == (record["response"]["id"], "ok")
        sessions.delete(session.session_id)


def test_the_same_turn_asked_again_by_the_caller_is_a_new_sample(stage: Stage):
    with SessionClient(stage.group.url) as sessions:
        session = sessions.create()
        before = len(stage.chats)
        with sdk(session.base_url, lambda _: None, timeout_s=30) as client:
            first, second = ask(client, stream=False), ask(client, stream=False)
        assert first != second
        assert len(stage.chats) == before + 2
        assert only_record(sessions, session.session_id)["response"]["id"] == second[0]
        sessions.delete(session.session_id)
