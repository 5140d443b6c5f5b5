"""Channel messages: every size around the edge of a datagram, any interleaving, bad bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.unseen import LocalProtocolError
from sessions.lending.messages import (
    MAX_BYTES,
    PAYLOAD_BYTES,
    Decoder,
    Keep,
    Kind,
    LendFlag,
    Message,
    RefuseReason,
    encode,
    encode_whole,
    pack,
    packed_bytes,
    request_in,
    unpack,
)

HEADER_BYTES = MAX_BYTES - PAYLOAD_BYTES
LAW = settings(derandomize=True, deadline=None)


def bytes_of(size: int) -> bytes:
    """Bytes whose value depends on their place, so that parts in a wrong order show."""
    return b"".join(b"%07d\n" % index for index in range(size // 8 + 1))[:size]


def joined(datagrams: list[bytes]) -> list[Message]:
    """What a new decoder makes of datagrams; every part but the last gives nothing."""
    decoder = Decoder()
    found = [decoder.feed(datagram) for datagram in datagrams]
    assert not decoder._parts
    return [message for message in found if message is not None]


EDGES = [
    0,
    1,
    *range(PAYLOAD_BYTES - 3, PAYLOAD_BYTES + 4),
    *range(2 * PAYLOAD_BYTES - 3, 2 * PAYLOAD_BYTES + 4),
    3 * PAYLOAD_BYTES,
    65536 + 262144,
]


@pytest.mark.parametrize("size", EDGES)
def test_a_payload_of_any_size_comes_back_whole(size: int) -> None:
    message = Message(Kind.LEND, LendFlag.DESCRIPTOR, 7, 99, 3, bytes_of(size))
    datagrams = encode(message)
    assert joined(datagrams) == [message]
    assert len(datagrams) == max(1, -(-size // PAYLOAD_BYTES))
    assert max(len(datagram) for datagram in datagrams) <= MAX_BYTES


def test_the_largest_single_datagram_is_exactly_the_limit() -> None:
    assert [len(d) for d in encode(Message(Kind.BACK, 1, 0, 0, 1, b"x" * PAYLOAD_BYTES))] == [
        MAX_BYTES
    ]
    assert [len(d) for d in encode(Message(Kind.BACK, 1, 0, 0, 1, b"x" * (PAYLOAD_BYTES + 1)))] == [
        MAX_BYTES,
        HEADER_BYTES + 1,
    ]


def test_the_closing_datagram_is_never_empty_of_a_long_payload() -> None:
    for count in (2, 3):
        assert len(encode(Message(Kind.BACK, 1, 0, 0, 1, bytes(count * PAYLOAD_BYTES)))[-1]) > (
            HEADER_BYTES
        )


MESSAGES = st.builds(
    Message,
    kind=st.sampled_from([k for k in Kind if k is not Kind.DATA]),
    argument=st.integers(0, 255),
    slot=st.integers(0, 2**32 - 1),
    head_bytes=st.integers(0, 2**32 - 1),
    generation=st.integers(0, 2**64 - 1),
    payload=st.one_of(
        st.binary(max_size=64),
        st.integers(PAYLOAD_BYTES - 40, PAYLOAD_BYTES + 40).map(bytes_of),
        st.integers(0, 3 * PAYLOAD_BYTES).map(bytes_of),
    ),
)


@LAW
@given(MESSAGES)
def test_every_field_comes_back_as_it_was(message: Message) -> None:
    assert joined(encode(message)) == [message]


@LAW
@given(st.lists(MESSAGES, max_size=4))
def test_messages_come_back_in_the_order_of_their_last_datagrams(messages: list[Message]) -> None:
    assert joined([d for message in messages for d in encode(message)]) == messages


@LAW
@given(
    st.integers(1, 3 * PAYLOAD_BYTES),
    st.integers(1, 3 * PAYLOAD_BYTES),
    st.sampled_from([(1, 5, 2, 5), (1, 5, 1, 6)]),
    st.data(),
)
def test_parts_of_two_loans_may_interleave(
    size: int, other_size: int, names: tuple[int, int, int, int], data: st.DataObject
) -> None:
    slot, generation, other_slot, other_generation = names
    one = Message(Kind.LEND, 0, slot, 1, generation, bytes_of(size))
    two = Message(Kind.REFUSE, 1, other_slot, 2, other_generation, bytes_of(other_size)[::-1])
    lanes = {"one": encode(one), "two": encode(two)}
    order = data.draw(st.permutations([name for name, lane in lanes.items() for _ in lane]))
    found = joined([lanes[name].pop(0) for name in order])
    assert sorted(found) == sorted([one, two])
    assert found[-1] == (one if order[-1] == "one" else two)


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_datagram_shorter_than_a_header_is_refused(size: int) -> None:
    decoder = Decoder()
    with pytest.raises(LocalProtocolError, match=f"{size} bytes"):
        decoder.feed(encode(Message(Kind.BACK, 1, 0, 0, 1, b""))[0][:size])


def test_a_bare_header_is_a_message() -> None:
    assert joined([encode(Message(Kind.RELEASE, 0, 3, 0, 0, b""))[0][:HEADER_BYTES]]) == [
        Message(Kind.RELEASE, 0, 3, 0, 0, b"")
    ]


def test_numbers_of_kinds_and_arguments_differ() -> None:
    assert len({int(kind) for kind in Kind}) == len(Kind)
    assert int(Keep.KEPT) != int(Keep.LOST)
    assert int(RefuseReason.NO_DESCRIPTOR) != int(RefuseReason.NOT_PARKED)


@LAW
@given(st.lists(st.binary(max_size=200), max_size=9))
def test_a_pack_gives_its_datagrams_back_in_order(datagrams: list[bytes]) -> None:
    (message,) = joined([pack(datagrams)])
    assert message.kind == Kind.PACK
    assert unpack(message.payload) == datagrams
    assert len(message.payload) == sum(map(packed_bytes, datagrams))


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_pack_that_is_cut_is_refused(cut: int) -> None:
    (message,) = joined([pack([b"first", b"last"])])
    with pytest.raises(LocalProtocolError, match="in a pack is cut"):
        unpack(message.payload[:-cut] if cut < 8 else message.payload[:9] + b"\1\0\0")


def test_the_one_datagram_of_a_short_message_is_what_encode_makes() -> None:
    message = Message(Kind.BACK, Keep.KEPT, 3, 0, 9, b"next head")
    assert [encode_whole(message)] == encode(message)


@pytest.mark.parametrize("flags", [0, LendFlag.DESCRIPTOR | LendFlag.LAST | LendFlag.FINAL])
def test_a_request_stands_behind_the_key_that_is_reserved_and_else_alone(flags: int) -> None:
    key, request = b"k" * 16, b"GET / HTTP/1.1\r\n\r\n"
    assert request_in(Message(Kind.LEND, flags, 0, 18, 1, request)) == request
    reserved = Message(Kind.LEND, flags | LendFlag.RESERVED, 0, 18, 1, key + request)
    assert request_in(reserved) == request
