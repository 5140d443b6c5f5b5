import os
from pathlib import Path

from sessions.replay.room import memory_bytes, room_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_container_counts_its_own_limit(tmp_path: Path):
    (tmp_path / "memory.max").write_text("1048576\n")
    assert memory_bytes(tmp_path) == 1048576


def test_an_old_control_group_is_read_too(tmp_path: Path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("2097152\n")
    assert memory_bytes(tmp_path) == 2097152


def test_no_limit_and_one_above_the_machine_mean_the_machine(tmp_path: Path):
    assert memory_bytes(tmp_path) == MACHINE
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path) == MACHINE
    (tmp_path / "memory.max").write_text(f"{1 << 62}\n")
    assert memory_bytes(tmp_path) == MACHINE


def test_a_spool_has_the_room_of_its_disk(tmp_path: Path):
    disk = os.statvfs(tmp_path)
    assert room_bytes(str(tmp_path)) == disk.f_blocks * disk.f_frsize
    assert 0 < room_bytes("") <= MACHINE
