"""A served episode: who may call."""

import hmac

import pytest

from sessions.errors.episodes import WrongNonceError
from sessions.routing.episodes import EpisodeId
from sessions.tools.served_episode import ServedEpisode


async def test_the_nonce_of_the_episode_passes_and_no_other(monkeypatch: pytest.MonkeyPatch):
    compared: list[tuple[bytes, bytes]] = []

    def noted(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr(hmac, "compare_digest", noted)
    served = ServedEpisode(EpisodeId(rollout_id="r"), "nonce", [], [])
    served.check_nonce("nonce")
    for wrong in ("", "nonc", "noncf", "nonce ", "ü", "\ud800"):
        with pytest.raises(WrongNonceError):
            served.check_nonce(wrong)
    assert len(compared) == 7, "every comparison takes the same time"
