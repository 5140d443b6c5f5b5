"""Unix listeners: private from the start, connectable when they appear, never in the way."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from sessions.lending.unix_listener import PATH_LIMIT_BYTES, listen_unix

KINDS = [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]


@pytest.mark.parametrize("kind", KINDS)
def test_can_be_connected_to_under_its_name(tmp_path: Path, kind: socket.SocketKind) -> None:
    with closing(listen_unix(tmp_path / "s", kind)) as listener:
        assert listener.gettimeout() == 0
        with closing(socket.socket(socket.AF_UNIX, kind)) as client:
            client.connect(str(tmp_path / "s"))
            server, _ = listener.accept()
            with closing(server):
                client.send(b"hello")
                assert server.recv(10) == b"hello"


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_only_its_owner_may_use_it_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with closing(listen_unix(tmp_path / "s", socket.SOCK_STREAM)):
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
            assert os.umask(mask) == mask
    finally:
        os.umask(before)


def test_replaces_stale_files_and_leaves_one(tmp_path: Path) -> None:
    for name in ("s", "s.new"):
        with closing(socket.socket(socket.AF_UNIX)) as stale:
            stale.bind(str(tmp_path / name))
    with (
        closing(listen_unix(tmp_path / "s", socket.SOCK_STREAM)),
        closing(socket.socket(socket.AF_UNIX)) as client,
    ):
        client.connect(str(tmp_path / "s"))
    assert os.listdir(tmp_path) == ["s"]


def test_a_path_up_to_the_limit_fits_and_a_longer_one_is_refused(tmp_path: Path) -> None:
    room = PATH_LIMIT_BYTES - len(str(tmp_path)) - 1
    if room < 1:
        pytest.skip("the temporary folder's own path is too long")
    with closing(listen_unix(tmp_path / ("s" * room), socket.SOCK_STREAM)):
        pass
    with pytest.raises(OSError, match="too long"):
        listen_unix(tmp_path / ("s" * (room + 1)), socket.SOCK_STREAM)


def test_a_failure_leaves_no_socket_and_no_umask_behind(tmp_path: Path) -> None:
    descriptors, mask = os.listdir("/proc/self/fd"), os.umask(0o027)
    try:
        with pytest.raises(OSError, match="No such file"):
            listen_unix(tmp_path / "missing" / "s", socket.SOCK_STREAM)
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)
    assert os.listdir("/proc/self/fd") == descriptors
