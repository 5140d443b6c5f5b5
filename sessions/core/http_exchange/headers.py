"""Headers between client and engine: what passes, what stays with us, what we set.

End-to-end headers pass in both directions, in order and with repetitions kept apart (RFC 9110
section 7.6.1 says which are not end-to-end). Lengths, codings, `Server` and `Date` belong to each
connection and are made anew. Our own session keys never reach the engine.

Must not know what the headers are used for beyond that.

Spec: docs/sessions.md#headers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sessions.routing.kinds import read_bearer_key, read_plain_key

HeaderList: TypeAlias = list[tuple[bytes, bytes]]

TURN_RECORDED: Final = b"x-turn-recorded"

_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OF_THE_REQUEST: Final = _HOP_BY_HOP | {
    b"accept-encoding",
    b"content-length",
    b"expect",
    b"host",
    b"http2-settings",
}
_OF_THE_REPLY: Final = _HOP_BY_HOP | {
    b"content-encoding",
    b"content-length",
    b"date",
    b"server",
    TURN_RECORDED,
}
# They describe bytes that we write anew.
_OF_THE_BYTES: Final = frozenset(
    {
        b"accept-ranges",
        b"content-digest",
        b"content-encoding",
        b"content-md5",
        b"content-type",
        b"digest",
        b"etag",
        b"last-modified",
        b"repr-digest",
    }
)
_CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHeaders:
    """How requests to the engine are labelled.

    Attributes:
        routing_key: Lower-case name of the header that carries the session id, so that a balancer
            before the engines keeps a session where its cache is.
        api_key: Sent instead of the client's credentials; empty to let those pass.
    """

    routing_key: bytes
    api_key: str = ""

    def request_headers_of(
        self, headers: Sequence[tuple[bytes, bytes]], session_id: str, *, is_json: bool = False
    ) -> HeaderList:
        """The headers of a request to the engine.

        Args:
            headers: The client's, names lower-case.
            session_id: For the routing key; empty for a request of no session.
            is_json: Our own body is sent, so its content type is ours.

        Returns:
            (name, value), order kept.
        """
        dropped = _named_by_connection(headers) | _OF_THE_REQUEST | {self.routing_key}
        if is_json:
            dropped |= _OF_THE_BYTES
        kept = [(n, v) for n, v in headers if n not in dropped and self._may_pass(n, v)]
        # Bodies are parsed here, so a coding would only cost time on both sides.
        kept.append((b"accept-encoding", b"identity"))
        if is_json:
            kept.append((b"content-type", b"application/json"))
        if self.api_key:
            kept.append((b"authorization", b"Bearer " + self.api_key.encode()))
        if session_id:
            kept.append((self.routing_key, session_id.encode()))
        return kept

    def _may_pass(self, name: bytes, value: bytes) -> bool:
        if name not in _CREDENTIALS:
            return True
        # A key of an earlier run is ours too, so the form decides and not the signature.
        is_ours = read_bearer_key(value) is not None or read_plain_key(value) is not None
        return not self.api_key and not is_ours


def reply_headers_of(
    headers: Sequence[tuple[bytes, bytes]], *, is_rewritten: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The engine's headers that pass to the client.

    Args:
        headers: The engine's, names lower-case.
        is_rewritten: The body is not the engine's own bytes.

    Yields:
        (name, value), order kept, `Set-Cookie` lines apart.
    """
    dropped = _named_by_connection(headers) | _OF_THE_REPLY
    if is_rewritten:
        dropped |= _OF_THE_BYTES
    yield from ((name, value) for name, value in headers if name not in dropped)


def _named_by_connection(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[bytes]:
    return frozenset(
        name.strip().lower()
        for key, value in headers
        if key == b"connection"
        for name in value.split(b",")
    )
