"""Transcripts: what a server answered, with everything replaced that no two servers share.

A `Transcript` sends raw requests and notes each reply: version, status, reason, the header list in
order, the body. Session ids and what is derived from them get names in the order in which they
were seen; dates, times and the engine's own ids become `*`. All else must be equal byte for byte.

Exceptions, by name: the values of `date` and `etag`; the JSON keys in `VOLATILE`; `content-length`
of a body that holds one of `RAGGED`, whose text has no fixed length; the places of the tensors of
training samples.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.support.raw import Address, RawConnection, request_bytes
from tests.support.replies import Reply

LIFECYCLE: Final = ("t0", "t1", "req_ts", "prev_t1")
RAGGED: Final = (
    "timestamp",
    "request_timestamp",
    "committed_at",
    "e2e_latency",
    "uptime_s",
    "beat_age_s",
    *LIFECYCLE,
)
VOLATILE: Final = ("created", *RAGGED)
_ENGINE_ID: Final = re.compile(rb'"(id|response_id)(\\?)":\\?"[0-9a-f]{32}\\?"')
_ENGINE_HOST: Final = re.compile(rb'\["host","127\.0\.0\.1:\d+"\]')
_NUMBERS: Final = re.compile(
    rb'"(' + b"|".join(name.encode() for name in VOLATILE) + rb')(\\?)":[0-9.e+-]+'
)
_RAGGED: Final = re.compile(rb'"(' + b"|".join(name.encode() for name in RAGGED) + rb')":')


class Transcript:
    """Asks one server and notes what it answers.

    Attributes:
        lines: One entry per reply, comparable over servers.
    """

    def __init__(self, address: Address, *, keep_alive: bool) -> None:
        """Start with nothing noted.

        Args:
            address: Of the server.
            keep_alive: Whether all requests go over one connection while it lives.
        """
        self.lines: list[tuple[object, ...]] = []
        self._address = address
        self._keep_alive = keep_alive
        self._names: dict[bytes, bytes] = {}
        self._macs: dict[str, str] = {}
        self._connection: RawConnection | None = None

    def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        raw_body: bytes = b"",
        ragged: bool = False,
    ) -> Reply:
        """Send one request, note its reply.

        Args:
            method: Any.
            target: Any.
            body: Sent as JSON unless None.
            headers: Added.
            raw_body: Sent as it is when `body` is None.
            ragged: The length of the body, which a HEAD does not show, depends on `RAGGED`.
        """
        data = raw_body if body is None else json.dumps(body).encode()
        request = request_bytes(method, target, headers, data)
        return self.send(request, head_only=method == "HEAD", ragged=ragged)

    def send(self, data: bytes, *, head_only: bool = False, ragged: bool = False) -> Reply:
        """Send raw bytes, note the reply and whether the connection ends after it."""
        connection = self._connection or RawConnection(self._address)
        self._connection = None
        reply = connection.ask(data, head_only=head_only)
        ends = "close" in (reply.header("connection") or "")
        if ends:
            assert connection.read_to_end() == b""
        if self._keep_alive and not ends:
            self._connection = connection
        else:
            connection.close()
        self._note(reply, ragged=ragged)
        return reply

    def create(self, **options: object) -> str:
        """Create a session, name what it is called, note the reply; returns its id."""
        body = json.dumps(options).encode() if options else b""
        connection = RawConnection(self._address)
        with connection:
            reply = connection.ask(request_bytes("POST", "/sessions", (), body))
        created = json.loads(reply.body)
        session_id: str = created["session_id"]
        number = b"%d" % len(self._macs)
        mac = created["session_key"].rpartition(".")[2]
        self._macs[session_id] = mac
        self._names[mac.encode()] = b"<mac %b>" % number
        self._names[session_id.encode()] = b"<session %b>" % number
        self._note(reply)
        return session_id

    def key_of(self, session_id: str) -> str:
        """The session key of a session created here."""
        return f"{session_id}.{self._macs[session_id]}"

    def close(self) -> None:
        """End the kept connection."""
        if self._connection is not None:
            self._connection.close()

    def _note(self, reply: Reply, *, ragged: bool = False) -> None:
        version, status, reason, headers, body = reply.comparable()
        if ragged or _RAGGED.search(body):
            headers = [(n, "*" if n.lower() == "content-length" else v) for n, v in headers]
        headers = [(n, "*" if n.lower() == "etag" else v) for n, v in headers]
        if ("content-type", "application/octet-stream") in headers:
            body = _tensors_in(body)
        self.lines.append((version, status, reason, headers, self._plain(body), reply.framing))

    def _plain(self, body: bytes) -> bytes:
        for found, name in self._names.items():
            body = body.replace(found, name)
        body = _ENGINE_HOST.sub(b'["host","*"]', body)
        return _NUMBERS.sub(rb'"\1":*', _ENGINE_ID.sub(rb'"\1":*', body))


def _tensors_in(body: bytes) -> bytes:
    """A safetensors blob without the places of its tensors, which times in its document move."""
    data_at = 8 + int.from_bytes(body[:8], "little")
    found = []
    for name, told in sorted(json.loads(body[8:data_at]).items()):
        start, stop = told["data_offsets"]
        shape = "*" if name == "_samples_meta" else told["shape"]
        head = json.dumps([name, told["dtype"], shape]).encode()
        found.append(head + body[data_at + start : data_at + stop])
    return b"\n".join(found)


def json_of(reply: Reply) -> Any:  # noqa: ANN401 - JSON
    """A reply's body as JSON."""
    return json.loads(reply.body)
