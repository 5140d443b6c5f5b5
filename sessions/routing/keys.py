"""Session keys: an API key that names its session and proves that we handed it out.

A key is `<id>.<32 hex digits>`, the digits cut from HMAC-SHA256 over the id under the run's
secret. The router reads the id by form alone; the shard that owns it verifies the signature.

Spec: docs/routing.md#session-keys
"""

from __future__ import annotations

import hmac
import re
from typing import Final

from sessions.errors.sessions import BadSessionKeyError
from sessions.routing.ids import ID_PATTERN

_SIGNATURE_DIGITS: Final = 32  # 128 bits
_matches_key: Final = re.compile(rf"({ID_PATTERN})\.[0-9a-f]{{{_SIGNATURE_DIGITS}}}").fullmatch


def session_key_of(secret: bytes, session_id: str) -> str:
    """The key of a session under a run's secret."""
    digest = hmac.digest(secret, session_id.encode(), "sha256")
    return f"{session_id}.{digest.hex()[:_SIGNATURE_DIGITS]}"


def id_of_session_key(key: str) -> str | None:
    """The id that a key names, split at the last dot; None if the text has not a key's form.

    The signature is not verified.
    """
    found = _matches_key(key)
    return None if found is None else found[1]


def verify_session_key(secret: bytes, key: str) -> str:
    """Check a key in constant time.

    Args:
        secret: The run's secret.
        key: As the client sent it.

    Returns:
        The id of the session that the key opens.

    Raises:
        BadSessionKeyError: The text has not a key's form, or was not signed under this secret.
    """
    session_id = id_of_session_key(key)
    if session_id is None or not hmac.compare_digest(session_key_of(secret, session_id), key):
        raise BadSessionKeyError("the session key is not valid on this server")
    return session_id
