"""Grants have the form that agents are promised, and keep their token out of logs."""

from sessions.tools.grants import grants_of


def test_grants_tell_both_transports_with_the_token_in_the_header():
    grants = grants_of("http://h:1", "X-Token", "t0ken")
    assert grants.to_json() == {
        "direct_http": {"base_url": "http://h:1", "headers": {"X-Token": "t0ken"}},
        "mcp": {"url": "http://h:1/mcp", "headers": {"X-Token": "t0ken"}},
    }


def test_no_token_is_shown_when_grants_are_printed():
    assert "t0ken" not in repr(grants_of("http://h:1", "X-Token", "t0ken"))
