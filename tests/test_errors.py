"""The one error shape, and what each class promises to a client."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from sessions import errors
from sessions.errors import (
    ClientVisibleError,
    GroupDyingError,
    MethodNotAllowedError,
    NotReadyError,
    OverloadedError,
    RequestError,
    SimRefusalError,
    UnknownSessionError,
    error_body,
)

CLASSES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ClientVisibleError)
]


def test_a_body_is_compact_ascii_in_the_one_shape():
    body = UnknownSessionError("no session é", param="session_id").body
    assert body.isascii()
    assert b" :" not in body
    assert json.loads(body) == {
        "error": {
            "message": "no session é",
            "type": "not_found_error",
            "param": "session_id",
            "code": "session_not_found",
        }
    }


def test_a_body_can_lack_param_and_code():
    assert json.loads(error_body("m", "t", None, None)) == {
        "error": {"message": "m", "type": "t", "param": None, "code": None}
    }


def test_a_permanent_error_forbids_a_retry_and_names_no_time():
    assert GroupDyingError("x").headers == [
        ("content-type", "application/json"),
        ("x-should-retry", "false"),
    ]


@pytest.mark.parametrize("kind", [NotReadyError, OverloadedError])
def test_an_error_that_passes_asks_for_a_retry_after_a_second(kind: type[ClientVisibleError]):
    assert kind("x").headers == [
        ("content-type", "application/json"),
        ("x-should-retry", "true"),
        ("retry-after", "1"),
    ]


def test_an_error_of_a_chat_says_that_its_turn_was_not_recorded():
    error = RequestError("x")
    assert "x-turn-recorded" not in dict(error.headers)
    error.is_unrecorded_turn = True
    assert error.headers[-1] == ("x-turn-recorded", "false")


def test_a_refused_method_is_told_with_those_that_are_allowed():
    assert ("allow", "GET, POST") in MethodNotAllowedError("x", allow=["GET", "POST"]).headers
    assert ("allow", "") in MethodNotAllowedError("x").headers


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_has_a_true_status_and_a_code_of_its_own_kind(kind: type[ClientVisibleError]):
    assert kind.status >= HTTPStatus.BAD_REQUEST
    assert HTTPStatus(kind.status)
    assert kind.code == kind.code.lower().replace(" ", "_")
    assert issubclass(kind, RequestError) == (kind.status < HTTPStatus.INTERNAL_SERVER_ERROR)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_client_error_is_never_to_be_repeated(kind: type[ClientVisibleError]):
    if issubclass(kind, RequestError):
        assert not kind.should_retry
        assert kind.retry_after_s is None


def test_codes_tell_apart_what_clients_must_tell_apart():
    codes = [kind.code for kind in CLASSES if kind is not ClientVisibleError]
    assert len(codes) == len(set(codes))


def test_a_refusal_of_the_simulated_engine_keeps_what_it_is_given():
    error = SimRefusalError("m", status=429, type="T", param="p")
    assert (str(error), error.status, error.type, error.param) == ("m", 429, "T", "p")
    assert SimRefusalError("m").status == HTTPStatus.BAD_REQUEST
