import json

import pytest

from sessions.core.engine_replies.engine_errors import (
    context_error_of,
    error_bytes_of,
    event_error_of,
    message_and_code_of,
)

OVERFLOWS = [
    "The input (300 tokens) is longer than the model's context length (200 tokens).",
    "Requested token count exceeds the model's maximum context length of 200 tokens.",
    "This model's maximum context length is 2048 tokens. However, you",
    "Input length (3000) exceeds model's maximum context length (2048).",
    "The decoder prompt (length 9) is longer than the maximum model length of 8",
    "max_tokens must be at least 1, got 0.",
]


@pytest.mark.parametrize("message", OVERFLOWS)
@pytest.mark.parametrize("wrap", [True, False])
def test_a_prompt_that_the_engine_cannot_hold_is_known_by_its_words(message: str, *, wrap: bool):
    flat = {"object": "error", "message": message, "type": "BadRequestError", "code": 400}
    error = context_error_of(400, json.dumps({"error": flat} if wrap else flat).encode(), {})
    assert error is not None
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert error.message == message
    assert error.headers[1] == ("x-should-retry", "false")


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_client_that_asks_for_no_token_is_told_what_it_asked(name: str):
    body = OVERFLOWS[-1].encode()
    assert context_error_of(400, body, {name: 0}) is None
    assert context_error_of(400, body, {name: -1}) is None
    for other in (1, None, True, "x"):
        assert context_error_of(400, body, {name: other}) is not None


def test_a_prompt_that_the_engine_cannot_hold_is_known_by_its_code():
    body = b'{"error":{"message":"no","code":"context_length_exceeded"}}'
    assert context_error_of(400, body, {}) is not None


def test_an_overflow_in_plain_text_is_known_too():
    assert context_error_of(413, b"exceeds the model's maximum context length", {}) is not None


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_other_statuses_are_no_overflow(status: int):
    assert context_error_of(status, OVERFLOWS[0].encode(), {}) is None


def test_other_refusals_are_no_overflow():
    assert (
        context_error_of(400, b'{"message":"temperature must be positive","code":400}', {}) is None
    )


@pytest.mark.parametrize(
    "body", [b'{"error":{"message":"x"}}', b'{"object":"error"}', b"[]", b'"text"', b' {"a" : 1}']
)
def test_a_json_error_passes_as_it_is(body: bytes):
    assert error_bytes_of(500, body) is body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"Bad Gateway", "Bad Gateway"),
        (b"<html>\xff</html>\n", "<html>\ufffd</html>"),
        (b"", "the engine answered 503 without a body"),
    ],
)
def test_an_error_that_is_no_json_is_wrapped(body: bytes, message: str):
    assert json.loads(error_bytes_of(503, body)) == {
        "error": {
            "message": message,
            "type": "upstream_error",
            "param": None,
            "code": "engine_error",
        }
    }


def test_a_long_error_text_is_cut():
    assert len(error_bytes_of(500, b"x" * 100_000)) < 5000


def test_an_error_with_numbers_that_are_not_finite_is_written_again():
    assert error_bytes_of(500, b'{"p":NaN}') == b'{"p":null}'


def test_a_wrapped_text_shows_no_replay_field():
    assert b"AAAA" not in error_bytes_of(500, b'oops {"routed_experts": "AAAA')


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"object":"error","message":"m","code":400}', ("m", "400")),
        (b'{"error":{"message":"m","code":null}}', ("m", "")),
        (b'{"error":"m"}', ("m", "")),
        (b'{"detail":"m"}', ("m", "")),
        (b'"m"', ("m", "")),
        (b"[1]", ("", "")),
        (b"m", ("m", "")),
    ],
)
def test_message_and_code_are_read_from_every_shape(body: bytes, expected: tuple[str, str]):
    assert message_and_code_of(body) == expected


def test_an_error_in_a_stream_always_has_our_shape():
    error = json.loads(
        event_error_of(500, b'{"object":"error","message":"m\xe2\x80\xa8","code":400}')
    )
    assert error == {
        "error": {"message": "m\u2028", "type": "upstream_error", "param": None, "code": "400"}
    }
    assert event_error_of(500, b'{"message":"\xe2\x80\xa8"}').isascii()
    assert "answered 500" in json.loads(event_error_of(500, b"[]"))["error"]["message"]
