import pytest

from sessions import settings
from sessions.core.matchers.choice import MATCHERS, matcher_of
from sessions.core.matchers.custom import CustomMatcher
from sessions.core.matchers.fields import LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY, STRICT
from sessions.errors.unseen import SettingsError


def test_the_matchers_are_those_of_the_settings():
    assert tuple(MATCHERS) == settings.MATCHERS


def test_a_name_of_ours_is_one_of_ours():
    assert matcher_of("strict") is STRICT
    assert matcher_of("loose_tool_call") is LOOSE_TOOL_CALL
    assert matcher_of("role_content_only") is ROLE_CONTENT_ONLY


def test_another_name_is_imported():
    assert isinstance(matcher_of("tests.support.own_matchers:same_role"), CustomMatcher)


def test_what_cannot_be_imported_is_refused_in_one_line_that_names_the_variable():
    with pytest.raises(SettingsError, match=r"^SESSIONS_MATCHER='nowhere:f' is refused: .*nowhere"):
        matcher_of("nowhere:f")
