"""What the processes of a group load and weigh."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.group import Groups
from tests.support.processes import rss_bytes

MIB = 1 << 20
HEAVY = [
    "httpx",
    "jinja2",
    "msgspec",
    "numpy",
    "orjson",
    "starlette",
    "tiktoken",
    "tokenizers",
    "uvicorn",
    "sessions.core",
    "sessions.engine",
    "sessions.replay",
    "sessions.shard",
    "sessions.sim",
    "sessions.tokens",
    "sessions.tools",
]
SIMULATED = {"SESSIONS_ENGINE_URL": "sim:"}


@pytest.mark.parametrize("shards", [1, 4])
def test_router_and_idle_shards_stay_small(groups: Groups, shards: int):
    group = groups.start(shards=shards, env={**SIMULATED, "SESSIONS_ROUTER": "always"})
    weights = {member: rss_bytes(pid) // MIB for member, pid in group.pids.items()}
    sys.stdout.write(f"RSS MiB {weights}\n")
    assert weights.pop("router") < 40
    assert weights.pop("arbiter") < 40
    assert max(weights.values()) < 150


def test_the_live_router_maps_no_library_of_the_core(groups: Groups):
    group = groups.start(shards=2, env=SIMULATED)

    def heavy_libraries(member: str) -> set[str]:
        maps = Path(f"/proc/{group.pids[member]}/maps").read_text()
        found = re.findall(r"/site-packages/([A-Za-z0-9_]+)", maps)
        return {name for name in found if name in HEAVY}

    assert heavy_libraries("router") == set()
    assert heavy_libraries("arbiter") == set()
    assert {"orjson", "tiktoken"} <= heavy_libraries("shard 0")  # the test can see what is loaded


def test_nothing_heavy_is_imported_by_what_the_router_runs():
    code = "import sys, gunicorn_conf, sessions.router.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "sessions.lending.connection" in loaded
    heavy = {n for n in loaded if n in HEAVY or n.startswith(tuple(f"{h}." for h in HEAVY))}
    assert heavy == set()
