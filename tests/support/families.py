"""Every TITO family ready to be played with, without any model's files.

The boundary rules speak of token texts, so one tokenizer with the special tokens of all families
does for each: the vocabulary of Qwen3 with these added. Families whose template ships are played
with it; the others with a small template of the kind that their models bring: same marks, same way
of thinking history, nothing more.

Spec: docs/sessions.md#families
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import FAMILIES
from sessions.tokens.packaged import PACKAGED, PackagedRanks, read_packaged
from sessions.tokens.prompts import PromptBuilder
from sessions.tokens.templates import ChatTemplate, Template, read_shipped_template
from sessions.tokens.tokenizer import Tokenizer

PLAIN: Final = (
    "{% for m in messages %}[{{ m.role }}:{{ m.reasoning_content or '' }}/{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function|tojson }}{% endfor %}]{% endfor %}"
    "{% if add_generation_prompt %}[assistant:{% endif %}"
)
# A model's own template clears the thinking of earlier turns unless it is told not to; `QUESTION`
# is the index of the last message of the user.
_QUESTION: Final = (
    "{% set last = namespace(question=-1) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set last.question = loop.index0 %}{% endif %}{% endfor %}"
)
_GLM: Final = (
    _QUESTION + "[gMASK]<sop>{% if tools %}<|system|>\n{{ tools|tojson }}{% endif %}"
    "{% set keeps = clear_thinking is defined and not clear_thinking %}"
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}<|assistant|>"
    "{% if keeps or loop.index0 > last.question %}<think>{{ m.reasoning_content or '' }}{% endif %}"
    "</think>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
    "{% for k, v in c.function.arguments|items %}<arg_key>{{ k }}</arg_key>"
    "<arg_value>{{ v|tojson }}</arg_value>{% endfor %}</tool_call>{% endfor %}"
    "{% elif m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|observation|>{% endif %}"
    "<tool_response>{{ m.content }}</tool_response>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>{% endif %}"
)
_KIMI: Final = (
    _QUESTION + "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools|tojson }}<|im_end|>"
    "{% endif %}{% set keeps = preserve_thinking is defined and preserve_thinking %}"
    "{% for m in messages %}"
    "<|im_{{ 'system' if m.role == 'tool' else m.role }}|>{{ m.role }}<|im_middle|>"
    "{% if m.role == 'assistant' %}"
    "<think>{{ m.reasoning_content if keeps or loop.index0 > last.question }}</think>{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
    "{{ c.function.arguments|tojson }}<|tool_call_end|>{% endfor %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|><think>{% endif %}"
)
_NEMOTRON: Final = (
    _QUESTION + "{% if tools %}<|im_start|>system\n{{ tools|tojson }}<|im_end|>\n{% endif %}"
    "{% set cuts = truncate_history_thinking is not defined or truncate_history_thinking %}"
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}{{ '\\n' }}"
    "{% if m.role == 'assistant' %}<think>"
    "{% if not cuts or loop.index0 > last.question %}"
    "{{ '\\n' + (m.reasoning_content or '') + '\\n' }}{% endif %}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function|tojson }}</tool_call>{% endfor %}"
    "<|im_end|>{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
NATIVE: Final[Mapping[str, str]] = {
    "glm47": _GLM,
    "kimi26": _KIMI,
    "nemotron3": _NEMOTRON,
    "default": PLAIN,
}
# What the templates write as one token beyond what the families' rules name.
_MORE_SPECIALS: Final = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|im_middle|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "\uff5cDSML\uff5c",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<|content_text|>",
    "<|content_thinking|>",
    "<|content_xml|>",
    "<|content_invoke_tool_json|>",
    "<|content_model_end_sampling|>",
    "<|end_message|>",
)


def marks_of(families: Sequence[Family]) -> tuple[str, ...]:
    """The token texts that the rules and clues of families name, each once."""
    found: dict[str, None] = {}
    for family in families:
        texts = [
            family.end_of_turn,
            *family.shared_tokens,
            *(family.segment_specials or ()),
            *(text for text in family.ignored_tail if text != "\n"),
            *(family.clues.tokens if family.clues else ()),
        ]
        found |= dict.fromkeys(text for text in texts if text)
    return tuple(found)


@cache
def tokenizer_of_all() -> Tokenizer:
    """The vocabulary of Qwen3 with the special tokens of all families."""
    entry = PACKAGED["qwen3"]
    specials = tuple(dict.fromkeys([*entry.specials, *marks_of(FAMILIES), *_MORE_SPECIALS]))
    known = PackagedRanks(
        distribution=entry.distribution,
        package=entry.package,
        resource=entry.resource,
        pattern=entry.pattern,
        specials=specials,
    )
    return read_packaged("all", {"all": known})


def template_of(family: Family) -> Template:
    """The template that ships for a family, or one like its models'."""
    if family.template is not None:
        return read_shipped_template(family.template, family.template_texts)
    return ChatTemplate(NATIVE[family.name], name=family.name)


def canonical_reply(
    builder: PromptBuilder,
    history: Sequence[Any],
    reply: Mapping[str, Any],
    tools: list[Any] | None,
    kwargs: Mapping[str, Any],
) -> str:
    """What a model says for a reply if it spells as the template does, its stop token included.

    That is what the reply adds to a rendering of the history and the place where the assistant
    speaks, without what the template writes after a turn.
    """
    decode = builder.tokenizer.decode
    asked = decode(builder.first(history, tools, kwargs))
    answered = decode(builder.whole([*history, reply], tools, kwargs))
    assert answered.startswith(asked), (asked, answered)
    text = answered[len(asked) :].removesuffix(builder.family.after_turn)
    return text + (builder.family.shared_tokens or ("",))[0]
