"""The product's gunicorn configuration with stand-in roles, for tests of the chassis alone.

A member does at boot what the variable STAND_IN says of it ("shard 0=hang; router=exit 3"), and
once it runs, what a file `order <member>` in the runtime folder says. The words are the keys of
`_ACTS`. Without words it gets ready, beats and ends when told to.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import gunicorn_conf
from gunicorn_conf import *  # noqa: F403 - the product's configuration
from sessions.chassis import hooks
from sessions.chassis.roles import Roles
from sessions.errors.unseen import SettingsError
from sessions.lending.board import Phase
from sessions.lending.group import Group, Life

_STEP_S: Final = 0.02
_logger: Final = logging.getLogger(__name__)


class StandInError(Exception):
    """Raised by order."""


def _raise_settings() -> None:
    raise SettingsError("SESSIONS_SOMETHING is not to our taste")


def _raise_error() -> None:
    raise StandInError("told to raise\nin two lines")


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


_ACTS: Final[dict[str, Callable[..., object]]] = {
    "raise": _raise_error,
    "interrupt": _raise_interrupt,
    "settings": _raise_settings,
    "exit": lambda status="": sys.exit(int(status) if status else None),
    "_exit": lambda status: os._exit(int(status)),
    "kill": lambda number: os.kill(os.getpid(), int(number)),
    "segv": lambda: ctypes.string_at(0),
    "hang": lambda: time.sleep(3600),
    "doze": lambda seconds: time.sleep(float(seconds)),
}


class _StandIn:
    """One member that does as it is told."""

    def __init__(self, group: Group, life: Life, name: str) -> None:
        self._group = group
        self._life = life
        self._name = name
        self._is_stuck = False
        self._returns = False
        self._is_slow = False
        self._speaks = False
        self._order = group.runtime_dir / f"order {name}"
        life.watch_idle(lambda: not self._is_stuck)

    def obey(self, words: str) -> None:
        """Do one thing."""
        act, *rest = words.split()
        if act == "fail":
            self._life.fail_boot("told to fail")
        elif act == "stuck":
            self._is_stuck = True
        elif act == "return":
            self._returns = True
        elif act == "slow":
            self._is_slow = True
        elif act == "last-words":
            self._speaks = True
        else:
            _ACTS[act](*rest)

    def _goes_on(self) -> bool:
        asked = self._life.stop_requested.is_set()
        return not self._returns and (self._is_stuck or not asked)

    async def run(self, is_ready: Callable[[], bool], on_ready: Callable[[], None]) -> None:
        """Boot, be ready, beat, end."""
        for plan in os.environ.get("STAND_IN", "").split(";"):
            name, _, words = plan.partition("=")
            if name.strip() == self._name:
                self.obey(words)
        while not self._returns and (self._is_slow or not is_ready()):
            self._life.beat()
            await asyncio.sleep(_STEP_S)
        if self._returns:
            return
        self._life.on_ready()
        on_ready()
        while self._goes_on():
            self._life.beat(sessions=1, requests=2)
            if self._speaks and self._group.board.cause:
                _logger.error("last words: %s", self._group.board.cause)
                os._exit(70)
            if self._order.exists():
                words = self._order.read_text()
                self._order.unlink()
                self.obey(words)
            await asyncio.sleep(_STEP_S)
        if not self._returns:
            self._life.on_drained()


class StandInRoles(Roles):
    """Roles without sockets of their own."""

    async def serve_router(self, group: Group, listeners: list[socket.socket], life: Life) -> None:
        shards = range(group.settings.shards)

        def all_ready() -> bool:
            rows = [group.board.read_row(group.board.row_of_shard(i)) for i in shards]
            return life.stop_requested.is_set() or all(row.phase >= Phase.READY for row in rows)

        await _StandIn(group, life, "router").run(all_ready, lambda: _write_ready(group, listeners))

    async def serve_shard(self, group: Group, index: int, life: Life) -> None:
        await _StandIn(group, life, f"shard {index}").run(lambda: True, lambda: None)

    async def serve_lone_shard(
        self, group: Group, listeners: list[socket.socket], life: Life
    ) -> None:
        await _StandIn(group, life, "shard 0").run(
            lambda: True, lambda: _write_ready(group, listeners)
        )


def _write_ready(group: Group, listeners: list[socket.socket]) -> None:
    host, port = listeners[0].getsockname()
    pids = {"arbiter": os.getppid()}
    if group.settings.has_router:
        pids["router"] = os.getpid()
    for index in range(group.settings.shards):
        pids[f"shard {index}"] = group.board.read_row(group.board.row_of_shard(index)).pid
    new = Path(group.runtime_dir, "ready.json.new")
    new.write_text(json.dumps({"address": f"{host}:{port}", "pids": pids}))
    new.rename(group.runtime_dir / "ready.json")


on_starting = hooks.on_starting(gunicorn_conf.settings, StandInRoles())
