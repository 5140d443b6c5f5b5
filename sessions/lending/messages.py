"""Channel messages: what router and shard say to each other, as bytes.

A message is one SEQPACKET datagram: a fixed header, then a payload. It is at most `MAX_BYTES`; a
longer payload travels as DATA parts of the same slot and generation before the message that
closes them (lending rule 7). `encode` makes the datagrams, a `Decoder` joins them again. Several
small messages may travel in one datagram, as a PACK (`pack`, `unpack`): a system call and a
wake-up for many. Nothing here touches a socket; descriptors travel beside the last datagram and
are the channel's business.

Spec: docs/lending.md#messages
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from sessions.errors.unseen import LocalProtocolError
from sessions.routing.claim_keys import CLAIM_KEY_BYTES

_HEADER: Final = struct.Struct("<BBxxIIxxxxQ")  # kind, argument, slot, head length, generation
_HEADER_BYTES: Final = _HEADER.size
_LENGTH: Final = struct.Struct("<I")  # before each datagram in a PACK
_LENGTH_BYTES: Final = _LENGTH.size
MAX_BYTES: Final = 32768
PAYLOAD_BYTES: Final = MAX_BYTES - _HEADER_BYTES


class Kind(enum.IntEnum):
    """What a message says; the sender stands in brackets."""

    HELLO = 1  # (shard) slot holds the shard's index, payload the kinds of its application
    LEND = 2  # (router) argument holds LendFlag bits, payload the bytes read so far
    BACK = 3  # (shard) argument is Keep, payload the bytes that follow the exchange
    RELEASE = 4  # (router) the connection is gone
    REFUSE = 5  # (shard) argument is RefuseReason, payload the bytes of the LEND
    DATA = 6  # (both) a part of the payload of the message that follows
    WISH_RELEASE = 8  # (shard) asks for a RELEASE of a parked copy; the router decides
    PACK = 7  # (both) payload holds the datagrams of other messages
    CLAIM = 9  # (shard) payload is a claim key, generation the number of the request
    CLAIMED = 10  # (router) the answer: argument is Claimed, slot the index of who holds it
    UNCLAIM = 11  # (shard) payload is a claim key that it gives up
    END_CLAIM = 12  # (shard) payload is a claim key that it keeps for what comes too late


_DATA: Final = int(Kind.DATA)  # naming an enum member costs 70 ns on Python 3.11


class LendFlag(enum.IntFlag):
    """Bits of a LEND's argument."""

    DESCRIPTOR = 1  # the connection's descriptor comes with this message
    LAST = 2  # the group was told to stop: the reply shall carry `Connection: close`
    FINAL = 4  # the router has looked the body's session up: serve it, refer it to nobody
    RESERVED = 8  # payload: a claim key first that is kept for this shard until the BACK


_RESERVED: Final = int(LendFlag.RESERVED)


class Keep(enum.IntEnum):
    """Whether the shard still holds its copy of the connection after a BACK."""

    LOST = 0
    KEPT = 1


class RefuseReason(enum.IntEnum):
    """Why a shard executed nothing of a LEND (lending rule 13)."""

    NO_DESCRIPTOR = 1
    NOT_PARKED = 2
    NOT_HELD = 3  # payload: the claim key of what the body names, then all bytes read (rule 14)


class Claimed(enum.IntEnum):
    """The answer to a CLAIM."""

    HELD = 0
    GRANTED = 1


class Message(NamedTuple):
    """One decoded message.

    Attributes:
        kind: What it says.
        argument: Flags, keep or reason, by kind.
        slot: Slot number, or a shard's index in a HELLO and a CLAIMED.
        head_bytes: In a LEND, how many bytes of the payload are the request head.
        generation: Which loan of the slot this belongs to, or the number of a claim's request.
        payload: All parts joined.
    """

    kind: int
    argument: int
    slot: int
    head_bytes: int
    generation: int
    payload: bytes


def request_in(lend: Message) -> bytes:
    """The bytes of the request in a LEND."""
    return lend.payload[CLAIM_KEY_BYTES:] if lend.argument & _RESERVED else lend.payload


def encode_whole(message: Message) -> bytes:
    """The one datagram of a message whose payload has at most `PAYLOAD_BYTES`."""
    kind, argument, slot, head_bytes, generation, payload = message
    return _HEADER.pack(kind, argument, slot, head_bytes, generation) + payload


def encode(message: Message) -> list[bytes]:
    """The datagrams of a message, in the order in which they must be sent."""
    kind, argument, slot, head_bytes, generation, payload = message
    if len(payload) <= PAYLOAD_BYTES:
        return [encode_whole(message)]
    part_header = _HEADER.pack(Kind.DATA, 0, slot, 0, generation)
    cut = (len(payload) - 1) // PAYLOAD_BYTES * PAYLOAD_BYTES
    parts = [part_header + payload[at : at + PAYLOAD_BYTES] for at in range(0, cut, PAYLOAD_BYTES)]
    parts.append(_HEADER.pack(kind, argument, slot, head_bytes, generation) + payload[cut:])
    return parts


def packed_bytes(datagram: bytes) -> int:
    """What a datagram takes of the `PAYLOAD_BYTES` of a PACK."""
    return _LENGTH_BYTES + len(datagram)


def pack(datagrams: Sequence[bytes]) -> bytes:
    """One datagram that holds those of several messages, in their order.

    Args:
        datagrams: Of messages that are one datagram each; their `packed_bytes` add up to at most
            `PAYLOAD_BYTES`.
    """
    parts = [_HEADER.pack(Kind.PACK, 0, 0, 0, 0)]
    for datagram in datagrams:
        parts += (_LENGTH.pack(len(datagram)), datagram)
    return b"".join(parts)


def unpack(payload: bytes) -> list[bytes]:
    """The datagrams in the payload of a PACK.

    Raises:
        LocalProtocolError: They do not fill the payload; the peer is broken.
    """
    datagrams = []
    end = 0
    while end < len(payload):
        start = end + _LENGTH_BYTES
        if start > len(payload):
            raise LocalProtocolError("a length in a pack is cut")
        end = start + _LENGTH.unpack_from(payload, start - _LENGTH_BYTES)[0]
        if end > len(payload):
            raise LocalProtocolError("a message in a pack is cut")
        datagrams.append(payload[start:end])
    return datagrams


class Decoder:
    """Joins the datagrams of one channel into messages."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], list[bytes]] = {}

    def feed(self, datagram: bytes) -> Message | None:
        """Take one datagram.

        Args:
            datagram: As received, whole.

        Returns:
            The message that it completes, or None after a part.

        Raises:
            LocalProtocolError: The datagram is shorter than a header; the peer is broken.
        """
        if len(datagram) < _HEADER_BYTES:
            raise LocalProtocolError(f"datagram of {len(datagram)} bytes is no message")
        kind, argument, slot, head_bytes, generation = _HEADER.unpack_from(datagram)
        payload = datagram[_HEADER_BYTES:]
        if kind == _DATA:
            self._parts.setdefault((slot, generation), []).append(payload)
            return None
        if self._parts:
            parts = self._parts.pop((slot, generation), None)
            if parts is not None:
                payload = b"".join((*parts, payload))
        return Message(kind, argument, slot, head_bytes, generation, payload)
