"""Kinds: how a request names its session, and how that session's owner is found. Data only.

An application installs the kinds that its sessions have; `sessions.routing.naming` reads requests
by them. `ROLLOUT` is named by its path or by a session key and owned by hash. Kinds whose owner is
claimed may also name their sessions by cookies, MCP tokens, body fields and claimed paths;
`sessions.routing.claimed_kinds` makes them.

Spec: docs/routing.md#kinds
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sessions.routing.keys import id_of_session_key

_BEARER: Final = "bearer "
# Takes a value as it was sent, gives the session's key, or None when it names none.
Reader = Callable[[bytes], str | None]


class Ownership(enum.Enum):
    """How the shard that holds a session is found."""

    HASH = enum.auto()  # by the key alone
    CLAIM = enum.auto()  # by a table that shards feed


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderNaming:
    """A header whose value may name a session.

    Attributes:
        name: Lower-case.
        under: Only requests whose decoded path starts with this are read.
        reader: One of `sessions.routing.readers`.
    """

    name: bytes
    under: str
    reader: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieNaming:
    """A cookie whose value may name a session.

    Attributes:
        name: As it is set; upper and lower case differ.
        reader: One of `sessions.routing.readers`.
    """

    name: str
    reader: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyNaming:
    """A field of a small JSON body that names a session (lending rule 14).

    Attributes:
        field: The field's name.
        seed_routes: Decoded paths whose request opens a session.
        close_routes: Decoded paths whose request ends one.
    """

    field: str
    seed_routes: frozenset[str]
    close_routes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKind:
    """One kind of session.

    Attributes:
        name: Part of the claim keys; for logs.
        ownership: How the owner is found.
        headers: Read in this order, before all other ways.
        cookie: The cookie that carries the key; only of claimed kinds, as all that follow but one.
        mcp_token: The header that carries the key of an MCP client, which keeps no cookies.
        path_prefix: The path segment that comes before a session id; only of hashed kinds.
        path_claim: The path segment that comes before a claimed key.
        body: How a body names the session.
    """

    name: str
    ownership: Ownership
    headers: tuple[HeaderNaming, ...] = ()
    cookie: CookieNaming | None = None
    mcp_token: HeaderNaming | None = None
    path_prefix: str | None = None
    path_claim: str | None = None
    body: BodyNaming | None = None

    @property
    def is_opened_by_name(self) -> bool:
        """Whether a request may open the very session that it names; else servers make names."""
        return self.cookie is not None or self.body is not None


@dataclass(slots=True)
class Named:
    """A session that a request names: its kind, and its key (the id, for a rollout).

    Nobody changes it; one is made for every request, and freezing doubles what that costs.
    """

    kind: SessionKind
    key: str


def read_bearer_key(value: bytes) -> str | None:
    """The session that `Authorization: Bearer <session key>` names, or None."""
    text = value.decode("latin-1")
    if text[: len(_BEARER)].lower() != _BEARER:
        return None
    return id_of_session_key(text[len(_BEARER) :].strip(" \t"))


def read_plain_key(value: bytes) -> str | None:
    """The session that a header names whose whole value is a session key, or None."""
    return id_of_session_key(value.decode("latin-1").strip(" \t"))


ROLLOUT: Final = SessionKind(
    name="rollout",
    ownership=Ownership.HASH,
    headers=(
        HeaderNaming(name=b"authorization", under="/v1/", reader=read_bearer_key),
        HeaderNaming(name=b"x-api-key", under="/v1/", reader=read_plain_key),
    ),
    path_prefix="sessions",
)
