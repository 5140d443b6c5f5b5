"""TITO families: what differs between models when a turn is joined to the tokens before it.

A family is data. Its rules speak of token texts, not ids, so that it fits every tokenizer of the
family; whoever applies them looks the ids up. `default` promises nothing and fits every model that
brings a chat template. `detect_family` picks by special tokens whose ids are a model's fingerprint.

Must not know how prompts are built. No other module knows the name of a family, but for the list
of names that the setting takes.

Spec: docs/sessions.md#families
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sessions.errors import SettingsError
from sessions.tokens.tokenizer import Tokenizer

AUTO: Final = "auto"
_ALL_ROLES: Final = frozenset({"tool", "user", "system", "assistant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The rules of one family; see the module docstring.

    Attributes:
        name: What `SESSIONS_TITO_FAMILY` says.
        template: Name of a template that ships with the package; None for the model's own.
        fixed_kwargs: Template kwargs that a request may not change.
        append_roles: Roles that may follow a sampled reply.
        end_of_turn: Token after which the template writes `after_turn`, but at which sampling
            stops; empty if sampled and rendered turns end alike.
        after_turn: That text.
        shared_tokens: Tokens that end a sampled turn and also open the next message; the last
            token of a checkpoint is dropped if it is one of them.
        max_trim_count: Tokens that joining may drop from a checkpoint's end.
        segment_specials: Tokens at which the comparison splits; None for all special tokens.
        assistant_start: Text at the start of what the assistant says; empty if there is none.
        ignored_tail: Texts of tokens that the comparison overlooks at the end.
        reasoning_parser: The engine's parser for reasoning; None leaves it to the engine.
        tool_call_parser: The engine's parser for tool calls; None leaves it to the engine.
        fingerprint: Special tokens and their ids that tell the family; empty for none.
    """

    name: str
    template: str | None = None
    fixed_kwargs: Mapping[str, object]
    append_roles: frozenset[str] = _ALL_ROLES
    end_of_turn: str = ""
    after_turn: str = ""
    shared_tokens: tuple[str, ...] = ()
    max_trim_count: int = 0
    segment_specials: tuple[str, ...] | None = None
    assistant_start: str = ""
    ignored_tail: tuple[str, ...] = ()
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    fingerprint: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The family that fits a tokenizer, and why, in words for the log."""

    family: Family
    reason: str


DEFAULT: Final = Family(
    name="default", fixed_kwargs=MappingProxyType({}), fingerprint=MappingProxyType({})
)
# Order counts: the first whose fingerprint fits is picked.
FAMILIES: Final[tuple[Family, ...]] = (
    Family(
        name="qwen3",
        template="qwen3",
        fixed_kwargs=MappingProxyType({"clear_thinking": False}),
        end_of_turn="<|im_end|>",
        after_turn="\n",
        segment_specials=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        assistant_start="<|im_start|>assistant",
        ignored_tail=("\n",),
        reasoning_parser="qwen3",
        tool_call_parser="qwen25",
        fingerprint=MappingProxyType(
            {"<|im_end|>": 151645, "<tool_call>": 151657, "<think>": 151667}
        ),
    ),
    DEFAULT,
)


def family_of(name: str) -> Family:
    """The family of a name.

    Raises:
        SettingsError: There is none; the message lists the names.
    """
    for family in FAMILIES:
        if family.name == name:
            return family
    names = ", ".join([AUTO, *(family.name for family in FAMILIES)])
    raise SettingsError(f"no TITO family {name!r}: expected one of {names}")


def detect_family(tokenizer: Tokenizer) -> Detection:
    """Pick a family by the special tokens of a tokenizer; `default` if none fits."""
    for family in FAMILIES:
        marks = family.fingerprint
        if marks and all(tokenizer.special_ids.get(text) == mark for text, mark in marks.items()):
            shown = ", ".join(f"{text} is {mark}" for text, mark in marks.items())
            return Detection(family=family, reason=shown)
    return Detection(family=DEFAULT, reason="no family's special tokens are there")
