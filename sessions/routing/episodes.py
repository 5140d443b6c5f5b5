"""Episodes: which attempt of which rollout, and the text that names it.

The text is the rollout id, with `-a<N>` behind it from the first retry on. A retry thus has a name
of its own, and a rollout id must not end like one.

Spec: docs/routing.md#episodes
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sessions.errors.client_visible import RequestError

_ends_as_retry: Final = re.compile(r"-a[1-9][0-9]*\Z").search


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeId:
    """One attempt of one rollout.

    Attributes:
        rollout_id: Given by the client; not empty, no longest length.
        attempt: 0 for the first.
    """

    rollout_id: str
    attempt: int = 0

    def __post_init__(self) -> None:
        """Check the parts.

        Raises:
            RequestError: They name no episode, or another one's name could be the same.
        """
        if not self.rollout_id:
            raise RequestError("a rollout id is not empty", param="rollout_id")
        if _ends_as_retry(self.rollout_id):
            message = f"rollout id {self.rollout_id!r} ends like a retry: give `attempt` instead"
            raise RequestError(message, param="rollout_id")
        if self.attempt < 0:
            raise RequestError(f"attempt {self.attempt} is below 0", param="attempt")

    @property
    def key(self) -> str:
        """The text that names the episode; no other episode has it."""
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id
