"""A matcher of somebody else's: a function of two messages that says whether they are the same.

It is loaded by its name, `package.module:function`, and called for every message of every request,
so it must be quick, must not wait, and must not change what it gets. What it returns has to be a
bool and nothing that counts as one: a None for "I forgot to return" would silently split sessions.

Must not know sessions.

Spec: docs/sessions.md#own-matchers
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from sessions.core.matchers.comparison import differ
from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import Difference
from sessions.core.named_code import load_function
from sessions.core.texts.json_text import JsonObject
from sessions.errors.turns import MatcherFailedError

_log = logging.getLogger(__name__)


class CustomMatcher:
    """See the module docstring; implements `Matcher`."""

    def __init__(self, name: str, function: Callable[[JsonObject, JsonObject], object]) -> None:
        """Remember the function.

        Args:
            name: What it is called in errors.
            function: Takes what the session holds and what the client sent.
        """
        self._name = name
        self._function = function

    def difference_of(self, stored: JsonObject, sent: JsonObject) -> Difference | None:
        """See `Matcher`; where the messages differ is told as the strict matcher sees it."""
        try:
            answer = self._function(stored, sent)
        except (Exception, SystemExit) as error:
            _log.exception("matcher failed matcher=%s", self._name)
            raise MatcherFailedError(
                f"the matcher {self._name} raised {type(error).__name__}"
            ) from error
        if answer is True:
            return None
        if answer is False:
            return STRICT.difference_of(stored, sent) or differ("", stored, sent)
        _log.error("matcher gave no bool matcher=%s type=%s", self._name, type(answer).__name__)
        raise MatcherFailedError(
            f"the matcher {self._name} gave {type(answer).__name__} where True or False is due"
        )

    def bucket_of(self, message: JsonObject) -> Hashable:
        """See `Matcher`: nothing is known of what the function compares."""
        del message
        return None


def load_matcher(name: str) -> CustomMatcher:
    """Import a matcher.

    Args:
        name: `package.module:function`.

    Raises:
        SettingsError: It cannot be imported, or is no function that answers at once.
    """
    return CustomMatcher(name, load_function(name))
