from dataclasses import FrozenInstanceError
from types import MappingProxyType

import pytest

from sessions.tokens.families.declaration import ALL_ROLES, Family


def test_a_family_of_a_name_alone_promises_nothing():
    family = Family(name="x")
    assert (family.template, family.thinking, family.clues) == (None, None, None)
    assert family.append_roles == ALL_ROLES == {"tool", "user", "system", "assistant"}
    assert (family.end_of_turn, family.after_turn, family.shared_tokens) == ("", "", ())
    assert (family.max_trim_count, family.fixed_kwargs, family.template_texts) == (0, {}, {})
    assert (family.segment_specials, family.assistant_start, family.ignored_tail) == (None, "", ())


def test_what_a_family_declares_cannot_be_changed():
    family = Family(name="x")
    with pytest.raises(FrozenInstanceError):
        setattr(family, "name", "y")  # noqa: B010 - the type checker knows it cannot be set
    for mapping in (family.fixed_kwargs, family.template_texts):
        assert isinstance(mapping, MappingProxyType)
