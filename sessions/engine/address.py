"""Where an engine is: its base URL, taken apart once.

Must not know connections.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """One engine.

    Attributes:
        host: Name or address to connect to, an IPv6 address without brackets, IDNA-encoded.
        port: TCP port.
        is_tls: https.
        authority: For the `Host` header and for logs: brackets if need be, no default port.
        prefix: Comes before every target; no slash at its end.
    """

    host: str
    port: int
    is_tls: bool
    authority: str
    prefix: bytes


def parse_address(base_url: str) -> EngineAddress:
    """Take a base URL apart.

    Args:
        base_url: `http(s)://host[:port][/prefix]`; a `/v1` at its end is not doubled, a user name
            before the host is not sent.

    Raises:
        ValueError: It is no such URL.
    """
    parts = urlsplit(base_url)
    default = _DEFAULT_PORTS.get(parts.scheme)
    if default is None or not parts.hostname:
        raise ValueError(f"{base_url!r} is not a URL like http://host:port")
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode("ascii")
    port = default if parts.port is None else parts.port
    authority = f"[{host}]" if ":" in host else host
    if port != default:
        authority = f"{authority}:{port}"
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return EngineAddress(
        host=host,
        port=port,
        is_tls=parts.scheme == "https",
        authority=authority,
        prefix=prefix.encode(),
    )
