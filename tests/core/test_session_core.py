import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.responses import Response

from sessions.errors.engine import EngineReplyUnusableError, EngineTimeoutError
from sessions.errors.group import NotReadyError
from sessions.errors.sessions import GoneSessionError, UnknownSessionError
from tests.support.desk import assistant, body_of, is_recorded
from tests.support.engines import json_reply
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]


async def test_a_new_session_comes_with_its_addresses_and_key(open_desk: OpenDesk):
    async with open_desk() as desk:
        created = json.loads(desk.core.create("http://x:1").body)
        session = created["session_id"]
        assert created == {
            "session_id": session,
            "base_url": f"http://x:1/sessions/{session}/v1",
            "anthropic_base_url": f"http://x:1/sessions/{session}",
            "session_key": f"key of {session}",
        }
        assert len(session) == 32


async def test_an_empty_session_reads_as_documented(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        assert await desk.read(session) == {
            "session_id": session,
            "records": [],
            "metadata": {"accumulated_token_ids": [], "max_trim_tokens": 0},
        }


async def test_reading_takes_nothing_away_and_states_its_length(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        first, second = [await desk.core.read(session, desk.request(b"")) for _ in range(2)]
        text = await body_of(first)
        assert int(first.headers["content-length"]) == len(text)
        assert await body_of(second) == text


async def test_the_comparison_is_made_once_for_a_checkpoint(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
):
    calls = 0
    async with open_desk() as desk:
        whole = desk.prompts.whole

        def counted(*args: Any) -> list[int]:  # noqa: ANN401 - passed on
            nonlocal calls
            calls += 1
            found: list[int] = whole(*args)
            return found

        monkeypatch.setattr(desk.prompts, "whole", counted)
        session = desk.open()
        await desk.chat(session, "hi")
        assert await desk.read(session) == await desk.read(session)
        assert calls == 1
        await desk.chat(session, "hi", assistant("ok"), "more")
        await desk.read(session)
        assert calls == 2


async def test_a_mismatch_is_reported_with_what_differs(open_desk: OpenDesk):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["message"]["content"] = "not what was sampled"
        desk.engine.answers = [json_reply(document)]
        session = desk.open()
        await desk.chat(session, "hi")
        (mismatch,) = (await desk.read(session))["metadata"]["tito_session_mismatch"]
        assert mismatch["type"] == "assistant_text"
        assert "not what was sampled" in mismatch["expected_text"]


async def test_a_history_that_cannot_be_rendered_is_read_without_a_comparison(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")

        def fail(*_: object) -> list[int]:
            raise RecursionError

        monkeypatch.setattr(desk.prompts, "whole", fail)
        read = await desk.read(session)
        assert "tito_session_mismatch" not in read["metadata"]
        assert len(read["records"]) == 1


async def test_a_stream_that_is_done_in_time_has_a_length_and_a_record(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        response = await desk.chat(session, "hi", stream=True)
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["content-length"] == str(len(response.body))
        assert response.body.endswith(b"data: [DONE]\n\n")
        assert "stream" not in desk.engine.bodies[0]
        # Recorded before the first byte was sent.
        assert await desk.contents(session) == ["ok"]


async def test_streamed_and_plain_turns_leave_equal_records(open_desk: OpenDesk):
    async with open_desk() as desk:
        records = []
        for fields in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
            session = desk.open()
            await desk.chat(session, "hi", **fields)
            (record,) = (await desk.read(session))["records"]
            records.append({k: v for k, v in record.items() if "timestamp" not in k})
        assert records[0] == records[1]


async def streamed(response: Response) -> bytes:
    return await body_of(response)


async def test_a_slow_stream_sends_comments_and_then_the_turn(open_desk: OpenDesk):
    async with open_desk(keepalive_s=0.01) as desk:
        session = desk.open()
        desk.engine.gate.clear()
        response = await desk.chat(session, "hi", stream=True)
        body = asyncio.create_task(streamed(response))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        desk.engine.gate.set()
        text = await body
        assert text.startswith(b": waiting for the engine\n\n")
        assert text.endswith(b"data: [DONE]\n\n")
        assert await desk.contents(session) == ["ok"]


async def test_an_error_of_a_slow_stream_is_an_event(open_desk: OpenDesk):
    async with open_desk(json_reply({"message": "no"}, 400), keepalive_s=0.01) as desk:
        desk.engine.gate.clear()
        response = await desk.chat(desk.open(), "hi", stream=True)
        assert response.status_code == 200
        desk.engine.gate.set()
        text = await streamed(response)
        assert b'data: {"error":{"message":"no"' in text
        assert b"[DONE]" not in text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_outlives_its_client(open_desk: OpenDesk, *, stream: bool):
    async with open_desk(keepalive_s=0.01) as desk:
        session = desk.open()
        desk.engine.gate.clear()
        request = asyncio.create_task(desk.chat(session, "hi", stream=stream))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        desk.gone.set()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        desk.engine.gate.set()
        await wait_until_async(lambda: not desk.core.turns, "the turn ended")
        assert await desk.contents(session) == ["ok"]
        assert desk.engine.cancelled == 0


async def test_a_turn_that_fails_without_its_client_is_not_left_unheard(open_desk: OpenDesk):
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with open_desk(EngineTimeoutError("silent")) as desk:
        desk.engine.gate.clear()
        request = asyncio.create_task(desk.chat(desk.open(), "hi"))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        desk.engine.gate.set()
        await wait_until_async(lambda: not desk.core.turns, "the turn ended")
        # Its traceback holds the turn, which complains only when it is collected.
        del request
        gc.collect()
    assert unheard == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_is_gone_cancels_its_turn_when_the_setting_says_so(
    open_desk: OpenDesk, *, stream: bool
):
    async with open_desk(cancel_on_disconnect=True) as desk:
        session = desk.open()
        desk.engine.gate.clear()
        request = asyncio.create_task(desk.chat(session, "hi", stream=stream))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        desk.gone.set()
        assert (await request).status_code == 499
        assert desk.engine.cancelled == 1
        read = await desk.read(session)
        assert read["records"] == []
        (cancelled,) = read["metadata"]["cancelled_turns"]
        assert cancelled["path"] == "/v1/chat/completions"
        assert cancelled["request_timestamp"] <= cancelled["timestamp"]
        desk.engine.gate.set()
        assert is_recorded(await desk.chat(session, "hi"))


async def test_a_stream_whose_client_leaves_after_a_comment_is_cancelled_likewise(
    open_desk: OpenDesk,
):
    async with open_desk(cancel_on_disconnect=True, keepalive_s=0.01) as desk:
        session = desk.open()
        desk.engine.gate.clear()
        response = await desk.chat(session, "hi", stream=True)
        body = asyncio.create_task(streamed(response))
        desk.gone.set()
        assert b"[DONE]" not in await body
        assert desk.engine.cancelled == 1
        assert len((await desk.read(session))["metadata"]["cancelled_turns"]) == 1


@pytest.mark.parametrize("operation", ["read", "delete", "chat", "proxy", "models"])
async def test_an_unknown_session_is_a_404_everywhere(operation: str, open_desk: OpenDesk):
    async with open_desk() as desk:
        request = desk.request(b"{}")
        core = desk.core

        async def delete() -> Response:
            refused: Response = core.delete("x")
            return refused

        work = {
            "read": lambda: core.read("x", request),
            "delete": delete,
            "chat": lambda: core.chat("x", request),
            "proxy": lambda: core.proxy("x", b"/health", request),
            "models": lambda: core.models("x", request),
        }[operation]
        with pytest.raises(UnknownSessionError):
            await work()
        with pytest.raises(UnknownSessionError):
            core.check_known("x")
        assert desk.engine.requests == []


async def test_a_deleted_session_is_gone_everywhere_and_its_memory_free(open_desk: OpenDesk):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["meta_info"]["routed_experts"] = "QUJD" * 100
        desk.engine.answers = [json_reply(document)]
        session = desk.open()
        await desk.chat(session, "hi")
        assert desk.replay.stored_bytes == 400
        response = desk.core.delete(session)
        assert (response.status_code, response.body) == (204, b"")
        assert "content-type" not in response.headers
        assert desk.replay.stored_bytes == 0
        assert desk.engine.forgotten == [session]
        for work in (desk.core.check_known, desk.core.delete):
            with pytest.raises(GoneSessionError):
                work(session)
        with pytest.raises(GoneSessionError):
            await desk.core.read(session, desk.request(b""))


async def test_a_read_that_began_before_a_delete_is_whole(open_desk: OpenDesk):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["meta_info"]["routed_experts"] = "QUJD" * 100
        desk.engine.answers = [json_reply(document)]
        session = desk.open()
        await desk.chat(session, "word " * 5000)  # long enough to be compared in a thread
        reading = asyncio.create_task(desk.core.read(session, desk.request(b"")))
        await asyncio.sleep(0)
        assert not reading.done()
        desk.core.delete(session)
        (record,) = json.loads(await body_of(await reading))["records"]
        assert record["response"]["choices"][0]["meta_info"]["routed_experts"] == "QUJD" * 100
        assert desk.replay.stored_bytes == 0


async def test_a_read_gives_what_its_query_chooses(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        assert set(await desk.read(session, b"fields=metadata")) == {"session_id", "metadata"}
        read = await desk.read(session, b"fields=method&turns=0")
        assert read == {"session_id": session, "records": [{"method": "POST"}]}


async def test_deleting_waits_for_nothing(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        desk.engine.gate.clear()
        turn = asyncio.create_task(desk.chat(session, "hi"))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        assert desk.core.delete(session).status_code == 204
        assert not turn.done()
        desk.engine.gate.set()
        assert (await turn).status_code == 200


async def test_a_session_idles_from_the_end_of_its_turn_on(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.registry.find(desk.open())
        desk.engine.gate.clear()
        turn = asyncio.create_task(desk.chat(session.session_id, "hi"))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        used_at = session.used_at
        desk.engine.gate.set()
        assert (await turn).status_code == 200
        assert session.used_at > used_at


async def test_anything_else_passes_to_the_engine_and_back(open_desk: OpenDesk):
    reply = json_reply({"a": 1}, 202, [("x-a", "1"), ("set-cookie", "a=1"), ("set-cookie", "b=2")])
    async with open_desk(reply) as desk:
        session = desk.open()
        request = desk.request(b"body", [(b"content-type", b"text/csv")], b"q=1")
        response = await desk.core.proxy(session, b"/a%2Fb", request)
        assert response.status_code == 202
        assert response.body == b'{"a": 1}'
        assert response.headers.getlist("set-cookie") == ["a=1", "b=2"]
        assert response.headers["x-a"] == "1"
        (sent,) = desk.engine.requests
        assert (sent.method, sent.target, sent.body) == ("POST", b"/a%2Fb?q=1", b"body")
        assert (b"content-type", b"text/csv") in sent.headers
        assert (b"x-smg-routing-key", session.encode()) in sent.headers
        assert (await desk.read(session))["records"] == []


@pytest.mark.parametrize("in_session", [True, False])
async def test_models_are_listed_as_openai_does(open_desk: OpenDesk, *, in_session: bool):
    reply = json_reply({"object": "list", "data": [{"id": "m", "max_model_len": 9}]})
    async with open_desk(reply) as desk:
        session = desk.open() if in_session else ""
        response = await desk.core.models(session, desk.request(b""))
        assert json.loads(response.body) == {
            "object": "list",
            "data": [
                {
                    "id": "m",
                    "object": "model",
                    "created": 0,
                    "owned_by": "engine",
                    "max_model_len": 9,
                }
            ],
        }
        assert desk.engine.requests[0].target == b"/v1/models"


@pytest.mark.parametrize("document", [b"", b"x", {"ok": True}, {"data": [1]}, {"data": [{}]}, []])
async def test_an_engine_that_lists_no_models_is_a_502(document: Any, open_desk: OpenDesk):  # noqa: ANN401
    async with open_desk(json_reply(document)) as desk:
        with pytest.raises(EngineReplyUnusableError):
            await desk.core.models("", desk.request(b""))


async def test_a_refusal_of_models_passes(open_desk: OpenDesk):
    async with open_desk(json_reply({"message": "no"}, 401)) as desk:
        assert (await desk.core.models("", desk.request(b""))).status_code == 401


async def test_closing_ends_the_turns_that_are_left(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        desk.engine.gate.clear()
        turn = asyncio.create_task(desk.chat(session, "hi"))
        await wait_until_async(lambda: desk.engine.waiting == 1, "the turn is at the engine")
        await desk.core.close()
        with pytest.raises(NotReadyError):
            await turn
        assert desk.engine.cancelled == 1


async def test_a_session_that_idles_expires_and_its_blobs_are_freed(open_desk: OpenDesk):
    async with open_desk(routing_replay=True) as desk:
        document = desk.document("ok")
        document["choices"][0]["meta_info"]["routed_experts"] = "QUJD" * 200
        desk.engine.answers = [json_reply(document)]
        session_id = desk.open()
        await desk.chat(session_id, "hi")
        assert desk.replay.stored_bytes
        expiry = asyncio.create_task(desk.core.expire_idle(0.2))
        await wait_until_async(lambda: not desk.registry, "the session expired")
        expiry.cancel()
        await asyncio.gather(expiry, return_exceptions=True)
        with pytest.raises(GoneSessionError, match="expired"):
            await desk.read(session_id)
        with pytest.raises(GoneSessionError, match="expired"):
            await desk.chat(session_id, "hi")
        assert desk.core.ended_sessions == 1
        assert desk.replay.stored_bytes == 0
        assert desk.engine.forgotten == [session_id]
