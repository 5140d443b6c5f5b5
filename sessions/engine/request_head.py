"""The head of a request to an engine, written by us.

Host, length and framing are ours; everything else goes out as it came, if it can go out at all:
a value that would end its line early is refused instead of repaired.

Must not know connections.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import re
from typing import Final

from sessions.engine.address import EngineAddress
from sessions.engine.engine import EngineRequest
from sessions.errors.client_visible import RequestError
from sessions.errors.unseen import LocalProtocolError

TARGET_LIMIT_BYTES: Final = 65536
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
_TARGET: Final = re.compile(rb"/[!\"$-~]*")  # visible ASCII without the `#` of a fragment
_BAD_VALUE: Final = re.compile(rb"[\r\n\0]")
_OURS: Final = frozenset(
    {b"connection", b"content-length", b"expect", b"host", b"transfer-encoding", b"upgrade"}
)
# Their bodies have a meaning, so an empty one has a length too (RFC 9110 section 8.6).
_WITH_BODY: Final = frozenset({"PATCH", "POST", "PUT"})


def render_request_head(request: EngineRequest, address: EngineAddress) -> bytes:
    """The bytes before a request's body, blank line included.

    Args:
        request: The request.
        address: Where it goes.

    Raises:
        RequestError: Method, target or a header cannot be written on the wire.
        LocalProtocolError: A header is one of ours.
    """
    method, target = request.method.encode(), address.prefix + request.target
    if not _TOKEN.fullmatch(method):
        raise RequestError(f"the engine cannot be asked with the method {request.method!r}")
    if len(target) > TARGET_LIMIT_BYTES:
        raise RequestError(
            f"the engine cannot be asked for this path: it is over {TARGET_LIMIT_BYTES} bytes"
        )
    if not request.target.startswith(b"/") or not _TARGET.fullmatch(target):
        raise RequestError("the engine cannot be asked for this path: it is not that of a URL")
    lines = [
        b"%b %b HTTP/1.1" % (method, target),
        b"host: " + address.authority.encode(),
    ]
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name) or _BAD_VALUE.search(value):
            raise RequestError(f"the header {name.decode('latin-1')!r} cannot be passed on")
        if name in _OURS:
            raise LocalProtocolError(f"the header {name.decode()} is not the caller's to set")
        lines.append(b"%b: %b" % (name, value))
    if request.body or request.method in _WITH_BODY:
        lines.append(b"content-length: %d" % len(request.body))
    lines.append(b"\r\n")
    return b"\r\n".join(lines)
