"""Turns of sessions that were opened with options, and what their records say."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sessions.core.open_sessions.session_options import SessionOptions
from sessions.errors.client_visible import RequestError
from sessions.errors.turns import TokenLimitError, TurnLimitError
from tests.support.desk import assistant, is_recorded
from tests.support.engines import json_reply
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]


async def test_a_client_cannot_override_what_its_session_fixes(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open(sampling={"temperature": 0.5, "max_tokens": 7})
        response = await desk.chat(session, "hi", temperature=2, max_completion_tokens=9, top_p=0.1)
        assert is_recorded(response)
        (sent,) = desk.engine.bodies
        assert (sent["temperature"], sent["max_tokens"], sent["top_p"]) == (0.5, 7, 0.1)
        assert "max_completion_tokens" not in sent
        (record,) = (await desk.read(session))["records"]
        assert record["request"]["temperature"] == 0.5


async def test_a_malformed_body_opens_no_session(open_desk: OpenDesk):
    async with open_desk() as desk:
        with pytest.raises(RequestError) as caught:
            desk.open(sampling={"heat": 1})
        assert caught.value.param == "sampling.heat"
        assert len(desk.registry) == 0


async def test_a_turn_over_the_sessions_turns_is_refused_before_the_engine(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open(max_turns=1)
        await desk.chat(session, "hi")
        with pytest.raises(TurnLimitError) as caught:
            await desk.chat(session, "hi", assistant("ok"), "more")
        assert caught.value.is_unrecorded_turn
        assert len(desk.engine.requests) == 1
        # The turn that is there may be sampled anew.
        assert is_recorded(await desk.chat(session, "hi"))


async def test_the_limits_of_the_settings_hold_where_a_session_says_nothing(open_desk: OpenDesk):
    async with open_desk(session=SessionOptions(max_session_tokens=20)) as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        with pytest.raises(TokenLimitError):
            await desk.chat(session, "hi", assistant("ok"), "word " * 20)
        with pytest.raises(RequestError) as caught:
            desk.open(max_session_tokens=21)
        assert caught.value.param == "max_session_tokens"
        assert len(desk.engine.requests) == 1


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("stop", {"finish_reason": "stop"}),
        ("tool_calls", {"finish_reason": "tool_calls"}),
        ("length", {"finish_reason": "length", "partial": True}),
        ("abort", {"finish_reason": "abort", "partial": True}),
        (None, {}),
    ],
)
async def test_a_record_says_how_its_turn_ended(
    reason: str | None, told: dict[str, Any], open_desk: OpenDesk
):
    async with open_desk() as desk:
        document = desk.document("ok")
        document["choices"][0]["finish_reason"] = reason
        desk.engine.answers = [json_reply(document)]
        session = desk.open()
        assert is_recorded(await desk.chat(session, "hi"))
        (record,) = (await desk.read(session))["records"]
        asked = await desk.read(session, b"fields=finish_reason,partial,weight_version")
        assert asked["records"] == [told]
        assert told.items() <= record.items()


async def test_each_record_says_which_weights_sampled_it(open_desk: OpenDesk):
    async with open_desk() as desk:
        documents = [desk.document("ok"), desk.document("ok")]
        for version, document in enumerate(documents):
            document["choices"][0]["meta_info"]["weight_version"] = f"v{version}"
        desk.engine.answers = [json_reply(document) for document in documents]
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("ok"), "more")
        records = (await desk.read(session))["records"]
        assert [record["weight_version"] for record in records] == ["v0", "v1"]


@pytest.mark.parametrize("limit", [{"max_turns": 1}, {"max_session_tokens": 20}])
@pytest.mark.parametrize("mode", ["linear", "tree"])
async def test_a_turn_that_finds_its_session_full_at_the_end_is_not_recorded(
    mode: str, limit: dict[str, int], open_desk: OpenDesk
):
    async with open_desk() as desk:
        session = desk.open(mode=mode, **limit)
        desk.engine.gate.clear()
        turns = [desk.chat_later(session, text) for text in ("one", "other")]
        await wait_until_async(lambda: desk.engine.waiting == 2, "both are at the engine")
        desk.engine.gate.set()
        replies = [await turn for turn in turns]
        assert sorted(map(is_recorded, replies)) == [False, True]
        assert len((await desk.read(session))["records"]) == 1
        assert json.loads(replies[0].body)["choices"]


async def test_the_turns_of_all_branches_of_a_tree_count_and_a_retry_does_too(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open(mode="tree", max_turns=2)
        for text in ("one", "two"):
            assert is_recorded(await desk.chat(session, text))
        with pytest.raises(TurnLimitError):
            await desk.chat(session, "two")


async def test_the_tokens_of_all_branches_of_a_tree_count_shared_ones_once(open_desk: OpenDesk):
    async with open_desk() as desk:
        probe = desk.open()
        await desk.chat(probe, "one")
        metadata = (await desk.read(probe))["metadata"]
        size = len(metadata["accumulated_token_ids"])
        session = desk.open(mode="tree", max_session_tokens=2 * size)
        await desk.chat(session, "one")
        await desk.chat(session, "one")
        with pytest.raises(TokenLimitError):
            await desk.chat(session, "one")
