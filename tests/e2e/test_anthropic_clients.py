"""Anthropic's SDK against real groups: turns, its own retries, and what it reads of refusals.

C-T65 of docs/cases.md; the form itself is tested with the application (tests/shard).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import pytest

from sessions.client.answers import Session, prompt_ids, sampled_ids
from sessions.client.sync_client import SessionClient
from sessions.routing.ids import owner_of
from tests.support.group import Groups, RunningGroup, open_groups
from tests.support.waiting import wait_until

ENV = {
    "SESSIONS_ENGINE_URL": "sim:",
    "SESSIONS_TOKENIZER": "pkg:qwen3",
    "SESSIONS_ON_SHARD_EXIT": "continue",
}
TIMEOUT_S = 0.4
ASKED: Any = {
    "model": "sim",
    "max_tokens": 200,
    "system": "You tell the weather.",
    "tools": [
        {
            "name": "get_weather",
            "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
    ],
}


@pytest.fixture(scope="module", params=[1, 3], ids=["lone shard", "three shards"])
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield groups.start(shards=request.param, env=ENV)


@contextmanager
def open_session(group: RunningGroup) -> Iterator[tuple[SessionClient, Session]]:
    with SessionClient(group.url) as client:
        session = client.create()
        yield client, session
        client.delete(session.session_id)


@contextmanager
def sdk(base_url: str, **options: Any) -> Iterator[anthropic.Anthropic]:  # noqa: ANN401
    with anthropic.Anthropic(
        base_url=base_url, **{"api_key": "any", "max_retries": 0, **options}
    ) as client:
        yield client


def ask(client: anthropic.Anthropic, history: list[Any], *, streams: bool, **more: Any) -> Any:  # noqa: ANN401
    asked = {**ASKED, "messages": history, **more}
    if not streams:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


def test_an_agent_plays_ten_turns_with_tools_and_every_token_is_kept(group: RunningGroup):
    with open_session(group) as (sessions, session):
        base = session.anthropic_base_url
        history: list[Any] = [{"role": "user", "content": "weather in Oslo?"}]
        with sdk(base) as by_path, sdk(group.url, api_key=session.session_key) as by_key:
            for number in range(10):
                client = by_key if number % 3 == 2 else by_path
                message = ask(client, history, streams=bool(number % 2))
                results = [
                    {"type": "tool_result", "tool_use_id": block.id, "content": "4 degrees"}
                    for block in message.content
                    if block.type == "tool_use"
                ]
                said = results or "and tomorrow?"
                history += [message.to_param(), {"role": "user", "content": said}]
        assert any(isinstance(message["content"], list) for message in history[2::2])
        found = sessions.records(session.session_id)
        assert len(found.records) == 10
        tokens: list[int] = []
        for record in found.records:
            prompt = list(prompt_ids(record))
            assert prompt[: len(tokens)] == tokens
            tokens = prompt + list(sampled_ids(record))


def engine_saw(session: Session) -> int:
    """How many chats the engine of the session's shard ever got."""
    url = f"{session.anthropic_base_url}/sim/requests"
    return int(httpx2.get(url).json()["seen"])


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "streamed"])
def test_the_sdks_own_retries_are_one_turn(group: RunningGroup, *, streams: bool):
    attempts: list[int] = []

    def on_request(request: httpx2.Request) -> None:
        attempts.append(int(request.headers["x-stainless-retry-count"]))

    with (
        open_session(group) as (sessions, session),
        httpx2.Client(event_hooks={"request": [on_request]}) as http,
        sdk(
            session.anthropic_base_url,
            max_retries=6,
            timeout=TIMEOUT_S,
            http_client=http,
        ) as client,
    ):
        before = engine_saw(session)
        history = [{"role": "user", "content": "hi"}]
        # The first attempt is given up before the engine begins to answer.
        sim = {"sim": {"delay_s": 3 * TIMEOUT_S}}
        message = ask(client, history, streams=streams, extra_body=sim)
        assert attempts[:2] == [0, 1]
        (record,) = sessions.records(session.session_id).records
        assert record["response"]["id"] == message.id
        assert engine_saw(session) == before + 1


def test_the_sdk_reads_what_the_gate_refuses(group: RunningGroup):
    with (
        sdk(f"{group.url}/sessions/no!id") as client,
        pytest.raises(anthropic.BadRequestError) as raised,
    ):
        ask(client, [{"role": "user", "content": "hi"}], streams=False)
    assert (raised.value.type, raised.value.error_code) == (
        "invalid_request_error",
        "bad_session_id",
    )


def test_the_sdk_reads_that_the_sessions_shard_died(groups: Groups):
    group = groups.start(shards=2, env=ENV)
    with SessionClient(group.url) as sessions:
        session = sessions.create()
    owner = owner_of(session.session_id, 2)
    group.signal(f"shard {owner}", signal.SIGKILL)
    with sdk(session.anthropic_base_url) as client:

        def error() -> anthropic.APIError:
            with pytest.raises(anthropic.APIError) as raised:
                ask(client, [{"role": "user", "content": "hi"}], streams=True)
            return raised.value

        wait_until(lambda: getattr(error(), "status_code", 0) == 410, "the shard is known as gone")
        found = error()
    assert isinstance(found, anthropic.APIStatusError)
    assert (found.type, found.error_code) == ("not_found_error", "shard_gone")
