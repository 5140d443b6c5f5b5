"""One turn: prepare it, let the engine sample, check, render, commit.

The order is the contract. Preparing changes nothing. A reply that cannot be used or rendered is
never committed, and nothing is sent before the commit, so that a client never holds a reply that
the session has forgotten, nor the other way round. Session state is touched under its lock, twice
and briefly; the engine is awaited without it.

Must not know how the reply is delivered, nor whether a client still waits.

Spec: docs/sessions.md#turns
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.dialects.choice import DialectChoice
from sessions.core.engine_replies.engine_errors import context_error_of
from sessions.core.engine_replies.prompt_echo import PROMPT_IDS, SENT_IDS, holders_of
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.engine_replies.taken_reply import TakenReply
from sessions.core.engine_replies.turn_facts import ROUTED_EXPERTS, TurnFacts, facts_of
from sessions.core.forms.chat_form import ChatForm
from sessions.core.forms.chat_request import ChatRequest
from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.http_exchange.client_request import ClientRequest
from sessions.core.http_exchange.headers import EngineHeaders
from sessions.core.open_sessions.session import Session
from sessions.core.records.record import make_record
from sessions.core.texts.json_text import JsonObject, render_json
from sessions.core.texts.shared_ids import SharedIds
from sessions.core.texts.shared_text import with_known_parts
from sessions.core.turns.asking import Asking
from sessions.core.turns.turn_preparer import PreparedTurn, TurnPreparer
from sessions.engine.engine import EngineRequest
from sessions.errors.engine import EngineReplyUnusableError
from sessions.replay.blobs import ReplayStore

_log = logging.getLogger(__name__)

CHAT_PATH: Final = "/v1/chat/completions"
# The model was cut off: by a limit of tokens, or by somebody else (a weight update, for example).
PARTIAL_REASONS: Final = ("length", "abort")


class TurnRunner:
    """See the module docstring; shared by all sessions, holds no state of any."""

    def __init__(
        self,
        *,
        asking: Asking,
        dialects: DialectChoice,
        preparer: TurnPreparer,
        replay: ReplayStore,
        labels: EngineHeaders,
        replay_layers: int,
    ) -> None:
        self._asking = asking
        self._dialects = dialects
        self._preparer = preparer
        self._replay = replay
        self._labels = labels
        self._replay_layers = replay_layers

    async def run(
        self, session: Session, request: ClientRequest, chat: ChatRequest, form: ChatForm
    ) -> TurnReply:
        """Run one turn.

        Args:
            session: The session; open when the turn began.
            request: The client's request.
            chat: Its body, parsed.
            form: In which the reply is told.

        Returns:
            The reply. Whatever is in it, the session is consistent.

        Raises:
            ClientVisibleError: The turn failed; nothing of it was recorded.
            asyncio.CancelledError: Likewise; the turn is noted as cancelled.
        """
        arrived = time.time()
        try:
            return await self._run(session, request, chat, form, arrived)
        except asyncio.CancelledError:
            session.cancelled_turns.append(
                {
                    "timestamp": time.time(),
                    "request_timestamp": arrived,
                    "method": request.method,
                    "path": CHAT_PATH,
                }
            )
            raise

    async def _run(
        self,
        session: Session,
        request: ClientRequest,
        chat: ChatRequest,
        form: ChatForm,
        arrived: float,
    ) -> TurnReply:
        dialect = await self._dialects.find(request.headers)
        async with session.lock:
            prepared = await self._preparer.prepare(session.history, chat, dialect)
            session.check_open()  # the lock and a long prompt take their time
            session.limits.check_turn(prepared.plan, len(prepared.prompt_ids))
        asked = self._asking.ask(
            session.session_id,
            EngineRequest(
                method="POST",
                target=request.target_of(CHAT_PATH.encode()),
                headers=self._labels.request_headers_of(
                    request.headers, session.session_id, is_json=True
                ),
                body=prepared.engine_body.whole(),
                affinity=session.session_id,
            ),
            prepared.prompt_text,
            None if prepared.plan.base is None else prepared.plan.base.facts,
        )
        async with asked as received:
            if received.taken is None:
                overflow = context_error_of(received.engine.status, received.engine.body, chat.body)
                if overflow is not None:
                    raise overflow
                return TurnReply(engine=received.engine, body=None)
            sampled = self._dialects.read(
                dialect, received.taken.value, received.text, prepared.prompt_ids
            )
            body = _render(sampled, chat, prepared, form)
            reply = TurnReply(engine=received.engine, body=body)
            async with session.lock:
                obstacle = _obstacle_to(session, prepared)
                if not obstacle:
                    turn, former_heads = self._commit(
                        session, chat, prepared, (received.taken, sampled), arrived
                    )
                    reply = replace(reply, turn=turn, former_heads=former_heads)
                    received.is_kept = True
        if obstacle:
            _log.info("turn not recorded session=%s reason=%s", session.session_id, obstacle)
        return reply

    def _commit(
        self,
        session: Session,
        chat: ChatRequest,
        prepared: PreparedTurn,
        reply: tuple[TakenReply, Sampled],
        arrived: float,
    ) -> tuple[Checkpoint, tuple[Checkpoint, ...]]:
        """Append the turn, and forget those that it rolls back. Nothing here can fail.

        Returns:
            (turn, checkpoints that are no longer the newest of a branch).
        """
        plan, now = prepared.plan, time.time()
        taken, sampled = reply
        facts = facts_of(
            sampled,
            prompt_count=len(prepared.prompt_ids),
            requested_at=arrived,
            committed_at=now,
            replay=taken.replay,
            starts={ROUTED_EXPERTS: prepared.replay_start},
            layers=self._replay_layers,
            before=plan.base.facts if plan.base is not None else None,
        )
        told = {"timestamp": now, "request_timestamp": arrived, "method": "POST", "path": CHAT_PATH}
        told |= _told_of(facts) | session.history.label_of(plan)
        if facts.replay_error:
            told["replay_error"] = facts.replay_error
            _log.warning(
                "replay does not fit session=%s reason=%s", session.session_id, facts.replay_error
            )
        # Most turns have the tools of the turn before, and those are long.
        like = plan.base or plan.head
        request = with_known_parts(
            prepared.engine_body.parts, like.record.request if like is not None else ()
        )
        record = make_record(facts=told, request=request, status=HTTPStatus.OK, reply=taken)
        token_ids = prepared.prompt_ids + sampled.token_ids
        base_ids = plan.base.ids if plan.base is not None else None
        turn = Checkpoint(
            ids=base_ids.followed(token_ids) if base_ids is not None else SharedIds(token_ids),
            ids_text=prepared.prompt_text.followed(token_ids, len(prepared.prompt_ids)),
            messages_text=prepared.engine_body.messages,
            message_end=len(plan.stored) + len(plan.tail) + 1,
            record=record,
            facts=facts,
            tools=_shared_tools(chat, like),
            template_kwargs=prepared.template_kwargs,
            response_id=_id_in(sampled.reply),
        )
        dropped = session.history.commit(plan, sampled.message, turn)
        session.limits.count(plan, turn, dropped)
        for checkpoint in dropped:
            self._replay.discard(session.session_id, checkpoint.record.blobs)
        return turn, (*dropped, *([plan.base] if plan.base is not None else []))


def _obstacle_to(session: Session, prepared: PreparedTurn) -> str:
    """Why a turn cannot be committed, in a word for the log; empty if it can."""
    if session.is_ended:
        return "ended"
    if not session.limits.has_room(prepared.plan, len(prepared.prompt_ids)):
        return "full"
    if session.history.can_commit(prepared.plan):
        return ""
    return "full" if session.history.is_tree else "overtaken"


def _shared_tools(chat: ChatRequest, like: Checkpoint | None) -> list[JsonObject] | None:
    """A turn's tools, as the object that another turn has if they are its tools to the letter."""
    if like is not None and render_json(like.tools) == render_json(chat.tools):
        return like.tools
    return chat.tools


def _told_of(facts: TurnFacts) -> JsonObject:
    """What a record says of how its turn was sampled; what is not known is absent."""
    told: JsonObject = {}
    if facts.finish_reason:
        told["finish_reason"] = facts.finish_reason
    if facts.finish_reason in PARTIAL_REASONS:
        told["partial"] = True
    if facts.weight_version:
        told["weight_version"] = facts.weight_version
    return told


def _id_in(reply: JsonObject) -> str:
    value = reply.get("id")
    return value if isinstance(value, str) else ""


def _render(sampled: Sampled, chat: ChatRequest, prepared: PreparedTurn, form: ChatForm) -> bytes:
    """What the client gets; everything that could fail, before anything is committed.

    The parsed reply loses what the client does not get.
    """
    reply = sampled.reply
    try:
        for holder in holders_of(reply):
            if not prepared.dialect.wants_prompt_ids(chat.body):
                # We asked for it to compare; it is as long as the history.
                holder.pop(PROMPT_IDS, None)
            elif holder.get(PROMPT_IDS) is SENT_IDS:
                holder[PROMPT_IDS] = prepared.prompt_ids.tolist()
        # Not every engine counts the prompt, and it is the one that was sent.
        counted = replace(sampled, prompt_count=len(prepared.prompt_ids))
        return form.render(counted, chat)
    except (RecursionError, ValueError) as error:
        raise EngineReplyUnusableError(f"the engine's reply cannot be rendered: {error}") from error
