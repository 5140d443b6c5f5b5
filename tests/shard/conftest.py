"""Fixtures of the rollout application's tests."""

import pytest

from sessions.tokens.prompts import PromptBuilder, load_prompt_builder


@pytest.fixture(scope="session")
def prompts() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3")
