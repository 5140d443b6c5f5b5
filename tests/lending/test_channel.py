"""The channel over real socket pairs on both loops: queues, descriptors, shortages, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import resource
from collections.abc import AsyncIterator, Iterator

import pytest

from sessions.lending import channel as channel_module
from sessions.lending.channel import QUEUE_LIMIT_BYTES
from sessions.lending.messages import MAX_BYTES, PAYLOAD_BYTES, Message, encode
from tests.support.channels import Pair, numbered, open_pair
from tests.support.loops import BOTH_LOOPS, Backend, open_descriptors, turn
from tests.support.waiting import wait_until_async

PER_WAKE = channel_module._MESSAGES_PER_WAKE
SHORTAGES = [errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM]


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


# --- sending and receiving


@pytest.mark.parametrize("size", [0, 1, PAYLOAD_BYTES, PAYLOAD_BYTES + 1, 5 * PAYLOAD_BYTES])
async def test_messages_of_any_size_arrive_both_ways(pair: Pair, size: int) -> None:
    other = pair.peer_end()
    pair.channel.send(numbered(1, size))
    other.channel.send(numbered(2, size))
    await wait_until_async(lambda: bool(other.messages and pair.end.messages), "both messages")
    assert other.messages == [numbered(1, size)]
    assert pair.end.messages == [numbered(2, size)]
    assert pair.end.descriptors == [None]


async def test_messages_beyond_the_socket_buffer_wait_and_arrive_in_order(pair: Pair) -> None:
    count = pair.fill()
    pair.channel.send(numbered(count))
    pair.channel.send(numbered(count + 1, 2 * PAYLOAD_BYTES))
    assert pair.channel._queued_bytes > 0
    found = await pair.read_peer_until(count + 2)
    assert [message.slot for message in found] == list(range(count + 2))
    assert not pair.channel._queue
    assert pair.channel._queued_bytes == 0
    await wait_until_async(lambda: not pair.channel._wants_writable, "the writer to be removed")
    assert not asyncio.get_running_loop().remove_writer(pair.sock.fileno())


async def test_a_small_message_does_not_overtake_a_queued_one(pair: Pair) -> None:
    count = pair.fill()
    assert pair.peer.recv(MAX_BYTES)  # room for a small message again
    pair.channel.send(numbered(count))
    found = await pair.read_peer_until(count)
    assert [message.slot for message in found] == list(range(1, count + 1))


async def test_the_queue_has_a_limit_that_shows_on_both_sides_of_its_edge(pair: Pair) -> None:
    pair.fill()
    header = len(encode(numbered(0))[0])
    while QUEUE_LIMIT_BYTES - pair.channel._queued_bytes > MAX_BYTES:
        pair.channel.send(numbered(0, PAYLOAD_BYTES))
    left = QUEUE_LIMIT_BYTES - pair.channel._queued_bytes
    pair.channel.send(numbered(0, left - header))
    assert pair.channel._queued_bytes == QUEUE_LIMIT_BYTES
    assert not pair.channel.is_over_limit
    pair.channel.send(numbered(0))
    assert pair.channel.is_over_limit
    await wait_until_async(
        lambda: bool(pair.read_peer()) and not pair.channel.is_over_limit, "room in the queue"
    )


async def test_a_busy_peer_does_not_starve_the_loop(pair: Pair) -> None:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            pair.peer.send(encode(numbered(count))[0])
            count += 1
    assert count > 3 * PER_WAKE
    seen = [0]
    async with asyncio.timeout(10):
        while seen[-1] < count:
            await turn(1)
            seen.append(len(pair.end.messages))
    assert max(b - a for a, b in itertools.pairwise(seen)) <= PER_WAKE
    assert [message.slot for message in pair.end.messages] == list(range(count))


# --- descriptors


async def test_a_descriptor_arrives_close_on_exec_and_usable(
    pair: Pair, pipe: tuple[int, int]
) -> None:
    other = pair.peer_end()
    os.set_inheritable(pipe[1], True)  # noqa: FBT003 - positional only
    pair.channel.send(numbered(1), pipe[1])
    await wait_until_async(lambda: bool(other.messages), "the message")
    arrived = other.descriptors[0]
    assert arrived is not None
    assert arrived != pipe[1]
    assert not os.get_inheritable(arrived)
    os.close(pipe[1])
    os.write(arrived, b"through")
    assert os.read(pipe[0], 10) == b"through"


async def test_the_descriptor_comes_with_the_last_part_of_a_long_message(
    pair: Pair, pipe: tuple[int, int]
) -> None:
    other = pair.peer_end()
    pair.channel.send(numbered(1, 3 * PAYLOAD_BYTES), pipe[1])
    pair.channel.send(numbered(2))
    await wait_until_async(lambda: len(other.messages) == 2, "both messages")
    assert other.descriptors[0] is not None
    assert other.descriptors[1] is None


async def test_sending_at_once_needs_no_duplicate(pair: Pair, pipe: tuple[int, int]) -> None:
    before = open_descriptors()
    pair.channel.send(numbered(1), pipe[1])
    assert open_descriptors() == before


async def test_a_queued_descriptor_survives_the_close_of_the_original(
    pair: Pair, pipe: tuple[int, int]
) -> None:
    count = pair.fill()
    before = open_descriptors()
    pair.channel.send(numbered(count), pipe[1])
    assert open_descriptors() == before + 1
    os.close(pipe[1])
    other = pair.peer_end()
    await wait_until_async(lambda: len(other.messages) == count + 1, "all messages")
    arrived = other.descriptors[-1]
    assert arrived is not None
    os.write(arrived, b"late")
    assert os.read(pipe[0], 10) == b"late"
    os.close(arrived)
    other.descriptors[-1] = None
    assert os.read(pipe[0], 10) == b"", "our duplicate is closed once it is sent"


async def test_a_dropped_queue_closes_its_duplicates(pair: Pair, pipe: tuple[int, int]) -> None:
    pair.fill()
    before = open_descriptors()
    for number in range(5):
        pair.channel.send(numbered(number), pipe[1])
    assert open_descriptors() == before + 5
    pair.channel.close()
    assert open_descriptors() == before - 1  # the socket's own is closed too
    assert pair.channel._queued_bytes == 0


async def test_a_descriptor_that_cannot_be_duplicated_is_left_out_of_its_message(
    pair: Pair, pipe: tuple[int, int]
) -> None:
    """The peer sees that none came and refuses the loan (rule 13); nothing else is lost."""
    count = pair.fill()
    _soft, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        pair.channel.send(numbered(count, 2 * PAYLOAD_BYTES), pipe[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    other = pair.peer_end()
    await wait_until_async(lambda: len(other.messages) == count + 1, "all messages")
    assert other.messages[-1] == numbered(count, 2 * PAYLOAD_BYTES)
    assert other.descriptors[-1] is None


async def test_a_descriptor_that_the_receiver_has_no_room_for_is_missing(
    pair: Pair, pipe: tuple[int, int]
) -> None:
    """The kernel drops it with MSG_CTRUNC; the message is whole (rule 13)."""
    _soft, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    other = pair.peer_end()
    pair.channel.send(numbered(1), pipe[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        await wait_until_async(lambda: bool(other.messages), "the message")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert other.messages == [numbered(1)]
    assert other.descriptors == [None]


# --- shortages


@pytest.mark.parametrize("fault", SHORTAGES)
@pytest.mark.parametrize("with_descriptor", [False, True])
async def test_a_shortage_is_retried_by_timer_and_nothing_is_lost(
    pair: Pair, pipe: tuple[int, int], fault: int, *, with_descriptor: bool
) -> None:
    pair.sock.send_faults.extend([fault] * 3)
    pair.channel.send(numbered(1), pipe[1] if with_descriptor else None)
    pair.channel.send(numbered(2))
    assert not pair.channel._wants_writable, "poll would say writable at once and for ever"
    other = pair.peer_end()
    await wait_until_async(lambda: len(other.messages) == 2, "both messages")
    assert [message.slot for message in other.messages] == [1, 2]
    assert (other.descriptors[0] is not None) is with_descriptor
    assert pair.sock.sends <= 3 + 1 + 2, "it did not spin"
    assert pair.channel._retry is None


async def test_a_shortage_while_the_socket_is_full_keeps_the_order(pair: Pair) -> None:
    count = pair.fill()
    pair.sock.send_faults.extend([errno.ENOBUFS] * 2)
    pair.channel.send(numbered(count))
    found = await pair.read_peer_until(count + 1)
    assert [message.slot for message in found] == list(range(count + 1))


async def test_closing_cancels_the_one_retry(pair: Pair) -> None:
    pair.sock.send_faults.extend([errno.ENOBUFS] * 9)
    pair.channel.send(numbered(1))
    retry = pair.channel._retry
    pair.channel.send(numbered(2))
    assert pair.channel._retry is retry
    assert retry is not None
    pair.channel.close()
    assert retry.cancelled()


async def test_any_other_send_error_is_raised(pair: Pair) -> None:
    pair.sock.send_faults.append(errno.EMSGSIZE)
    with pytest.raises(OSError, match=os.strerror(errno.EMSGSIZE)):
        pair.channel.send(numbered(1))


# --- ends


async def test_the_end_is_told_once_and_after_the_last_message(pair: Pair) -> None:
    pair.peer.send(encode(numbered(1))[0])
    pair.peer.close()
    await wait_until_async(lambda: pair.end.ends > 0, "the end")
    await turn()
    assert pair.end.ends == 1
    assert pair.end.messages == [numbered(1)]
    assert not asyncio.get_running_loop().remove_reader(pair.sock.fileno())


@pytest.mark.parametrize("fault", [errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN])
async def test_sending_to_a_gone_peer_fails_nobody(pair: Pair, fault: int) -> None:
    pair.sock.send_faults.append(fault)
    pair.channel.send(numbered(1))
    sends = pair.sock.sends
    pair.channel.send(numbered(2, 2 * PAYLOAD_BYTES))
    assert pair.sock.sends == sends, "a gone peer is not asked again"
    assert not pair.end.ends, "only reading tells the end"


async def test_a_queue_for_a_peer_that_goes_away_makes_no_loop_spin(pair: Pair) -> None:
    pair.fill()
    assert pair.channel._wants_writable
    pair.peer.close()
    await wait_until_async(lambda: pair.end.ends > 0, "the end")
    assert not asyncio.get_running_loop().remove_writer(pair.sock.fileno())


async def test_sending_after_the_end_sends_nothing_and_holds_no_descriptor(
    pair: Pair, pipe: tuple[int, int]
) -> None:
    pair.fill()
    pair.peer.close()
    await wait_until_async(lambda: pair.end.ends > 0, "the end")
    sends, before = pair.sock.sends, open_descriptors()
    pair.channel.send(numbered(1), pipe[1])
    assert pair.sock.sends == sends
    assert open_descriptors() == before


async def test_sending_on_a_closed_channel_does_nothing(pair: Pair, pipe: tuple[int, int]) -> None:
    pair.channel.close()
    pair.channel.send(numbered(1), pipe[1])
    assert not pair.channel._queue


async def test_what_a_dead_peer_had_sent_is_delivered_to_its_end(pair: Pair) -> None:
    count = 2 * PER_WAKE + 5
    for number in range(count):
        pair.peer.send(encode(numbered(number))[0])
    pair.peer.close()
    pair.channel.read_to_end()
    assert [message.slot for message in pair.end.messages] == list(range(count))
    assert pair.end.ends == 1
    pair.channel.read_to_end()
    assert pair.end.ends == 1


async def test_what_a_dead_peer_had_sent_is_delivered_although_it_read_nothing(pair: Pair) -> None:
    """The kernel says ECONNRESET once, and then gives the queued messages (rule 20)."""
    pair.channel.send(numbered(99))
    for number in range(3):
        pair.peer.send(encode(numbered(number))[0])
    pair.peer.close()
    pair.channel.read_to_end()
    assert [message.slot for message in pair.end.messages] == [0, 1, 2]
    assert pair.end.ends == 1


async def test_a_reset_in_normal_reading_does_not_hide_what_follows(pair: Pair) -> None:
    pair.sock.receive_faults.append(errno.ECONNRESET)
    pair.peer.send(encode(numbered(1))[0])
    pair.peer.close()
    await wait_until_async(lambda: pair.end.ends > 0, "the end")
    assert pair.end.messages == [numbered(1)]


async def test_what_never_left_can_be_told_whole_and_in_order(pair: Pair) -> None:
    count = pair.fill()
    pair.channel.send(numbered(count, 3 * PAYLOAD_BYTES))
    pair.channel.send(numbered(count + 1))
    assert [message.slot for message in pair.channel.undelivered()] == [
        count - 1,
        count,
        count + 1,
    ]
    assert pair.channel.undelivered()[1] == numbered(count, 3 * PAYLOAD_BYTES)
    assert len(pair.channel._queue) == 5, "telling takes nothing away"


async def test_a_message_of_which_a_part_has_left_is_not_undelivered(pair: Pair) -> None:
    """What is left of it would be taken for a request of its own."""
    pair.channel.send(numbered(1, 40 * PAYLOAD_BYTES))
    pair.channel.send(numbered(2))
    assert 1 < len(pair.channel._queue) < 41, "some parts have left and some have not"
    assert pair.channel.undelivered() == [numbered(2)]


async def test_a_part_without_its_closing_message_is_not_delivered(pair: Pair) -> None:
    pair.peer.send(encode(numbered(1, 2 * PAYLOAD_BYTES))[0])
    pair.peer.close()
    pair.channel.read_to_end()
    assert pair.end.messages == []
    assert pair.end.ends == 1


async def test_reading_a_live_peer_to_its_end_does_not_block(pair: Pair) -> None:
    pair.peer.send(encode(numbered(1))[0])
    pair.channel.read_to_end()
    assert pair.end.messages == [numbered(1)]
    assert pair.end.ends == 1


async def test_a_closed_channel_tells_nothing_any_more(pair: Pair) -> None:
    pair.peer.send(encode(numbered(1))[0])
    pair.channel.close()
    pair.channel.close()
    pair.channel.read_to_end()
    await turn()
    assert pair.end.messages == []
    assert pair.end.ends == 0


async def test_a_channel_closed_by_its_own_message_reads_no_further(pair: Pair) -> None:
    seen: list[Message] = []

    def close_on_message(message: Message, _descriptor: int | None) -> None:
        seen.append(message)
        pair.channel.close()

    pair.channel._on_message = close_on_message
    for number in range(3):
        pair.peer.send(encode(numbered(number))[0])
    await wait_until_async(lambda: bool(seen), "the first message")
    await turn()
    assert [message.slot for message in seen] == [0]


# --- a broken peer


@pytest.mark.parametrize("datagram", [b"x", bytes(MAX_BYTES + 1)], ids=["short", "truncated"])
async def test_a_datagram_that_is_no_whole_message_ends_the_channel(
    pair: Pair, datagram: bytes
) -> None:
    pair.peer.send(datagram)
    pair.peer.send(encode(numbered(1))[0])
    await wait_until_async(lambda: pair.end.ends == 1, "the end")
    assert pair.end.messages == []
    with contextlib.suppress(ConnectionResetError):  # the peer's second word was never read
        pair.peer.recv(10)
    with pytest.raises(BrokenPipeError):
        pair.peer.send(b"more")


async def test_a_dead_peers_broken_message_ends_the_reading(pair: Pair) -> None:
    pair.peer.send(encode(numbered(1))[0])
    pair.peer.send(b"x")
    pair.peer.send(encode(numbered(2))[0])
    pair.peer.close()
    pair.channel.read_to_end()
    assert [message.slot for message in pair.end.messages] == [1]
    assert pair.end.ends == 1


# --- reading what is pending


async def test_what_was_sent_is_there_without_a_turn_of_the_loop(pair: Pair) -> None:
    for number in range(PER_WAKE + 5):
        pair.peer.send(encode(numbered(number))[0])
    pair.channel.read_pending()
    assert [message.slot for message in pair.end.messages] == list(range(PER_WAKE + 5))
    pair.channel.read_pending()
    assert len(pair.end.messages) == PER_WAKE + 5


async def test_pending_messages_do_not_overtake_the_one_in_delivery(pair: Pair) -> None:
    found: list[int] = []

    def deliver(message: Message, _descriptor: int | None) -> None:
        pair.channel.read_pending()
        found.append(message.slot)

    pair.channel._on_message = deliver
    for number in range(4):
        pair.peer.send(encode(numbered(number))[0])
    await wait_until_async(lambda: len(found) == 4, "the messages")
    assert found == list(range(4))
