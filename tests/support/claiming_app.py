"""An application that claims its sessions itself, to test claims without anything above them.

`POST /claim` claims the key in its header `x-key` and answers with the process that holds it;
`POST /call` counts for the key in `x-claim`, by which the router finds the holder; `POST /release`
gives the key up; `GET /where` tells the process. A call that its shard does not hold gets 410.
`POST /seed` and `/close` name their session only in the field `id` of their JSON body: a seed opens
it unless it is open, a close ends it if it is. `POST /visit` names it in the cookie `sid`, and
opens it unless it is open. A seed and a visit tell how many sessions their process opened by now.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import HTTPConnection

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.episodes import EpisodeNotRunningError
from sessions.errors.protocol import UnknownPathError
from sessions.routing.claim_keys import claim_key
from sessions.routing.kinds import BodyNaming, CookieNaming, HeaderNaming, Ownership, SessionKind
from sessions.routing.readers import read_whole_value

if TYPE_CHECKING:
    from sessions.tools.claims import Claims

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KIND: Final = SessionKind(
    name="claimed",
    ownership=Ownership.CLAIM,
    headers=(HeaderNaming(name=b"x-claim", under="/", reader=read_whole_value),),
    body=BodyNaming(
        field="id", seed_routes=frozenset({"/seed"}), close_routes=frozenset({"/close"})
    ),
)


VISITS: Final = SessionKind(
    name="visited",
    ownership=Ownership.CLAIM,
    cookie=CookieNaming(name="sid", reader=read_whole_value),
)


def key_of(name: str, kind: SessionKind = KIND) -> bytes:
    """The claim key of a session's name."""
    return claim_key(kind.name, name)


class ClaimingApp:
    """See the module docstring."""

    session_kinds: tuple[SessionKind, ...] = (KIND, VISITS)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._opened = 0
        self._claims: Claims

    def use_claims(self, claims: Claims) -> None:
        """Claim with these."""
        self._claims = claims

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        headers = dict(scope["headers"])
        try:
            if scope["path"] in ("/seed", "/close"):
                told = await self._answer_body(scope["path"], await _body_of(receive))
            else:
                told = await self._answer(scope, headers)
            status = 200
        except ClientVisibleError as error:
            told, status = json.loads(error.body), error.status
        body = json.dumps(told).encode()
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    async def _answer_body(self, path: str, body: bytes) -> dict[str, object]:
        name = json.loads(body)["id"]
        was_open = name in self._counts
        if path == "/seed" and not was_open:
            await self._open(name, KIND)
        if path == "/close":
            self._counts.pop(name, None)
            self._claims.release(key_of(name))
        told = {"pid": os.getpid(), "was_open": was_open, "bytes": len(body)}
        return {**told, "opened": self._opened}

    async def _open(self, name: str, kind: SessionKind) -> None:
        await self._claims.claim(key_of(name, kind))
        self._counts[name] = 0
        self._opened += 1

    async def _answer(self, scope: Message, headers: dict[bytes, bytes]) -> dict[str, object]:
        path = scope["path"]
        if path == "/where":
            return {"pid": os.getpid()}
        if path == "/claim":
            name = headers[b"x-key"].decode()
            await self._claims.claim(key_of(name))
            self._counts[name] = 0
            return {"pid": os.getpid()}
        if path == "/visit":
            name = HTTPConnection(dict(scope)).cookies["sid"]
            was_open = name in self._counts
            if not was_open:
                await self._open(name, VISITS)
            return {"pid": os.getpid(), "was_open": was_open, "opened": self._opened}
        name = headers[b"x-claim"].decode()
        if path == "/call":
            if name not in self._counts:
                raise EpisodeNotRunningError("this session is not running on this server")
            self._counts[name] += 1
            return {"pid": os.getpid(), "count": self._counts[name]}
        if path == "/release":
            self._counts.pop(name, None)
            self._claims.release(key_of(name))
            return {"pid": os.getpid()}
        raise UnknownPathError("no such route")


class VisitedApp(ClaimingApp):
    """The same with visits alone, whose cookies name their sessions."""

    session_kinds: tuple[SessionKind, ...] = (VISITS,)


class EchoApp:
    """Answers every request with its body; its kind is that of `ClaimingApp`."""

    session_kinds = (KIND,)

    def use_claims(self, claims: Claims) -> None:
        """Claim nothing."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        body = await _body_of(receive)
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})


async def _body_of(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return body


async def _live(receive: Receive, send: Send) -> None:
    for word in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{word}.complete"})
