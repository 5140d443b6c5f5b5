"""Which session a request names, by the installed kinds.

`name_of` looks at a head alone: first the headers of a kind, then its cookie or MCP token, then
its path. The path is compared as the application will see it, that is decoded once, so that
`/%73essions/x` is not another path here than there. A header that names a session twice is refused:
an application might read the other one. It asks no table.

Spec: docs/routing.md#naming
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

from sessions.errors.sessions import BadSessionIdError
from sessions.routing.cookies import cookie_in
from sessions.routing.ids import parse_session_id
from sessions.routing.kinds import CookieNaming, HeaderNaming, Named, Ownership, SessionKind

Values = Callable[[bytes], Sequence[bytes]]  # of all lines of a header, by its lower-case name

_CLAIM: Final = Ownership.CLAIM  # naming an enum member costs 70 ns on Python 3.11
_MCP_PATH: Final = "/mcp"


def name_of(kinds: Sequence[SessionKind], path: str, values: Values) -> Named | None:
    """Find the session that a request names.

    Args:
        kinds: The installed kinds; the first that is named wins.
        path: The raw request path, percent-encoded, without the query.
        values: Gives the values of all lines of a header by its lower-case name, in order.

    Returns:
        The kind and the key, or None when the request names no session.

    Raises:
        BadSessionIdError: The path has a session's place, and what stands there is no id; or a
            header that names a session comes twice with different values.
    """
    decoded = unquote(path) if "%" in path else path
    for kind in kinds:
        for naming in kind.headers:
            if decoded.startswith(naming.under):  # in line: every request passes here
                found = values(naming.name)
                key = _key_of(naming, found) if found else None
                if key is not None:
                    return Named(kind, key)
        if kind.path_prefix is not None:
            session_id = _id_in_path(kind.path_prefix, path, decoded)
            if session_id is not None:
                return Named(kind, session_id)
        if kind.ownership is _CLAIM:
            key = _claimed_key(kind, decoded, values)
            if key is not None:
                return Named(kind, key)
    return None


def _claimed_key(kind: SessionKind, decoded: str, values: Values) -> str | None:
    """What names a claimed session besides the headers that come before all.

    A token wins on the MCP path, since its client keeps no cookies; a cookie wins elsewhere. What
    opens a session is named by nothing that its client has of another one.
    """
    if kind.body is not None and decoded in kind.body.seed_routes:
        return None
    is_mcp = decoded == _MCP_PATH or decoded.startswith(_MCP_PATH + "/")
    key = None if is_mcp else _key_in_cookie(kind.cookie, values)
    if key is None:
        key = _key_in_header(kind.mcp_token, decoded, values)
    if key is None and is_mcp:
        key = _key_in_cookie(kind.cookie, values)
    if key is None and kind.path_claim is not None:
        start = f"/{kind.path_claim}/"
        if decoded.startswith(start):
            key = decoded[len(start) :].partition("/")[0] or None
    return key


def _key_in_header(naming: HeaderNaming | None, decoded: str, values: Values) -> str | None:
    if naming is None or not decoded.startswith(naming.under):
        return None
    found = values(naming.name)
    return _key_of(naming, found) if found else None


def _key_of(naming: HeaderNaming, values: Sequence[bytes]) -> str | None:
    """What the lines of one header name.

    Raises:
        BadSessionIdError: They differ.
    """
    first = values[0]
    if len(values) > 1 and any(value != first for value in values):
        name = naming.name.decode("ascii")
        raise BadSessionIdError(f"the request has different {name} headers", param=name)
    return naming.reader(first)


def _key_in_cookie(naming: CookieNaming | None, values: Values) -> str | None:
    value = None if naming is None else cookie_in(values(b"cookie"), naming.name)
    if naming is None or value is None:
        return None
    return naming.reader(value.encode("latin-1"))


def _id_in_path(prefix: str, path: str, decoded: str) -> str | None:
    """The id in `/<prefix>/<id>` and below it; `/<prefix>` and `/<prefix>/` have none."""
    place = len(prefix) + 2
    if len(decoded) <= place or not decoded.startswith(f"/{prefix}/"):
        return None
    if decoded is path:
        end = path.find("/", place)
        return parse_session_id(path[place:] if end < 0 else path[place:end])
    # An encoded slash makes segments that the application sees elsewhere: refused, not guessed.
    segments = path.split("/", 3)
    if [unquote(segment) for segment in segments[:2]] != ["", prefix]:
        raise BadSessionIdError("a session path has an encoded slash", param="session_id")
    return parse_session_id(segments[2])
