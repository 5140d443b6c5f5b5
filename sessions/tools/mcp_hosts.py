"""Which hosts an MCP request may be addressed to: the guard against DNS rebinding.

A page in a browser can make a name of its own point at a server in the user's network, and then
speak to it as to itself; the browser tells that name in `Host` and `Origin`. Tools need a signed
token that no page has, so nothing is checked until an operator names the hosts.

Spec: docs/tools.md#hosts
"""

from __future__ import annotations

from collections.abc import Mapping

from sessions.errors.episodes import ForeignOriginError, MisdirectedRequestError


def check_host(headers: Mapping[str, str], allowed: frozenset[str]) -> None:
    """Check where a request says that it goes, and which page sent it.

    Args:
        headers: Of the request, found by lower-case names.
        allowed: Lower-case hosts; one with a port is met by that port alone, one without by
            every port. Empty allows everything.

    Raises:
        MisdirectedRequestError: `Host` is none of them, or is not there.
        ForeignOriginError: There is an `Origin`, and its host is none of them.
    """
    if not allowed:
        return
    host = headers.get("host", "")
    if not _is_among(host, allowed):
        raise MisdirectedRequestError(f"host {host!r} is not served here")
    origin = headers.get("origin")
    if origin is not None and not _is_among(origin.partition("://")[2], allowed):
        raise ForeignOriginError(f"pages of origin {origin!r} are not served here")


def _is_among(authority: str, allowed: frozenset[str]) -> bool:
    authority = authority.lower()
    name, _, port = authority.rpartition(":")
    bare = name if port.isdecimal() and name else authority
    return authority in allowed or bare in allowed
