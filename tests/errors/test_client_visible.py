"""The one error shape, and what each class promises to a client."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from sessions.errors.client_visible import ClientVisibleError, RequestError, error_body
from sessions.errors.sessions import UnknownSessionError
from tests.support.error_classes import error_classes

CLASSES = error_classes(ClientVisibleError)
# It says the same as its parent and is told apart by where it is raised.
TWINS = {"SessionNotOpenError"}


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


def test_an_error_of_a_chat_says_that_its_turn_was_not_recorded():
    error = RequestError("x")
    assert "x-turn-recorded" not in dict(error.headers)
    error.is_unrecorded_turn = True
    assert error.headers[-1] == ("x-turn-recorded", "false")


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


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_no_error_starts_an_oauth_dance(kind: type[ClientVisibleError]):
    assert "www-authenticate" not in [name for name, _ in kind("why").headers]


def test_codes_tell_apart_what_clients_must_tell_apart():
    codes = [
        kind.code
        for kind in CLASSES
        if kind is not ClientVisibleError and kind.__name__ not in TWINS
    ]
    assert len(codes) == len(set(codes))
