"""Conversations by their messages: which known one does a request begin with, and how far?

Conversations that begin alike share their beginning: an index is a tree whose branches are
messages, and each place in it is one beginning. A request is followed from the root, message by
message, so looking it up costs what its messages cost, however many conversations there are. At
each place a message is sought among those of equal role and text only.

Messages that the matcher holds for the same are one branch. So it must be a relation under which
messages that equal a third one equal each other.

Must not know what stands at the places.

Spec: docs/sessions.md#trees
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from sessions.core.json_text import JsonObject

IsSame: TypeAlias = Callable[[JsonObject, JsonObject], bool]
BucketOf: TypeAlias = Callable[[JsonObject], Hashable]

_T = TypeVar("_T")


class Place(Generic[_T]):
    """One beginning of conversations.

    Attributes:
        value: What was put here last; None if nothing was.
    """

    __slots__ = ("_branches", "value")

    def __init__(self) -> None:
        self.value: _T | None = None
        self._branches: dict[Hashable, list[tuple[JsonObject, Place[_T]]]] = {}

    def after(self, message: JsonObject, bucket: Hashable, is_same: IsSame) -> Place[_T] | None:
        """The place that a message leads to; None if it leads nowhere."""
        known = self._branches.get(bucket, ())
        return next((place for stored, place in known if is_same(stored, message)), None)

    def grow(self, message: JsonObject, bucket: Hashable) -> Place[_T]:
        """A new place that a message leads to from now on; it led nowhere."""
        place: Place[_T] = Place()
        self._branches.setdefault(bucket, []).append((message, place))
        return place


class MessageIndex(Generic[_T]):
    """See the module docstring."""

    def __init__(self, is_same: IsSame, bucket_of: BucketOf) -> None:
        """Know no conversation.

        Args:
            is_same: Whether a message that is known (the first argument) is one that was sent.
            bucket_of: A value that is equal for all messages that are the same.
        """
        self._is_same = is_same
        self._bucket_of = bucket_of
        self._root: Place[_T] = Place()

    def deepest(self, sent: Sequence[JsonObject]) -> _T | None:
        """What was put last at the deepest place with a value on a request's way."""
        place, found = self._root, self._root.value
        for message in sent:
            following = place.after(message, self._bucket_of(message), self._is_same)
            if following is None:
                break
            place = following
            found = place.value if place.value is not None else found
        return found

    def put(self, place: Place[_T] | None, messages: Iterable[JsonObject], value: _T) -> Place[_T]:
        """Put a value where messages lead.

        Args:
            place: Where they begin; None for the root.
            messages: One at least.
            value: Takes the place of what was put there before.

        Returns:
            The place.
        """
        here = place or self._root
        for message in messages:
            bucket = self._bucket_of(message)
            here = here.after(message, bucket, self._is_same) or here.grow(message, bucket)
        here.value = value
        return here


def bucket_of(message: JsonObject) -> Hashable:
    """Role and text, for matchers that compare these: nothing, "" and [] are equal there."""
    role, content = message.get("role"), message.get("content")
    return (
        role if isinstance(role, str) else "",
        content if isinstance(content, str) else bool(content) or "",
    )
