"""Readers: what takes a session's key out of the value of a header or cookie.

A kind is told to the router as data, so its readers are known by name: `READERS` makes each of
them, given the run's secret, and `name_of_reader` is the way back. An episode token is verified;
of other values only the form counts, since all that follows from them is which shard is asked,
and the application there verifies what it signed.

Spec: docs/routing.md#readers
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sessions.errors.episodes import BadEpisodeTokenError
from sessions.routing.episode_tokens import read_episode_token
from sessions.routing.kinds import Reader, read_bearer_key, read_plain_key

_CONTENT_LIMIT_BYTES: Final = 65536  # of an unpacked token; a head has no more


@dataclass(frozen=True, slots=True)
class EpisodeTokenReader:
    """Reads the episode out of a token that was signed under this secret."""

    secret: bytes = field(repr=False)

    def __call__(self, value: bytes) -> str | None:
        """The episode's key, or None if the token is none."""
        try:
            return read_episode_token(self.secret, value.decode("latin-1").strip(" \t")).key
        except BadEpisodeTokenError:
            return None


def read_whole_value(value: bytes) -> str | None:
    """The value itself, such as an `Mcp-Session-Id`; None if it is empty."""
    return value.decode("latin-1").strip(" \t") or None


def read_session_cookie(value: bytes) -> str | None:
    """`session_id` in a cookie of Starlette's SessionMiddleware.

    Its bytes change with every reply, since it holds the time; so the id is read out of it.
    """
    return _text_at("session_id", _decoded(value.partition(b".")[0]))


def read_session_token(value: bytes) -> str | None:
    """`sid` in an object that itsdangerous' URLSafeSerializer signed."""
    value = value.strip(b" \t")
    is_packed = value.startswith(b".")
    content = _decoded(value[1:].partition(b".")[0] if is_packed else value.partition(b".")[0])
    return _text_at("sid", _unpacked(content) if is_packed else content)


READERS: Final[Mapping[str, Callable[[bytes], Reader]]] = MappingProxyType(
    {
        "episode-token": EpisodeTokenReader,
        "session-cookie": lambda _secret: read_session_cookie,
        "session-key": lambda _secret: read_plain_key,
        "session-key-bearer": lambda _secret: read_bearer_key,
        "session-token": lambda _secret: read_session_token,
        "whole-value": lambda _secret: read_whole_value,
    }
)


def name_of_reader(reader: Reader) -> str:
    """The name in `READERS` of what made a reader.

    Raises:
        ValueError: It is none of them, so a router cannot have it.
    """
    secret = reader.secret if isinstance(reader, EpisodeTokenReader) else b""
    for name, make in READERS.items():
        if make(secret) == reader:
            return name
    raise ValueError(f"{reader!r} is no reader that a router knows")


def _decoded(text: bytes) -> bytes:
    """Base64 of either alphabet, padded or not; b"" if it is none."""
    text = text.translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""


def _unpacked(content: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(content, _CONTENT_LIMIT_BYTES)
    except zlib.error:
        return b""


def _text_at(name: str, content: bytes) -> str | None:
    """A text, not empty, in a JSON object; None if there is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    text = found.get(name) if isinstance(found, dict) else None
    return text if isinstance(text, str) and text else None
