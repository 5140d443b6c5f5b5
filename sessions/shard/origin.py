"""Where a client reached us, as the base of the URLs that it is handed out.

Its `Host` says so; an HTTP/1.0 client may send none, then the address of its socket does. A Unix
socket has no such address: then the address that the group was told to bind does, and if that is
a Unix socket, too, nothing can be known, and the base is `http://localhost`, which a client that
connects to the socket's path may keep.

Spec: docs/sessions.md#routes
"""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

_UNIX: Final = "unix:"
_UNKNOWN: Final = "localhost"


def origin_of(scope: Scope, bind: str) -> str:
    """Scheme and authority.

    Args:
        scope: Of an HTTP request.
        bind: SESSIONS_BIND.

    Returns:
        Such as `http://127.0.0.1:8000`, without a slash at the end.
    """
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    authority = host.decode("latin-1") or _local_address_of(scope) or _authority_of(bind)
    return f"{scope['scheme']}://{authority}"


def _local_address_of(scope: Scope) -> str:
    address, port = scope.get("server") or ("", None)
    if port is None:  # a Unix socket's path, or nothing
        return ""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _authority_of(bind: str) -> str:
    return _UNKNOWN if bind.startswith((_UNIX, "fd:")) else bind
