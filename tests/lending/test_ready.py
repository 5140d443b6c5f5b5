"""The ready file: who is told in it, the address in every family, and that it appears whole."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sessions.lending.board import Phase
from sessions.lending.ready import address_of, write_ready
from sessions.settings import RouterMode
from tests.support.members import group_of


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as made:
        yield made


@pytest.mark.parametrize(
    ("shards", "router", "members"),
    [
        (1, RouterMode.AUTO, {"shard 0": 101}),
        (1, RouterMode.ALWAYS, {"router": 100, "shard 0": 101}),
        (2, RouterMode.AUTO, {"router": 100, "shard 0": 101, "shard 1": 102}),
    ],
)
def test_tells_the_address_and_every_member(
    tmp_path: Path,
    listener: socket.socket,
    shards: int,
    router: RouterMode,
    members: dict[str, int],
) -> None:
    group = group_of(tmp_path, shards=shards, router=router)
    for row in range(shards + 1):
        group.board.set_phase(row, Phase.READY, 100 + row)
    write_ready(group, [listener])
    assert json.loads(group.ready_path.read_text()) == {
        "address": f"127.0.0.1:{listener.getsockname()[1]}",
        "pids": {"arbiter": os.getppid(), **members},
    }


def test_replaces_an_older_file_by_a_rename_and_leaves_nothing_else(
    tmp_path: Path, listener: socket.socket
) -> None:
    group = group_of(tmp_path, shards=1)
    group.ready_path.write_text("older")
    before = group.ready_path.stat().st_ino
    write_ready(group, [listener])
    assert group.ready_path.stat().st_ino != before
    assert os.listdir(tmp_path) == ["ready.json"]


def test_the_first_listener_is_the_address(tmp_path: Path, listener: socket.socket) -> None:
    group = group_of(tmp_path, shards=1)
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        write_ready(group, [other, listener])
        assert json.loads(group.ready_path.read_text())["address"] == address_of(other)


def test_an_ipv6_address_stands_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with closing(socket.socket(socket.AF_INET6)) as made:
        try:
            made.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 loopback here")
        assert address_of(made) == f"[::1]:{made.getsockname()[1]}"


def test_the_address_of_a_unix_listener_is_its_path(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(str(tmp_path / "s"))
        assert address_of(made) == str(tmp_path / "s")
