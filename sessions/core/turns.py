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
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from sessions.core.chat_request import ChatRequest, engine_body_of
from sessions.core.client_request import ClientRequest
from sessions.core.engine_errors import context_error_of
from sessions.core.events import events_of
from sessions.core.headers import EngineHeaders
from sessions.core.json_text import Json, JsonObject, render_json
from sessions.core.records import make_record
from sessions.core.replay_fields import take_replay
from sessions.core.sampled import Sampled, parse_sampled
from sessions.core.session import Session
from sessions.core.trajectory import Checkpoint, Plan
from sessions.engine.engine import Engine, EngineReply, EngineRequest
from sessions.errors import EngineReplyUnusableError, InternalError, RequestError
from sessions.replay.store import ReplayStore
from sessions.tokens.prompts import PromptBuilder

_log = logging.getLogger(__name__)

CHAT_PATH: Final = "/v1/chat/completions"

# Rendering and encoding more text than this leaves the loop: 16 KiB cost 1.3 ms, 1 MiB 110 ms
# (measured, with tiktoken).
_OFF_LOOP_BYTES: Final = 16384

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReply:
    """What the client of a turn gets.

    Attributes:
        engine: The engine's reply; its status and headers count, its body if it refused.
        body: The rendered turn, JSON or events; None if the engine refused.
        is_recorded: Whether the turn is part of the session now.
    """

    engine: EngineReply
    body: bytes | None
    is_recorded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    plan: Plan
    prompt_ids: list[int]
    template_kwargs: JsonObject
    engine_body: bytes


class TurnRunner:
    """See the module docstring; shared by all sessions, holds no state of any."""

    def __init__(
        self,
        *,
        engine: Engine,
        prompts: PromptBuilder,
        replay: ReplayStore,
        labels: EngineHeaders,
        routing_replay: bool,
    ) -> None:
        self._engine = engine
        self._prompts = prompts
        self._replay = replay
        self._labels = labels
        self._routing_replay = routing_replay

    async def run(self, session: Session, request: ClientRequest, chat: ChatRequest) -> TurnReply:
        """Run one turn.

        Args:
            session: The session; open when the turn began.
            request: The client's request.
            chat: Its body, parsed.

        Returns:
            The reply. Whatever is in it, the session is consistent.

        Raises:
            ClientVisibleError: The turn failed; nothing of it was recorded.
            asyncio.CancelledError: Likewise; the turn is noted as cancelled.
        """
        arrived = time.time()
        try:
            return await self._run(session, request, chat, arrived)
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
        self, session: Session, request: ClientRequest, chat: ChatRequest, arrived: float
    ) -> TurnReply:
        async with session.lock:
            session.check_open()
            prepared = await self._prepare(session, chat)
        reply = await self._engine.exchange(
            EngineRequest(
                method="POST",
                target=request.target_of(CHAT_PATH.encode()),
                headers=self._labels.request_headers_of(
                    request.headers, session.session_id, is_json=True
                ),
                body=prepared.engine_body,
                affinity=session.session_id,
            )
        )
        if reply.status != HTTPStatus.OK:
            overflow = context_error_of(reply.status, reply.body)
            if overflow is not None:
                raise overflow
            return TurnReply(engine=reply, body=None, is_recorded=False)
        sampled = parse_sampled(reply.body, prepared.prompt_ids)
        strict, blobs, body = _render(sampled, reply.body, chat)
        facts = {"request_timestamp": arrived, "method": "POST", "path": CHAT_PATH}
        async with session.lock:
            obstacle = _obstacle_to(session, prepared.plan)
            if obstacle:
                _log.info("turn not recorded session=%s reason=%s", session.session_id, obstacle)
                return TurnReply(engine=reply, body=body, is_recorded=False)
            record = make_record(
                facts={"timestamp": time.time(), **facts},
                request=prepared.engine_body,
                status=reply.status,
                raw=reply.body,
                strict=strict,
                blobs=blobs,
                keep=lambda blob: self._replay.put(session.session_id, blob),
            )
            plan = prepared.plan
            dropped = session.trajectory.commit(
                plan,
                sampled.message,
                Checkpoint(
                    token_ids=array("I", prepared.prompt_ids) + sampled.token_ids,
                    message_end=len(plan.stored) + len(plan.tail) + 1,
                    record=record,
                    tools=chat.tools,
                    template_kwargs=prepared.template_kwargs,
                ),
            )
        for checkpoint in dropped:
            self._replay.discard(session.session_id, checkpoint.record.blobs)
        return TurnReply(engine=reply, body=body, is_recorded=True)

    async def _prepare(self, session: Session, chat: ChatRequest) -> _Prepared:
        try:
            plan = session.trajectory.plan(chat.messages)
            size = len(render_json([plan.tail, chat.tools]))
            return await off_loop(size, lambda: self._build(plan, chat))
        except RecursionError as error:
            raise RequestError("the body is nested too deeply") from error

    def _build(self, plan: Plan, chat: ChatRequest) -> _Prepared:
        kwargs = self._prompts.template_kwargs_of(chat.template_kwargs)
        if plan.base is None:
            prompt = self._prompts.first(plan.tail, chat.tools, chat.template_kwargs)
        else:
            prompt = self._prompts.next(
                plan.base.token_ids,
                plan.stored[-1],
                plan.tail,
                chat.tools,
                chat.template_kwargs,
                offset=len(plan.stored),
            )
            self._check_prefix(plan.base.token_ids, prompt)
        body = engine_body_of(
            chat, input_ids=prompt, template_kwargs=kwargs, routing_replay=self._routing_replay
        )
        return _Prepared(plan=plan, prompt_ids=prompt, template_kwargs=kwargs, engine_body=body)

    def _check_prefix(self, checkpoint: array[int], prompt: list[int]) -> None:
        """The promise of the product, checked on every turn: nothing sampled is changed."""
        kept = len(checkpoint) - self._prompts.family.max_trim_count
        if array("I", prompt[:kept]) != checkpoint[:kept]:
            raise InternalError("the new prompt does not begin with the tokens of the last turn")


def _obstacle_to(session: Session, plan: Plan) -> str:
    """Why a turn cannot be committed, in a word for the log; empty if it can."""
    if session.is_ended:
        return "ended"
    return "" if session.trajectory.can_commit(plan) else "overtaken"


async def off_loop(text_bytes: int, work: Callable[[], _T]) -> _T:
    """Do work on text here if it is little, in a thread if it would hold up the loop."""
    return work() if text_bytes <= _OFF_LOOP_BYTES else await asyncio.to_thread(work)


def _render(sampled: Sampled, raw: bytes, chat: ChatRequest) -> tuple[bytes, list[str], bytes]:
    """Everything that could fail, before anything is committed.

    Returns:
        (the reply as strict JSON with everything in it, its replay blobs, what the client gets);
        the parsed reply has lost what the client does not get.
    """
    reply = sampled.reply
    try:
        strict = raw if sampled.is_strict else render_json(reply)
        blobs = take_replay(reply)
        if not chat.asks("return_prompt_token_ids"):
            # We asked for it to compare; it is as long as the history.
            _drop_prompt_ids(reply)
        if chat.wants_stream:
            logprobs = chat.asks("logprobs")
            events = events_of(reply, has_usage=chat.wants_usage, has_logprobs=logprobs)
            return strict, blobs, b"".join(events)
        return strict, blobs, render_json(reply)
    except (RecursionError, ValueError) as error:
        raise EngineReplyUnusableError(f"the engine's reply cannot be rendered: {error}") from error


def _drop_prompt_ids(reply: JsonObject) -> None:
    choices: Json = reply["choices"]
    for holder in (reply, *choices):
        if isinstance(holder, dict):
            holder.pop("prompt_token_ids", None)
