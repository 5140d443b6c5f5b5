"""What errors about a request's own form say besides their status."""

from __future__ import annotations

from sessions.errors.protocol import MethodNotAllowedError, UpgradeRefusedError


def test_a_refused_method_is_told_with_those_that_are_allowed():
    assert ("allow", "GET, POST") in MethodNotAllowedError("x", allow=["GET", "POST"]).headers
    assert ("allow", "") in MethodNotAllowedError("x").headers


def test_a_refused_upgrade_says_what_is_spoken():
    assert UpgradeRefusedError("x").headers[-1] == ("upgrade", "HTTP/1.1")
