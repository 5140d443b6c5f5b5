import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.turns import UnrenderableMessageError
from sessions.errors.unseen import SettingsError
from sessions.tokens.templates import (
    ChatTemplate,
    Template,
    local_now,
    read_native_template,
    read_shipped_template,
)

NOON = datetime(2026, 11, 30, 12, 5, tzinfo=UTC)


def render(
    template: Template,
    messages: list[Any],
    tools: list[Any] | None = None,
    **kwargs: object,
) -> str:
    prompt = bool(kwargs.pop("add_generation_prompt", False))
    return template.render(messages, tools, add_generation_prompt=prompt, kwargs=kwargs, now=NOON)


def rendered(source: str, messages: list[Any] | None = None, **kwargs: Any) -> str:  # noqa: ANN401 - passed on
    return render(ChatTemplate(source, name="t"), messages or [], **kwargs)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\nx\n{% endif %}\ny", "x\ny"),
        ("a\n    {% if true %}\nx\n    {% endif %}", "a\nx\n"),
        ("{% for i in 'abc' %}{% if i == 'b' %}{% continue %}{% endif %}{{ i }}{% endfor %}", "ac"),
        ("{% for i in 'abc' %}{% if i == 'b' %}{% break %}{% endif %}{{ i }}{% endfor %}", "a"),
        ("{{ {'b': 'é<&\\'', 'a': [1, none, true]}|tojson }}",
         """{"b": "é<&'", "a": [1, null, true]}"""),
        ("{{ [1]|tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{{ '<b>' }}", "<b>"),
        ("{{ strftime_now('%Y-%m-%d %H') }}", "2026-11-30 12"),
        ("{% generation %}{{ 'said' }}{% endgeneration %}!", "said!"),
        ("{{ missing }}{{ tools is none }}", "True"),
    ],
    ids=["blocks end their line", "blocks may be indented", "continue", "break", "tojson",
         "tojson indented", "tojson sorted", "no escaping", "time", "generation", "undefined"],
)  # fmt: skip
def test_the_environment_follows_the_rules_of_hugging_face(source: str, text: str):
    assert rendered(source) == text


def test_kwargs_and_the_generation_prompt_reach_the_template():
    source = "{{ enable_thinking }} {{ add_generation_prompt }}"
    assert rendered(source, enable_thinking=False, add_generation_prompt=True) == "False True"


def test_an_empty_list_of_tools_is_none():
    assert render(ChatTemplate("{{ tools is none }}", name="t"), [], []) == "True"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no such role') }}",
        "{{ messages[0].content + 'x' }}",
        "{{ messages[0].missing.deeper }}",
        "{{ messages[9].role.x }}",
        "{{ 1 / 0 }}",
        "{{ 'a'.index('b') }}",
        "{{ 'a'.encode('no such code') }}",
        "{{ none|xmlattr }}",
        "{{ range(10 ** 9)|list }}",
        "{{ missing|tojson }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_that_fails_or_leaves_the_sandbox_is_one_named_error(source: str):
    messages = [{"role": "user", "content": None}]
    with pytest.raises(UnrenderableMessageError) as refused:
        rendered(source, messages)
    assert refused.value.param == "messages"
    assert messages == [{"role": "user", "content": None}]


def test_what_the_template_says_is_in_the_error():
    with pytest.raises(UnrenderableMessageError, match="no such role"):
        rendered("{{ raise_exception('no such role') }}")


@pytest.mark.parametrize("source", ["{% if %}", "{{ x|no_such_filter }}", "{% generation %}x"])
def test_text_that_is_no_template_is_refused_at_once(source: str):
    with pytest.raises(SettingsError, match="chat template mine cannot be compiled"):
        ChatTemplate(source, name="mine")


def test_the_time_that_templates_show_has_the_zone_of_the_machine():
    assert local_now().utcoffset() == datetime.now().astimezone().utcoffset()


def write_config(folder: Path, **config: object) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def test_a_native_template_is_read_from_the_configuration(tmp_path: Path):
    write_config(
        tmp_path,
        chat_template="{{ bos_token }}|{{ eos_token }}|{{ pad_token }}",
        bos_token="<s>",
        eos_token={"content": "</s>", "lstrip": False},
        pad_token=None,
        add_bos_token=True,
    )
    assert render(read_native_template(tmp_path), []) == "<s>|</s>|"


def test_a_template_file_wins_over_the_configuration(tmp_path: Path):
    write_config(tmp_path, chat_template="old", bos_token="<s>")
    (tmp_path / "chat_template.jinja").write_text("new {{ bos_token }}")
    assert render(read_native_template(tmp_path), []) == "new <s>"


def test_of_several_templates_the_default_one_is_read(tmp_path: Path):
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    write_config(tmp_path, chat_template=named)
    assert render(read_native_template(tmp_path), []) == "d"


@pytest.mark.parametrize("config", [{}, {"chat_template": None}, {"chat_template": []}])
def test_a_model_without_a_template_is_refused_by_its_folder(
    tmp_path: Path, config: dict[str, object]
):
    write_config(tmp_path, **config)
    with pytest.raises(SettingsError, match=f"no chat template in {tmp_path}"):
        read_native_template(tmp_path)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path):
    with pytest.raises(SettingsError, match="no chat template"):
        read_native_template(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_configuration_is_refused_by_its_path(tmp_path: Path, text: str):
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(SettingsError, match=r"tokenizer_config\.json"):
        read_native_template(tmp_path)


# Qwen3: ours against the model's own.

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Météo <now> & 'here'",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
SAID = st.sampled_from(
    ["", "hi", "\n", "\n\nline\n", " a  ", "<think>\nx\n</think>\n\nso", "a</think>b</think>c",
     "<tool_response>\n1\n</tool_response>", "中文 <b>&\"'", "{{ x }}"]
)  # fmt: skip
CALLS = st.lists(
    st.builds(
        lambda arguments, nested: (
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
            if nested
            else {"name": "f", "arguments": arguments}
        ),
        st.sampled_from([{}, {"é": 1.5, "b": [1, None]}, "raw", '{"a": 1}']),
        st.booleans(),
    ),
    max_size=3,
)
MESSAGE = st.one_of(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user", "tool"]),
        SAID,
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": SAID},
        optional={"reasoning_content": st.none() | SAID, "tool_calls": CALLS},
    ),
)
CONVERSATION = st.lists(MESSAGE, min_size=1, max_size=7)


@pytest.fixture(scope="module")
def ours() -> ChatTemplate:
    return read_shipped_template("qwen3")


@pytest.fixture(scope="module")
def native(native_folder: Path) -> ChatTemplate:
    return read_native_template(native_folder)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    messages=CONVERSATION,
    tools=st.sampled_from([None, [], TOOLS, TOOLS * 2]),
    kwargs=st.sampled_from([{}, {"enable_thinking": False}, {"enable_thinking": True}]),
    prompt=st.booleans(),
)
def test_qwen3_renders_as_the_native_template_when_thinking_may_be_cleared(
    ours: ChatTemplate,
    native: ChatTemplate,
    messages: list[Any],
    tools: list[Any] | None,
    kwargs: dict[str, Any],
    *,
    prompt: bool,
):
    wanted = render(native, messages, tools, add_generation_prompt=prompt, **kwargs)
    assert render(ours, messages, tools, add_generation_prompt=prompt, **kwargs) == wanted


USER = {"role": "user", "content": "What is the weather in Köln?"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"function": {"name": "weather", "arguments": {"city": "Köln"}}, "type": "function"}
THOUGHT = {"role": "assistant", "content": "", "reasoning_content": "Ask.", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "rain"}


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [SYSTEM, USER],
        [SYSTEM, USER, {"role": "assistant", "content": "Rain.", "reasoning_content": "It rains."}],
        [USER, THOUGHT],
        [SYSTEM, USER, THOUGHT, RESULT],
        [SYSTEM, USER, THOUGHT, RESULT, RESULT, THOUGHT, RESULT],
        [USER, {**THOUGHT, "tool_calls": [CALL, CALL], "content": "Both:"}, RESULT],
    ],
    ids=["user", "system", "reply", "call", "result", "two results", "two calls"],
)
def test_qwen3_keeps_thinking_exactly_as_the_native_template_writes_it_within_a_turn(
    ours: ChatTemplate,
    native: ChatTemplate,
    messages: list[Any],
    tools: list[Any] | None,
    *,
    thinking: bool,
):
    kwargs = {"add_generation_prompt": messages[-1]["role"] != "assistant"}
    wanted = render(native, messages, tools, enable_thinking=thinking, **kwargs)
    assert wanted == render(
        ours, messages, tools, enable_thinking=thinking, clear_thinking=False, **kwargs
    )


@settings(derandomize=True, deadline=None, max_examples=300)
@given(head=CONVERSATION, tail=CONVERSATION, tools=st.sampled_from([None, TOOLS]))
def test_qwen3_only_appends_when_thinking_is_kept(
    ours: ChatTemplate, head: list[Any], tail: list[Any], tools: list[Any] | None
):
    head = [*head, {"role": "assistant", "content": "done"}]
    short = render(ours, head, tools, clear_thinking=False)
    assert render(ours, head + tail, tools, clear_thinking=False).startswith(short)


def test_qwen3_writes_a_think_block_for_every_reply_when_thinking_is_kept(ours: ChatTemplate):
    messages = [USER, {"role": "assistant", "content": "a"}, USER]
    text = render(ours, messages, clear_thinking=False)
    assert "<|im_start|>assistant\n<think>\n\n</think>\n\na<|im_end|>\n" in text
    assert "<think>" not in render(ours, messages)


def test_qwen3_takes_content_that_is_null_absent_or_in_parts(ours: ChatTemplate):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    odd = [
        {"role": "system", "content": parts},
        {"role": "user", "content": None},
        {"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": None},
        {"role": "tool", "content": parts},
        {"role": "user"},
    ]
    plain = [
        {"role": "system", "content": "ab"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": "ab"},
        {"role": "user", "content": ""},
    ]
    for tools in (None, TOOLS):
        assert render(ours, odd, tools) == render(ours, plain, tools)


def test_qwen3_groups_the_results_that_follow_each_other(ours: ChatTemplate):
    text = render(ours, [USER, THOUGHT, RESULT, RESULT, USER, RESULT])
    group = "<|im_start|>user" + "\n<tool_response>\nrain\n</tool_response>" * 2 + "<|im_end|>\n"
    assert group in text
    assert text.count("<|im_start|>user\n<tool_response>") == 2
