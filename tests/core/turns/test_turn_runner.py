import json
from collections.abc import Callable
from typing import Any

import pytest

from sessions.engine.engine import EngineReply
from sessions.errors.client_visible import ClientVisibleError, InternalError, RequestError
from sessions.errors.engine import EngineTimeoutError
from sessions.errors.turns import HistoryMismatchError
from sessions.tokens.prompts import Joint
from tests.support.desk import assistant, is_recorded
from tests.support.engines import json_reply, sampled_document

OpenDesk = Callable[..., Any]
BLOB = "QUJD" * 200


async def error_of(turn: Any) -> ClientVisibleError:  # noqa: ANN401 - a coroutine
    with pytest.raises(ClientVisibleError) as caught:
        await turn
    return caught.value


async def test_a_turn_is_sampled_recorded_and_answered(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        response = await desk.chat(session, "hi", model="m")
        read = await desk.read(session)
        assert response.status_code == 200
        assert is_recorded(response)
        (record,) = read["records"]
        assert record["path"] == "/v1/chat/completions"
        assert record["method"] == "POST"
        assert record["status_code"] == 200
        assert record["request"] == desk.engine.bodies[0]
        assert record["request_timestamp"] <= record["timestamp"]
        ids = desk.sampled_ids("ok")
        assert read["metadata"] == {
            "tito_session_mismatch": [],
            "accumulated_token_ids": record["request"]["input_ids"] + ids,
            "max_trim_tokens": 0,
        }


async def test_the_next_prompt_begins_with_the_exact_tokens_of_the_last_turn(open_desk: OpenDesk):
    # Sampled letter by letter: encoding the text again would give other ids.
    async with open_desk() as desk:
        encode = desk.prompts.tokenizer.encode
        start, stop = encode("<think>\n\n</think>\n\n"), encode("<|im_end|>")
        letters = [i for c in "hello" for i in encode(c)]
        spelled = [*start, *letters, *stop]
        assert spelled != desk.sampled_ids("hello")
        document = sampled_document(spelled, content="hello")
        desk.engine.answers = [json_reply(document), desk.says("ok")]
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("hello"), "more")
        first, second = (body["input_ids"] for body in desk.engine.bodies)
        sampled = first + spelled
        assert second[: len(sampled)] == sampled
        assert len(second) > len(sampled)
        mismatch = (await desk.read(session))["metadata"]["tito_session_mismatch"]
        assert mismatch == []


async def test_two_tool_results_are_appended_in_the_order_sent(open_desk: OpenDesk):
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("first", "second")
    ]
    tools = [{"type": "function", "function": {"name": name}} for name in ("first", "second")]
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("", tool_calls=calls), desk.says("done")]
        session = desk.open()
        await desk.chat(session, "hi", tools=tools)
        reply = {"role": "assistant", "content": None, "tool_calls": calls}
        results = [
            {"role": "tool", "tool_call_id": name, "content": f"result {name}"}
            for name in ("second", "first")
        ]
        response = await desk.chat(session, "hi", reply, *results, tools=tools)
        assert is_recorded(response)
        text = desk.prompts.tokenizer.decode(desk.engine.bodies[1]["input_ids"])
        assert 0 < text.index("result second") < text.index("result first")
        assert len((await desk.read(session))["records"]) == 2


async def test_an_extension_by_nothing_asks_for_one_more_reply(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("one"), desk.says("two")]
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("one"))
        assert await desk.contents(session) == ["one", "two"]


async def test_the_last_turn_sent_again_replaces_it(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("one"), desk.says("two"), desk.says("three")]
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("one"), "more")
        await desk.chat(session, "hi", assistant("one"), "more")
        assert await desk.contents(session) == ["one", "three"]


async def test_a_first_turn_sent_again_replaces_it(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("one"), desk.says("two")]
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi")
        assert await desk.contents(session) == ["two"]


async def test_the_replay_of_a_turn_that_is_rolled_back_is_freed(open_desk: OpenDesk):
    async with open_desk() as desk:
        documents = [desk.document("one"), desk.document("two")]
        for number, document in enumerate(documents):
            document["choices"][0]["meta_info"]["routed_experts"] = f"{number:04}{BLOB}"
        desk.engine.answers = [json_reply(document) for document in documents]
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi")
        assert desk.replay.stored_bytes == len(BLOB) + 4
        (record,) = (await desk.read(session))["records"]
        assert record["response"]["choices"][0]["meta_info"]["routed_experts"] == f"0001{BLOB}"


async def test_a_roll_back_is_not_applied_when_the_new_turn_fails(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [
            desk.says("one"),
            desk.says("two"),
            json_reply({"message": "no"}, 400),
            EngineTimeoutError("silent"),
            json_reply({"choices": []}),
            desk.says("three"),
        ]
        session = desk.open()
        history = ["hi", assistant("one"), "more"]
        await desk.chat(session, "hi")
        await desk.chat(session, *history)
        assert (await desk.chat(session, *history)).status_code == 400
        await error_of(desk.chat(session, *history))
        await error_of(desk.chat(session, *history))
        assert await desk.contents(session) == ["one", "two"]
        await desk.chat(session, *history, assistant("two"), "again")
        assert await desk.contents(session) == ["one", "two", "three"]


async def test_a_refused_role_after_a_roll_back_changes_nothing(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        error = await error_of(desk.chat(session, "hi", {"role": "robot", "content": "x"}))
        assert error.status == 400
        assert error.param == "messages[1].role"
        assert await desk.contents(session) == ["ok"]


async def test_a_history_that_differs_by_two_turns_is_refused(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        await desk.chat(session, "hi", assistant("ok"), "more")
        error = await error_of(desk.chat(session, "HI", assistant("ok"), "more", assistant("ok")))
        assert isinstance(error, HistoryMismatchError)
        assert error.param == "messages[0].content"
        assert error.is_unrecorded_turn
        assert len(desk.engine.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"",
        b'{"messages":[]}',
        b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}',
        b'{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"messages":1}}',
        b'{"messages":[{"role":"user","content":' + b"[" * 990 + b"]" * 990 + b"}]}",
    ],
)
async def test_a_request_that_cannot_be_a_turn_never_reaches_the_engine(
    body: bytes, open_desk: OpenDesk
):
    async with open_desk() as desk:
        error = await error_of(desk.core.chat(desk.open(), desk.request(body)))
        assert isinstance(error, RequestError)
        assert error.status == 400
        assert error.is_unrecorded_turn
        assert desk.engine.requests == []


async def test_odd_but_valid_messages_make_a_turn(open_desk: OpenDesk):
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "system", "content": "in the middle", "name": "x"},
        {"role": "user", "content": None},
        {"role": "user", "content": "lone \ud800 surrogate", "unknown": [1]},
    ]
    async with open_desk() as desk:
        session = desk.open()
        response = await desk.chat(session, *messages, tools=[], tool_choice="none")
        assert is_recorded(response)
        sent = desk.engine.bodies[0]
        assert "tools" not in sent
        assert sent["messages"][5] == messages[5]
        text = desk.prompts.tokenizer.decode(sent["input_ids"])
        assert "be brief" in text
        assert "ab" in text
        assert (await desk.read(session))["metadata"]["tito_session_mismatch"] == []


async def test_template_kwargs_reach_the_prompt_and_the_engine(open_desk: OpenDesk):
    async with open_desk() as desk:
        plain, quick = desk.open(), desk.open()
        await desk.chat(plain, "hi")
        await desk.chat(quick, "hi", chat_template_kwargs={"enable_thinking": False})
        first, second = desk.engine.bodies
        assert first["input_ids"] != second["input_ids"]
        assert first["chat_template_kwargs"] == {"clear_thinking": False}
        assert second["chat_template_kwargs"] == {"enable_thinking": False, "clear_thinking": False}


async def test_template_kwargs_that_the_family_fixes_cannot_be_changed(open_desk: OpenDesk):
    async with open_desk() as desk:
        kwargs = {"clear_thinking": True}
        error = await error_of(desk.chat(desk.open(), "hi", chat_template_kwargs=kwargs))
        assert (error.status, error.param) == (400, "chat_template_kwargs.clear_thinking")


async def test_what_nobody_expected_is_a_500_that_is_logged_and_records_nothing(
    open_desk: OpenDesk, caplog: pytest.LogCaptureFixture
):
    async with open_desk(ZeroDivisionError("ours")) as desk:
        session = desk.open()
        error = await error_of(desk.chat(session, "hi"))
        assert isinstance(error, InternalError)
        assert "ours" not in error.message.replace("of ours", "")
        assert "ZeroDivisionError" in caplog.text
        assert (await desk.read(session))["records"] == []


async def test_a_prompt_that_lost_tokens_is_never_sent(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "hi")
        monkeypatch.setattr(
            desk.prompts,
            "join",
            lambda checkpoint, *_, **__: Joint(kept_count=len(checkpoint) - 1, added_ids=[7]),
        )
        error = await error_of(desk.chat(session, "hi", assistant("ok"), "more"))
        assert isinstance(error, InternalError)
        assert len(desk.engine.requests) == 1


async def test_long_texts_are_encoded_off_the_loop(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        long = "word " * 10_000
        response = await desk.chat(session, long)
        assert is_recorded(response)
        assert len(desk.engine.bodies[0]["input_ids"]) > 10_000
        assert (await desk.read(session))["metadata"]["tito_session_mismatch"] == []


async def test_records_share_the_long_texts_of_their_requests(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        long = "word " * 10_000
        await desk.chat(session, long)
        await desk.chat(session, long, assistant("ok"), "more")
        await desk.chat(session, long, assistant("ok"), "more", assistant("ok"), "and more")
        records = desk.registry.find(session).history.records
        held = {id(part): len(part) for record in records for part in record.request}
        whole = sum(len(part) for part in records[-1].request)
        assert whole > 100_000
        assert sum(held.values()) < whole + 20_000
        told = [record["request"] for record in (await desk.read(session))["records"]]
        assert told == desk.engine.bodies
        assert [len(body["messages"]) for body in told] == [1, 3, 5]


@pytest.mark.parametrize("asked", [None, True])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
async def test_the_ids_of_a_long_prompt_come_back_only_if_asked_for_and_stand_in_the_record(
    open_desk: OpenDesk, separators: tuple[str, str], *, asked: bool | None
):
    def answer(request: dict[str, Any]) -> EngineReply:
        document = sampled_document(desk.sampled_ids("ok"), content="ok")
        document["choices"][0]["prompt_token_ids"] = request["input_ids"]
        return json_reply(json.dumps(document, separators=separators).encode())

    async with open_desk(answer) as desk:
        session = desk.open()
        response = await desk.chat(session, "word " * 10_000, return_prompt_token_ids=asked)
        assert is_recorded(response)
        ids = desk.engine.bodies[0]["input_ids"]
        (choice,) = json.loads(bytes(response.body))["choices"]
        assert choice.get("prompt_token_ids") == (ids if asked else None)
        (record,) = (await desk.read(session))["records"]
        assert record["response"]["choices"][0]["prompt_token_ids"] == ids
        (kept,) = desk.registry.find(session).history.records
        own = {id(part) for part in kept.request}
        new = sum(len(part) for part in kept.response.parts if id(part) not in own)
        assert (new < 10_000) == (separators == (",", ":"))


async def test_other_ids_of_a_long_prompt_are_refused(open_desk: OpenDesk):
    def answer(request: dict[str, Any]) -> EngineReply:
        document = sampled_document(desk.sampled_ids("ok"), content="ok")
        document["choices"][0]["prompt_token_ids"] = [*request["input_ids"][:-1], 0]
        return json_reply(json.dumps(document, separators=(",", ":")).encode())

    async with open_desk(answer) as desk:
        error = await error_of(desk.chat(desk.open(), "word " * 10_000))
        assert error.status == 502
        assert "prompt" in error.message


@pytest.mark.parametrize("mode", ["linear", "tree"])
async def test_turns_with_equal_tools_keep_them_once(mode: str, open_desk: OpenDesk):
    def tools(default: object) -> list[Any]:
        schema = {"type": "object", "properties": {"a": {"default": default}}}
        return [{"type": "function", "function": {"name": "f", "parameters": schema}}]

    async with open_desk() as desk:
        session = desk.open(mode=mode)
        said: list[object] = ["hi"]
        # As numbers 1 and true are equal; as tools they are not.
        for default in (1, 1, True):
            await desk.chat(session, *said, tools=tools(default))
            said += [assistant("ok"), "more"]
        first, second, third = (n.checkpoint for n in desk.registry.find(session).history.nodes)
        assert first.tools is second.tools
        assert third.tools is not None
        assert third.tools[0]["function"]["parameters"]["properties"]["a"]["default"] is True
        (text,) = (part for part in first.record.request if b'"tools"' in part)
        assert any(part is text for part in second.record.request)
        assert all(part is not text for part in third.record.request)


async def test_conversations_of_a_tree_that_begin_anew_share_the_tools_of_the_turn_before(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        session = desk.open(mode="tree")
        for said in ("one", "two"):
            await desk.chat(session, said, tools=[{"type": "function", "function": {"name": "f"}}])
        first, second = (n.checkpoint for n in desk.registry.find(session).history.nodes)
        assert first.tools is second.tools
