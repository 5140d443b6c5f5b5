import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from sessions.core.http_exchange.headers import EngineHeaders
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.engine import EngineReplyUnusableError
from sessions.errors.sessions import GoneSessionError
from sessions.errors.turns import ContextLengthError
from tests.support.desk import Desk, assistant, is_recorded
from tests.support.engines import json_reply
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]
BLOB = "QUJD" * 200


async def error_of(turn: Any) -> ClientVisibleError:  # noqa: ANN401 - a coroutine
    with pytest.raises(ClientVisibleError) as caught:
        await turn
    return caught.value


async def test_replay_fields_reach_the_record_and_never_the_client(open_desk: OpenDesk):
    async with open_desk(routing_replay=True) as desk:
        document = desk.document("ok")
        document["choices"][0]["meta_info"]["routed_experts"] = BLOB
        document["choices"][0]["meta_info"]["indexer_topk"] = "short"
        document["sglext"] = {"routed_experts": BLOB, "x": 1}
        raw = json.dumps(document).encode()
        desk.engine.answers = [json_reply(raw)]
        session = desk.open()
        response = await desk.chat(session, "hi")
        assert b"QUJD" not in response.body
        reply = json.loads(response.body)
        assert reply["sglext"] == {"x": 1}
        assert "output_token_logprobs" in reply["choices"][0]["meta_info"]
        assert "indexer_topk" not in reply["choices"][0]["meta_info"]
        assert desk.engine.bodies[0]["return_routed_experts"] is True
        (record,) = (await desk.read(session))["records"]
        assert record["response"] == document
        assert len(BLOB) <= desk.replay.stored_bytes <= len(BLOB) + 8


async def test_the_prompts_ids_stay_with_us_unless_the_client_asked(open_desk: OpenDesk):
    def echo(body: dict[str, Any]) -> Any:  # noqa: ANN401 - an EngineReply
        document = desk.document("ok")
        document["prompt_token_ids"] = body["input_ids"]
        return json_reply(document)

    async with open_desk(echo) as desk:
        session = desk.open()
        plain = await desk.chat(session, "hi")
        asked = await desk.chat(session, "hi", return_prompt_token_ids=True)
        assert b"prompt_token_ids" not in plain.body
        assert json.loads(asked.body)["prompt_token_ids"] == desk.engine.bodies[1]["input_ids"]


async def test_a_prompt_that_the_engine_changed_commits_nothing(
    open_desk: OpenDesk, caplog: pytest.LogCaptureFixture
):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["prompt_token_ids"] = [1, 2, 3]
        desk.engine.answers = [json_reply(document)]
        session = desk.open()
        error = await error_of(desk.chat(session, "hi"))
        assert isinstance(error, EngineReplyUnusableError)
        assert f"turn failed session={session} code=engine_reply_unusable" in caplog.text
        assert (await desk.read(session))["records"] == []


@pytest.mark.parametrize("stream", [False, True])
async def test_numbers_that_are_not_finite_are_null_for_the_client_and_raw_in_the_store(
    open_desk: OpenDesk, *, stream: bool
):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["meta_info"]["routed_experts"] = BLOB
        raw = json.dumps(document).replace("-0.5", "NaN").replace("1700000000", "Infinity")
        desk.engine.answers = [json_reply(raw.encode()), desk.says("more")]
        session = desk.open()
        response = await desk.chat(session, "hi", stream=stream)
        assert is_recorded(response)
        assert b"NaN" not in response.body
        if not stream:
            entries = json.loads(response.body)["choices"][0]["meta_info"]["output_token_logprobs"]
            assert entries[0][0] is None
        shown = (await desk.read(session))["records"][0]["response"]
        assert shown["created"] is None
        assert shown["choices"][0]["meta_info"]["routed_experts"] == BLOB
        kept = (await desk.read(session, b"raw=1"))["records"][0]["response"]
        assert kept["created"] == float("inf")
        assert kept["choices"][0]["meta_info"]["routed_experts"] == BLOB
        # The session goes on.
        assert is_recorded(await desk.chat(session, "hi", assistant("ok"), "go on"))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_lone_surrogate_is_answered_recorded_and_extended(
    open_desk: OpenDesk, *, stream: bool
):
    async with open_desk() as desk:
        text = "a\ud83db"
        desk.engine.answers = [desk.says(text), desk.says("more")]
        session = desk.open()
        response = await desk.chat(session, "hi", stream=stream)
        assert is_recorded(response)
        assert b"a\\ud83db" in response.body
        assert await desk.contents(session) == [text]
        assert is_recorded(await desk.chat(session, "hi", assistant(text), "go on"))


async def test_a_reply_that_cannot_be_rendered_is_not_committed(open_desk: OpenDesk):
    deep = b"[" * 1000 + b"]" * 1000
    async with open_desk() as desk:
        raw = json.dumps(desk.document("ok")).encode()[:-1] + b',"x":' + deep + b"}"
        desk.engine.answers = [json_reply(raw)]
        session = desk.open()
        error = await error_of(desk.chat(session, "hi"))
        assert isinstance(error, EngineReplyUnusableError)
        assert (await desk.read(session))["records"] == []


@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 500, 503, 529])
async def test_a_refusal_of_the_engine_passes_and_the_session_stays_usable(
    status: int, open_desk: OpenDesk
):
    async with open_desk() as desk:
        refusal = json_reply({"object": "error", "message": "no"}, status, [("retry-after", "7")])
        desk.engine.answers = [refusal, desk.says("ok")]
        session = desk.open()
        response = await desk.chat(session, "hi", stream=True)
        assert response.status_code == status
        assert response.body == refusal.body
        assert response.headers["retry-after"] == "7"
        assert not is_recorded(response)
        assert is_recorded(await desk.chat(session, "hi"))
        assert await desk.contents(session) == ["ok"]


async def test_a_status_that_is_no_error_and_not_200_is_not_recorded(open_desk: OpenDesk):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["meta_info"]["routed_experts"] = BLOB
        desk.engine.answers = [json_reply(document, 201)]
        session = desk.open()
        response = await desk.chat(session, "hi")
        assert response.status_code == 201
        assert not is_recorded(response)
        assert b"QUJD" not in response.body
        assert (await desk.read(session))["records"] == []


async def test_a_prompt_that_is_too_long_for_the_engine_is_told_by_code(open_desk: OpenDesk):
    words = "The input (9 tokens) is longer than the model's context length (8 tokens)."
    async with open_desk(json_reply({"object": "error", "message": words}, 400)) as desk:
        error = await error_of(desk.chat(desk.open(), "hi"))
        assert isinstance(error, ContextLengthError)
        assert error.is_unrecorded_turn


async def test_the_engine_gets_our_labels_the_query_and_end_to_end_headers(open_desk: OpenDesk):
    async with open_desk(labels=EngineHeaders(routing_key=b"x-key", api_key="k")) as desk:
        session = desk.open()
        headers = [(b"x-trace", b"1"), (b"connection", b"x-hop"), (b"x-hop", b"1")]
        body = b'{"messages":[{"role":"user","content":"hi"}]}'
        await desk.core.chat(session, desk.request(body, headers, b"a=%20"))
        (request,) = desk.engine.requests
        assert (request.method, request.target) == ("POST", b"/v1/chat/completions?a=%20")
        assert list(request.headers) == [
            (b"x-trace", b"1"),
            (b"accept-encoding", b"identity"),
            (b"content-type", b"application/json"),
            (b"authorization", b"Bearer k"),
            (b"x-key", session.encode()),
        ]


async def hold(desk: Desk, count: int, turns: list[Any]) -> list[asyncio.Task[Any]]:
    """Start turns that stand before the engine's closed gate."""
    desk.engine.gate.clear()
    tasks = [asyncio.create_task(turn) for turn in turns]
    await wait_until_async(lambda: desk.engine.waiting == count, f"{count} turns at the engine")
    return tasks


async def test_of_turns_in_flight_on_one_checkpoint_exactly_one_is_recorded(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        tasks = await hold(desk, 8, [desk.chat(session, "hi", seed=n) for n in range(8)])
        desk.engine.gate.set()
        responses = await asyncio.gather(*tasks)
        assert [response.status_code for response in responses] == [200] * 8
        assert sum(map(is_recorded, responses)) == 1
        assert len((await desk.read(session))["records"]) == 1


async def test_a_turn_is_not_recorded_on_a_checkpoint_that_was_replaced_meanwhile(
    open_desk: OpenDesk, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    async with open_desk() as desk:
        desk.engine.answers = [
            desk.says("one"),
            desk.says("two"),
            desk.says("late"),
            desk.says("two again"),
        ]
        session = desk.open()
        history = ["hi", assistant("one"), "more"]
        await desk.chat(session, "hi")
        await desk.chat(session, *history)
        (late,) = await hold(desk, 1, [desk.chat(session, *history, assistant("two"), "on")])
        gate, desk.engine.gate = desk.engine.gate, asyncio.Event()
        desk.engine.gate.set()
        await desk.chat(session, *history)
        gate.set()
        response = await late
        assert response.status_code == 200
        assert not is_recorded(response)
        assert f"turn not recorded session={session} reason=overtaken" in caplog.text
        assert await desk.contents(session) == ["one", "two again"]


async def test_turns_of_different_sessions_overlap_at_the_engine(open_desk: OpenDesk):
    async with open_desk() as desk:
        tasks = await hold(desk, 8, [desk.chat(desk.open(), "hi") for _ in range(8)])
        desk.engine.gate.set()
        assert all(map(is_recorded, await asyncio.gather(*tasks)))


async def test_a_session_deleted_meanwhile_answers_its_turn_unrecorded(open_desk: OpenDesk):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["meta_info"]["routed_experts"] = BLOB
        desk.engine.answers = [json_reply(document)]
        session = desk.open()
        (turn,) = await hold(desk, 1, [desk.chat(session, "hi")])
        assert desk.core.delete(session).status_code == 204
        desk.engine.gate.set()
        response = await turn
        assert response.status_code == 200
        assert not is_recorded(response)
        assert desk.replay.stored_bytes == 0
        error = await error_of(desk.chat(session, "hi"))
        assert isinstance(error, GoneSessionError)
        assert not error.is_unrecorded_turn


async def test_a_turn_that_waits_for_the_lock_of_a_deleted_session_is_refused(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        session_id = desk.open()
        async with desk.registry.find(session_id).lock:
            turn = asyncio.create_task(desk.chat(session_id, "hi"))
            await wait_until_async(lambda: bool(desk.core.turns), "the turn began")
            desk.core.delete(session_id)
        error = await error_of(turn)
        assert isinstance(error, GoneSessionError)
        assert error.is_unrecorded_turn
        assert desk.engine.requests == []


async def test_a_turn_whose_session_is_deleted_while_it_is_rendered_asks_nothing(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        session_id = desk.open()
        session = desk.registry.find(session_id)
        turn = desk.chat_later(session_id, "word " * 400_000)
        await wait_until_async(session.lock.locked, "the prompt is rendered, in a thread")
        desk.core.delete(session_id)
        error = await error_of(turn)
        assert isinstance(error, GoneSessionError)
        assert error.is_unrecorded_turn
        assert desk.engine.requests == []
