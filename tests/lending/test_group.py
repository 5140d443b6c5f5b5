"""The group: data that nobody changes, and where its files are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sessions.settings import ExitPolicy
from tests.support.members import group_of


def test_every_file_of_a_group_is_in_its_runtime_folder(tmp_path: Path) -> None:
    group = group_of(tmp_path, shards=3)
    paths = [group.channel_path, group.ready_path, *map(group.shard_socket_path, range(3))]
    assert {path.parent for path in paths} == {tmp_path}
    assert len(set(paths)) == 5


@pytest.mark.parametrize(
    ("policy", "of_the_app", "goes_on"),
    [
        (ExitPolicy.APP, False, False),
        (ExitPolicy.APP, True, True),
        (ExitPolicy.HALT, True, False),
        (ExitPolicy.CONTINUE, False, True),
    ],
)
def test_a_group_goes_on_as_it_is_told_else_as_its_application_would(
    tmp_path: Path, *, policy: ExitPolicy, of_the_app: bool, goes_on: bool
) -> None:
    group = group_of(tmp_path, on_shard_exit=policy)
    if of_the_app:
        group.board.set_goes_on()
    assert group.goes_on is goes_on


def test_a_group_is_frozen(tmp_path: Path) -> None:
    group = group_of(tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        group.instance_id = "other"  # type: ignore[misc]


def test_the_longest_socket_path_fits_an_address_when_the_folder_is_short() -> None:
    group = group_of(Path("/tmp/sessile-12345678"), shards=256)
    assert len(str(group.shard_socket_path(255))) + len(".new") <= 107
