"""Sampling parameters that a session fixes for all its turns, whatever its client sends.

A trainer opens the session and sets them; the agent that chats in it comes with defaults of its
own. The session's value takes the place of the client's and the turn goes on: an agent that is
refused for a temperature cannot be helped, and the record shows what was sampled with.

Must not know sessions.

Spec: docs/sessions.md#sampling
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from sessions.core.texts.json_text import Json, JsonObject
from sessions.errors.client_visible import RequestError

_MAX_TOKENS: Final = 1 << 31
_MAX_SEED: Final = (1 << 63) - 1
_MAX_STOPS: Final = 64

_Rule = tuple[str, Callable[[Json], bool]]


def _number(low: float, high: float) -> _Rule:
    def holds(value: Json) -> bool:
        return type(value) in (int, float) and low <= value <= high

    return f"a number from {low:g} to {high:g}", holds


def _whole(low: int, high: int) -> _Rule:
    def holds(value: Json) -> bool:
        return type(value) is int and low <= value <= high

    return f"a whole number from {low} to {high}", holds


def _is_stop(value: Json) -> bool:
    texts = value if isinstance(value, list) else [value]
    return 0 < len(texts) <= _MAX_STOPS and all(isinstance(t, str) and t for t in texts)


def _is_token_ids(value: Json) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MAX_STOPS
        and all(type(token) is int and 0 <= token < _MAX_TOKENS for token in value)
    )


# The ranges refuse nonsense, not what an engine may dislike; that says so itself.
_RULES: Final[Mapping[str, _Rule]] = MappingProxyType(
    {
        "temperature": _number(0, 100),
        "top_p": _number(0, 1),
        "top_k": _whole(-1, _MAX_TOKENS),
        "min_p": _number(0, 1),
        "max_tokens": _whole(1, _MAX_TOKENS),
        "min_tokens": _whole(0, _MAX_TOKENS),
        "frequency_penalty": _number(-2, 2),
        "presence_penalty": _number(-2, 2),
        "repetition_penalty": _number(0, 100),
        "seed": _whole(0, _MAX_SEED),
        "stop": (f"a text, or up to {_MAX_STOPS} texts", _is_stop),
        "stop_token_ids": (f"up to {_MAX_STOPS} token ids", _is_token_ids),
        "ignore_eos": ("true or false", lambda value: isinstance(value, bool)),
    }
)
# Other names of a parameter: the client's must not stand beside the session's.
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"max_tokens": ("max_completion_tokens",)}
)


def parse_sampling(value: Json) -> JsonObject:
    """Check the parameters that a session shall fix.

    Args:
        value: As sent; null means none.

    Returns:
        The parameters, those that are null left out.

    Raises:
        RequestError: No object, an unknown name, or a value that cannot be; `param` names it.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError("sampling must be an object", param="sampling")
    found: JsonObject = {}
    for name, given in value.items():
        rule = _RULES.get(name)
        if rule is None:
            raise RequestError(
                f"sampling.{name[:40]} is not known: expected names of {', '.join(_RULES)}",
                param=f"sampling.{name[:40]}",
            )
        expected, holds = rule
        if given is None:
            continue
        if not holds(given):
            raise RequestError(f"sampling.{name} must be {expected}", param=f"sampling.{name}")
        found[name] = given
    return found


def with_sampling(body: JsonObject, sampling: Mapping[str, Json]) -> JsonObject:
    """A chat body with the session's parameters in the place of the client's.

    Args:
        body: As the client sent it; not changed.
        sampling: Parsed.

    Returns:
        The body, the client's order kept; itself if nothing is fixed.
    """
    if not sampling:
        return body
    aliases = {alias for name in sampling for alias in _ALIASES.get(name, ())}
    return {k: v for k, v in body.items() if k not in aliases} | dict(sampling)
