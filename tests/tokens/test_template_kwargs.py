from dataclasses import replace
from itertools import product

import pytest

from sessions.errors.turns import BadTemplateKwargsError
from sessions.tokens.families.declaration import Family, ThinkingSwitch
from sessions.tokens.families.table import DEFAULT
from sessions.tokens.template_kwargs import template_kwargs_of

SWITCHED = replace(
    DEFAULT, thinking=ThinkingSwitch(names=("a", "b"), mode_name="mode", default=False)
)


def refused(family: Family, requested: object) -> str | None:
    with pytest.raises(BadTemplateKwargsError) as caught:
        template_kwargs_of(family, requested)
    assert caught.value.status == 400
    return caught.value.param


def test_a_family_without_rules_passes_kwargs_on():
    assert template_kwargs_of(DEFAULT, None) == {}
    assert template_kwargs_of(DEFAULT, {"a": [1]}) == {"a": [1]}


def test_fixed_kwargs_are_added_and_may_be_said_but_not_changed():
    family = replace(DEFAULT, fixed_kwargs={"keep": True})
    assert template_kwargs_of(family, {"x": 1}) == {"x": 1, "keep": True}
    assert template_kwargs_of(family, {"keep": True}) == {"keep": True}
    assert refused(family, {"keep": False}) == "chat_template_kwargs.keep"


@pytest.mark.parametrize("requested", ["x", [], 1, True])
def test_what_is_no_object_is_refused(requested: object):
    assert refused(DEFAULT, requested) == "chat_template_kwargs"


@pytest.mark.parametrize("name", ["messages", "tools", "strftime_now"])
def test_what_the_template_gets_from_elsewhere_is_refused(name: str):
    assert refused(DEFAULT, {name: 1}) == f"chat_template_kwargs.{name}"


def test_texts_that_the_family_gives_its_template_are_refused():
    family = replace(DEFAULT, template_texts={"identity": "x"})
    assert refused(family, {"identity": "y"}) == "chat_template_kwargs.identity"
    assert template_kwargs_of(DEFAULT, {"identity": "y"}) == {"identity": "y"}


@pytest.mark.parametrize(
    ("said", "thinks"),
    [
        (None, False),
        ({"a": True}, True),
        ({"b": True}, True),
        ({"mode": "thinking"}, True),
        ({"mode": "chat"}, False),
        ({"a": False, "b": False, "mode": "chat"}, False),
        ({"a": None, "mode": "thinking"}, True),
    ],
)
def test_a_thinking_switch_gives_all_its_names_one_meaning(
    said: dict[str, object] | None, thinks: object
):
    found = template_kwargs_of(SWITCHED, said)
    assert found == {"a": thinks, "b": thinks}
    assert template_kwargs_of(SWITCHED, found) == found


def test_a_switch_that_contradicts_itself_is_refused():
    for a, b in product([True, False], repeat=2):
        if a is not b:
            assert refused(SWITCHED, {"a": a, "b": b}) == "chat_template_kwargs.b"
    assert refused(SWITCHED, {"b": True, "mode": "chat"}) == "chat_template_kwargs.mode"


@pytest.mark.parametrize(
    ("said", "name"), [({"a": 1}, "a"), ({"b": "yes"}, "b"), ({"mode": "loud"}, "mode")]
)
def test_a_switch_of_another_type_is_refused(said: dict[str, object], name: str):
    assert refused(SWITCHED, said) == f"chat_template_kwargs.{name}"


def test_a_family_without_a_switch_leaves_such_kwargs_alone():
    assert template_kwargs_of(DEFAULT, {"a": 1, "mode": "loud"}) == {"a": 1, "mode": "loud"}
