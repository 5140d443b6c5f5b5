"""Errors of the hooks that choose and finish training samples, in the same shape as all others.

Apart from `sessions.errors` only because one file shall stay small; the same rules hold.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors import UnprocessableError


class SampleHookError(UnprocessableError):
    """A hook raised, or gave what it must not; the session is unharmed."""

    code = "sample_hook_failed"
