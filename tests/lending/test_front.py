"""The front on both loops: what it answers itself, whom it names, its limit, its sweep, its end."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from sessions.errors.group import NotReadyError, OverloadedError
from sessions.errors.sessions import BadSessionIdError
from sessions.lending import front as front_module
from sessions.lending.connection import LINGER_QUIET_S
from sessions.lending.group import Group
from sessions.routing.kinds import ROLLOUT, Named
from tests.support.fronts import FrontStage, error_code_of, open_front
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.members import group_of
from tests.support.raw import open_raw, request_bytes
from tests.support.waiting import wait_until_async

LIVE = request_bytes("GET", "/livez")
ASK = request_bytes("GET", "/x")
KEY = "abc." + "0123456789abcdef" * 2


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


# --- probes


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/health", "/livez?verbose=1"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_probe_is_answered_without_the_dispatcher(
    stage: FrontStage, method: str, path: str
) -> None:
    client = await stage.connect()
    reply = await client.ask(request_bytes(method, path), head_only=method == "HEAD")
    assert reply.status == 200
    assert reply.header("content-type") == "application/json"
    assert reply.header("cache-control") == "no-store"
    assert not stage.dispatcher.named


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/livez"), ("OPTIONS", "/healthz"), ("GET", "/livez/x")]
)
async def test_any_other_request_for_a_probe_is_the_applications(
    stage: FrontStage, method: str, path: str
) -> None:
    client = await stage.connect()
    await client.send(request_bytes(method, path))
    await stage.loan()


# --- names


@pytest.mark.parametrize(
    ("target", "headers", "named"),
    [
        ("/sessions/abc/v1/models", [], Named(ROLLOUT, "abc")),
        ("/sessions/a%62c/v1/models", [], Named(ROLLOUT, "abc")),
        ("/v1/models", [("Authorization", f"Bearer {KEY}")], Named(ROLLOUT, "abc")),
        ("/v1/models", [("x-api-key", KEY)], Named(ROLLOUT, "abc")),
        ("/v1/models", [("Authorization", "Bearer sk-1")], None),
        ("/sessions", [], None),
        ("/", [], None),
    ],
)
async def test_the_dispatcher_is_told_which_session_a_request_names(
    stage: FrontStage, target: str, headers: list[tuple[str, str]], named: Named | None
) -> None:
    client = await stage.connect()
    await client.send(request_bytes("GET", target, headers))
    loan = await stage.loan()
    assert stage.dispatcher.named == [named]
    assert stage.front.name_in(loan.head) == named


async def test_the_owner_that_was_chosen_gets_the_loan(stage: FrontStage) -> None:
    client = await stage.connect()
    stage.dispatcher.owner = 7
    await client.send(ASK)
    assert (await stage.loan()).shard == 7


async def test_a_name_that_is_none_is_refused_by_its_rule(stage: FrontStage) -> None:
    client = await stage.connect()
    reply = await client.ask(request_bytes("GET", "/sessions/a%2Fb/x"))
    assert (reply.status, error_code_of(reply)) == (400, BadSessionIdError.code)
    reply = await client.ask(LIVE)
    assert reply.status == 200


# --- the limit


async def test_the_limit_of_connections_holds_on_both_sides_of_its_edge(group: Group) -> None:
    small = group_of(group.runtime_dir, max_connections=2)
    async with open_front(small) as stage:
        first, second = await stage.connect(), await stage.connect()
        assert [(await client.ask(LIVE)).status for client in (first, second)] == [200, 200]
        third = await stage.connect()
        reply = await third.read_reply()
        assert (reply.status, error_code_of(reply)) == (503, OverloadedError.code)
        assert reply.headers[-1] == ("connection", "close")
        assert await third.read_to_end() == b""
        assert (await first.ask(LIVE)).status == 200
        second.close()
        await wait_until_async(lambda: stage.front.slots.has_free, "a free slot")
        fourth = await stage.connect()
        assert (await fourth.ask(LIVE)).status == 200


async def test_refused_connections_take_no_slot(group: Group) -> None:
    small = group_of(group.runtime_dir, max_connections=1)
    async with open_front(small) as stage:
        first = await stage.connect()
        assert (await first.ask(LIVE)).status == 200
        for _ in range(20):
            refused = await stage.connect()
            assert (await refused.read_reply()).status == 503
        assert len(stage.front.connections) == 1
        first.close()
        await stage.wait_empty()
        again = await stage.connect()
        assert (await again.ask(LIVE)).status == 200


@pytest.fixture
async def full(group: Group) -> AsyncIterator[FrontStage]:
    """A front whose only slot is taken."""
    async with open_front(group_of(group.runtime_dir, max_connections=1)) as opened:
        client = await opened.connect()
        assert (await client.ask(LIVE)).status == 200
        yield opened


async def test_a_refused_client_that_is_still_sending_gets_its_words_and_no_reset(
    full: FrontStage,
) -> None:
    client = await full.connect()
    body_bytes = 4 << 20
    head = request_bytes("PUT", "/x", [("Content-Length", str(body_bytes))])
    await client.send(head.replace(b"Content-Length: 0\r\n", b""))
    await client.send(bytes(body_bytes), piece_bytes=65536)
    assert (await client.read_reply()).status == 503
    assert await client.read_to_end() == b""


async def test_a_refused_client_is_not_waited_for_for_long(full: FrontStage) -> None:
    client = await full.connect()
    assert (await client.read_reply()).status == 503
    (refused,) = full.front._refused
    await full.pass_time(LINGER_QUIET_S - 0.1)
    assert full.front._refused == {refused}
    await full.pass_time(0.2)
    await wait_until_async(lambda: not full.front._refused, "its end")


async def test_a_refused_client_that_leaves_is_forgotten(full: FrontStage) -> None:
    client = await full.connect()
    assert (await client.read_reply()).status == 503
    assert len(full.front._refused) == 1
    client.close()
    await wait_until_async(lambda: not full.front._refused, "its end")


async def test_only_so_many_refused_clients_are_waited_for(
    full: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "REFUSED_LINGER_COUNT", 2)
    clients = [await full.connect() for _ in range(4)]
    for client in clients:
        assert (await client.read_reply()).status == 503
        assert await client.read_to_end() == b""
    assert len(full.front._refused) == 2


async def test_a_refused_client_that_is_gone_already_is_no_error(full: FrontStage) -> None:
    for _ in range(5):
        with socket.create_connection(full.address) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    later = await full.connect()
    assert (await later.read_reply()).status == 503
    later.close()
    await wait_until_async(lambda: not full.front._refused, "the end of all")


# --- listeners and sweep


async def test_every_listener_is_served(group: Group) -> None:
    async with open_front(group) as stage:
        with closing(socket.create_server(("127.0.0.1", 0))) as other:
            other.setblocking(False)  # noqa: FBT003 - positional only
            await stage.front.start([other])
            async with open_raw(other.getsockname()) as client:
                assert (await client.ask(LIVE)).status == 200
            assert (await (await stage.connect()).ask(LIVE)).status == 200
            await stage.wait_gone(1)
            stage.front._servers.pop().close()
            await turn()


async def test_the_sweep_goes_on_by_itself(stage: FrontStage) -> None:
    client = await stage.connect()
    await stage.connection()
    stage.clock.advance(75.1)
    assert await client.read_to_end() == b"", "ended by the front's own timer"


# --- draining


async def test_draining_closes_the_listener_at_once(stage: FrontStage) -> None:
    await stage.front.drain(lambda: 0)
    assert stage.front.is_closing
    with pytest.raises(OSError, match=r"refused|reset|Connect"):
        await stage.connect()


async def test_the_sweep_ends_with_the_drain(stage: FrontStage) -> None:
    await stage.front.drain(lambda: 0)
    assert stage.front._sweep is not None
    assert stage.front._sweep.cancelled()


async def test_draining_waits_for_what_is_lent(stage: FrontStage) -> None:
    client, connection = await stage.lent(ASK)
    lent = [1]
    drained = asyncio.create_task(stage.front.drain(lambda: lent[0]))
    await turn(50)
    assert not drained.done()
    connection.take_back(0, b"", kept=True)
    lent[0] = 0
    await stage.pass_last_moment()
    assert await client.read_to_end() == b""
    client.close()
    await drained


async def test_draining_waits_until_the_last_reply_has_left(group: Group) -> None:
    async with open_front(group, send_buffer_bytes=4608) as stage:
        client = await stage.connect(receive_buffer_bytes=4608)
        connection = await stage.connection()
        count = 0
        while connection.is_flushed:
            await client.send(LIVE)
            count += 1
            await turn()
        drained = asyncio.create_task(stage.front.drain(lambda: 0))
        await turn(50)
        assert not drained.done()
        for _ in range(count):
            assert (await client.read_reply()).status == 200
        await stage.pass_last_moment()
        assert await client.read_to_end() == b""
        client.close()
        await drained


async def test_draining_closes_on_a_client_that_never_does(stage: FrontStage) -> None:
    client = await stage.connect()
    await client.ask(LIVE)
    drained = asyncio.create_task(stage.front.drain(lambda: 0))
    await stage.pass_last_moment()
    await drained
    assert not stage.front.connections
    assert await client.read_to_end() == b""


async def test_a_request_that_comes_while_draining_is_refused_with_the_end(
    stage: FrontStage,
) -> None:
    client = await stage.connect()
    await client.send(ASK[:5])
    connection = await stage.connection()
    await wait_until_async(lambda: bool(connection._buffer), "the begin of a head")
    stage.dispatcher.refusal = NotReadyError("draining")
    lent = [1]
    drained = asyncio.create_task(stage.front.drain(lambda: lent[0]))
    await turn()
    reply = await client.ask(ASK[5:])
    assert (reply.status, reply.header("connection")) == (503, "close")
    lent[0] = 0
    client.close()
    await drained
