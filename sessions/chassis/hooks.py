"""The hooks that `gunicorn_conf.py` names: from a command line to a kept group.

`load_settings` runs while gunicorn reads its configuration, before anything is forked.
`start_group` is gunicorn's `on_starting`: the configuration is final and nothing is bound yet. It
refuses what a group cannot do, prepares what all members share, and hands the arbiter to a
`Keeper`, which installs the hooks that follow. An error here ends gunicorn with exit code 1 and
its one line.

Spec: docs/architecture.md#processes
"""

from __future__ import annotations

import dataclasses
import logging
import logging.config
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gunicorn.app.wsgiapp import WSGIApplication

from sessions.chassis.descriptors import raise_descriptor_limit
from sessions.chassis.keeper import Keeper
from sessions.chassis.logs import log_config, name_process
from sessions.chassis.preflight import check_application
from sessions.chassis.refusals import (
    daemon_refusal,
    refused_settings,
    refused_worker_class,
    wants_daemon,
)
from sessions.chassis.roles import Roles
from sessions.chassis.rundir import check_socket_paths, open_runtime_dir, planned_dir
from sessions.chassis.spool import prepare_spool_dir
from sessions.chassis.worker import GroupWorker
from sessions.errors.unseen import SettingsError
from sessions.lending.board import Board
from sessions.lending.cells import Cells
from sessions.lending.group import Group
from sessions.settings import Settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gunicorn.arbiter import Arbiter

_SECRET_BYTES: Final = 32  # as long as the digest that it keys


def load_settings(argv: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Read the settings while gunicorn reads its configuration.

    Args:
        argv: Gunicorn's command line.
        environ: The environment.

    Returns:
        The settings.

    Raises:
        SystemExit: A setting is refused, or gunicorn was told to become a daemon (it would do so
            before it calls any hook); exit code 1, one line on stderr.
    """
    try:
        settings = read_settings(environ)
    except SettingsError as error:
        raise SystemExit(f"Error: {error}") from None
    if wants_daemon(argv, environ):
        raise SystemExit(f"Error: {daemon_refusal()}")
    return settings


def on_starting(settings: Settings, roles: Roles | None = None) -> Callable[[Arbiter], None]:
    """Gunicorn's `on_starting` hook for these settings.

    Args:
        settings: Of the group.
        roles: What its members do; the product's roles if None.
    """

    def hook(server: Arbiter) -> None:
        start_group(server, settings, roles or Roles())

    return hook


def start_group(server: Arbiter, settings: Settings, roles: Roles) -> None:
    """Check, prepare and hand over; see the module docstring.

    Args:
        server: Gunicorn's arbiter, before it binds.
        settings: Of the group.
        roles: What its members do.

    Raises:
        RuntimeError: The start is refused; one line with all reasons.
    """
    server.init_signals()  # a stop that comes from now on waits in the queue
    name_process("arbiter")
    _open_logs(server, settings)
    reasons = [
        *refused_worker_class(server.worker_class, GroupWorker),
        *refused_settings(server.cfg, settings, os.environ, app_uri=_app_uri(server)),
    ]
    if reasons:
        raise RuntimeError(f"refused: {'; '.join(reasons)}")
    try:
        check_application(settings)
        raise_descriptor_limit(settings)
        group = make_group(settings, planned_dir(settings.runtime_dir))
        check_socket_paths(group)
        prepare_spool_dir(settings.spool_dir, server.cfg.uid, server.cfg.gid)
        runtime_dir = open_runtime_dir(settings.runtime_dir, server.cfg.uid, server.cfg.gid)
        group = dataclasses.replace(group, runtime_dir=runtime_dir.path)
    except SettingsError as error:
        raise RuntimeError(str(error)) from error
    Keeper(server, group, roles, runtime_dir).install()


def make_group(settings: Settings, runtime_dir: Path) -> Group:
    """What all members share; to be made before the forks."""
    return Group(
        settings=settings,
        board=Board(settings.shards),
        cells=Cells(settings.max_connections),
        runtime_dir=runtime_dir,
        run_secret=secrets.token_bytes(_SECRET_BYTES),
        instance_id=secrets.token_hex(16),
    )


def no_wsgi_app(_environ: object, _start_response: object) -> Iterable[bytes]:
    """Stands where gunicorn insists on an application; a role runs its own."""
    raise NotImplementedError("the group serves SESSIONS_APP")


def _app_uri(server: Arbiter) -> str | None:
    """What gunicorn would load; an embedding application loads what it was configured with."""
    app = server.app
    found: str | None = app.app_uri if isinstance(app, WSGIApplication) else server.cfg.wsgi_app
    return found


def _open_logs(server: Arbiter, settings: Settings) -> None:
    """Again, now that gunicorn's own options for logs are known."""
    cfg = server.cfg
    config = log_config(
        settings.log_format,
        level=cfg.loglevel.upper(),
        error_log=cfg.errorlog,
        access_log=cfg.accesslog,
    )
    try:
        logging.config.dictConfig(config)
    except ValueError as error:
        raise RuntimeError(f"--log-level {cfg.loglevel}: {error}") from error
