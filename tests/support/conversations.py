"""Conversations of canonical samples: the words of a model that spells as the template does.

`TURNS` makes them, `play` holds them through a prompt builder. Between special tokens the canonical
spelling of a text is its encoding, so a played conversation has the tokens of a whole render.

Spec: docs/sessions.md#prompts
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from sessions.tokens.prompts import PromptBuilder

# No "<" so that no special token is in it; what the template strips at the ends is not there.
WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="<\n")
    | st.sampled_from("\n \t'é\u0301中🙂"),
    max_size=12,
)
STRIPPED = WORDS.map(lambda text: text.strip("\n"))
ARGUMENTS = st.dictionaries(
    STRIPPED, st.none() | st.booleans() | st.integers() | STRIPPED, max_size=2
)
REPLIES = st.builds(
    lambda content, reasoning, calls: {
        "role": "assistant",
        "content": content,
        "reasoning_content": reasoning,
        "tool_calls": [
            {"id": str(i), "type": "function", "function": {"name": "f", "arguments": text}}
            for i, text in enumerate(calls)
        ],
    },
    WORDS.map(lambda text: text.lstrip("\n")),
    STRIPPED,
    st.lists(ARGUMENTS.map(lambda value: json.dumps(value, ensure_ascii=False)), max_size=2),
)
OTHERS = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "tool", "system", "developer"]),
    WORDS | st.none() | WORDS.map(lambda text: [{"type": "text", "text": text}]),
)
TURNS = st.lists(st.tuples(st.lists(OTHERS, max_size=3), REPLIES), min_size=1, max_size=4)


def sampled(reply: Mapping[str, Any], *, thinking: bool) -> str:
    """What a model says for a reply, in the canonical spelling, up to where sampling stops."""
    text = f"<think>\n{reply['reasoning_content']}\n</think>\n\n" if thinking else ""
    text += str(reply["content"])
    for index, call in enumerate(reply["tool_calls"]):
        function = call["function"]
        text += "\n" if reply["content"] or index else ""
        text += f'<tool_call>\n{{"name": "f", "arguments": {function["arguments"]}}}\n</tool_call>'
    return text + "<|im_end|>"


def play(
    builder: PromptBuilder, turns: list[Any], tools: list[Any] | None, *, thinking: bool = True
) -> tuple[list[Any], list[int]]:
    """Hold a conversation; each prompt must start with the checkpoint before it."""
    kwargs = {"enable_thinking": thinking}
    history: list[Any] = [{"role": "user", "content": "first"}]
    checkpoint: list[int] = []
    for appended, reply in turns:
        if checkpoint:
            prompt = builder.next(checkpoint, history[-1], appended, tools, kwargs)
            assert prompt[: len(checkpoint)] == checkpoint
            assert len(prompt) > len(checkpoint)
        else:
            prompt = builder.first([*history, *appended], tools, kwargs)
        said = reply if thinking else {**reply, "reasoning_content": ""}
        checkpoint = prompt + builder.tokenizer.encode(sampled(said, thinking=thinking))
        history += [*appended, said]
    return history, checkpoint
