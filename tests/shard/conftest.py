"""Fixtures of the rollout application's tests."""

from collections.abc import AsyncIterator

import httpx
import pytest

from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from tests.support.rollouts import open_rollouts


@pytest.fixture(scope="session")
def prompts() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3")


@pytest.fixture
async def client(prompts: PromptBuilder) -> AsyncIterator[httpx.AsyncClient]:
    async with open_rollouts(prompts) as opened:
        yield opened
