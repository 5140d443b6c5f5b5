"""Sessions of which no training samples can be made, and hooks that fail; none is harmed.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors.client_visible import UnprocessableError


class SamplesMisalignedError(UnprocessableError):
    """The recorded turns do not make one sequence of tokens; the message names the turn."""

    code = "samples_misaligned"


class ReplayMismatchError(UnprocessableError):
    """A turn's replay data does not fit its tokens (rows, type, shape); the message names both."""

    code = "replay_mismatch"


class ReplayGapError(UnprocessableError):
    """The replay data of the turns do not join from the first token on; the message says where."""

    code = "replay_gap"


class SampleHookError(UnprocessableError):
    """A hook raised, or gave what it must not; the session is unharmed."""

    code = "sample_hook_failed"
