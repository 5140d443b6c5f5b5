"""Channel messages: what router and shard say to each other, as bytes.

A message is one SEQPACKET datagram: a fixed header, then a payload. It is at most `MAX_BYTES`; a
longer payload travels as DATA parts of the same slot and generation before the message that
closes them (lending rule 7). `encode` makes the datagrams, a `Decoder` joins them again. Nothing
here touches a socket; descriptors travel beside the last datagram and are the channel's business.

Spec: docs/lending.md#messages
"""

from __future__ import annotations

import enum
import struct
from typing import Final, NamedTuple

from sessions.errors import LocalProtocolError

_HEADER: Final = struct.Struct("<BBxxIIxxxxQ")  # kind, argument, slot, head length, generation
MAX_BYTES: Final = 32768
PAYLOAD_BYTES: Final = MAX_BYTES - _HEADER.size


class Kind(enum.IntEnum):
    """What a message says; the sender stands in brackets."""

    HELLO = 1  # (shard) slot holds the shard's index
    LEND = 2  # (router) argument holds LendFlag bits, payload the bytes read so far
    BACK = 3  # (shard) argument is Keep, payload the bytes that follow the exchange
    RELEASE = 4  # (router) the connection is gone
    REFUSE = 5  # (shard) argument is RefuseReason, payload the bytes of the LEND
    DATA = 6  # (both) a part of the payload of the message that follows


class LendFlag(enum.IntFlag):
    """Bits of a LEND's argument."""

    DESCRIPTOR = 1  # the connection's descriptor comes with this message


class Keep(enum.IntEnum):
    """Whether the shard still holds its copy of the connection after a BACK."""

    LOST = 0
    KEPT = 1


class RefuseReason(enum.IntEnum):
    """Why a shard executed nothing of a LEND (lending rule 13)."""

    NO_DESCRIPTOR = 1
    NOT_PARKED = 2


class Message(NamedTuple):
    """One decoded message.

    Attributes:
        kind: What it says.
        argument: Flags, keep or reason, by kind.
        slot: Slot number, or the shard's index in a HELLO.
        head_bytes: In a LEND, how many bytes of the payload are the request head.
        generation: Which loan of the slot this belongs to.
        payload: All parts joined.
    """

    kind: int
    argument: int
    slot: int
    head_bytes: int
    generation: int
    payload: bytes


def encode(message: Message) -> list[bytes]:
    """The datagrams of a message, in the order in which they must be sent."""
    kind, argument, slot, head_bytes, generation, payload = message
    if len(payload) <= PAYLOAD_BYTES:
        return [_HEADER.pack(kind, argument, slot, head_bytes, generation) + payload]
    part_header = _HEADER.pack(Kind.DATA, 0, slot, 0, generation)
    cut = (len(payload) - 1) // PAYLOAD_BYTES * PAYLOAD_BYTES
    parts = [part_header + payload[at : at + PAYLOAD_BYTES] for at in range(0, cut, PAYLOAD_BYTES)]
    parts.append(_HEADER.pack(kind, argument, slot, head_bytes, generation) + payload[cut:])
    return parts


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
        if len(datagram) < _HEADER.size:
            raise LocalProtocolError(f"datagram of {len(datagram)} bytes is no message")
        kind, argument, slot, head_bytes, generation = _HEADER.unpack_from(datagram)
        payload = datagram[_HEADER.size :]
        if kind == Kind.DATA:
            self._parts.setdefault((slot, generation), []).append(payload)
            return None
        if self._parts:
            parts = self._parts.pop((slot, generation), None)
            if parts is not None:
                payload = b"".join((*parts, payload))
        return Message(kind, argument, slot, head_bytes, generation, payload)
