"""Cookies as applications read them, so that router and application see the same one.

Several `Cookie` lines are one: a proxy from HTTP/2 may send them apart (RFC 9113 section 8.2.3). Of
several cookies of one name the last counts, and a quoted value is unquoted, all as in Starlette.

Spec: docs/routing.md#cookies
"""

from __future__ import annotations

from collections.abc import Iterable
from http.cookies import _unquote  # Starlette's way, the escapes of quoted values included


def cookie_in(lines: Iterable[bytes], name: str) -> str | None:
    """The value of a cookie.

    Args:
        lines: Values of the request's `Cookie` header lines, in order.
        name: Of the cookie; upper and lower case differ.

    Returns:
        The value, unquoted, or None if there is no such cookie.
    """
    found = None
    for line in lines:
        for pair in line.decode("latin-1").split(";"):
            key, equals, value = pair.partition("=")
            if equals and key.strip() == name:
                found = value.strip()
    return None if found is None else _unquote(found)
