"""One engine for all tests of the folder, real or simulated, and groups before it.

What is measured on the way is printed at the end of the run: docs/engines.md has it.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from sessions.tokens.tokenizer import Tokenizer, load_tokenizer
from tests.support.group import RunningGroup, open_groups
from tests.support.vllm_engine import VLLMEngine, open_vllm

ENV: Final = {
    "SESSIONS_TOKENIZER": "pkg:qwen3",
    "SESSIONS_ROUTING_REPLAY": "1",
    "SESSIONS_CANCEL_ON_DISCONNECT": "1",
}
Figures = dict[str, str]
FIGURES: Final = pytest.StashKey[Figures]()
_GIB: Final = 1 << 30


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, value in terminalreporter.config.stash.get(FIGURES, {}).items():
        terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    return pytestconfig.stash[FIGURES]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory, figures: Figures) -> Iterator[VLLMEngine]:
    with open_vllm(tmp_path_factory.mktemp("engine")) as running:
        version = running.ask("GET", "/version").json()["version"]
        figures["engine"] = f"vLLM {version}" if running.is_real else f"simulated vLLM {version}"
        figures["first start"] = f"{running.start_s:.0f} s"
        yield running
        figures["last start"] = f"{running.start_s:.0f} s"
        figures["memory"] = f"{running.memory_bytes() / _GIB:.1f} GiB"


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return load_tokenizer("pkg:qwen3")


@pytest.fixture(scope="session", params=[1, 4], ids=["1 shard", "4 shards"])
def group(request: pytest.FixtureRequest, engine: VLLMEngine) -> Iterator[RunningGroup]:
    """A group before the engine, which it has to find out about itself."""
    with open_groups() as groups:
        yield groups.start(shards=request.param, env={**ENV, "SESSIONS_ENGINE_URL": engine.url})
