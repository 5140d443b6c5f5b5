"""Which applications claim their sessions themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessions.routing.claimed_kinds import MCP_SESSIONS
from sessions.shard.session_holder import SessionHolder

if TYPE_CHECKING:
    from sessions.tools.claims import Claims


class Claiming:
    """Has what it takes."""

    session_kinds = (MCP_SESSIONS,)

    def use_claims(self, claims: Claims) -> None:
        """Take them."""
        self.claims = claims


class Half:
    """Names its kinds, and takes no claims."""

    session_kinds = (MCP_SESSIONS,)


def test_an_application_with_kinds_that_takes_claims_holds_sessions():
    holder: SessionHolder = Claiming()
    assert isinstance(holder, SessionHolder)


def test_any_other_application_does_not():
    assert not isinstance(Half(), SessionHolder)
    assert not isinstance(lambda scope, receive, send: None, SessionHolder)
