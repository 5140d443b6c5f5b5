"""The ready file: how scripts and tests learn that a group serves, where, and by which processes.

`<runtime dir>/ready.json` is written once, when every member is ready, by the member that owns the
public listener, and removed by the arbiter at the end.

Spec: docs/operations.md#ready-file
"""

from __future__ import annotations

import json
import os
import socket

from sessions.lending.board import ROUTER_ROW
from sessions.lending.group import Group


def write_ready(group: Group, listeners: list[socket.socket]) -> None:
    """Write the file atomically.

    Args:
        group: All of whose members are ready.
        listeners: The first one's address is told.
    """
    board = group.board
    pids = {"arbiter": os.getppid()}
    if group.settings.has_router:
        pids["router"] = board.read_row(ROUTER_ROW).pid
    for index in range(board.shards):
        pids[f"shard {index}"] = board.read_row(board.row_of_shard(index)).pid
    content = json.dumps({"address": address_of(listeners[0]), "pids": pids})
    passing = group.ready_path.with_suffix(".new")
    passing.write_text(content)
    passing.rename(group.ready_path)


def address_of(listener: socket.socket) -> str:
    """`host:port` (IPv6 in brackets), or the path of a Unix listener."""
    name = listener.getsockname()
    if isinstance(name, str):
        return name
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
