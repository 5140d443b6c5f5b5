"""What a matcher is: it decides whether a sent message is a stored one.

Must not know any one matcher, nor what a session does with a difference.

Spec: docs/sessions.md#matcher
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sessions.core.texts.json_text import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two messages differ.

    Attributes:
        path: From the message on, such as `tool_calls[0].function.arguments`; empty if the matcher
            does not say.
        stored: What the session holds, shortened for a person to read.
        sent: What the client sent, likewise.
    """

    path: str
    stored: str
    sent: str


class Matcher(Protocol):
    """One rule; holds no state, so all sessions share it.

    Messages that are the same as a third one must be the same as each other: sessions hold them for
    one message.
    """

    def difference_of(self, stored: JsonObject, sent: JsonObject) -> Difference | None:
        """The first difference that counts, or None when the messages are the same.

        Args:
            stored: What the session holds; not to be changed.
            sent: What the client sent; not to be changed.

        Raises:
            MatcherFailedError: The matcher is somebody else's, and broken.
        """
        ...

    def bucket_of(self, message: JsonObject) -> Hashable:
        """A value that is equal for all messages that are the same; cheap to find."""
        ...


def matched_count_of(
    matcher: Matcher, stored: Sequence[JsonObject], sent: Sequence[JsonObject]
) -> int:
    """How many messages are the same from the start on."""
    count = 0
    for ours, theirs in zip(stored, sent, strict=False):
        if matcher.difference_of(ours, theirs) is not None:
            break
        count += 1
    return count
