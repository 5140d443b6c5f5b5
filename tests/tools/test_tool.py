"""Functions become tools: schema, checked arguments, words for an agent."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.episodes import ToolArgumentsError
from sessions.errors.unseen import LocalProtocolError
from sessions.tools.tool import Tool, tool_of


class Place(msgspec.Struct):
    x: int
    y: int = 0


def move(
    n: int,
    place: Place | None = None,
    tags: list[str] = [],  # noqa: B006 - a tool may have such a default
    speed: Annotated[float, msgspec.Meta(ge=0, description="in knots")] = 1.0,
) -> None:
    """Move.

    Slowly.
    """


class Counter:
    def add(self, n: int) -> int:
        """Add."""
        return n

    def __call__(self, n: int) -> int:
        return n


def test_name_and_description_are_the_functions_or_those_that_are_given():
    tool = tool_of(move)
    assert (tool.name, tool.description) == ("move", "Move.\n\nSlowly.")
    renamed = tool_of(move, name="go-1", description="Go.")
    assert (renamed.name, renamed.description) == ("go-1", "Go.")


def test_the_schema_is_an_object_with_its_definitions_inside():
    schema = tool_of(move).input_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["required"] == ["n"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["speed"]["description"] == "in knots"
    assert list(schema["$defs"]) == ["Place"]
    empty = tool_of(lambda: None, name="empty").input_schema
    assert empty["type"] == "object"
    assert empty["properties"] == {}


def test_a_bound_method_has_no_self_among_its_arguments():
    tool = tool_of(Counter().add)
    assert tool.arguments_of({"n": 3}) == {"n": 3}
    called = tool_of(Counter(), name="call")
    assert called.arguments_of({"n": 3}) == {"n": 3}


def test_arguments_become_what_the_annotations_say():
    found = tool_of(move).arguments_of({"n": 1, "place": {"x": 2}})
    assert found == {"n": 1, "place": Place(x=2), "tags": [], "speed": 1.0}


def test_a_default_that_can_change_is_new_for_each_call():
    tool = tool_of(move)
    tool.arguments_of({"n": 1})["tags"].append("left")
    assert tool.arguments_of({"n": 1})["tags"] == []


def test_a_default_with_something_in_it_is_copied_too():
    def pick(from_: list[int] = [1, 2], by: dict[str, int] = {"a": 1}) -> None:  # noqa: B006 - see above
        """Pick."""

    tool = tool_of(pick)
    found = tool.arguments_of({})
    found["from_"].append(3)
    found["by"].clear()
    assert tool.arguments_of({}) == {"from_": [1, 2], "by": {"a": 1}}


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ({}, "n", "missing required field `n`"),
        (None, "n", "missing required field `n`"),
        ({"n": "1"}, "n", "expected `int`, got `str`"),
        ({"n": True}, "n", "expected `int`, got `bool`"),
        ({"n": 1.5}, "n", "expected `int`, got `float`"),
        ({"n": 1, "m": 2}, "m", "unknown field `m`"),
        ({"n": 1, "place": {"x": "?"}}, "place.x", "expected `int`, got `str`"),
        ({"n": 1, "speed": -1}, "speed", "`float` >= 0"),
        ([1], None, "expected `object`, got `array`"),
        ("n", None, "expected `object`, got `str`"),
    ],
)
def test_wrong_arguments_are_told_in_words_for_an_agent(
    given: object, param: str | None, words: str
):
    with pytest.raises(ToolArgumentsError) as caught:
        tool_of(move).arguments_of(given)
    assert caught.value.param == param
    assert words in caught.value.message
    assert "n, place, tags, speed" in caught.value.message, "what would be right is told, too"


def starred(*n: int) -> None: ...
def double_starred(**n: int) -> None: ...
def positional(n: int, /) -> None: ...
def bare(n) -> None: ...  # noqa: ANN001 - what is tested
def unknown(n: Callable[[], None]) -> None: ...


@pytest.mark.parametrize("function", [starred, double_starred, positional, bare, unknown])
def test_a_function_that_json_cannot_call_is_refused_by_name(function: Callable[..., Any]):
    with pytest.raises(LocalProtocolError, match=function.__name__):
        tool_of(function)


@pytest.mark.parametrize("name", ["a b", "a/b", "ä", "x" * 129])
def test_a_name_that_no_path_and_no_model_can_say_is_refused(name: str):
    with pytest.raises(LocalProtocolError, match="no name of a tool"):
        tool_of(move, name=name)


def test_a_function_without_a_name_needs_one():
    partial = functools.partial(move, 1)
    with pytest.raises(LocalProtocolError, match="no name"):
        tool_of(partial)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["n", "place", "tags", "speed", "z"]), JSON))
@settings(derandomize=True, deadline=None)
def test_what_passes_the_check_passes_the_schema_that_the_agent_is_shown(
    arguments: dict[str, Any],
):
    tool: Tool = tool_of(move)
    try:
        tool.arguments_of(arguments)
    except ToolArgumentsError:
        return
    jsonschema.validate(arguments, dict(tool.input_schema))
