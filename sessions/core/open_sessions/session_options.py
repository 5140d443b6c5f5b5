"""What a client decides when it opens a session: the body of `POST /sessions`.

All of it is optional, and an empty body is none of it; a name that is not known is refused, so that
a typing error does not train a model. Limits can be lowered here, never raised.

Must not know how a session works with them.

Spec: docs/sessions.md#options
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sessions.core.forms.sampling import parse_sampling
from sessions.core.texts.json_text import Json, JsonObject
from sessions.core.texts.object_body import parse_object_body
from sessions.errors.client_visible import RequestError

_MAX_LIMIT: Final = 1 << 50


class SessionMode(enum.Enum):
    """What becomes of a turn that does not continue the newest one."""

    LINEAR = "linear"  # it replaces that turn
    TREE = "tree"  # both stay


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How one session behaves.

    Attributes:
        mode: What becomes of a turn that does not continue the newest one.
        sampling: Parameters that its client cannot override, by name.
        max_turns: Recorded turns that it may have; 0 for any number.
        max_session_tokens: Tokens of its recorded turns from which on it takes no more; 0 for any.
        max_tree_turns: Recorded turns that it may have if it is a tree.
    """

    mode: SessionMode = SessionMode.LINEAR
    sampling: Mapping[str, Json] = field(default_factory=dict)
    max_turns: int = 0
    max_session_tokens: int = 0
    max_tree_turns: int = 1024


DEFAULT_OPTIONS: Final = SessionOptions()
_MODES: Final = tuple(mode.value for mode in SessionMode)


def parse_session_options(raw: bytes, defaults: SessionOptions) -> SessionOptions:
    """Parse the body of a request for a session.

    Args:
        raw: JSON whatever its content type says, or nothing.
        defaults: What the settings say; its limits are the highest.

    Returns:
        The options; a member that is missing or null is the default.

    Raises:
        RequestError: No JSON object, an unknown member, or a value that cannot be; `param` names
            the member.
    """
    if not raw.strip():
        return defaults
    body = parse_object_body(raw)
    known = ("mode", "sampling", "max_turns", "max_session_tokens")
    unknown = next((name for name in body if name not in known), None)
    if unknown is not None:
        raise RequestError(
            f"{unknown[:40]} is not known: expected names of {', '.join(known)}",
            param=unknown[:40],
        )
    sampling = body.get("sampling")
    return SessionOptions(
        mode=_mode_in(body, defaults.mode),
        sampling=defaults.sampling if sampling is None else parse_sampling(sampling),
        max_turns=_limit_in(body, "max_turns", defaults.max_turns),
        max_session_tokens=_limit_in(body, "max_session_tokens", defaults.max_session_tokens),
        max_tree_turns=defaults.max_tree_turns,
    )


def _mode_in(body: JsonObject, default: SessionMode) -> SessionMode:
    value: Json = body.get("mode")
    if value is None:
        return default
    if value not in _MODES:
        raise RequestError(f"mode must be one of {', '.join(_MODES)}", param="mode")
    return SessionMode(value)


def _limit_in(body: JsonObject, name: str, highest: int) -> int:
    value: Json = body.get(name)
    if value is None:
        return highest
    limit = highest or _MAX_LIMIT
    if type(value) is not int or not 1 <= value <= limit:
        raise RequestError(f"{name} must be a whole number from 1 to {limit}", param=name)
    return value
