"""The cookie of a seeded session: its id, signed by this run for one class of environment.

The form is that of Starlette's SessionMiddleware: an object with `session_id` in base64, the time,
a signature (itsdangerous). Every reply sends it again, so its bytes change while the id stays, and
whoever routes by it must read the id. Neither its name nor its signature can be known before the
run: both come from the run's secret. It does not expire; the session does.

Spec: docs/tools.md#who-may-call
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable
from typing import Final

from itsdangerous import TimestampSigner

from sessions.errors.seeded_sessions import BadSessionCookieError
from sessions.routing.cookies import cookie_in
from sessions.routing.readers import read_session_cookie

_SALT: Final = b"sessile session cookie "
_NAME_DIGITS: Final = 16
_no_name: Final = re.compile(r"[^A-Za-z0-9_]")


class SessionCookie:
    """Signs and reads the cookies of one class of environment.

    Attributes:
        name: Of the cookie; the same in all shards of a run.
    """

    def __init__(self, label: str, run_secret: bytes) -> None:
        """Take the secret of the run.

        Args:
            label: Of the class; others' cookies are not read.
            run_secret: Signs.
        """
        salt = _SALT + label.encode()
        digits = hmac.new(run_secret, b"name of the " + salt, hashlib.sha256).hexdigest()
        self.name: Final = f"{_no_name.sub('_', label)}-{digits[:_NAME_DIGITS]}"
        self._signer = TimestampSigner(
            run_secret, salt=salt, digest_method=hashlib.sha256, key_derivation="hmac"
        )

    def header_of(self, session_id: str) -> bytes:
        """The value of `Set-Cookie` that names a session, signed now."""
        content = base64.urlsafe_b64encode(json.dumps({"session_id": session_id}).encode())
        value = self._signer.sign(content.rstrip(b"="))
        return self.name.encode() + b"=" + value + b"; path=/; httponly; samesite=lax"

    def session_in(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The id in a request's cookie.

        Args:
            headers: Of the request, names lower-case.

        Returns:
            The id, or None if there is no cookie of our name.

        Raises:
            BadSessionCookieError: The cookie was not signed by this run for this class.
        """
        lines = (value for header, value in headers if header == b"cookie")
        value = cookie_in(lines, self.name)
        return None if value is None else self._read(value.encode("latin-1"))

    def _read(self, value: bytes) -> str:
        signed, _, signature = value.rpartition(b".")
        # Compared as text: base64 has last bits that decode to nothing, and only one text is ours.
        is_ours = hmac.compare_digest(self._signer.get_signature(signed), signature)
        session_id = read_session_cookie(value) if is_ours else None
        if session_id is None:
            raise BadSessionCookieError("the session cookie is not valid on this server")
        return session_id
