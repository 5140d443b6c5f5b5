from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sessions.lending.tally import Tally
from sessions.shard.apps import LoadedApp
from sessions.shard.beat import Beat
from sessions.shard.server import ShardServer
from tests.support.members import FakeLife, group_of


async def nobody(*_: Any) -> None:  # noqa: ANN401 - an ASGI application
    raise AssertionError("nothing is served here")


async def test_a_beat_publishes_what_the_application_counts(tmp_path: Path):
    group = group_of(tmp_path, shards=2)
    life = FakeLife(group, group.board.row_of_shard(1))
    states: list[object] = []

    def tally_of(state: object) -> Tally:
        states.append(state)
        return Tally(recorded_turns=7, replay_bytes=1 << 40)

    state = {"core": "x"}
    served = SimpleNamespace(app_state=state, server_state=SimpleNamespace(total_requests=5))
    server = cast("ShardServer", served)
    loaded = LoadedApp(asgi=nobody, open_sessions=lambda: 3, tally_of=tally_of)
    Beat(group, 1, life, loaded, server).publish()
    assert life.beats == [(3, 5)]
    assert states == [state]
    tally = group.board.tally_of(group.board.row_of_shard(1))
    assert (tally.recorded_turns, tally.replay_bytes) == (7, 1 << 40)
    assert group.board.tally_of(group.board.row_of_shard(0)) == Tally()
