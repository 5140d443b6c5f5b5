"""Bodies that name sessions: which are asked, what they name, and what the application sees."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import MCP_SESSIONS, environment_kind
from sessions.routing.kinds import ROLLOUT, BodyNaming
from sessions.shard.referral import (
    BODY_LIMIT_BYTES,
    SCOPE_KEY,
    BodyName,
    BodyNames,
    Inquiring,
    Referral,
)
from sessions.wire.gate import read_head
from sessions.wire.head import Head
from tests.support.fake_links import head_of
from tests.support.raw import request_bytes

Message = MutableMapping[str, Any]
BODY = BodyNaming(
    field="id", seed_routes=frozenset({"/seed"}), close_routes=frozenset({"/close it"})
)
NAMES = BodyNames([ROLLOUT, environment_kind(cookie="c", token_header="x-t", body=BODY)])
NAME = BodyName("environment", "id")
KEY = claim_key("environment", "s1")
NAMING = b'{"id": "s1"}'


def test_an_application_without_such_routes_has_no_names():
    assert not BodyNames([ROLLOUT, MCP_SESSIONS])
    assert NAMES


def chunked_head(path: str) -> Head:
    request = request_bytes("POST", path, body=b"x", chunk_bytes=1)
    head = read_head(request, 0, len(request))
    assert head is not None
    return head


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (head_of("POST", "/seed", b"x"), NAME),
        (head_of("POST", "/s%65ed?a=b", b"x"), NAME),
        (head_of("POST", "/close%20it", b"x"), NAME),
        (chunked_head("/seed"), NAME),
        (head_of("POST", "/seed", b"x" * BODY_LIMIT_BYTES), NAME),
        (head_of("POST", "/seed", b"x" * (BODY_LIMIT_BYTES + 1)), None),
        (head_of("POST", "/seed", b""), None),
        (head_of("GET", "/seed", b""), None),
        (head_of("POST", "/seed/", b"x"), None),
        (head_of("POST", "/other", b"x"), None),
    ],
)
def test_only_small_bodies_of_the_routes_may_name_a_session(head: Head, name: BodyName | None):
    assert NAMES.name_for(head) == name


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (NAMING, KEY),
        (b'{"x": [1], "id": "s1"}', KEY),
        (b"", None),
        (b"{", None),
        (b"\xff", None),
        (b'["id"]', None),
        (b'{"id": ""}', None),
        (b'{"id": 1}', None),
        (b'{"ID": "s1"}', None),
        (b"[" * 60_000, None),
    ],
)
def test_a_body_names_the_session_in_its_field(body: bytes, key: bytes | None):
    assert NAME.key_in(body) == key


class Scene:
    """An application behind `Inquiring`, and what happens to one request."""

    def __init__(self, *, held: bool = False, can_refer: bool = True) -> None:
        self.referred: list[bytes] = []
        self.seen: list[Message] = []
        self.scopes: list[Message] = []
        self.can_refer = can_refer
        self.app = Inquiring(self._app, lambda key: held and key == KEY)

    async def ask(self, *messages: Message, asks: bool = True) -> None:
        """One request whose body comes in these messages."""
        left = self.left = list(messages)
        scope: Message = {"type": "http"}
        if asks:
            scope[SCOPE_KEY] = Referral(name=NAME, refer=self._refer)

        async def receive() -> Message:
            return left.pop(0)

        async def send(_message: Message) -> None:
            return

        await self.app(scope, receive, send)

    async def _refer(self, key: bytes) -> bool:
        self.referred.append(key)
        return self.can_refer

    async def _app(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        _send: Callable[[Message], Awaitable[None]],
    ) -> None:
        self.scopes.append(scope)
        self.left_at_start = len(self.left)
        while True:
            message = await receive()
            self.seen.append(message)
            if not message.get("more_body"):
                return


def piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_session_that_is_not_held_goes_back_before_the_application_runs():
    scene = Scene()
    await scene.ask(piece(NAMING[:5], more=True), piece(NAMING[5:]))
    assert scene.referred == [KEY]
    assert scene.scopes == []


@pytest.mark.parametrize("why", ["held", "cannot go back", "names nothing"])
async def test_what_is_served_here_sees_the_same_messages(why: str):
    scene = Scene(held=why == "held", can_refer=why != "cannot go back")
    body = b"{}" if why == "names nothing" else NAMING
    pieces = [piece(body[:1], more=True), piece(body[1:])]
    await scene.ask(*pieces)
    assert scene.seen == pieces
    assert scene.scopes == [{"type": "http"}]


async def test_a_body_over_the_limit_is_served_here_as_it_comes():
    scene = Scene()
    pieces = [piece(b"x" * BODY_LIMIT_BYTES, more=True), piece(b"y", more=True), piece(NAMING)]
    await scene.ask(*pieces)
    assert scene.seen == pieces
    assert scene.referred == []
    assert scene.left_at_start == 1


async def test_a_client_that_leaves_early_reaches_nobody():
    scene = Scene()
    await scene.ask(piece(NAMING[:3], more=True), {"type": "http.disconnect"})
    assert (scene.referred, scene.scopes) == ([], [])


async def test_other_requests_pass_untouched():
    scene = Scene()
    await scene.ask(piece(NAMING), asks=False)
    assert scene.seen == [piece(NAMING)]
    assert json.loads(scene.seen[0]["body"]) == {"id": "s1"}
