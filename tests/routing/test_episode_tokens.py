"""Episode tokens: what is signed reads back; all else is refused."""

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from itsdangerous import URLSafeSerializer

from sessions.errors.episodes import BadEpisodeTokenError
from sessions.routing import episode_tokens
from sessions.routing.episode_tokens import (
    EpisodeToken,
    read_episode_token,
    sign_episode_token,
)

SECRET = b"s" * 32
TOKEN = sign_episode_token(SECRET, "rollout-7-a2", "nonce")
law = settings(derandomize=True, deadline=None)


@law
@given(st.binary(min_size=1, max_size=40), st.text(max_size=300), st.text(max_size=40))
def test_a_token_reads_back_and_fits_a_header(secret: bytes, key: str, nonce: str):
    token = sign_episode_token(secret, key, nonce)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", token)
    assert read_episode_token(secret, token) == EpisodeToken(key, nonce)


def test_a_token_of_another_run_is_refused():
    with pytest.raises(BadEpisodeTokenError):
        read_episode_token(b"t" * 32, TOKEN)


@pytest.mark.parametrize("place", range(len(TOKEN)))
def test_a_token_with_any_character_changed_is_refused(place: int):
    for character in string.ascii_letters + string.digits + "-_.=":
        if character != TOKEN[place]:
            with pytest.raises(BadEpisodeTokenError):
                read_episode_token(SECRET, TOKEN[:place] + character + TOKEN[place + 1 :])


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b", TOKEN[:-3], TOKEN + "x", f" {TOKEN}", "\xff", "é.x", "x" * 9999]
)
def test_what_is_no_token_is_refused(text: str):
    with pytest.raises(BadEpisodeTokenError):
        read_episode_token(SECRET, text)


@pytest.mark.parametrize("content", [None, "k", [], ["k"], ["k", 1], ["k", "n", "x"], {"k": "n"}])
def test_well_signed_content_of_another_form_is_refused(content: object):
    signed = episode_tokens._serializer_of(SECRET).dumps(content)
    with pytest.raises(BadEpisodeTokenError):
        read_episode_token(SECRET, str(signed))


def test_a_token_that_comes_again_is_not_verified_again(monkeypatch: pytest.MonkeyPatch):
    made: list[bytes] = []
    serializer_of = episode_tokens._serializer_of

    def noted(secret: bytes) -> URLSafeSerializer:
        made.append(secret)
        return serializer_of(secret)

    monkeypatch.setattr(episode_tokens, "_serializer_of", noted)
    token = sign_episode_token(SECRET, "comes again", "nonce")
    made.clear()
    for _ in range(3):
        assert read_episode_token(SECRET, token) == EpisodeToken("comes again", "nonce")
    assert len(made) == 1
    for _ in range(2):
        with pytest.raises(BadEpisodeTokenError):
            read_episode_token(b"t" * 32, token)
    assert len(made) == 3, "another secret is another question, and no refusal is remembered"


def test_long_tokens_are_not_remembered():
    known = episode_tokens._read_again.cache_info().currsize
    random = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(2000))  # does not compress
    token = sign_episode_token(SECRET, random, "nonce")
    assert len(token) > 512
    assert read_episode_token(SECRET, token).key == random
    assert episode_tokens._read_again.cache_info().currsize == known


def test_what_was_signed_for_another_purpose_is_refused():
    signed = URLSafeSerializer(SECRET, salt=b"else").dumps(["k", "n"])
    with pytest.raises(BadEpisodeTokenError):
        read_episode_token(SECRET, str(signed))
