"""The runtime folder: private, locked, cleared."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.chassis import rundir
from sessions.chassis.hooks import make_group
from sessions.chassis.rundir import (
    RuntimeDir,
    check_socket_paths,
    open_runtime_dir,
    planned_dir,
)
from sessions.errors.unseen import SettingsError
from sessions.settings import Settings
from tests.support.stand_ins import status_of

_UID, _GID = os.getuid(), os.getgid()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "_LOCK_WAIT_S", 0.1)


def _open(path: Path | str = "") -> RuntimeDir:
    return open_runtime_dir(str(path), _UID, _GID)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_that_does_not_exist_is_made_private(folder: Path):
    old = os.umask(0)
    try:
        assert _mode(_open(folder / "new").path) == 0o700
    finally:
        os.umask(old)


def test_a_temporary_folder_is_private_and_removed_as_a_whole():
    opened = _open()
    assert _mode(opened.path) == 0o700
    (opened.path / "anything").touch()
    opened.remove()
    opened.remove()
    assert not opened.path.exists()


def test_a_given_folder_stays_with_its_lock_and_loses_what_the_group_made(folder: Path):
    opened = _open(folder / "given")
    for name in ("router.channel", "shard-0.sock", "ready.json", "ready.json.7", "kept"):
        (opened.path / name).touch()
    opened.remove()
    assert sorted(path.name for path in opened.path.iterdir()) == ["kept", "lock"]


def test_what_a_killed_group_left_is_removed_before_the_next_one_starts(folder: Path):
    given = folder / "given"
    given.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(given / "shard-9.sock"))
    (given / "ready.json").touch()
    _open(given)
    assert [path.name for path in given.iterdir()] == ["lock"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize("given", [True, False])
def test_a_folder_belongs_to_the_user_that_the_members_run_as(folder: Path, *, given: bool):
    opened = open_runtime_dir(str(folder / "new") if given else "", 65534, 65533)
    found = opened.path.stat()
    assert (found.st_uid, found.st_gid) == (65534, 65533)
    opened.remove()


def test_a_child_removes_nothing(folder: Path):
    opened = _open(folder / "given")
    (opened.path / "ready.json").touch()
    status_of(opened.remove)
    assert (opened.path / "ready.json").exists()


def test_a_second_group_is_refused_and_leaves_the_first_alone(folder: Path):
    opened = _open(folder / "given")
    (opened.path / "ready.json").touch()
    with pytest.raises(SettingsError, match="another group is running in /tmp/"):
        _open(folder / "given")
    assert (opened.path / "ready.json").exists()


def test_the_lock_is_held_for_as_long_as_one_child_lives(folder: Path):
    given = folder / "given"
    ready, writer = os.pipe()
    reader, release = os.pipe()

    def parent() -> None:
        _open(given)
        if os.fork() == 0:
            os.write(writer, b"x")
            os.read(reader, 1)
        os._exit(0)

    assert status_of(parent) == 0
    os.read(ready, 1)
    with pytest.raises(SettingsError, match="another group"):
        _open(given)
    os.write(release, b"x")
    vars(rundir)["_LOCK_WAIT_S"] = 5.0  # the fixture puts it back
    _open(given)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_enter_is_refused(folder: Path, mode: int):
    folder.chmod(mode)
    with pytest.raises(SettingsError, match=f"mode 0700.*now mode {mode:04o}"):
        _open(folder)


def test_a_folder_of_another_user_is_refused(folder: Path):
    with pytest.raises(SettingsError, match=f"owned by user {_UID + 1}"):
        open_runtime_dir(str(folder), _UID + 1, _GID)


def test_a_file_in_its_place_is_refused(folder: Path):
    path = folder / "file"
    path.touch(mode=0o600)
    with pytest.raises(SettingsError, match="must be a folder"):
        _open(path)


def test_a_folder_that_cannot_be_made_is_refused_by_the_name_of_the_setting(folder: Path):
    with pytest.raises(SettingsError, match=r"SESSIONS_RUNTIME_DIR=.*/no/such cannot be used"):
        _open(folder / "no" / "such")


def test_a_relative_folder_is_told_apart_from_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    assert _open("given").path == folder / "given"


def test_the_length_of_the_path_is_known_before_the_folder_is_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    planned = [planned_dir(""), planned_dir(str(folder / "given"))]
    assert list(folder.iterdir()) == []
    made = [_open("").path, _open(folder / "given").path]
    assert [len(str(path)) for path in planned] == [len(str(path)) for path in made]
    assert planned[1] == made[1]


@pytest.mark.parametrize(("shards", "longest"), [(1, "shard-0.sock"), (256, "shard-255.sock")])
def test_a_socket_path_is_accepted_up_to_what_a_listener_can_take(shards: int, longest: str):
    longest = max(longest, "router.channel", key=len)
    fits = Path("/" + "x" * (103 - len(f"/{longest}") - 1))
    assert len(str(fits / longest)) == 103
    check_socket_paths(make_group(Settings(shards=shards), fits))
    with pytest.raises(SettingsError, match="has 104 bytes, the limit is 103: set SESSIONS_"):
        check_socket_paths(make_group(Settings(shards=shards), Path(f"{fits}x")))


def test_a_socket_path_is_measured_in_bytes():
    with pytest.raises(SettingsError, match="has 1"):
        check_socket_paths(make_group(Settings(), Path("/" + "é" * 60)))
