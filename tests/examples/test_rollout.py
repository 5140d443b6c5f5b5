"""The example rollout: its proof finds what it must, and it holds against real groups."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest
from openai.types.chat import ChatCompletionChunk

from examples import rollout
from examples.rollout import Message, Turn, next_messages, run_tool, turn_of_chunks, violations_of
from sessions.client.answers import Records
from tests.support.group import ROOT, Groups

CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Porto"}'},
}


def turn(sent: list[Message], reply: Message, sampled_count: int = 2) -> Turn:
    return Turn(
        form="plain", sent=sent, reply=reply, finish_reason="stop", sampled_count=sampled_count
    )


def record(sent: list[Message], reply: Message, prompt: list[int], sampled: list[int]) -> Message:
    tokens = [[-0.5, token, None] for token in sampled]
    choice = {"message": reply, "meta_info": {"output_token_logprobs": tokens}}
    return {
        "request": {"messages": sent, "input_ids": prompt},
        "response": {"choices": [choice]},
    }


def held() -> tuple[list[Turn], Records]:
    """Two turns with a tool call, and the records that they must give."""
    first: list[Message] = [{"role": "user", "content": "weather?"}]
    calling: Message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    second = [*first, calling, {"role": "tool", "tool_call_id": "call-1", "content": "fine"}]
    answer: Message = {"role": "assistant", "content": "fine", "reasoning_content": "so"}
    recorded = copy.deepcopy(calling) | {"content": ""}
    recorded["tool_calls"][0]["index"] = 0
    records = [
        record(first, recorded, [1, 2], [3, 4]),
        record(second, answer, [1, 2, 3, 4, 5], [6, 7]),
    ]
    metadata = {
        "tito_session_mismatch": [],
        "accumulated_token_ids": [1, 2, 3, 4, 5, 6, 7],
        "max_trim_tokens": 0,
    }
    found = Records(session_id="s", records=records, metadata=metadata)
    return [turn(first, calling), turn(second, answer)], copy.deepcopy(found)


def test_records_that_hold_what_was_said_are_no_violation():
    assert violations_of(*held()) == []


def test_a_prompt_that_changes_an_earlier_token_is_a_violation():
    turns, found = held()
    found.records[1]["request"]["input_ids"][3] = 99
    wrong = violations_of(turns, found)
    assert "turn 2: the prompt does not start with the ids of the turn before" in wrong


def test_a_prompt_may_drop_the_tokens_that_the_family_trims():
    turns, found = held()
    found.records[1]["request"]["input_ids"][3] = 99
    found.metadata["accumulated_token_ids"][3] = 99
    found.metadata["max_trim_tokens"] = 1
    assert violations_of(turns, found) == []


def test_a_mismatch_or_its_absence_is_a_violation():
    turns, found = held()
    found.metadata["tito_session_mismatch"] = [{"type": "non_assistant_text"}]
    assert len(violations_of(turns, found)) == 1
    del found.metadata["tito_session_mismatch"]
    assert violations_of(turns, found) == ["tito_session_mismatch is None"]


def test_a_spelling_of_the_models_own_is_none():
    turns, found = held()
    found.metadata["tito_session_mismatch"] = [{"type": "assistant_text"}]
    assert violations_of(turns, found) == []


def test_reasoning_may_have_the_engines_own_name_in_a_record():
    turns, found = held()
    message = found.records[-1]["response"]["choices"][0]["message"]
    message["reasoning"] = message.pop("reasoning_content")
    assert violations_of(turns, found) == []


def test_a_missing_record_is_a_violation():
    turns, found = held()
    found.records.pop()
    assert violations_of(turns, found) == ["2 turns were held, 1 are recorded"]


def test_other_messages_replies_or_counts_in_a_record_are_violations():
    turns, found = held()
    found.records[0]["request"]["messages"] = [{"role": "user", "content": "else"}]
    found.records[0]["response"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] = "x"
    found.records[1]["response"]["choices"][0]["message"]["reasoning_content"] = "else"
    wrong = violations_of([turns[0], turn(turns[1].sent, turns[1].reply, 3)], found)
    assert wrong == [
        "turn 1: the recorded messages are not the sent ones",
        "turn 1: the recorded reply is not the received one",
        "turn 2: the recorded reply is not the received one",
        "turn 2: 2 ids recorded, 3 reported",
    ]


def test_other_accumulated_ids_are_a_violation():
    turns, found = held()
    found.metadata["accumulated_token_ids"].append(8)
    assert violations_of(turns, found) == ["accumulated_token_ids are not the ids of the last turn"]


def test_deltas_are_joined_by_the_index_of_their_call():
    def delta(finish: str | None = None, **fields: object) -> ChatCompletionChunk:
        choice = {"index": 0, "delta": fields, "finish_reason": finish}
        return chunk([choice], None)

    def chunk(choices: list[Message], usage: object) -> ChatCompletionChunk:
        head = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
        return ChatCompletionChunk.model_validate(head | {"choices": choices, "usage": usage})

    def part(index: int, arguments: str, **fields: object) -> Message:
        return {"index": index, "function": {"arguments": arguments} | fields}

    chunks = [
        delta(role="assistant"),
        delta(reasoning_content="hm"),
        delta(reasoning_content="m"),
        delta(content="One "),
        delta(content="moment."),
        delta(tool_calls=[{"id": "b"} | part(1, "{}", name="g")]),
        delta(tool_calls=[{"id": "a"} | part(0, "", name="f")]),
        delta(tool_calls=[part(0, "{1")]),
        delta(tool_calls=[part(0, "}")]),
        delta(finish="tool_calls"),
        chunk([], {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}),
    ]
    joined = turn_of_chunks([], chunks)
    assert joined.reply == {
        "role": "assistant",
        "content": "One moment.",
        "reasoning_content": "hmm",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{1}"}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert (joined.finish_reason, joined.sampled_count) == ("tool_calls", 9)


def test_tools_answer_any_call_and_calls_are_answered_in_order():
    assert json.loads(run_tool("get_weather", '{"city": "Porto"}'))["city"] == "Porto"
    assert json.loads(run_tool("get_distance", '{"start": "a", "goal": "b"}'))["km"] > 0
    for name, arguments in (("get_weather", "{"), ("get_weather", "[]"), ("nope", "{}")):
        assert "error" in json.loads(run_tool(name, arguments))
    second = CALL | {"id": "call-2"}
    added = next_messages([{"role": "assistant", "tool_calls": [CALL, second]}], 1)
    assert [message["tool_call_id"] for message in added] == ["call-1", "call-2"]
    assert next_messages([{"role": "assistant", "content": "done"}], 1)[0]["role"] == "user"


def test_no_server_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]):
    assert rollout.main(["http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == ("http://127.0.0.1:1 does not answer: connection refused\n")


@pytest.mark.parametrize(("engine", "shards"), [("sim:", 1), ("sim:?dialect=vllm", 4)])
def test_ten_turns_hold_against_a_real_group(groups: Groups, engine: str, shards: int):
    group = groups.start(shards=shards, env={"SESSIONS_ENGINE_URL": engine})
    command = [sys.executable, "-m", "examples.rollout", group.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("10 turns, ")
    assert done.stdout.splitlines()[-1].endswith(" 0 violations")
    assert {line.split()[1] for line in done.stdout.splitlines()[2:12]} == {"plain", "streamed"}
    assert group.terminate() == 0
