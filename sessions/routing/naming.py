"""Which session a request names, by the installed kinds.

`name_of` looks at a head alone: first the headers of a kind, then its cookie or MCP token, then
its path. The path is compared as the application will see it, that is decoded once, so that
`/%73essions/x` is not another path here than there. It asks no table.

Spec: docs/routing.md#naming
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

from sessions.errors import BadSessionIdError
from sessions.routing.ids import parse_session_id
from sessions.routing.kinds import CookieNaming, HeaderNaming, Named, Ownership, SessionKind

_CLAIM: Final = Ownership.CLAIM  # naming an enum member costs 70 ns on Python 3.11
_MCP_PATH: Final = "/mcp"


def name_of(
    kinds: Sequence[SessionKind], path: str, header: Callable[[bytes], bytes | None]
) -> Named | None:
    """Find the session that a request names.

    Args:
        kinds: The installed kinds; the first that is named wins.
        path: The raw request path, percent-encoded, without the query.
        header: Gives the first value of a header by its lower-case name, or None.

    Returns:
        The kind and the key, or None when the request names no session.

    Raises:
        BadSessionIdError: The path has a session's place, and what stands there is no id.
    """
    decoded = unquote(path) if "%" in path else path
    for kind in kinds:
        for naming in kind.headers:
            if decoded.startswith(naming.under):  # in line: every request passes here
                value = header(naming.name)
                key = None if value is None else naming.reader(value)
                if key is not None:
                    return Named(kind, key)
        if kind.path_prefix is not None:
            session_id = _id_in_path(kind.path_prefix, path, decoded)
            if session_id is not None:
                return Named(kind, session_id)
        if kind.ownership is _CLAIM:
            key = _claimed_key(kind, decoded, header)
            if key is not None:
                return Named(kind, key)
    return None


def _claimed_key(
    kind: SessionKind, decoded: str, header: Callable[[bytes], bytes | None]
) -> str | None:
    """What names a claimed session besides the headers that come before all.

    A token wins on the MCP path, since its client keeps no cookies; a cookie wins elsewhere. What
    opens a session is named by nothing that its client has of another one.
    """
    if kind.body is not None and decoded in kind.body.seed_routes:
        return None
    is_mcp = decoded == _MCP_PATH or decoded.startswith(_MCP_PATH + "/")
    key = None if is_mcp else _key_in_cookie(kind.cookie, header)
    if key is None:
        key = _key_in_header(kind.mcp_token, decoded, header)
    if key is None and is_mcp:
        key = _key_in_cookie(kind.cookie, header)
    if key is None and kind.path_claim is not None:
        start = f"/{kind.path_claim}/"
        if decoded.startswith(start):
            key = decoded[len(start) :].partition("/")[0] or None
    return key


def _key_in_header(
    naming: HeaderNaming | None, decoded: str, header: Callable[[bytes], bytes | None]
) -> str | None:
    if naming is None or not decoded.startswith(naming.under):
        return None
    value = header(naming.name)
    return None if value is None else naming.reader(value)


def _key_in_cookie(
    naming: CookieNaming | None, header: Callable[[bytes], bytes | None]
) -> str | None:
    if naming is None:
        return None
    name = naming.name.encode("latin-1")
    found = None
    for pair in (header(b"cookie") or b"").split(b";"):
        key, _, value = pair.partition(b"=")
        if key.strip() == name:
            found = value.strip()  # of two, an application sees the last
    return None if found is None else naming.reader(found.strip(b'"'))


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
