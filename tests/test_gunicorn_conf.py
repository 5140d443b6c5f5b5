"""From settings to gunicorn's names."""

import importlib
import os

import pytest
from gunicorn.config import Config

from sessions.chassis.refusals import FAREWELL_S
from sessions.chassis.worker import GroupWorker


def _loaded(monkeypatch: pytest.MonkeyPatch, **environ: str) -> Config:
    """Gunicorn's configuration as the file makes it under these variables."""
    for name in [name for name in os.environ if name.startswith("SESSIONS_")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["gunicorn"])
    module = importlib.reload(importlib.import_module("gunicorn_conf"))
    cfg = Config()
    for name in set(vars(module)) & set(cfg.settings):
        cfg.set(name, getattr(module, name))
    return cfg


def test_a_group_is_made_of_the_settings(monkeypatch: pytest.MonkeyPatch):
    cfg = _loaded(
        monkeypatch,
        SESSIONS_SHARDS="3",
        SESSIONS_BIND="0.0.0.0:81",
        SESSIONS_TIMEOUT_S="9",
        SESSIONS_GRACEFUL_S="7",
        SESSIONS_DRAIN_DELAY_S="1.5",
    )
    assert (cfg.workers, cfg.timeout, cfg.graceful_timeout) == (4, 9, 9 + FAREWELL_S)
    assert cfg.address == [("0.0.0.0", 81)]
    assert cfg.worker_class is GroupWorker
    assert cfg.control_socket_disable is True
    assert cfg.proc_name == "sessile"


def test_the_default_is_one_lone_shard(monkeypatch: pytest.MonkeyPatch):
    cfg = _loaded(monkeypatch)
    assert (cfg.workers, cfg.address) == (1, [("127.0.0.1", 8000)])


@pytest.mark.parametrize(("writable", "folder"), [(True, "/dev/shm"), (False, None)])
def test_heartbeats_go_to_memory_where_there_is_some(
    monkeypatch: pytest.MonkeyPatch, folder: str | None, *, writable: bool
):
    monkeypatch.setattr(os, "access", lambda *_: writable)
    assert _loaded(monkeypatch).worker_tmp_dir == folder


def test_a_daemon_is_refused_while_the_file_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--daemon")
    with pytest.raises(SystemExit, match="Error: --daemon: "):
        _loaded(monkeypatch)
