"""What a chat request says of itself as an attempt: which one it is, and of what.

SDKs of one family count their attempts in `x-stainless-retry-count`; others send the same
`Idempotency-Key` with each. Attempts are equal if their bodies are, byte for byte, and sent in the
same form.

Must not know what was seen before.

Spec: docs/sessions.md#exactly-once
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_RETRY_COUNT: Final = b"x-stainless-retry-count"
_KEY: Final = b"idempotency-key"
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMarks:
    """One attempt.

    Attributes:
        digest: Of its form and its whole body.
        key: Of its idempotency key; empty if it has none.
        is_counted: Whether it says itself that it is not the first attempt.
    """

    digest: bytes
    key: bytes = b""
    is_counted: bool = False


def marks_of(headers: Sequence[tuple[bytes, bytes]], body: bytes, form: str = "") -> RetryMarks:
    """The marks of a request.

    Args:
        headers: (name, value), names lower-case; of repeated ones the first counts.
        body: The raw body.
        form: Name of the form that it is in: the same bytes may be a request in two.
    """
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in (_RETRY_COUNT, _KEY):
            found.setdefault(name, value.strip())
    count, key = found.get(_RETRY_COUNT, b""), found.get(_KEY, b"")
    return RetryMarks(
        digest=_digest_of(body, form),
        key=_digest_of(key) if key else b"",
        is_counted=count.isdigit() and count.strip(b"0") != b"",
    )


def _digest_of(text: bytes, person: str = "") -> bytes:
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES, person=person.encode()).digest()
