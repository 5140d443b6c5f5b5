"""Which operation a path and a method ask for.

Paths are compared as they read once decoded, and forwarded as they came. A spelling that a server
behind us could take for a route of ours (a doubled slash, dot segments, a slash at the end) is an
unknown path, never a redirect and never passed on: a chat must not slip past its session.

Must not know what operations do.

Spec: docs/sessions.md#routes
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import normpath
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from sessions.errors.protocol import BadHeadError, MethodNotAllowedError, UnknownPathError
from sessions.routing.ids import parse_session_id


class Operation(enum.Enum):
    """What there is to ask for."""

    GREET = enum.auto()
    CREATE = enum.auto()
    READ = enum.auto()
    DELETE = enum.auto()
    CHAT = enum.auto()
    MESSAGES = enum.auto()
    COUNT_TOKENS = enum.auto()
    SAMPLES = enum.auto()
    MODELS = enum.auto()
    PROXY = enum.auto()
    OPTIONS = enum.auto()


_Methods = Mapping[str, Operation]

_SHOWN_CHARACTERS: Final = 80
_ROOT: Final[_Methods] = MappingProxyType({"GET": Operation.GREET})
_SESSIONS: Final[_Methods] = MappingProxyType({"POST": Operation.CREATE})
_SESSION: Final[_Methods] = MappingProxyType({"GET": Operation.READ, "DELETE": Operation.DELETE})
_ANYTHING: Final[_Methods] = MappingProxyType(
    dict.fromkeys(("GET", "POST", "PUT", "DELETE", "PATCH"), Operation.PROXY)
)
_BELOW_SESSION: Final[Mapping[str, _Methods]] = MappingProxyType(
    {
        "/v1/chat/completions": MappingProxyType({"POST": Operation.CHAT}),
        "/v1/messages": MappingProxyType({"POST": Operation.MESSAGES}),
        "/v1/messages/count_tokens": MappingProxyType({"POST": Operation.COUNT_TOKENS}),
        "/v1/models": MappingProxyType({"GET": Operation.MODELS}),
        "/samples": MappingProxyType({"POST": Operation.SAMPLES}),
    }
)

# Where a client comes out whose base URL has `/v1` once too often, or not at all.
_TWICE: Final = "/v1/v1/"
_WITHOUT: Final = frozenset({"/chat/completions", "/messages", "/messages/count_tokens"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a path leads to.

    Attributes:
        methods: Its methods; GET stands for HEAD too.
        session_id: The session in the path; empty if there is none.
        rest: The raw path below the session, with its leading slash; what the engine gets.
        is_plain: A path below `/v1`, whose session is named by a key.
    """

    methods: _Methods
    session_id: str = ""
    rest: bytes = b"/"
    is_plain: bool = False

    @property
    def allow(self) -> list[str]:
        """Its methods for an `Allow` header."""
        extra = ["HEAD"] if "GET" in self.methods else []
        return sorted([*self.methods, *extra, "OPTIONS"])

    def operation_of(self, method: str) -> Operation:
        """What a method asks for here.

        Raises:
            MethodNotAllowedError: The route has no such method.
        """
        if method == "OPTIONS":
            return Operation.OPTIONS
        operation = self.methods.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise MethodNotAllowedError(f"{method} is not served here", allow=self.allow)
        return operation


def route_of(raw_path: bytes) -> Route:
    """Find the route of a path.

    Args:
        raw_path: As the client sent it, without the query.

    Raises:
        BadHeadError: The path is not ASCII.
        BadSessionIdError: What stands in a session's place is no id.
        UnknownPathError: There is no such route.
    """
    if not raw_path.isascii():
        raise BadHeadError("the path has bytes that must be percent-encoded")
    path = raw_path.decode("ascii")
    if not path.startswith("/"):
        raise _unknown(path)
    _, first, *others = path.split("/", 3)
    place = unquote(first)
    if place == "sessions" and others and others[0]:
        session_id = parse_session_id(others[0])
        if len(others) == 1:
            return Route(methods=_SESSION, session_id=session_id)
        rest = "/" + others[1]
        return Route(methods=_methods_below(rest), session_id=session_id, rest=rest.encode())
    if place == "v1" and others:
        return Route(methods=_methods_below(path), rest=raw_path, is_plain=True)
    if place == "sessions" and not others:
        return Route(methods=_SESSIONS)
    if not place and not others:
        return Route(methods=_ROOT)
    raise _unknown(path)


def _methods_below(rest: str) -> _Methods:
    decoded = unquote(rest)
    plain = normpath(decoded).replace("//", "/")
    if decoded != plain and plain in _BELOW_SESSION:
        raise _unknown(decoded)
    if decoded.startswith(_TWICE) or decoded in _WITHOUT:
        raise UnknownPathError(
            f"no route {decoded[:_SHOWN_CHARACTERS]}: check the client's base URL. OpenAI clients"
            " take base_url, which ends with /v1; Anthropic clients take anthropic_base_url, which"
            " does not"
        )
    return _BELOW_SESSION.get(decoded, _ANYTHING)


def _unknown(path: str) -> UnknownPathError:
    return UnknownPathError(f"no route {path}")
