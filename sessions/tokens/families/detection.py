"""Which family a model is of, by the tokens of its tokenizer and the text of its chat template.

A family fits if all its clues hold. Of several that fit the one with the most clues is taken, of
equal ones the first of the table; the others are named, because their rules differ. `default` fits
when nothing else does.

Must not know how prompts are built.

Spec: docs/sessions.md#families
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import DEFAULT, FAMILIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is known of a model.

    Attributes:
        special_ids: Text to id of the tokenizer's added tokens.
        template: Text of the model's own chat template; None if it brings none.
        is_complete: Whether a template would have been found; false for packaged ranks.
    """

    special_ids: Mapping[str, int]
    template: str | None
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The family that fits a model.

    Attributes:
        family: The one to take.
        reason: Why, in words for the log.
        rivals: Others that fit, too, but for `default`, which always does.
        is_sure: Whether the rivals have fewer clues than the one that is taken.
    """

    family: Family
    reason: str
    rivals: tuple[Family, ...]
    is_sure: bool


def detect_family(traits: Traits) -> Detection:
    """Pick a family; `default` if no other fits."""
    held = [(family, _held_clues(family, traits)) for family in FAMILIES]
    fitting = sorted((pair for pair in held if pair[1]), key=lambda pair: -len(pair[1]))
    if not fitting:
        return Detection(
            family=DEFAULT,
            reason="no family's special tokens and template are there",
            rivals=(),
            is_sure=True,
        )
    (family, clues), *others = fitting
    return Detection(
        family=family,
        reason=", ".join(clues),
        rivals=tuple(rival for rival, _ in others),
        is_sure=all(len(fewer) < len(clues) for _, fewer in others),
    )


def contradicts(family: Family, traits: Traits) -> bool:
    """Whether a model is clearly not of a family: what is known of it breaks one of its clues."""
    clues = family.clues
    if clues is None:
        return False
    template = _text_of(traits)
    return _held_tokens(family, traits) is None or (
        template is not None
        and (
            any(text in template for text in clues.foreign)
            or any(text not in template for text in clues.template)
        )
    )


def _held_clues(family: Family, traits: Traits) -> list[str]:
    """The clues of a family, in words, if all of them hold; else nothing."""
    clues = family.clues
    held = _held_tokens(family, traits)
    if clues is None or held is None or contradicts(family, traits):
        return []
    if clues.template and traits.template is None:
        return []
    held += [f"its template has {text!r}" for text in clues.template]
    if clues.has_template is None:
        return held
    if not traits.is_complete or clues.has_template != (traits.template is not None):
        return []
    return [*held, "it brings a template" if clues.has_template else "it brings no template"]


def _held_tokens(family: Family, traits: Traits) -> list[str] | None:
    """The token clues of a family in words; None if one of them does not hold."""
    held = []
    for text, number in (family.clues.tokens if family.clues else {}).items():
        found = traits.special_ids.get(text)
        if found is None or number not in {None, found}:
            return None
        held.append(f"{text} is {found}")
    return held


def _text_of(traits: Traits) -> str | None:
    """The template with its spelled line breaks as such."""
    return None if traits.template is None else traits.template.replace("\\n", "\n")
