import typing

import pytest

from sessions.core.forms.chat_completions import CHAT_COMPLETIONS
from sessions.core.forms.chat_form import ChatForm
from sessions.core.messages_api.form import MESSAGES

FORMS = [CHAT_COMPLETIONS, MESSAGES]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_has_everything_that_the_protocol_names(form: ChatForm):
    for name in typing.get_type_hints(ChatForm):
        assert hasattr(form, name)
    for name in ("parse", "render", "passed_on", "error_event_of", "refusal_event_of"):
        assert callable(getattr(form, name))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_name_fits_into_a_digest_and_the_sign_of_life_is_whole(form: ChatForm):
    assert len(form.name.encode()) <= 16
    assert form.name.isascii()
    assert form.keepalive.endswith(b"\n\n")


def test_names_differ():
    assert len({form.name for form in FORMS}) == len(FORMS)
