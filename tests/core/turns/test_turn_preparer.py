from __future__ import annotations

import json
from array import array

import pytest

from sessions.core.dialects.vllm import VLLMDialect
from sessions.core.forms.chat_request import ChatRequest, parse_chat_request
from sessions.core.histories.linear import LinearHistory
from sessions.core.turns.turn_preparer import ReplayRules, TurnPreparer
from sessions.errors.client_visible import InternalError
from sessions.tokens.prompts import PromptBuilder


class OddPrompts:
    """A builder whose first prompts end in what is told instead of an id."""

    def __init__(self, prompts: PromptBuilder, last: object) -> None:
        self._prompts = prompts
        self._last = last

    def __getattr__(self, name: str) -> object:
        return getattr(self._prompts, name)

    def first(self, *_: object) -> list[object]:
        return [1, self._last]


def hello() -> ChatRequest:
    return parse_chat_request(
        json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    )


async def prepare(prompts: PromptBuilder) -> array[int]:
    preparer = TurnPreparer(prompts=prompts, rules=ReplayRules())
    return (await preparer.prepare(LinearHistory(), hello(), VLLMDialect())).prompt_ids


@pytest.mark.parametrize("odd", [True, -1, 151_669, 1.0, "7", None])
async def test_an_id_that_is_none_never_reaches_an_engine(prompts: PromptBuilder, odd: object):
    with pytest.raises(InternalError, match="no token id"):
        await prepare(OddPrompts(prompts, odd))  # type: ignore[arg-type]


@pytest.mark.parametrize("last", [0, 151_668])
async def test_every_id_of_the_vocabulary_may(prompts: PromptBuilder, last: int):
    found = await prepare(OddPrompts(prompts, last))  # type: ignore[arg-type]
    assert found.tolist() == [1, last]
