"""Requests that name their session only in a small body (lending rule 14).

The router reads heads alone, so it sends such a request to any shard. `BodyNames` tells by a head
whether a request may be one; `Inquiring` reads its whole body before the application sees anything,
and when a session stands there that this shard does not hold, hands the request back instead. A
body that is too large, or names nothing, is served here.

Spec: docs/lending.md#referrals
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions.routing.claim_keys import claim_key
from sessions.routing.kinds import SessionKind
from sessions.wire.head import Head

BODY_LIMIT_BYTES: Final = 65536
SCOPE_KEY: Final = "sessile.referral"  # taken out before the application sees the scope


@dataclass(frozen=True, slots=True)
class BodyName:
    """Where a session's key stands in a body.

    Attributes:
        kind_name: Of the session's kind.
        field: Of a JSON object; its value is the key.
    """

    kind_name: str
    field: str

    def key_in(self, body: bytes) -> bytes | None:
        """The claim key of the session that a body names, or None if it names none."""
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return None
        text = content.get(self.field) if isinstance(content, dict) else None
        return claim_key(self.kind_name, text) if isinstance(text, str) and text else None


class BodyNames:
    """The routes whose bodies name sessions, of all kinds of an application."""

    def __init__(self, kinds: Sequence[SessionKind]) -> None:
        self._names: dict[str, BodyName] = {}
        for kind in kinds:
            if kind.body is not None:
                name = BodyName(kind.name, kind.body.field)
                for route in kind.body.seed_routes | kind.body.close_routes:
                    self._names[route] = name

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._names)

    def name_for(self, head: Head) -> BodyName | None:
        """Where the body of a request may name its session, or None."""
        if not head.has_body or head.content_length > BODY_LIMIT_BYTES:
            return None
        path = head.path.decode("ascii")
        return self._names.get(unquote(path) if "%" in path else path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Referral:
    """What a request brings along that may be handed back.

    Attributes:
        name: Where its body names a session.
        refer: Hands it back, given the claim key, after which nothing may be written; false if it
            has to be served here.
    """

    name: BodyName
    refer: Callable[[bytes], Awaitable[bool]]


class Inquiring:
    """Runs an application, but for requests that another shard must serve."""

    def __init__(self, app: ASGIApp, holds: Callable[[bytes], bool]) -> None:
        """Wrap.

        Args:
            app: The application.
            holds: Whether this shard holds a claim.
        """
        self._app = app
        self._holds = holds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it back."""
        referral: Referral | None = scope.pop(SCOPE_KEY, None)
        if referral is None:
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return  # the client is gone, and nothing began
            messages.append(message)
            body += message.get("body", b"")
            if not message.get("more_body", False) or len(body) > BODY_LIMIT_BYTES:
                break
        key = referral.name.key_in(body) if len(body) <= BODY_LIMIT_BYTES else None
        if key is not None and not self._holds(key) and await referral.refer(key):
            return
        messages.reverse()

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, receive_again, send)
