"""Refusals on the paths of the Messages API, as its SDK reads them."""

import json

import anthropic
import httpx2
import pytest

from sessions.errors.client_visible import ClientVisibleError, InternalError, UnprocessableError
from sessions.errors.engine import EngineReplyUnusableError, EngineTimeoutError
from sessions.errors.group import GroupDyingError, draining_error
from sessions.errors.protocol import BodyTooLargeError, HeadTooSlowError
from sessions.errors.sessions import BadSessionKeyError, GoneSessionError, UnknownSessionError
from sessions.errors.turns import ContextLengthError, HistoryMismatchError
from sessions.wire.messages_refusals import (
    error_type_of,
    is_messages_path,
    messages_body_of,
    messages_error_body,
)


def test_is_our_shape_in_the_frame_of_that_api():
    error = HistoryMismatchError("messages[2] differs", param="messages")
    assert json.loads(messages_body_of(error)) == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages[2] differs",
            "param": "messages",
            "code": "history_mismatch",
            "details": {"error_code": "history_mismatch"},
        },
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadSessionKeyError("x"), "authentication_error"),
        (UnknownSessionError("x"), "not_found_error"),
        (HeadTooSlowError("x"), "timeout_error"),
        (GoneSessionError("x"), "not_found_error"),
        (BodyTooLargeError("x"), "request_too_large"),
        (UnprocessableError("x"), "invalid_request_error"),
        (InternalError("x"), "api_error"),
        (EngineReplyUnusableError("x"), "api_error"),
        (draining_error(), "overloaded_error"),
        (GroupDyingError("x"), "api_error"),
        (EngineTimeoutError("x"), "timeout_error"),
    ],
)
def test_the_type_is_a_word_of_that_api(error: ClientVisibleError, kind: str):
    assert json.loads(messages_body_of(error))["error"]["type"] == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, "permission_error"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (529, "overloaded_error"),
        (599, "api_error"),
    ],
)
def test_statuses_of_engines_have_words_too(status: int, kind: str):
    assert error_type_of(status) == kind


@pytest.mark.parametrize("error", [BadSessionKeyError("né\ud800"), draining_error()])
def test_is_read_by_the_sdk(error: ClientVisibleError):
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/v1/messages"
        return httpx2.Response(error.status, headers=error.headers, content=messages_body_of(error))

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = anthropic.Anthropic(
        base_url="http://host", api_key="x", max_retries=0, http_client=http
    )
    with client, pytest.raises(anthropic.APIStatusError) as raised:
        client.messages.create(model="m", max_tokens=1, messages=[])
    assert raised.value.status_code == error.status
    assert raised.value.api_message == error.message
    assert raised.value.type == error_type_of(error.status)
    assert raised.value.error_code == error.code


def test_a_prompt_that_is_too_long_is_told_in_the_words_that_harnesses_know():
    told = json.loads(messages_body_of(ContextLengthError("5 tokens are over 4")))["error"]
    assert told["message"] == "prompt is too long: 5 tokens are over 4"


def test_without_a_code_there_are_no_details():
    told = json.loads(messages_error_body("no", "api_error", None, None))["error"]
    assert told == {"type": "api_error", "message": "no", "param": None, "code": None}


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        (b"/v1/messages", True),
        (b"/v1/messages/count_tokens", True),
        (b"/sessions/a/v1/messages", True),
        (b"/sessions/a/v1/messages/count_tokens", True),
        (b"/sessions/a/v1/mess%61ges", True),
        (b"", False),
        (b"/v1/messages/", False),
        (b"/v1/messages/batches", False),
        (b"/sessions//v1/messages", False),
        (b"/sessions/a/b/v1/messages", False),
        (b"/x/v1/messages", False),
        (b"/sessions/a/v1/chat/completions", False),
    ],
)
def test_a_path_is_compared_as_the_application_sees_it(path: bytes, *, is_one: bool):
    assert is_messages_path(path) is is_one
