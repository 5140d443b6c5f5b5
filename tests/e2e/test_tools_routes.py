"""An environment's own route through real groups: nothing is changed on the way, in or out.

The names of reference tests stand behind the tests: R-T7 and so on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from tests.support.agents import Agents, Played, open_agents
from tests.support.group import RunningGroup, open_groups
from tests.support.raw import open_raw, request_bytes
from tests.support.replies import Reply
from tests.support.topology import LONE, ROUTED_FOUR
from tests.support.trial_env import REPLIES, SHARD_HEADER

APP: Final = "tests.support.trial_env:TrialEnvironment"
HEADERS: Final = [("X-One", "1"), ("x-two", "é"), ("X-One", "2"), ("Cookie", "a=b; c"), ("X-E", "")]
TARGETS: Final = [
    "/mirror/",
    "/mirror//a//b/",
    "/mirror/%61%2Fb%2e%2E/../c;d=%C3%A9",
    "/mirror/x?y=1&y=2&&z=%20+%26&=",
    "/mirror/x?",
]


@pytest.fixture(scope="module", params=[LONE, ROUTED_FOUR], ids=lambda topology: topology.name)
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield request.param.start(groups, APP)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with open_agents() as found:
        yield found


class Sender:
    """Sends requests with the grant of an episode, each on a new connection."""

    def __init__(self, group: RunningGroup, played: Played, shard: int) -> None:
        self.address = group.address
        self.token = list(played.headers.items())
        self.shard = str(shard)

    async def ask(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]] | None = None,
        body: bytes = b"",
        chunk_bytes: int = 0,
    ) -> Reply:
        """One request, which its episode's shard must answer."""
        sent = [*(headers or []), *self.token]
        request = request_bytes(method, target, sent, body, chunk_bytes=chunk_bytes)
        async with open_raw(self.address) as connection:
            reply = await connection.ask(request, head_only=method == "HEAD")
        assert reply.header(SHARD_HEADER) == self.shard
        return reply


async def sender_of(group: RunningGroup, agents: Agents, name: str) -> tuple[Sender, Played]:
    played = await agents.begin(group.url, name)
    return Sender(group, played, (await played.add(1))["shard"]), played


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT"])
async def test_a_request_arrives_with_its_very_method_target_and_headers(
    group: RunningGroup, agents: Agents, method: str
):
    """R-T7."""
    sender, played = await sender_of(group, agents, "heads")
    sent = ["host: test", *(f"{name.lower()}: {value}" for name, value in HEADERS + sender.token)]
    length = ["content-length: 0"] if method in {"POST", "PUT", "PATCH"} else []
    for target in TARGETS:
        reply = await sender.ask(method, target, HEADERS)
        told = reply.body.decode("latin-1").split("\n")
        assert told == [f"{method} {target.removesuffix('?')}", *sent, *length, "", ""]
    await played.end()


@pytest.mark.parametrize("size_bytes", [1, 70_000, 3 << 20])
async def test_a_body_arrives_byte_for_byte(group: RunningGroup, agents: Agents, size_bytes: int):
    """R-T7."""
    sender, played = await sender_of(group, agents, "bodies")
    body = (bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes]
    for chunk_bytes in (0, 1000, 100_000):
        reply = await sender.ask("POST", "/mirror/b", body=body, chunk_bytes=chunk_bytes)
        assert reply.body.partition(b"\n\n")[2] == body
    await played.end()


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_comes_back_as_the_application_sent_it(
    group: RunningGroup, agents: Agents, name: str
):
    """R-T7: repeated cookies, a coding that is left alone, statuses without a body, megabytes."""
    sender, played = await sender_of(group, agents, "replies")
    status, headers, body = REPLIES[name]
    reply = await sender.ask("GET", f"/mirror/r?reply={name}")
    assert (reply.status, reply.body) == (status, body)
    sent = [(key.decode(), value.decode()) for key, value in headers]
    own = {key for key, _ in sent}
    assert [header for header in reply.headers if header[0].lower() in own] == sent
    await played.end()


async def test_the_first_piece_of_a_reply_arrives_before_the_last_one_is_made(
    group: RunningGroup, agents: Agents
):
    """R-T7: the second piece is not made before the client of the first has asked for it."""
    sender, played = await sender_of(group, agents, "pieces")
    async with open_raw(group.address) as connection:
        await connection.send(request_bytes("GET", "/mirror/p?reply=pieces", sender.token))
        while b"first" not in connection.parser.leftover:
            await connection._read()
        await sender.ask("GET", "/mirror/p?reply=release")
        assert (await connection.read_reply()).body == b"firstsecond"
    await played.end()
