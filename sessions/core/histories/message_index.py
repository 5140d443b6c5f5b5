"""Conversations by their messages: which known one does a request begin with, and how far?

Conversations that begin alike share their beginning: an index is a tree whose branches are
messages, and each place in it is one beginning. A request is followed from the root, message by
message, so looking it up costs what its messages cost, however many conversations there are. At
each place a message is sought only among those of its bucket (of equal role and text, mostly).

Messages that the matcher holds for the same are one branch. So it must be a relation under which
messages that equal a third one equal each other.

Must not know what stands at the places.

Spec: docs/sessions.md#trees
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from sessions.core.matchers.matcher import Matcher
from sessions.core.texts.json_text import JsonObject

_T = TypeVar("_T")


class Place(Generic[_T]):
    """One beginning of conversations.

    Attributes:
        value: What was put here; None if nothing was.
    """

    __slots__ = ("_branches", "value")

    def __init__(self) -> None:
        self.value: _T | None = None
        self._branches: dict[Hashable, list[tuple[JsonObject, Place[_T]]]] = {}

    def after(self, message: JsonObject, bucket: Hashable, matcher: Matcher) -> Place[_T] | None:
        """The place that a message leads to; None if it leads nowhere."""
        known = self._branches.get(bucket, ())
        for stored, place in known:
            if matcher.difference_of(stored, message) is None:
                return place
        return None

    def grow(self, message: JsonObject, bucket: Hashable) -> Place[_T]:
        """A new place that a message leads to from now on; it led nowhere."""
        place: Place[_T] = Place()
        self._branches.setdefault(bucket, []).append((message, place))
        return place


class MessageIndex(Generic[_T]):
    """See the module docstring."""

    def __init__(self, matcher: Matcher) -> None:
        """Know no conversation.

        Args:
            matcher: Says which messages are the same.
        """
        self._matcher = matcher
        self._root: Place[_T] = Place()

    def deepest(self, sent: Sequence[JsonObject]) -> _T | None:
        """What stands at the deepest place with a value on a request's way."""
        place, found = self._root, self._root.value
        for message in sent:
            following = place.after(message, self._matcher.bucket_of(message), self._matcher)
            if following is None:
                break
            place = following
            found = place.value if place.value is not None else found
        return found

    def reach(self, place: Place[_T] | None, messages: Iterable[JsonObject]) -> Place[_T]:
        """The place where messages lead; it is made if there is none.

        Args:
            place: Where they begin; None for the root.
            messages: One at least.
        """
        here = place or self._root
        for message in messages:
            bucket = self._matcher.bucket_of(message)
            here = here.after(message, bucket, self._matcher) or here.grow(message, bucket)
        return here
