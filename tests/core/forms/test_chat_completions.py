import json
from array import array

import pytest

from sessions.core.engine_replies.sampled import Sampled
from sessions.core.forms.chat_completions import CHAT_COMPLETIONS
from sessions.core.forms.chat_request import ChatRequest
from sessions.errors.client_visible import RequestError
from sessions.errors.engine import EngineTimeoutError
from tests.support.engines import json_reply, sampled_document


def request(**fields: object) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return CHAT_COMPLETIONS.parse(json.dumps(body).encode())


def sampled() -> Sampled:
    document = sampled_document([1], content="hello")
    message = document["choices"][0]["message"]
    return Sampled(
        reply=document, message=message, token_ids=array("I", [1]), log_probs=array("d", [0.0])
    )


def test_a_request_is_read_as_it_is():
    assert request(seed=7).body["seed"] == 7
    with pytest.raises(RequestError):
        CHAT_COMPLETIONS.parse(b"{}")


def test_a_turn_is_told_whole_as_the_engine_told_it():
    told = sampled()
    assert json.loads(CHAT_COMPLETIONS.render(told, request())) == told.reply


def test_a_turn_is_told_as_events_with_what_was_asked_for():
    asked = request(stream=True, stream_options={"include_usage": True})
    events = CHAT_COMPLETIONS.render(sampled(), asked).split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""]
    assert json.loads(events[-3].removeprefix(b"data: "))["choices"] == []


def test_errors_are_events_of_the_one_shape():
    error = EngineTimeoutError("too slow")
    assert CHAT_COMPLETIONS.error_event_of(error) == b"data: " + error.body + b"\n\n"
    refusal = CHAT_COMPLETIONS.refusal_event_of(json_reply({"message": "no"}, 400))
    assert json.loads(refusal.removeprefix(b"data: "))["error"]["message"] == "no"


def test_what_is_no_turn_passes():
    response = CHAT_COMPLETIONS.passed_on(json_reply({"message": "no"}, 400), (b"x-a", b"b"))
    assert response.status_code == 400
    assert response.headers["x-a"] == "b"
    assert json.loads(bytes(response.body)) == {"message": "no"}
