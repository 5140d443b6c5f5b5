"""Asking the engine for a turn: the reply is received, taken apart and read.

The blobs of a reply lie in the store before anybody knows whether the turn can be committed. So
they are lent to the caller for as long as it works on the reply, and forgotten at the end unless
it says that it keeps them: nothing of a turn that failed, was cancelled or came too late stays.

Must not know sessions or what a turn is.

Spec: docs/replay.md#intake
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

from sessions.core.engine_replies.sampled import shown_text
from sessions.core.engine_replies.taken_reply import TakenReply, read_taken
from sessions.core.engine_replies.turn_facts import TurnFacts, blobs_of
from sessions.core.texts.shared_text import IdsText
from sessions.engine.engine import Engine, EngineReply, EngineRequest, Headers
from sessions.errors.engine import EngineReplyUnusableError
from sessions.replay.blobs import ReplayStore
from sessions.replay.budget import IngestBudget
from sessions.replay.intake import Intake
from sessions.replay.taken import TakenText


@dataclass(slots=True, kw_only=True)
class Received:
    """One reply of the engine.

    Attributes:
        engine: Status and headers; the body only if the status is not 200.
        taken: The body of a 200 as JSON; None for any other status.
        text: Its text with placeholders, for messages.
        is_kept: Whether its blobs stay in the store.
    """

    engine: EngineReply
    taken: TakenReply | None = None
    text: bytes = b""
    is_kept: bool = False


class Asking:
    """See the module docstring; shared by all sessions, holds no state of any.

    Attributes:
        received_bytes: Of the bodies of all replies with status 200 that ended, well or not.
    """

    def __init__(self, *, engine: Engine, replay: ReplayStore, budget: IngestBudget) -> None:
        self.received_bytes = 0
        self._engine = engine
        self._replay = replay
        self._budget = budget

    @asynccontextmanager
    async def ask(
        self,
        session_id: str,
        request: EngineRequest,
        prompt: IdsText,
        base: TurnFacts | None = None,
    ) -> AsyncIterator[Received]:
        """Send a request and read the reply.

        Args:
            session_id: Whose blobs the reply's are.
            request: The request.
            prompt: The ids that it sends.
            base: The turn that it goes on from; the reply's blobs are compared with those of it.

        Yields:
            The reply. Set `is_kept` to keep its blobs.

        Raises:
            ClientVisibleError: No reply, or none that can be read; see `Engine.exchange`.
            ReplayStoreError: The store failed.
        """
        intake: Intake | None = None

        def open_sink(status: int, _headers: Headers) -> Intake | None:
            nonlocal intake
            if status == HTTPStatus.OK:
                after = {} if base is None else blobs_of(base)
                intake = Intake(self._replay, session_id, self._budget, after)
            return intake

        taken: TakenText | None = None
        received: Received | None = None
        try:
            reply = await self._engine.exchange(request, open_sink)
            received = Received(engine=reply)
            if intake is not None:
                taken = await intake.finish()
                received.text = taken.text
                received.taken = await _read(taken, prompt)
            yield received
        finally:
            if intake is not None:
                self.received_bytes += intake.fed_bytes
                intake.abort()
            if taken is not None and (received is None or not received.is_kept):
                self._replay.discard(session_id, [blob.blob for blob in taken.blobs])


async def _read(taken: TakenText, prompt: IdsText) -> TakenReply:
    try:
        return await read_taken(taken, prompt)
    except ValueError as error:
        raise EngineReplyUnusableError(
            f"the engine's reply is not JSON ({error}): {shown_text(taken.text)}"
        ) from error
    except RecursionError as error:
        raise EngineReplyUnusableError("the engine's reply is nested too deeply") from error
