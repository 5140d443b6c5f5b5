"""Which matcher a setting names.

Spec: docs/sessions.md#matcher
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sessions.core.matchers.custom import load_matcher
from sessions.core.matchers.fields import LOOSE_TOOL_CALL, ROLE_CONTENT_ONLY, STRICT
from sessions.core.matchers.matcher import Matcher
from sessions.errors.unseen import SettingsError

MATCHERS: Final[Mapping[str, Matcher]] = MappingProxyType(
    {
        "strict": STRICT,
        "loose_tool_call": LOOSE_TOOL_CALL,
        "role_content_only": ROLE_CONTENT_ONLY,
    }
)


def matcher_of(name: str) -> Matcher:
    """The matcher of a name.

    Args:
        name: As in `SESSIONS_MATCHER`: one of ours, or `package.module:function`.

    Raises:
        SettingsError: It cannot be loaded; one line that names the variable.
    """
    known = MATCHERS.get(name)
    if known is not None:
        return known
    try:
        return load_matcher(name)
    except SettingsError as error:
        raise SettingsError(f"SESSIONS_MATCHER={name!r} is refused: {error}") from error
