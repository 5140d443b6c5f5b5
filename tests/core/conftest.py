"""Fixtures of the core's tests: real prompts, and a core on a scripted engine."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from tests.support.desk import Desk
from tests.support.engines import Answer


@pytest.fixture(scope="session")
def prompts() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3")


@pytest.fixture
def open_desk(prompts: PromptBuilder) -> Callable[..., Any]:
    """Opens a core on an engine that gives these answers; no turn may be left in the end."""

    @asynccontextmanager
    async def opened(*answers: Answer, **rules: Any) -> AsyncIterator[Desk]:  # noqa: ANN401
        desk = Desk(prompts, *answers, **rules)
        try:
            yield desk
        finally:
            desk.engine.gate.set()
            await desk.core.close()
        assert not desk.core.turns

    return opened
