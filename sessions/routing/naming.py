"""Which session a request names, by the installed kinds.

`name_of` looks at a head alone: first the headers of a kind, then its path. The path is compared
as the application will see it, that is decoded once, so that `/%73essions/x` is not another path
here than there. It asks no table and verifies no signature.

Spec: docs/routing.md#naming
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import unquote

from sessions.errors import BadSessionIdError
from sessions.routing.ids import parse_session_id
from sessions.routing.kinds import Named, SessionKind


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
            if decoded.startswith(naming.under):
                value = header(naming.name)
                key = None if value is None else naming.reader(value)
                if key is not None:
                    return Named(kind, key)
        if kind.path_prefix is not None:
            session_id = _id_in_path(kind.path_prefix, path, decoded)
            if session_id is not None:
                return Named(kind, session_id)
    return None


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
