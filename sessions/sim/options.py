"""Options of the simulated engine, and the URL form in which a setting holds them.

`sim:` is an engine with every default; `sim:?layers=48&topk=8&latency_s=0.05` changes some. An
unknown, repeated or out-of-range option stops the start, so a typing error is never ignored.

Spec: docs/sim.md#options
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final
from urllib.parse import parse_qsl

from sessions.errors.unseen import SettingsError
from sessions.settings import SIMULATED_ENGINE


class Dialect(enum.Enum):
    """What the engine speaks."""

    SGLANG = "sglang"
    VLLM = "vllm"


class Thinking(enum.Enum):
    """What a reply starts with when the request allows reasoning and does not script it."""

    FULL = "full"
    EMPTY = "empty"
    NONE = "none"


class Copies(enum.Enum):
    """Where the experts of a reply stand when its choices carry `meta_info`."""

    ONE = "one"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """One value per option; the field name is the option's name.

    Attributes:
        dialect: What kind of engine it is.
        model: Name of the served model.
        context: Tokens that prompt and completion may have together.
        layers: Layers of a row of routed experts.
        topk: Experts per layer and token.
        experts: Experts of a layer: ids are 0 to this - 1.
        pad: Row multiplier: a row is [layers, topk * pad].
        replay: Whether it was started to return routed experts.
        copies: Whether `sglext` repeats the experts that `meta_info` carries.
        latency_s: Seconds before a reply starts.
        token_s: Seconds per sampled token, before a whole reply or between stream events.
        words: Words of an improvised answer, about.
        thinking: What an improvised reply starts with.
        calls: Whether tools are called without a script.
        seed: Changes all rows of experts.
        weight_version: As reported with every reply.
        journal: Chat requests kept for `GET /sim/requests`.
        keep_alive_s: Seconds after which an idle connection is closed; engines use 5.
    """

    dialect: Dialect = Dialect.SGLANG
    model: str = "sim"
    context: int = 131072
    layers: int = 4
    topk: int = 2
    experts: int = 128
    pad: int = 1
    replay: bool = True
    copies: Copies = Copies.ONE
    latency_s: float = 0.0
    token_s: float = 0.0
    words: int = 12
    thinking: Thinking = Thinking.FULL
    calls: bool = True
    seed: int = 0
    weight_version: str = "default"
    journal: int = 64
    keep_alive_s: int = 5


def parse_sim_url(url: str) -> SimOptions:
    """Parse the URL form.

    Args:
        url: `sim:` or `sim:?option=value&...`, percent-encoded.

    Returns:
        The options, each within its range.

    Raises:
        SettingsError: The text is no such URL, or an option is unknown, given twice or out of
            its range; the message names it and says what is allowed.
    """
    if not url.startswith(SIMULATED_ENGINE):
        raise SettingsError(f"engine {url!r} is refused: expected {SIMULATED_ENGINE}?option=value")
    mark, query = url[len(SIMULATED_ENGINE) :][:1], url[len(SIMULATED_ENGINE) + 1 :]
    if mark not in {"", "?"}:
        raise SettingsError(f"engine {url!r} is refused: options start with a question mark")
    return options_of(parse_qsl(query, keep_blank_values=True))


def options_of(pairs: list[tuple[str, str]]) -> SimOptions:
    """Options from names and texts.

    Args:
        pairs: Option names and their values as text.

    Returns:
        The options; those not named keep their defaults.

    Raises:
        SettingsError: As for `parse_sim_url`.
    """
    values: dict[str, object] = {}
    for name, text in pairs:
        if name not in _PARSERS:
            known = ", ".join(field.name for field in fields(SimOptions))
            raise SettingsError(f"unknown option {name!r} of the simulated engine: one of {known}")
        if name in values:
            raise SettingsError(f"option {name!r} of the simulated engine is given twice")
        try:
            values[name] = _PARSERS[name](text)
        except ValueError as error:
            raise SettingsError(
                f"option {name}={text!r} of the simulated engine is refused: {error}"
            ) from None
    return SimOptions(**values)  # type: ignore[arg-type]


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= _SECONDS_MAX:
        raise ValueError(f"expected seconds from 0 to {_SECONDS_MAX:g}")
    return value


def _word(text: str) -> str:
    if not 0 < len(text) <= _WORD_MAX or not text.isprintable():
        raise ValueError(f"expected 1 to {_WORD_MAX} printable characters")
    return text


def _flag(text: str) -> bool:
    if text not in {"0", "1"}:
        raise ValueError("expected 0 or 1")
    return text == "1"


def _member(members: type[enum.Enum]) -> Callable[[str], enum.Enum]:
    def parse(text: str) -> enum.Enum:
        try:
            return members(text)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in members)
            raise ValueError(f"expected one of {allowed}") from None

    return parse


_SECONDS_MAX: Final = 3600.0
_WORD_MAX: Final = 128

# The limits of the shape keep one row under 64 KiB at pad 1 and its pattern in a cache.
_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "dialect": _member(Dialect),
    "model": _word,
    "context": _whole(16, 1 << 24),
    "layers": _whole(1, 256),
    "topk": _whole(1, 64),
    "experts": _whole(1, 256),
    "pad": _whole(1, 1 << 20),
    "replay": _flag,
    "copies": _member(Copies),
    "latency_s": _seconds,
    "token_s": _seconds,
    "words": _whole(1, 1 << 20),
    "thinking": _member(Thinking),
    "calls": _flag,
    "seed": _whole(0, (1 << 63) - 1),
    "weight_version": _word,
    "journal": _whole(0, 4096),
    "keep_alive_s": _whole(1, 3600),
}
