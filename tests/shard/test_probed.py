"""Probes on a shard's own socket."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from sessions.lending.board import Board, Phase
from sessions.lending.cells import Cells
from sessions.lending.group import Group
from sessions.settings import Settings
from sessions.shard.probed import Probed


async def below(scope: Scope, _receive: Receive, send: Send) -> None:
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b"app"})


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(
        settings=Settings(),
        board=Board(1),
        cells=Cells(1),
        runtime_dir=tmp_path,
        run_secret=b"s",
        instance_id="i",
    )


async def get(group: Group, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(Probed(below, group))
    async with httpx.AsyncClient(transport=transport, base_url="http://shard") as client:
        return await client.get(path)


async def test_probes_are_answered_from_the_board(group: Group):
    starting = await get(group, "/readyz")
    assert (starting.status_code, starting.json()["status"]) == (503, "starting")
    group.board.set_phase(1, Phase.READY, 1)
    group.board.beat(1)
    ready = await get(group, "/healthz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ok")
    assert ready.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/", "/livez/", "/sessions/livez"])
async def test_all_else_is_the_applications(group: Group, path: str):
    assert (await get(group, path)).status_code == 418
