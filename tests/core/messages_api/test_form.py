import json
from array import array

import pytest

from sessions.core.engine_replies.sampled import Sampled
from sessions.core.forms.chat_request import ChatRequest
from sessions.core.messages_api.form import MESSAGES
from sessions.errors.engine import EngineTimeoutError
from tests.support.engines import json_reply, sampled_document


def request(**fields: object) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, **fields}
    return MESSAGES.parse(json.dumps(body).encode())


def sampled() -> Sampled:
    document = sampled_document([1], content="hello")
    document["choices"][0]["matched_stop"] = "END"
    return Sampled(
        reply=document,
        message=document["choices"][0]["message"],
        token_ids=array("I", [1]),
        log_probs=array("d", [0.0]),
        finish_reason="stop",
    )


def test_a_turn_is_told_whole_with_the_stop_that_was_asked_for():
    told = json.loads(MESSAGES.render(sampled(), request(stop_sequences=["END"])))
    assert (told["type"], told["stop_sequence"]) == ("message", "END")


def test_a_turn_is_told_as_events():
    events = MESSAGES.render(sampled(), request(stream=True))
    assert events.startswith(b"event: message_start\n")
    assert events.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


def test_errors_are_events_of_that_api():
    error = MESSAGES.error_event_of(EngineTimeoutError("too slow"))
    name, data, *_ = error.decode().split("\n")
    assert name == "event: error"
    told = json.loads(data.removeprefix("data: "))
    assert told["type"] == "error"
    assert told["error"]["type"] == "timeout_error"
    assert told["error"]["code"] == "engine_timeout"


@pytest.mark.parametrize(
    ("document", "message", "code"),
    [
        ({"error": {"message": "no", "code": "bad"}}, "no", "bad"),
        ({"message": "no", "code": 429}, "no", "engine_error"),
        (b"<html>", "<html>", "engine_error"),
        (b"", "the engine answered 429", "engine_error"),
    ],
)
def test_refusals_of_the_engine_are_told_in_that_apis_form(
    document: object, message: str, code: str
):
    refusal = json_reply(document, 429, [("retry-after", "7")])
    response = MESSAGES.passed_on(refusal, (b"x-turn-recorded", b"false"))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-turn-recorded"] == "false"
    assert response.headers["content-type"] == "application/json"
    told = json.loads(bytes(response.body))
    assert told["type"] == "error"
    found = {key: told["error"][key] for key in ("type", "message", "code")}
    assert found == {"type": "rate_limit_error", "message": message, "code": code}
    event = MESSAGES.refusal_event_of(refusal).decode()
    assert event == f"event: error\ndata: {bytes(response.body).decode()}\n\n"


def test_what_is_no_error_passes():
    response = MESSAGES.passed_on(json_reply({"a": 1}, 202))
    assert (response.status_code, json.loads(bytes(response.body))) == (202, {"a": 1})
