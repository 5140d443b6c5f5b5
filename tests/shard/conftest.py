"""Fixtures of the shard's tests: the rollout application, and exchanges in both topologies."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sessions.lending.group import Group
from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from tests.support.held_app import HeldApp
from tests.support.members import group_of
from tests.support.rollouts import open_rollouts
from tests.support.stages import Stage, open_stage


@pytest.fixture(scope="session")
def prompts() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3")


@pytest.fixture
async def client(prompts: PromptBuilder) -> AsyncIterator[httpx.AsyncClient]:
    async with open_rollouts(prompts) as opened:
        yield opened


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return group_of(tmp_path)


@pytest.fixture
def app() -> HeldApp:
    return HeldApp()


@pytest.fixture(params=["lone", "lent"])
async def stage(group: Group, app: HeldApp, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """A lone shard, and a shard behind a router."""
    async with open_stage(group, app, has_router=request.param == "lent") as opened:
        yield opened
        app.end_all()
