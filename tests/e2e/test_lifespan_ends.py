"""An application whose lifespan ends under way takes its shard along, and says so."""

from __future__ import annotations

import pytest

from tests.support.group import Groups
from tests.support.raw import RawConnection, request_bytes


@pytest.mark.parametrize("shards", [1, 2])
def test_a_shard_falls_with_its_application(groups: Groups, shards: int):
    group = groups.start(shards=shards, app="tests.support.mortal_app:mortal")
    with RawConnection(group.address) as client:
        client.ask(request_bytes("POST", "/end"))
    assert group.wait_exit() == 70
    assert "the application's lifespan ended while it was serving" in group.log()
