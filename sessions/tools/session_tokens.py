"""Session tokens: what a client of MCP sends instead of a cookie.

A token holds the session's id and the tools that its holder may call, signed (itsdangerous) by this
run for one class of environment. It is as good as the session lasts.

Spec: docs/tools.md#who-may-call
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from itsdangerous import BadData, URLSafeSerializer

from sessions.errors.seeded_sessions import BadSessionTokenError

SESSION_TOKEN_HEADER: Final = "X-NeMo-Gym-Session-Token"  # noqa: S105 - the name of a header
_SALT: Final = b"sessile session token "


class SessionToken(NamedTuple):
    """What a token says, its signature being right.

    Attributes:
        session_id: Of the session.
        tools: Names of what its holder may call.
    """

    session_id: str
    tools: frozenset[str]


class SessionTokens:
    """Signs and reads the tokens of one class of environment."""

    def __init__(self, label: str, run_secret: bytes) -> None:
        """Take the secret of the run.

        Args:
            label: Of the class; others' tokens are not read.
            run_secret: Signs.
        """
        self._serializer = URLSafeSerializer(
            run_secret,
            salt=_SALT + label.encode(),
            signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
        )

    def sign(self, session_id: str, tools: Iterable[str]) -> str:
        """Make a token; text of `A-Z a-z 0-9 - _ .`, fit for a header."""
        return self._serializer.dumps({"sid": session_id, "tools": sorted(tools)})

    def read(self, text: str) -> SessionToken:
        """Read a token.

        Raises:
            BadSessionTokenError: It is none, or was not signed by this run for this class.
        """
        try:
            content = self._serializer.loads(text)
            token = SessionToken(content["sid"], frozenset(content["tools"]))
            is_ours = self._serializer.dumps(content) == text  # one text, see `SessionCookie`
        except (BadData, LookupError, TypeError) as error:
            raise _bad_token() from error
        if not is_ours:
            raise _bad_token()
        return token


def _bad_token() -> BadSessionTokenError:
    return BadSessionTokenError("the session token is not valid on this server")
