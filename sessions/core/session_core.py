"""SessionCore: every operation on sessions, from request primitives to a response.

It is the same in every topology. It owns the turns that run: a turn goes on when its client is
gone, and `close` ends those that are left.

Must not know processes, sockets or servers.

Spec: docs/sessions.md
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from sessions.core.attempts.retry_marks import marks_of
from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.attempts.turn_wait import TurnWait
from sessions.core.dialects.choice import DialectChoice
from sessions.core.forms.chat_completions import CHAT_COMPLETIONS
from sessions.core.forms.chat_form import ChatForm
from sessions.core.forms.chat_request import ChatRequest
from sessions.core.forms.sampling import with_sampling
from sessions.core.http_exchange.client_request import ClientRequest
from sessions.core.http_exchange.headers import EngineHeaders, reply_headers_of
from sessions.core.http_exchange.replies import (
    JSON_TYPE,
    STREAM_HEADERS,
    UNRECORDED,
    json_reply_of,
    passed_on,
    reply_of,
)
from sessions.core.messages_api.request import parse_messages_request
from sessions.core.open_sessions.registry import SessionRegistry
from sessions.core.open_sessions.replay_budget import ReplayBudget
from sessions.core.open_sessions.session import Session
from sessions.core.open_sessions.session_metadata import SessionMetadata
from sessions.core.open_sessions.session_options import (
    DEFAULT_OPTIONS,
    SessionOptions,
    parse_session_options,
)
from sessions.core.records.record_query import parse_record_query
from sessions.core.records.record_reply import records_reply_of
from sessions.core.records.record_stream import pin
from sessions.core.records.turnstile import Turnstile
from sessions.core.samples.default_hooks import DEFAULT_HOOKS
from sessions.core.samples.hooks import SampleHooks
from sessions.core.samples.samples_reply import SampleWork, blobs_in, samples_reply_of
from sessions.core.samples.samples_request import parse_samples_request
from sessions.core.texts.json_text import Json, JsonObject, parse_engine_json
from sessions.core.texts.off_loop import off_loop
from sessions.core.turns.asking import Asking
from sessions.core.turns.running_turns import RunningTurns
from sessions.core.turns.turn_preparer import ReplayRules, TurnPreparer
from sessions.core.turns.turn_runner import TurnRunner
from sessions.core.turns.turn_stream import TurnStream
from sessions.engine.engine import Engine, EngineReply, EngineRequest
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.engine import EngineReplyUnusableError
from sessions.replay.blobs import ReplayStore
from sessions.replay.budget import IngestBudget
from sessions.tokens.prompts import PromptBuilder

_log = logging.getLogger(__name__)

# Nobody reads it: the client closed its side (the number is nginx's).
_CLIENT_GONE: Final = 499
_MODELS: Final = b"/v1/models"
# Guesses: expiry is no clockwork, and a sweep costs nothing when nothing is idle.
_EXPIRY_PERIOD_S: Final = 30.0
_EXPIRY_PERIOD_MIN_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRules:
    """What the settings decide for the core.

    Attributes:
        keepalive_s: Seconds of waiting before the first and between two comments of a stream.
        cancel_on_disconnect: A client that hangs up takes its turn along.
        replay: What is asked for of routed experts.
        replay_budget_bytes: Stored replay from which on no session is opened.
        ingest_budget_bytes: Bytes of replies in flight from which on others wait.
        session: What a session is opened with unless its client says otherwise.
        hooks: Choose and finish samples.
    """

    keepalive_s: float
    cancel_on_disconnect: bool
    replay: ReplayRules
    replay_budget_bytes: int
    ingest_budget_bytes: int
    session: SessionOptions = DEFAULT_OPTIONS
    hooks: SampleHooks = DEFAULT_HOOKS


class SessionCore:
    """See the module docstring.

    Attributes:
        turns: Those that run, and how others ended.
        ingest: What replies in flight hold.
        asking: Asks the engine for them.
    """

    def __init__(
        self,
        *,
        registry: SessionRegistry,
        engine: Engine,
        prompts: PromptBuilder,
        replay: ReplayStore,
        labels: EngineHeaders,
        dialects: DialectChoice,
        key_of: Callable[[str], str],
        rules: CoreRules,
    ) -> None:
        """Put the parts together; nothing runs yet.

        Args:
            registry: The sessions.
            engine: Where turns are sampled; closed by its owner after this core.
            prompts: Makes prompts.
            replay: Keeps replay blobs.
            labels: How requests to the engine are labelled.
            dialects: What the engine speaks.
            key_of: The session key of an id.
            rules: What the settings decide.
        """
        self._registry = registry
        self._engine = engine
        self._prompts = prompts
        self._replay = replay
        self._labels = labels
        self._key_of = key_of
        self._rules = rules
        self._turnstile = Turnstile()
        self.turns = RunningTurns()
        self._metadata = SessionMetadata(prompts)
        self._samples = SampleWork(prompts=prompts, hooks=rules.hooks, turnstile=self._turnstile)
        self.ingest = IngestBudget(rules.ingest_budget_bytes)
        self._replay_budget = ReplayBudget(replay, rules.replay_budget_bytes)
        self.asking = Asking(engine=engine, replay=replay, budget=self.ingest)
        self._runner = TurnRunner(
            asking=self.asking,
            dialects=dialects,
            preparer=TurnPreparer(prompts=prompts, rules=rules.replay),
            replay=replay,
            labels=labels,
            replay_layers=rules.replay.layers,
        )

    @property
    def ended_sessions(self) -> int:
        """Sessions that were deleted or expired, since the start."""
        return self._registry.ended_count

    def check_known(self, session_id: str) -> None:
        """Refuse a session that is not open, before anything of a request is read.

        Raises:
            GoneSessionError: It ended.
            UnknownSessionError: There was none.
        """
        self._registry.find(session_id)

    def create(self, origin: str, body: bytes = b"") -> Response:
        """Open a session.

        Args:
            origin: Under which URL the client reaches us, without a slash at the end.
            body: What the session shall be like; may be empty.

        Raises:
            RequestError: The body is malformed.
            OverloadedError: Too much replay is stored.
        """
        options = parse_session_options(body, self._rules.session)
        self._replay_budget.check_create()
        session_id = self._registry.create_session(options=options).session_id
        base = f"{origin}/sessions/{session_id}"
        return json_reply_of(
            {
                "session_id": session_id,
                "base_url": f"{base}/v1",
                "anthropic_base_url": base,
                "session_key": self._key_of(session_id),
            }
        )

    async def chat(
        self, session_id: str, request: ClientRequest, form: ChatForm = CHAT_COMPLETIONS
    ) -> Response:
        """Run one turn; its reply, whole or as a stream.

        Args:
            session_id: The session's id.
            request: The request.
            form: In which the client speaks.

        Raises:
            ClientVisibleError: The turn failed and nothing of it was recorded.
        """
        session = self._registry.find(session_id)
        try:
            return await self._chat(session, request, form)
        except ClientVisibleError as error:
            error.is_unrecorded_turn = True
            raise

    async def count_tokens(self, session_id: str, request: ClientRequest) -> Response:
        """How many tokens a request of the Messages API is, as a first turn; nothing is changed.

        Raises:
            RequestError: No prompt can be made of it.
        """
        self._registry.find(session_id)
        chat = parse_messages_request(request.body, is_counted=True)
        ids = await off_loop(
            len(request.body),
            lambda: self._prompts.first(chat.messages, chat.tools, chat.template_kwargs),
        )
        return json_reply_of({"input_tokens": len(ids)})

    async def read(self, session_id: str, request: ClientRequest) -> Response:
        """The records and metadata of a session, or what the query chooses of them.

        Args:
            session_id: Its id.
            request: Its query chooses; its conditions and its range count.

        Raises:
            ClientVisibleError: There is no such session, the query is malformed, a condition does
                not hold, or the store failed.
        """
        session = self._registry.find(session_id)
        query = parse_record_query(request.query)
        history = session.history
        records, nodes = query.chosen(history.records), history.nodes
        with pin(blob for record in records for blob in record.blobs_for(query)) as pins:
            metadata: JsonObject | None = None
            if query.has_metadata:
                metadata = await self._metadata.read(session, nodes)
            return await records_reply_of(
                session_id,
                records,
                metadata,
                query=query,
                request=request,
                pins=pins,
                turnstile=self._turnstile,
            )

    async def samples(self, session_id: str, request: ClientRequest) -> Response:
        """A session as training samples; it stays as it is.

        Args:
            session_id: Its id.
            request: Its body says what is wanted.

        Raises:
            ClientVisibleError: There is no such session, the body is malformed, no sample can be
                made, or the store failed.
        """
        session = self._registry.find(session_id)
        wanted = parse_samples_request(request.body)
        history = session.history
        nodes = history.nodes
        with pin(blobs_in(nodes)) as pins:
            metadata = await self._metadata.read(session, nodes)
            return await samples_reply_of(
                nodes,
                metadata,
                wanted,
                work=self._samples,
                mismatch_of=self._metadata.teller_of(session),
                pins=pins,
            )

    def delete(self, session_id: str) -> Response:
        """End a session and free what it holds; waits for nothing."""
        self._free(self._registry.end(session_id, "was deleted"))
        return reply_of(HTTPStatus.NO_CONTENT)

    async def proxy(self, session_id: str, path: bytes, request: ClientRequest) -> Response:
        """Pass a request under a session on to the engine.

        Args:
            session_id: A known session's id.
            path: The raw path below the session, with its leading slash.
            request: The request.
        """
        self._registry.find(session_id)
        return passed_on(await self._pass(path, request, session_id))

    async def models(self, session_id: str, request: ClientRequest) -> Response:
        """The engine's models as OpenAI lists them.

        Args:
            session_id: A known session's id, or "" for a request of no session.
            request: The request.
        """
        if session_id:
            self._registry.find(session_id)
        reply = await self._pass(_MODELS, request, session_id)
        if reply.status != HTTPStatus.OK:
            return passed_on(reply)
        try:
            listed, _ = parse_engine_json(reply.body)
        except ValueError as error:
            raise EngineReplyUnusableError(f"the engine's models are not JSON: {error}") from error
        models = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(models, list) or not all(map(_is_model, models)):
            raise EngineReplyUnusableError("the engine lists no models at /v1/models")
        defaults = {"object": "model", "created": 0, "owned_by": "engine"}
        return json_reply_of({"object": "list", "data": [{**defaults, **m} for m in models]})

    async def expire_idle(self, ttl_s: float) -> None:
        """End sessions that nobody used for so long, again and again; until cancelled.

        Args:
            ttl_s: Seconds without a request and without a turn in flight.
        """
        while True:
            await asyncio.sleep(max(_EXPIRY_PERIOD_MIN_S, min(_EXPIRY_PERIOD_S, ttl_s / 4)))
            ended = self._registry.end_idle(ttl_s)
            for session in ended:
                self._free(session)
            if ended:
                _log.info("sessions expired count=%s ttl_s=%g", len(ended), ttl_s)

    async def close(self) -> None:
        """End the turns that are left."""
        self._samples.close()
        await self.turns.close()

    def _free(self, session: Session) -> None:
        """Let go of what others hold for a session that ended."""
        self._replay.drop_session(session.session_id)
        self._engine.forget(session.session_id)

    async def _chat(self, session: Session, request: ClientRequest, form: ChatForm) -> Response:
        chat = _enforced(form.parse(request.body), session.options)
        marks = marks_of(request.headers, request.body, form.name)
        turn = session.requests.find(marks)
        if isinstance(turn, TurnReply):
            return _turn_reply_of(turn, form, is_stream=chat.wants_stream)
        if turn is None:
            self._replay_budget.check_turn()
            turn = self.turns.start(session, self._runner.run(session, request, chat, form))
            session.requests.begin(marks, turn)
            # A session idles from the end of its last turn on, not from that turn's beginning.
            turn.task.add_done_callback(lambda _: self._registry.touch(session))
        waiting = TurnWait(turn, request.wait_gone if self._rules.cancel_on_disconnect else None)
        keepalive_s = self._rules.keepalive_s
        async with waiting:
            if not await waiting.wait(keepalive_s if chat.wants_stream else None):
                return reply_of(_CLIENT_GONE)
            if waiting.is_done:
                return _turn_reply_of(waiting.result(), form, is_stream=chat.wants_stream)
        return TurnStream(waiting, form, keepalive_s=keepalive_s)

    async def _pass(self, path: bytes, request: ClientRequest, session_id: str) -> EngineReply:
        return await self._engine.exchange(
            EngineRequest(
                method=request.method,
                target=request.target_of(path),
                headers=self._labels.request_headers_of(request.headers, session_id),
                body=request.body,
                affinity=session_id,
            )
        )


def _enforced(chat: ChatRequest, options: SessionOptions) -> ChatRequest:
    return replace(chat, body=with_sampling(chat.body, options.sampling))


def _turn_reply_of(done: TurnReply, form: ChatForm, *, is_stream: bool) -> Response:
    extra = [] if done.is_recorded else [UNRECORDED]
    if done.body is None:
        return form.passed_on(done.engine, *extra)
    if is_stream:
        return reply_of(HTTPStatus.OK, [*STREAM_HEADERS, *extra], done.body)
    headers = reply_headers_of(done.engine.headers, is_rewritten=True)
    return reply_of(HTTPStatus.OK, [*headers, JSON_TYPE, *extra], done.body)


def _is_model(model: Json) -> bool:
    return isinstance(model, dict) and isinstance(model.get("id"), str)
