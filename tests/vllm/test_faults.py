"""A full context, a client that leaves, an engine that is killed and comes back."""

from __future__ import annotations

import json
from typing import Any

import httpx

from sessions.tokens.tokenizer import Tokenizer
from tests.support.group import RunningGroup
from tests.support.raw import RawConnection, request_bytes
from tests.support.vllm_engine import CONTEXT, VLLMEngine
from tests.support.vllm_talks import END, Talk, open_talk, prompt_in, sampled_in, user
from tests.support.waiting import wait_until

EMPTY = "<think>\n\n</think>\n\n"
_AWAY_S = 30.0


def error_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.headers["x-turn-recorded"] == "false"
    found: dict[str, Any] = reply.json()["error"]
    return found


def words(count: int) -> dict[str, Any]:
    """A question of so many tokens, and some around it."""
    return user("a" + " a" * (count - 1))


def test_a_prompt_over_the_context_is_told_as_that_and_the_session_goes_on(
    group: RunningGroup, tokenizer: Tokenizer
):
    talk = open_talk(group.url, tokenizer)
    talk.say(words(10), forced=f"{EMPTY}ok{END}")
    (record,) = talk.records()
    around = len(prompt_in(record)) - 10
    talk.messages, talk.turns = [], []  # each request below goes one turn back
    for count in (CONTEXT + 50, CONTEXT):  # over it, and filling it
        reply = talk.post(talk.body(words(count - around)))
        assert reply.status_code == 400, reply.text
        assert error_of(reply)["code"] == "context_length_exceeded"
        assert reply.headers["x-should-retry"] == "false"
    talk.say(words(CONTEXT - around - 2), forced=f"{EMPTY}ok{END}")
    assert talk.turns[0].finish_reason == "length"
    (record,) = talk.records()
    assert len(prompt_in(record)) == CONTEXT - 2
    assert len(sampled_in(record)) == 2
    assert record["response"]["prompt_token_ids"] == prompt_in(record)  # long enough to be cut out


def test_a_limit_that_the_engine_refuses_is_no_full_context(
    group: RunningGroup, tokenizer: Tokenizer
):
    talk = open_talk(group.url, tokenizer)
    for limit in (0, 5000):
        reply = talk.post(talk.body(user("hi"), max_tokens=limit))
        assert reply.status_code == 400
        assert error_of(reply)["param"] == "max_tokens"
        assert "context_length_exceeded" not in reply.text
    talk.say(user("hi"), forced=f"{EMPTY}ok{END}")


def ask_long(group: RunningGroup, talk: Talk) -> RawConnection:
    """Begin a turn that takes long; the connection has got nothing yet."""
    # The simulated engine reads `sim`, the real one samples for most of a minute.
    body = talk.body(user("talk long"), sim={"delay_s": 600}, max_tokens=1900, ignore_eos=True)
    connection = RawConnection(group.address)
    path = talk.chat_url.removeprefix(group.url)
    connection.send(request_bytes("POST", path, body=json.dumps(body).encode()))
    return connection


def assert_exact(talk: Talk) -> None:
    """All turns that should be are recorded, and no other."""
    assert [sampled_in(record) for record in talk.records()] == [t.forced for t in talk.turns]


def test_a_client_that_leaves_ends_the_generation(
    group: RunningGroup, engine: VLLMEngine, tokenizer: Tokenizer
):
    talk = open_talk(group.url, tokenizer)
    talk.say(user("hi"), forced=f"{EMPTY}ok{END}")
    wait_until(lambda: engine.running() == 0, "the engine idles", _AWAY_S)
    with ask_long(group, talk):
        wait_until(lambda: engine.running() == 1, "the engine generates", _AWAY_S)
    wait_until(lambda: engine.running() == 0, "the engine stopped", _AWAY_S)
    talk.say(user("short then"), forced=f"{EMPTY}fine{END}")
    assert_exact(talk)


def test_an_engine_that_dies_and_comes_back_finds_its_sessions(
    group: RunningGroup, engine: VLLMEngine, tokenizer: Tokenizer
):
    talk = open_talk(group.url, tokenizer)
    talk.say(user("hi"), forced=f"{EMPTY}ok{END}")
    wait_until(lambda: engine.running() == 0, "the engine idles", _AWAY_S)
    with ask_long(group, talk) as connection:
        wait_until(lambda: engine.running() == 1, "the engine generates", _AWAY_S)
        engine.kill()
        reply = connection.read_reply()
    assert reply.status == 502
    assert json.loads(reply.body)["error"]["code"] == "engine_unreachable"
    for _ in range(2):
        late = talk.post(talk.body(user("there?")))
        assert late.status_code == 502
        assert error_of(late)["code"] == "engine_unreachable"
    assert httpx.get(f"{group.url}/readyz", trust_env=False).status_code == 200
    engine.start()
    talk.say(user("there again?"), forced=f"{EMPTY}fine{END}")
    assert_exact(talk)
    first, second = talk.records()
    history = prompt_in(first) + sampled_in(first)
    assert prompt_in(second)[: len(history)] == history
