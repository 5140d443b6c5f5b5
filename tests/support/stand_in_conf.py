"""A gunicorn configuration for the harness's own tests: two sync workers that play a group.

It writes the ready file that a group writes, leaves a socket file when told to, and can fail or
hang before it is ready. STAND_IN in the environment holds the words for these.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

bind = os.environ["SESSIONS_BIND"]
workers = 2
timeout = 2  # a sync worker looks after its arbiter at half of it
control_socket_disable = True
_folder = Path(os.environ["SESSIONS_RUNTIME_DIR"])
_words = os.environ.get("STAND_IN", "").split()
_pids: dict[str, int] = {}


def on_starting(_server: Arbiter) -> None:
    _folder.mkdir()
    shown = {n: v if n.startswith("SESSIONS_") else "" for n, v in os.environ.items()}
    print(f"environment {shown}", flush=True)  # noqa: T201 -- the harness keeps stdout
    if "fail" in _words:
        raise RuntimeError("told to fail")


def post_fork(server: Arbiter, worker: Worker) -> None:
    """In the worker, after the fork: the last one knows of all and tells of the group."""
    _pids["router" if worker.age == 1 else f"shard {worker.age - 2}"] = os.getpid()
    if worker.age == 1 or "never-ready" in _words:
        return
    _pids["router"] = min(server.WORKERS)
    if "socket" in _words:
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(_folder / "left.sock"))
    host, port = server.LISTENERS[0].sock.getsockname()
    ready = {"address": f"{host}:{port}", "pids": {"arbiter": os.getppid(), **_pids}}
    (_folder / "new").write_text(json.dumps(ready))
    (_folder / "new").rename(_folder / "ready.json")


def child_exit(_server: Arbiter, _worker: Worker) -> None:
    if "halt" in _words:
        os._exit(70)  # an arbiter that leaves its other worker behind


def app(
    _environ: object, start_response: Callable[[str, list[tuple[str, str]]], object]
) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


wsgi_app = "tests.support.stand_in_conf:app"
