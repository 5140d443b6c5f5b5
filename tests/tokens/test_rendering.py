from datetime import datetime

import pytest

from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnrenderableMessageError
from sessions.tokens.rendering import Rendering
from sessions.tokens.templates import ChatTemplate

PICKY = ChatTemplate(
    "{% for message in messages %}{% if message.content == 'bad' %}{{ raise_exception('no') }}"
    "{% endif %}{{ message.content }}{% endfor %}"
    "{% for tool in tools or [] %}{{ tool.name.upper() }}{% endfor %}"
    "{% if add_generation_prompt %}>{% endif %}",
    name="picky",
)


def said(*contents: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": content} for content in contents]


def test_messages_tools_and_kwargs_are_rendered():
    template = ChatTemplate(
        "{{ messages[0].content }}{{ tools[0].name }}{{ x }}{{ add_generation_prompt }}", name="t"
    )
    rendering = Rendering(template, [{"name": "f"}], {"x": 1})
    assert rendering.text(said("a"), add_generation_prompt=True) == "af1True"


@pytest.mark.parametrize("bad_at", [0, 1, 4, 8])
def test_the_message_that_a_template_cannot_render_is_named(bad_at: int):
    contents = ["x"] * 9
    contents[bad_at] = "bad"
    with pytest.raises(UnrenderableMessageError, match="no") as refused:
        Rendering(PICKY).text(said(*contents), add_generation_prompt=True)
    assert refused.value.param == f"messages[{bad_at}]"
    assert refused.value.message.startswith(f"messages[{bad_at}]: ")


def test_the_first_of_several_is_named():
    with pytest.raises(UnrenderableMessageError) as refused:
        Rendering(PICKY).text(said("x", "bad", "x", "bad", "bad"), add_generation_prompt=True)
    assert refused.value.param == "messages[1]"


def test_a_message_is_named_by_its_index_in_the_request():
    with pytest.raises(UnrenderableMessageError) as refused:
        Rendering(PICKY).text(
            said("own", "own", "x", "bad"), add_generation_prompt=True, own_count=2, offset=10
        )
    assert refused.value.param == "messages[11]"


def test_tools_are_named_when_the_messages_render_without_them():
    with pytest.raises(UnrenderableMessageError) as refused:
        Rendering(PICKY, [{"title": "f"}]).text(said("x"), add_generation_prompt=True)
    assert refused.value.param == "tools"


def test_a_fault_outside_of_the_messages_names_the_first_place_it_can():
    with pytest.raises(UnrenderableMessageError) as refused:
        Rendering(PICKY).text(said("bad"), add_generation_prompt=False, own_count=1, offset=10)
    assert refused.value.param == "messages[10]"


@pytest.mark.parametrize(
    ("tools", "param"),
    [("x", "tools"), ({}, "tools"), (1, "tools"), ([{}, 1], "tools[1]"), (["f"], "tools[0]")],
)
def test_tools_that_are_no_list_of_objects_are_refused_by_their_place(tools: object, param: str):
    with pytest.raises(RequestError) as refused:
        Rendering(PICKY, tools)
    assert refused.value.param == param


def test_no_tools_may_be_said_in_two_ways():
    template = ChatTemplate("{{ tools is none }}", name="t")
    choices: tuple[list[object] | None, ...] = (None, [])
    for tools in choices:
        assert Rendering(template, tools).text([], add_generation_prompt=False) == "True"


def test_all_renders_of_a_request_see_one_moment():
    seen: list[datetime] = []

    class Clock:
        def render(self, *_: object, now: datetime, **__: object) -> str:
            seen.append(now)
            return ""

    rendering = Rendering(Clock())
    rendering.text([], add_generation_prompt=False)
    rendering.text([], add_generation_prompt=True)
    assert seen[0] is seen[1]
