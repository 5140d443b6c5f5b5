"""Episode tokens: what an agent sends with each call of a tool, signed under the run's secret.

A token holds the episode's key, by which the router finds the shard, and a nonce, which only that
shard compares: rollout ids can be guessed, and every shard can sign. Nothing here knows which
episodes run.

An agent sends the same token with every call, and verifying it costs more than all else that a
router does for the call (37 us, measured); so tokens that were found good are remembered.

Spec: docs/routing.md#episode-tokens
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple

from itsdangerous import BadData, URLSafeSerializer

from sessions.errors.episodes import BadEpisodeTokenError

_SALT: Final = b"sessile episode token"
_PARTS: Final = 2
_KNOWN_COUNT: Final = 2048  # of 0.6 KiB each, as a rule
_KNOWN_CHARS: Final = 512


class EpisodeToken(NamedTuple):
    """What a token says, its signature being right.

    Attributes:
        key: Of the episode, see `EpisodeId.key`.
        nonce: As the episode drew it, if it did.
    """

    key: str
    nonce: str


def sign_episode_token(secret: bytes, key: str, nonce: str) -> str:
    """Make a token.

    Args:
        secret: The run's secret.
        key: Of the episode.
        nonce: A random text that only the episode's shard knows.

    Returns:
        Text of `A-Z a-z 0-9 - _ .`, fit for a header.
    """
    return _serializer_of(secret).dumps([key, nonce])


def read_episode_token(secret: bytes, text: str) -> EpisodeToken:
    """Read a token; the nonce is left to the episode's shard.

    Args:
        secret: The run's secret.
        text: As the client sent it.

    Raises:
        BadEpisodeTokenError: It is none, or was not signed under this secret.
    """
    return _read_again(secret, text) if len(text) <= _KNOWN_CHARS else _read(secret, text)


def _read(secret: bytes, text: str) -> EpisodeToken:
    serializer = _serializer_of(secret)
    try:
        content = serializer.loads(text)
    except BadData as error:
        raise BadEpisodeTokenError("the episode token is not valid on this server") from error
    # The last character of a signature in base64 has bits that decode to nothing: a token has one
    # text, and the others that read the same are none.
    if not (
        text == serializer.dumps(content)
        and isinstance(content, list)
        and len(content) == _PARTS
        and all(isinstance(part, str) for part in content)
    ):
        raise BadEpisodeTokenError("the episode token is not valid on this server")
    return EpisodeToken(*content)


_read_again: Final = lru_cache(maxsize=_KNOWN_COUNT)(_read)  # what raises is not remembered


@lru_cache(maxsize=4)
def _serializer_of(secret: bytes) -> URLSafeSerializer:
    return URLSafeSerializer(
        secret,
        salt=_SALT,
        signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
    )
