"""The door of all transports: which episode a request may call, or which refusal it gets."""

import pytest
from starlette.datastructures import Headers

from sessions.errors.episodes import (
    BadEpisodeTokenError,
    DuplicateClaimError,
    EpisodeNotRunningError,
    WrongNonceError,
)
from sessions.routing.episode_tokens import sign_episode_token
from sessions.routing.episodes import EpisodeId
from sessions.tools.episode_registry import EpisodeRegistry, claim_key_of
from sessions.tools.served_episode import ServedEpisode

SECRET = b"s" * 32
HEADER = "X-Episode"


def served_of(rollout_id: str = "r", attempt: int = 0) -> ServedEpisode:
    return ServedEpisode(EpisodeId(rollout_id=rollout_id, attempt=attempt), "nonce", [], [])


def headers_of(token: str) -> Headers:
    return Headers({HEADER: token})


@pytest.fixture
def registry() -> EpisodeRegistry:
    return EpisodeRegistry(SECRET, HEADER)


def test_white_space_around_a_token_is_no_part_of_it(registry: EpisodeRegistry):
    served = served_of()
    registry.add(served)
    token = sign_episode_token(SECRET, served.episode.key, "nonce")
    assert registry.tools_for(headers_of(f"{token} \t")) is served


def test_a_token_finds_its_episode_among_others(registry: EpisodeRegistry):
    episodes = [served_of("r"), served_of("r", 1), served_of("s")]
    for served in episodes:
        registry.add(served)
    for served in episodes:
        token = sign_episode_token(SECRET, served.episode.key, "nonce")
        assert registry.tools_for(headers_of(token)) is served
    assert len(registry) == 3


@pytest.mark.parametrize("token", ["", "garbage", "a.b.c", "WyJyIiwibm9uY2UiXQ.AAAA"])
def test_what_is_no_token_is_a_401_and_names_no_secret(registry: EpisodeRegistry, token: str):
    registry.add(served_of())
    with pytest.raises(BadEpisodeTokenError):
        registry.tools_for(headers_of(token))
    with pytest.raises(BadEpisodeTokenError):
        registry.tools_for(Headers())


def test_a_token_of_another_run_of_the_server_is_a_401(registry: EpisodeRegistry):
    registry.add(served_of())
    token = sign_episode_token(b"t" * 32, "r", "nonce")
    with pytest.raises(BadEpisodeTokenError):
        registry.tools_for(headers_of(token))


@pytest.mark.parametrize("at", [0, 5, -1])
def test_a_token_with_one_character_changed_is_a_401(registry: EpisodeRegistry, at: int):
    registry.add(served_of())
    token = list(sign_episode_token(SECRET, "r", "nonce"))
    token[at] = "A" if token[at] not in "AB" else "z"
    with pytest.raises(BadEpisodeTokenError):
        registry.tools_for(headers_of("".join(token)))


def test_a_wrong_nonce_is_a_403_while_the_episode_runs_and_a_410_after(registry: EpisodeRegistry):
    served = served_of()
    wrong = headers_of(sign_episode_token(SECRET, "r", "another"))
    right = headers_of(sign_episode_token(SECRET, "r", "nonce"))
    with pytest.raises(EpisodeNotRunningError):
        registry.tools_for(right)
    registry.add(served)
    with pytest.raises(WrongNonceError):
        registry.tools_for(wrong)
    registry.remove(served)
    for headers in (wrong, right):
        with pytest.raises(EpisodeNotRunningError, match="not running on this server"):
            registry.tools_for(headers)


def test_the_same_episode_is_not_served_twice_and_the_first_stays(registry: EpisodeRegistry):
    first, second = served_of(), served_of()
    registry.add(first)
    with pytest.raises(DuplicateClaimError):
        registry.add(second)
    registry.remove(second)
    token = sign_episode_token(SECRET, "r", "nonce")
    assert registry.tools_for(headers_of(token)) is first


def test_attempts_have_claims_of_their_own():
    keys = {claim_key_of(EpisodeId(rollout_id="r", attempt=n)) for n in range(3)}
    assert len(keys) == 3
    assert {len(key) for key in keys} == {16}
