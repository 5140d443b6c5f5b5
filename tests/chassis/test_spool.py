"""The spool folder: made, taken or refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from sessions.chassis.spool import prepare_spool_dir
from sessions.errors.unseen import SettingsError

_UID, _GID = os.getuid(), os.getgid()
_OTHER = 65534


def test_nothing_is_made_if_none_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    prepare_spool_dir("", _UID, _GID)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_made_private(tmp_path: Path):
    old = os.umask(0)
    try:
        prepare_spool_dir(str(tmp_path / "new"), _UID, _GID)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_folder_that_is_there_is_taken_as_it_is(tmp_path: Path):
    tmp_path.chmod(0o755)
    (tmp_path / "kept").touch()
    for _ in range(2):
        prepare_spool_dir(str(tmp_path), _UID, _GID)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a folder away")
def test_a_made_folder_belongs_to_the_user_that_the_members_run_as(tmp_path: Path):
    prepare_spool_dir(str(tmp_path / "new"), _OTHER, _OTHER - 1)
    found = (tmp_path / "new").stat()
    assert (found.st_uid, found.st_gid) == (_OTHER, _OTHER - 1)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"^SESSIONS_SPOOL_DIR=.* cannot be made"):
        prepare_spool_dir(str(tmp_path / "no" / "parent"), _UID, _GID)


def test_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="is no folder"):
        prepare_spool_dir(str(tmp_path / "file"), _UID, _GID)


@pytest.mark.parametrize(
    ("mode", "gid", "is_taken"),
    [
        (0o755, _OTHER, False),
        (0o757, _OTHER, True),
        (0o752, _OTHER, False),
        (0o770, _GID, True),
        (0o750, _GID, False),
        (0o707, _GID, False),
    ],
)
def test_a_folder_of_somebody_else_is_taken_only_if_the_members_may_write(
    tmp_path: Path, mode: int, gid: int, *, is_taken: bool
):
    tmp_path.chmod(mode)
    if is_taken:
        prepare_spool_dir(str(tmp_path), _UID + 7, gid)
    else:
        with pytest.raises(SettingsError, match="cannot be written by user"):
            prepare_spool_dir(str(tmp_path), _UID + 7, gid)


def test_a_read_only_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    with pytest.raises(SettingsError, match="read-only"):
        prepare_spool_dir(str(tmp_path), _UID, _GID)


def test_the_owner_without_the_right_is_refused(tmp_path: Path):
    if not _UID:
        os.chown(tmp_path, _OTHER, _GID)
    tmp_path.chmod(0o577)
    with pytest.raises(SettingsError, match="cannot be written by user"):
        prepare_spool_dir(str(tmp_path), _UID or _OTHER, _GID)
