"""Applications that claim and release their sessions themselves.

A shard hands such an application its claims before the lifespan begins, and tells the router which
kinds of sessions it has. Any other application has rollout sessions, owned by hash.

Spec: docs/architecture.md#applications
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessions.routing.kinds import SessionKind
    from sessions.tools.claims import Claims


@runtime_checkable
class SessionHolder(Protocol):
    """What an ASGI application has besides its call."""

    @property
    def session_kinds(self) -> Sequence[SessionKind]:
        """Its kinds, in the order in which requests are read by them."""

    def use_claims(self, claims: Claims) -> None:
        """Claim sessions with these, from the first request on."""
