"""A TITO family: what differs between models when a turn is joined to the tokens before it.

A family is data. Its rules speak of token texts, not ids, so that it fits every tokenizer of the
family; whoever applies them looks the ids up.

Must not know any family or how prompts are built.

Spec: docs/sessions.md#families
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

ALL_ROLES: Final = frozenset({"tool", "user", "system", "assistant"})


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Clues:
    """What tells that a model is of a family; the more clues hold, the surer.

    Attributes:
        tokens: Added tokens of its tokenizer, with the id where the id tells; None for any id.
        template: Texts in its own chat template, where a spelled line break counts as one. A family
            with such a clue is not seen in a model whose template is not at hand.
        foreign: Texts that its own chat template does not have.
        has_template: Whether it brings a chat template; None if that tells nothing.
    """

    tokens: Mapping[str, int | None]
    template: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    has_template: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingSwitch:
    """How a request says whether the model thinks, where engine and template must agree on it.

    Attributes:
        names: Template kwargs that mean the same, true or false. All of them are set.
        mode_name: A template kwarg that says it as `thinking` or `chat`; not passed on.
        default: What a request without any of them means.
    """

    names: tuple[str, ...]
    mode_name: str
    default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The rules of one family; see the module docstring.

    Attributes:
        name: What `SESSIONS_TITO_FAMILY` says.
        template: Name of a template that ships with the package; None for the model's own.
        template_texts: What that template finds under these names, if models share it.
        fixed_kwargs: Template kwargs that a request may not change.
        thinking: The thinking switch; None if the template reads a kwarg as it is.
        typescript_kwarg: Template kwarg that tells the tools as TypeScript; empty if they are told
            only as they are. A request may set it itself.
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
        reasoning_parser: SGLang's parser for its reasoning; None leaves it to the engine.
        tool_call_parser: SGLang's parser for its tool calls; None leaves it to the engine.
        clues: What tells the family; None if nothing does.
    """

    name: str
    template: str | None = None
    template_texts: Mapping[str, str] = field(default_factory=_nothing)
    fixed_kwargs: Mapping[str, object] = field(default_factory=_nothing)
    thinking: ThinkingSwitch | None = None
    typescript_kwarg: str = ""
    append_roles: frozenset[str] = ALL_ROLES
    end_of_turn: str = ""
    after_turn: str = ""
    shared_tokens: tuple[str, ...] = ()
    max_trim_count: int = 0
    segment_specials: tuple[str, ...] | None = None
    assistant_start: str = ""
    ignored_tail: tuple[str, ...] = ()
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    clues: Clues | None = None
