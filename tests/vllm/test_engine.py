"""What the engine itself does, without a server of ours: the simulated one must do the same."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest

from sessions.sim.vllm_parsers import parse_vllm_reply
from sessions.tokens.tokenizer import Tokenizer
from tests.support.vllm_engine import CONTEXT, EXPERTS, LAYERS, TOPK, VLLMEngine
from tests.support.vllm_talks import END, TOOLS

PROMPT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
EMPTY = "<think>\n\n</think>\n\n"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city":   "Ós"}}\n</tool_call>'
SWITCHES = [(), ("thinking",), ("tools",), ("thinking", "tools")]
TEXTS = [
    "ok",
    f"{EMPTY}ok",
    EMPTY,
    "<think>hmm</think>ok",
    "x<think>hmm</think>ok",
    "<think>hmm",
    "<think>\nhmm\n</think>\n\nok",
    CALL,
    f"{EMPTY}{CALL}",
    f"{EMPTY}{CALL}\n{CALL}",
    f"{EMPTY}say\n{CALL}\nafter\n",
    f"{EMPTY}say\n{CALL.removesuffix('</tool_call>')}",
    f"{EMPTY}say\n{CALL[:-30]}",
    f"{EMPTY}say\n<tool_call>\n" + '{"name": "f", broken\n</tool_call>',
    f"{EMPTY}say\n<tool_call>\n" + '{"name": "f"}\n</tool_call>',
    f"{EMPTY}say\n<tool_call>\n" + '{"name": "f", "arguments": "text"}\n</tool_call>',
    f"<think>\n{CALL}\n</think>\n\nok",
]


@pytest.fixture
def prompt(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode(PROMPT)


def asked(prompt: list[int], ids: list[int], **fields: object) -> dict[str, Any]:
    return {
        "kv_transfer_params": {"prompt_token_ids": prompt},
        "return_token_ids": True,
        "logprobs": True,
        "vllm_xargs": {"force_ids": ids},
        **fields,
    }


def rows_of(reply: dict[str, Any]) -> np.ndarray:
    text = reply["choices"][0]["routed_experts"]
    rows: np.ndarray = np.load(io.BytesIO(base64.b64decode(text)))
    return rows


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("text", TEXTS)
def test_a_reply_is_parsed_as_the_simulated_engine_parses_it(
    engine: VLLMEngine,
    tokenizer: Tokenizer,
    prompt: list[int],
    text: str,
    switches: tuple[str, ...],
):
    ids = tokenizer.encode(text + END)
    thinking, tools = "thinking" in switches, TOOLS if "tools" in switches else None
    switch = {"enable_thinking": thinking}
    reply = engine.chat(**asked(prompt, ids, tools=tools, chat_template_kwargs=switch))
    (choice,) = reply["choices"]
    message = choice["message"]
    expected = parse_vllm_reply(text, calls=tools is not None, thinking=thinking)
    assert (message["content"], message["reasoning"]) == (
        expected.content or None,
        expected.reasoning,
    )
    functions = [call["function"] for call in message.get("tool_calls") or []]
    assert functions == [{"name": c.name, "arguments": c.arguments} for c in expected.calls]
    assert choice["finish_reason"] == ("tool_calls" if expected.calls else "stop")
    assert choice["token_ids"] == ids
    assert choice["stop_reason"] is None


def test_a_reply_has_the_keys_that_are_simulated(
    engine: VLLMEngine, tokenizer: Tokenizer, prompt: list[int]
):
    reply = engine.chat(**asked(prompt, tokenizer.encode(f"{EMPTY}{CALL}{END}"), tools=TOOLS))
    assert " ".join(reply) == (
        "id object created model choices service_tier system_fingerprint usage prompt_logprobs"
        " prompt_token_ids prompt_text kv_transfer_params ec_transfer_params metrics"
    )
    (choice,) = reply["choices"]
    assert " ".join(choice) == (
        "index message logprobs finish_reason stop_reason token_ids routed_experts"
    )
    assert " ".join(choice["message"]) == (
        "role content refusal annotations audio function_call tool_calls reasoning"
    )
    (call,) = choice["message"]["tool_calls"]
    assert " ".join(call) == "id type function"
    (entry, *_) = choice["logprobs"]["content"]
    assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
    assert " ".join(reply["usage"]) == (
        "prompt_tokens total_tokens completion_tokens prompt_tokens_details"
        " completion_tokens_details"
    )
    assert reply["prompt_token_ids"] == prompt


@pytest.mark.parametrize(("cut", "calls"), [(3, 0), (2, 1), (1, 1), (0, 1)])
def test_a_limit_after_a_whole_call_is_not_told(
    engine: VLLMEngine, tokenizer: Tokenizer, prompt: list[int], cut: int, calls: int
):
    ids = tokenizer.encode(f"{EMPTY}say\n{CALL}{END}")
    limit = len(ids) - cut
    (choice,) = engine.chat(**asked(prompt, ids, tools=TOOLS, max_tokens=limit))["choices"]
    assert choice["token_ids"] == ids[:limit]
    assert choice["finish_reason"] == ("tool_calls" if calls else "length")
    assert len(choice["message"].get("tool_calls") or []) == calls


def test_rows_are_an_npy_file_and_begin_where_they_are_asked_for(
    engine: VLLMEngine, tokenizer: Tokenizer, prompt: list[int]
):
    ids = tokenizer.encode(f"ok then{END}")
    rows = rows_of(engine.chat(**asked(prompt, ids)))
    assert rows.dtype == np.uint8
    assert rows.shape == (len(prompt) + len(ids) - 1, LAYERS, TOPK)
    assert rows.max() < EXPERTS
    for start in (1, len(prompt)):
        tail = rows_of(engine.chat(**asked(prompt, ids, routed_experts_prompt_start=start)))
        assert (tail == rows[start:]).all()


def test_a_stop_string_cuts_the_text_and_not_the_ids(
    engine: VLLMEngine, tokenizer: Tokenizer, prompt: list[int]
):
    ids = tokenizer.encode(f"{EMPTY}one two STOP three{END}")
    (choice,) = engine.chat(**asked(prompt, ids, stop=["STOP"]))["choices"]
    assert choice["message"]["content"] == "\n\none two "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "STOP")
    assert tokenizer.decode(choice["token_ids"]).endswith(" STOP")


REFUSALS: list[tuple[dict[str, object], tuple[int, str, str | None, str]]] = [
    (
        {"kv_transfer_params": {"prompt_token_ids": [1] * (CONTEXT + 9)}},
        (
            400,
            "BadRequestError",
            None,
            f"Input length ({CONTEXT + 9}) exceeds model's maximum context length ({CONTEXT}).",
        ),
    ),
    (
        {"kv_transfer_params": {"prompt_token_ids": [1] * CONTEXT}},
        (400, "BadRequestError", "max_tokens", "max_tokens must be at least 1, got 0"),
    ),
    ({"max_tokens": 0}, (400, "BadRequestError", "max_tokens", "must be at least 1, got 0")),
    ({"max_tokens": 5000}, (400, "BadRequestError", "max_tokens", "cannot be greater than")),
    (
        {"kv_transfer_params": {"prompt_token_ids": [999_999]}},
        (400, "BadRequestError", None, "Token id 999999 is out of vocabulary"),
    ),
    (
        {"kv_transfer_params": {"prompt_token_ids": [-1]}},
        (400, "BadRequestError", None, "Token id -1 is out of vocabulary"),
    ),
    (
        {"kv_transfer_params": {"prompt_token_ids": "x"}},
        (500, "InternalServerError", None, ""),
    ),
    (
        {"kv_transfer_params": "x"},
        (400, "Bad Request", "body.kv_transfer_params", "1 validation error"),
    ),
    (
        {"routed_experts_prompt_start": 99},
        (
            400,
            "BadRequestError",
            "routed_experts_prompt_start",
            "must be between 0 and the prompt length (9), inclusive.",
        ),
    ),
]


@pytest.mark.parametrize(("fields", "expected"), REFUSALS)
def test_a_refusal_has_the_words_that_are_simulated(
    engine: VLLMEngine,
    tokenizer: Tokenizer,
    prompt: list[int],
    fields: dict[str, object],
    expected: tuple[int, str, str | None, str],
):
    body = asked(prompt, tokenizer.encode(f"ok{END}"), **fields)
    messages = [{"role": "user", "content": "hi"}]
    reply = engine.ask("POST", "/v1/chat/completions", {"messages": messages, **body})
    error = reply.json()["error"]
    *fixed, words = expected
    assert [reply.status_code, error["type"], error["param"]] == fixed
    assert error["code"] == reply.status_code
    assert words in error["message"]


def test_a_limit_over_the_rest_of_the_context_is_cut(engine: VLLMEngine, tokenizer: Tokenizer):
    ids = [tokenizer.encode("a")[0]] * 50
    (choice,) = engine.chat(**asked([ids[0]] * (CONTEXT - 5), ids, max_tokens=100))["choices"]
    assert (choice["finish_reason"], choice["token_ids"]) == ("length", ids[:5])


def test_an_empty_list_of_ids_is_none_at_all(
    engine: VLLMEngine, tokenizer: Tokenizer, prompt: list[int]
):
    reply = engine.chat(**asked([], tokenizer.encode(f"ok{END}")))
    assert reply["prompt_token_ids"] == prompt


def test_the_engine_says_what_it_is(engine: VLLMEngine):
    (model,) = engine.ask("GET", "/v1/models").json()["data"]
    assert (model["owned_by"], model["max_model_len"]) == ("vllm", CONTEXT)
    assert engine.ask("GET", "/version").json() == {"version": "0.30.0"}
    missing = engine.ask("GET", "/get_model_info")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
