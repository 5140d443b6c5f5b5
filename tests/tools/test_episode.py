"""An episode keeps what its environment gives it."""

from sessions.routing.episodes import EpisodeId
from sessions.tools.episode import Episode


async def test_callbacks_for_the_end_run_from_the_last_to_the_first():
    done: list[int] = []
    episode = Episode(id=EpisodeId(rollout_id="r"), origin="http://h")
    episode.on_cleanup(lambda: done.append(1))
    episode.on_cleanup(lambda: done.append(2))
    await episode.clean_up.run(1.0)
    assert done == [2, 1]


def test_no_two_episodes_share_their_calls():
    first, second = (Episode(id=EpisodeId(rollout_id=name), origin="") for name in "ab")
    assert first.calls is not second.calls
    assert first.clean_up is not second.clean_up
