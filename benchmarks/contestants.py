"""The servers that are compared: real processes on loopback, all with the same application.

A lone shard, one and two shards behind a router (each a gunicorn group as an operator starts it),
a stock uvicorn alone, and the same uvicorn behind nginx. All stand at the same time, since an idle
one costs nothing, and are stopped by pid.

Spec: docs/benchmark.md#servers
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.load import LoadError
from benchmarks.processes import free_port, run_process, wait_answer
from tests.support.group import start_group
from tests.support.processes import children_of
from tests.support.waiting import wait_until

APP: Final = "tests.support.apps:cases"
LONE: Final = "lone shard"
ROUTED: Final = "router + 1 shard"
MIXED: Final = "router + 2 shards"
UVICORN: Final = "stock uvicorn"
NGINX: Final = "nginx + uvicorn"

_NGINX_CONF: Final = """
{user}daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 0; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream app {{ server unix:{folder}/uvicorn.sock; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_buffer_size 64k; proxy_buffers 8 64k;
    }}
  }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One server under load.

    Attributes:
        name: For tables.
        address: Host and port.
        pids: Of the processes that requests or replies pass, by name.
    """

    name: str
    address: tuple[str, int]
    pids: Mapping[str, int]


@contextlib.contextmanager
def open_contestants(folder: Path) -> Iterator[list[Contestant]]:
    """Start all servers; stop them at the end.

    Args:
        folder: Empty and with a short path, for sockets, logs and temporary files.

    Raises:
        LoadError: nginx is not installed, or a server did not start.
        GroupError: A group did not start.
    """
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(open_group(LONE, folder / "lone", shards=1)),
            stack.enter_context(open_group(ROUTED, folder / "one", shards=1, router=True)),
            stack.enter_context(open_group(MIXED, folder / "two", shards=2, router=True)),
            stack.enter_context(_open_uvicorn(folder)),
            stack.enter_context(_open_nginx(folder)),
        ]


@contextlib.contextmanager
def open_group(
    name: str, runtime_dir: Path, *, shards: int, router: bool = False, app: str = APP
) -> Iterator[Contestant]:
    """Start a group; stop it at the end.

    Args:
        name: Of the contestant.
        runtime_dir: With a short path.
        shards: How many.
        router: Whether one shard has a router, too.
        app: Its application.

    Raises:
        GroupError: It did not start.
    """
    env = {"SESSIONS_ROUTER": "always"} if router else {}
    group = start_group(runtime_dir=runtime_dir, shards=shards, env=env, app=app)
    try:
        pids = {member: pid for member, pid in group.pids.items() if member != "arbiter"}
        yield Contestant(name=name, address=group.address, pids=pids)
    finally:
        for wrong in group.close():
            print(f"{name}: {wrong}", file=sys.stderr)


@contextlib.contextmanager
def _open_uvicorn(folder: Path) -> Iterator[Contestant]:
    address = ("127.0.0.1", free_port())
    with _run_uvicorn(folder / "uvicorn.log", "--port", str(address[1])) as process:
        wait_answer(process, address, folder / "uvicorn.log")
        yield Contestant(name=UVICORN, address=address, pids={"uvicorn": process.pid})


@contextlib.contextmanager
def _open_nginx(folder: Path) -> Iterator[Contestant]:
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if nginx is None:
        raise LoadError("nginx is not installed (Debian package nginx-light)")
    address = ("127.0.0.1", free_port())
    user = "user root;\n" if os.geteuid() == 0 else ""  # else its worker cannot reach the socket
    conf = folder / "nginx.conf"
    conf.write_text(_NGINX_CONF.format(user=user, folder=folder, port=address[1]))
    with (
        _run_uvicorn(folder / "behind.log", "--uds", str(folder / "uvicorn.sock")) as behind,
        run_process([nginx, "-c", str(conf)], folder / "nginx.out") as front,
    ):
        wait_until((folder / "uvicorn.sock").exists, "the uvicorn behind nginx listens")
        wait_answer(front, address, folder / "nginx.out")
        (worker,) = children_of(front.pid)
        pids = {"nginx": worker, "uvicorn": behind.pid}
        yield Contestant(name=NGINX, address=address, pids=pids)


def _run_uvicorn(
    log: Path, *where: str
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "uvicorn", APP, "--factory", "--loop", "uvloop"]
    command += ["--http", "httptools", "--no-access-log", "--log-level", "warning", *where]
    return run_process(command, log)
