"""One reply from its first byte to its last: head, framing, coding, and the sink it goes to.

`receive` lends the reader a piece of the connection's buffer. What of it is body goes to the sink
at once, as views; only what a sink has no room for is copied, until `go_on`. Any way the bytes are
cut gives the same reply.

Must not know sockets, clocks, or what the body says.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import enum
from typing import Final

from sessions.engine.codings import Decoder, decoder_of
from sessions.engine.engine import EngineReply, OpenSink, ReplySink
from sessions.engine.framing import BodyEnd, Framing, framing_of
from sessions.engine.reply_head import ReplyHead, ReplyHeadReader
from sessions.errors.engine import EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError

_NOTHING: Final = memoryview(b"")


class Progress(enum.Enum):
    """What a reply needs next."""

    MORE = enum.auto()  # bytes of the connection
    ROOM = enum.auto()  # room in the sink
    DONE = enum.auto()  # nothing: it is whole


class ReplyReader:
    """See the module docstring; after an error it is of no more use.

    Attributes:
        sink: Where the body goes; known with the head.
        has_begun: Whether a byte of the reply was seen.
    """

    def __init__(self, *, is_head_request: bool, open_sink: OpenSink | None = None) -> None:
        """Begin.

        Args:
            is_head_request: The request's method is HEAD, so the reply has no body.
            open_sink: Asked once, with the final head.
        """
        self._head_reader = ReplyHeadReader(is_head_request=is_head_request)
        self._open_sink = open_sink
        self._collected = bytearray()
        self.sink: ReplySink | None = None
        self.has_begun = False
        self._head: ReplyHead | None = None
        self._framing: Framing = framing_of(BodyEnd.NONE, 0)
        self._decoder: Decoder | None = None
        self._data = _NOTHING  # lent, or kept while the sink has no room
        self._index = 0  # how much of it was walked over
        self._has_ended = False  # the connection has
        self._has_surplus = False
        self._progress = Progress.MORE

    @property
    def allows_reuse(self) -> bool:
        """Whether the connection can carry another exchange after this one."""
        head = self._head
        is_done = self._progress is Progress.DONE
        return is_done and head is not None and head.keep_alive and not self._has_surplus

    def receive(self, data: memoryview) -> Progress:
        """Take the connection's next bytes.

        Args:
            data: Not empty; shared only during the call.

        Returns:
            What is needed now. After `ROOM`, `go_on` comes before more bytes are asked for; those
            that come all the same are kept.

        Raises:
            EngineUnreachableError: The reply breaks HTTP.
            EngineReplyUnusableError: Its coding cannot be undone.
            Exception: What the sink or its opener raised.
        """
        if self._progress is not Progress.MORE:
            if self._progress is Progress.ROOM:
                self._data = memoryview(bytes(self._data[self._index :]) + data)
                self._index = 0
            else:
                self._has_surplus = True
            return self._progress
        self._data, self._index = data, 0
        if self._head is None:
            self.has_begun = True
            found = self._head_reader.feed(data)
            if found is None:
                return Progress.MORE
            head, self._index = found
            self._begin_body(head)
        return self._walk()

    def go_on(self) -> Progress:
        """The sink has room again.

        Raises:
            Exception: As for `receive`.
        """
        if self._progress is not Progress.ROOM:
            raise LocalProtocolError(f"go_on in progress {self._progress.name}")
        return self._walk()

    def end(self) -> Progress:
        """The connection ended in good order; ignored after the whole reply.

        Raises:
            EngineUnreachableError: The reply broke off.
            EngineReplyUnusableError: Its coding did.
        """
        if self._progress is Progress.DONE:
            self._has_surplus = True  # nothing can follow on an ended connection
            return self._progress
        self._has_ended = True
        if self._progress is Progress.ROOM:
            return self._progress
        if self._head is None:
            raise EngineUnreachableError(
                "the engine broke off before the end of its reply's head"
                if self.has_begun
                else "the engine broke off without a reply"
            )
        return self._walk()

    def reply(self) -> EngineReply:
        """The whole reply, once."""
        head = self._head
        if head is None or self._progress is not Progress.DONE:
            raise LocalProtocolError("the reply is not whole")
        return EngineReply(
            status=head.status,
            headers=head.headers,
            body=bytes(self._collected),
            is_sunk=self.sink is not None,
        )

    def _begin_body(self, head: ReplyHead) -> None:
        self._head = head
        self._framing = framing_of(head.body_end, head.content_length)
        if not self._framing.is_done:
            codings = [value for name, value in head.headers if name == b"content-encoding"]
            self._decoder = decoder_of(b",".join(codings).decode("latin-1"))
        if self._open_sink is not None:
            self.sink = self._open_sink(head.status, head.headers)

    def _walk(self) -> Progress:
        """Hand over what there is, as far as the sink has room."""
        self._progress = self._hand_over()
        if self._progress is Progress.ROOM:
            self._data = memoryview(bytes(self._data[self._index :]))
            self._index = 0
            if self._decoder is not None:
                self._decoder.keep_rest()
        else:
            self._has_surplus = self._index < len(self._data)
            self._data = _NOTHING
        return self._progress

    def _hand_over(self) -> Progress:
        while True:
            piece = self._decoder.next_piece() if self._decoder is not None else _NOTHING
            if not piece:
                if self._framing.is_done or self._index >= len(self._data):
                    break
                run, self._index = self._framing.step(self._data, self._index)
                if not run:
                    continue
                if self._decoder is not None:
                    self._decoder.feed(run)
                    continue
                piece = run
            # After the last piece nobody needs room.
            if not self._take(piece) and (self._decoder or not self._framing.is_done):
                return Progress.ROOM
        if self._has_ended:
            self._framing.end()
        if not self._framing.is_done:
            return Progress.MORE
        if self._decoder is not None:
            self._decoder.end()
        return Progress.DONE

    def _take(self, piece: memoryview) -> bool:
        if self.sink is not None:
            return self.sink.feed(piece)
        self._collected += piece
        return True
