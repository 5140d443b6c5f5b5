"""Packs: messages of one turn of the loop in one datagram, in order, and never lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from sessions.lending import channel as channel_module
from sessions.lending.channel import PACK_LIMIT
from sessions.lending.messages import MAX_BYTES, PAYLOAD_BYTES, Message, encode, pack
from tests.support.channels import Pair, numbered, open_pair
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.waiting import wait_until_async

PER_WAKE = channel_module._MESSAGES_PER_WAKE


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with open_pair() as made:
        yield made


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose ends the test may close."""
    ends = os.pipe()
    yield ends
    for descriptor in ends:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def received(pair: Pair) -> list[bytes]:
    """The datagrams that wait at the peer now."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while datagram := pair.peer.recv(MAX_BYTES):
            found.append(datagram)
    return found


async def test_messages_of_one_turn_travel_in_one_datagram(pair: Pair) -> None:
    for number in range(3):
        pair.channel.send_soon(numbered(number))
    assert received(pair) == []
    await turn()
    (datagram,) = received(pair)
    other = pair.peer_end()
    pair.sock.send(datagram)
    await wait_until_async(lambda: bool(other.messages), "the pack")
    assert other.messages == [numbered(0), numbered(1), numbered(2)]
    assert other.descriptors == [None] * 3


async def test_a_lonely_message_is_no_pack(pair: Pair) -> None:
    pair.channel.send_soon(numbered(7))
    await turn()
    assert received(pair) == encode(numbered(7))


async def test_a_full_pack_leaves_at_once_and_the_rest_when_the_loop_turns(pair: Pair) -> None:
    for number in range(PACK_LIMIT + 1):
        pair.channel.send_soon(numbered(number))
    assert len(received(pair)) == 1
    await turn()
    assert received(pair) == encode(numbered(PACK_LIMIT))


async def test_a_pack_is_no_larger_than_a_datagram_may_be(pair: Pair) -> None:
    for number in range(4):
        pair.channel.send_soon(numbered(number, PAYLOAD_BYTES // 2))
    await turn()
    datagrams = received(pair)
    assert max(map(len, datagrams)) <= MAX_BYTES
    assert len(datagrams) > 1


async def test_a_long_message_is_sent_at_once_and_after_those_before_it(pair: Pair) -> None:
    pair.channel.send_soon(numbered(0))
    pair.channel.send_soon(numbered(1, 2 * PAYLOAD_BYTES))
    assert [message.slot for message in pair.read_peer()] == [0, 1]


async def test_a_message_sent_at_once_does_not_overtake_a_pack(
    pair: Pair, pipe: tuple[int, int]
) -> None:
    other = pair.peer_end()
    pair.channel.send_soon(numbered(0))
    pair.channel.send_soon(numbered(1))
    pair.channel.send(numbered(2), pipe[1])
    await wait_until_async(lambda: len(other.messages) == 3, "all messages")
    assert [message.slot for message in other.messages] == [0, 1, 2]
    assert [descriptor is None for descriptor in other.descriptors] == [True, True, False]


async def test_a_pack_waits_behind_the_queue(pair: Pair) -> None:
    count = pair.fill()
    assert pair.peer.recv(MAX_BYTES)  # room for a small message again
    pair.channel.send_soon(numbered(count))
    pair.channel.send(numbered(count + 1))  # has the pack sent first
    found = await pair.read_peer_until(count + 1)
    assert [message.slot for message in found] == list(range(1, count + 2))


async def test_a_pack_of_a_channel_that_is_closed_is_forgotten(pair: Pair) -> None:
    pair.channel.send_soon(numbered(0))
    pair.channel.close()
    pair.channel.send_soon(numbered(1))
    await turn()
    assert received(pair) == []
    assert not pair.channel._queue


async def test_packs_do_not_starve_the_loop(pair: Pair) -> None:
    packs = 3 * PER_WAKE // PACK_LIMIT
    for _ in range(packs):
        pair.peer.send(pack([encode(numbered(n))[0] for n in range(PACK_LIMIT)]))
    seen = [0]
    async with asyncio.timeout(10):
        while seen[-1] < packs * PACK_LIMIT:
            await turn(1)
            seen.append(len(pair.end.messages))
    assert max(b - a for a, b in itertools.pairwise(seen)) < PER_WAKE + PACK_LIMIT


async def test_a_channel_closed_by_a_message_of_a_pack_delivers_no_other(pair: Pair) -> None:
    seen: list[Message] = []

    def close_on_message(message: Message, _descriptor: int | None) -> None:
        seen.append(message)
        pair.channel.close()

    pair.channel._on_message = close_on_message
    pair.peer.send(pack([encode(numbered(number))[0] for number in range(3)]))
    await wait_until_async(lambda: bool(seen), "the first message")
    assert [message.slot for message in seen] == [0]


# --- what a death leaves


async def test_what_waits_for_its_turn_is_undelivered(pair: Pair) -> None:
    pair.channel.send_soon(numbered(0))
    pair.channel.send_soon(numbered(1))
    pair.peer.close()
    assert pair.channel.undelivered() == [numbered(0), numbered(1)]


async def test_a_pack_that_could_not_leave_is_undelivered_message_by_message(pair: Pair) -> None:
    count = pair.fill()
    pair.channel.send_soon(numbered(count))
    pair.channel.send_soon(numbered(count + 1))
    await turn()
    pair.peer.close()
    found = pair.channel.undelivered()
    assert [message.slot for message in found][-2:] == [count, count + 1]


async def test_a_pack_whose_turn_comes_after_the_end_is_undelivered(pair: Pair) -> None:
    pair.channel.send_soon(numbered(0))
    pair.channel.send_soon(numbered(1))
    pair.peer.close()
    pair.channel.read_to_end()
    await turn()
    assert pair.channel.undelivered() == [numbered(0), numbered(1)]


@pytest.mark.parametrize("soon", [False, True])
async def test_what_is_sent_between_the_end_and_the_death_is_undelivered(
    pair: Pair, pipe: tuple[int, int], *, soon: bool
) -> None:
    """The channel of a dead shard may end a moment before its pidfd tells (rule 20)."""
    pair.peer.close()
    await wait_until_async(lambda: pair.end.ends == 1, "the end")
    if soon:
        pair.channel.send_soon(numbered(0))
    else:
        pair.channel.send(numbered(0), pipe[1])
    pair.channel.read_to_end()
    assert pair.channel.undelivered() == [numbered(0)]


async def test_a_closed_channel_keeps_nothing(pair: Pair) -> None:
    pair.channel.close()
    pair.channel.send(numbered(0))
    pair.channel.send_soon(numbered(1))
    await turn()
    assert pair.channel.undelivered() == []
