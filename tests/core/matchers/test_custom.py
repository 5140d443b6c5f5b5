import logging

import pytest

from sessions.core.matchers.custom import load_matcher
from sessions.errors.turns import MatcherFailedError
from sessions.errors.unseen import SettingsError

MODULE = "tests.support.own_matchers"
USER, REPLY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}


def test_the_function_decides():
    matcher = load_matcher(f"{MODULE}:same_role")
    assert matcher.difference_of(USER, {"role": "user", "content": "other"}) is None
    assert matcher.difference_of(USER, REPLY) is not None


def test_the_function_gets_what_is_stored_first():
    matcher = load_matcher(f"{MODULE}:stored_is_the_reply")
    assert matcher.difference_of(REPLY, USER) is None
    assert matcher.difference_of(USER, REPLY) is not None


def test_a_difference_is_told_as_the_strict_matcher_sees_it():
    never = load_matcher(f"{MODULE}:never")
    found = never.difference_of(USER, REPLY)
    assert found is not None
    assert (found.path, found.stored, found.sent) == ("role", "'user'", "'assistant'")
    found = never.difference_of(USER, dict(USER))
    assert found is not None
    assert found.path == ""
    assert "'content': 'hi'" in found.sent


def test_all_messages_are_sought_together():
    matcher = load_matcher(f"{MODULE}:same_role")
    assert matcher.bucket_of(USER) == matcher.bucket_of(REPLY)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gives_none", "gave NoneType where True or False is due"),
        ("gives_one", "gave int where"),
        ("raises", "raised KeyError"),
        ("leaves", "raised SystemExit"),
    ],
)
def test_an_answer_that_is_no_bool_is_our_loud_fault(
    name: str, words: str, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(MatcherFailedError, match=words) as caught:
        load_matcher(f"{MODULE}:{name}").difference_of(USER, USER)
    assert caught.value.status == 500
    assert f"{MODULE}:{name}" in caught.value.message
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert bool(caplog.records[0].exc_info) is (name in {"raises", "leaves"})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{MODULE}:nothing", "names nothing that can be called"),
        (f"{MODULE}:NUMBER", "names nothing that can be called"),
        (f"{MODULE}:waits", "asynchronous"),
        ("tests.support.nowhere:f", "ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_a_matcher_is_refused(name: str, words: str):
    with pytest.raises(SettingsError, match=words):
        load_matcher(name)
