"""The rollout server as an ASGI application: HTTP around the session core.

A request becomes primitives, the core answers, and this is the one place that turns errors into
replies. The lifespan opens what the core needs (the engine's pool, and the simulated engine when
the settings name one) and closes it after the last turn; requests find the core in its state.

Must not know processes or lent connections.

Spec: docs/sessions.md#application
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any, Final, TypedDict

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from sessions.core.dialects.choice import DialectChoice
from sessions.core.forms.chat_completions import CHAT_COMPLETIONS
from sessions.core.forms.chat_form import ChatForm
from sessions.core.http_exchange.client_request import ClientRequest
from sessions.core.http_exchange.headers import EngineHeaders
from sessions.core.http_exchange.replies import json_reply_of, reply_of
from sessions.core.http_exchange.routes import Operation, Route, route_of
from sessions.core.messages_api.form import MESSAGES
from sessions.core.open_sessions.registry import SessionRegistry
from sessions.core.open_sessions.session_options import SessionMode, SessionOptions
from sessions.core.samples.default_hooks import DEFAULT_HOOKS, load_hooks
from sessions.core.samples.hooks import SampleHooks
from sessions.core.session_core import CoreRules, SessionCore
from sessions.core.turns.turn_preparer import ReplayRules
from sessions.engine.http_engines import HttpEngines
from sessions.errors.client_visible import ClientVisibleError, InternalError
from sessions.errors.sessions import BadSessionKeyError
from sessions.lending.group import Group
from sessions.lending.tally import Tally
from sessions.replay.blobs import ReplayStore
from sessions.replay.file_store import FileReplayStore, open_replay_store
from sessions.replay.room import room_bytes
from sessions.routing.keys import id_of_session_key, session_key_of, verify_session_key
from sessions.settings import ECHO_REQUIRED, SIMULATED_ENGINE, Settings
from sessions.shard.origin import origin_of
from sessions.tokens.prompts import PromptBuilder
from sessions.wire.refusals import refusal_body_of

_log = logging.getLogger(__name__)

_BEARER: Final = "bearer "
_GREETING: Final = {
    "service": "sessile",
    "create": "POST /sessions",
    "chat": "POST /sessions/{session_id}/v1/chat/completions",
    "messages": "POST /sessions/{session_id}/v1/messages",
}

_FORMS: Final[Mapping[Operation, ChatForm]] = MappingProxyType(
    {Operation.CHAT: CHAT_COMPLETIONS, Operation.MESSAGES: MESSAGES}
)


class RolloutState(TypedDict):
    """What the lifespan leaves for requests and for the metrics."""

    core: SessionCore
    replay: FileReplayStore


def rollout_app(group: Group, registry: SessionRegistry, prompts: PromptBuilder) -> Starlette:
    """Make the application of one shard.

    Args:
        group: Shared state of the group.
        registry: The shard's sessions.
        prompts: Makes prompts; loaded already.

    Raises:
        SettingsError: A setting names a function that there is not.
    """
    hooks = load_hooks(group.settings.sample_picker, group.settings.sample_post_processor)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[RolloutState]:
        replay = open_replay_store(group.settings.spool_dir)
        try:
            async with open_core(group, registry, prompts, replay, hooks) as core:
                yield {"core": core, "replay": replay}
        finally:
            replay.close()

    settings = group.settings
    endpoint = RolloutEndpoint(group.run_secret, settings.public_url, settings.bind)
    return Starlette(routes=[Mount("/", app=endpoint)], lifespan=lifespan)


@asynccontextmanager
async def open_core(
    group: Group,
    registry: SessionRegistry,
    prompts: PromptBuilder,
    replay: ReplayStore,
    hooks: SampleHooks = DEFAULT_HOOKS,
) -> AsyncIterator[SessionCore]:
    """Open a core with the engine that the settings name; its turns end with the context.

    Args:
        group: Shared state of the group.
        registry: The shard's sessions.
        prompts: Makes prompts.
        replay: Keeps replay blobs.
        hooks: Choose and finish samples.
    """
    settings = group.settings
    async with AsyncExitStack() as opened:
        urls = settings.engine_urls
        if settings.engine_url.startswith(SIMULATED_ENGINE):
            # Imported only here: a shard with a real engine has no use for its memory.
            from sessions.sim.server import simulated_engine  # noqa: PLC0415 - see above

            simulated = simulated_engine(settings.engine_url, prompts.tokenizer)
            urls = (await opened.enter_async_context(simulated),)
        engine = HttpEngines(
            urls,
            timeout_s=settings.engine_timeout_s,
            connect_timeout_s=settings.engine_connect_timeout_s,
        )
        opened.push_async_callback(engine.close)
        labels = EngineHeaders(
            routing_key=settings.routing_key_header.lower().encode(),
            api_key=settings.engine_api_key,
        )
        core = SessionCore(
            registry=registry,
            engine=engine,
            prompts=prompts,
            replay=replay,
            labels=labels,
            dialects=DialectChoice(
                engine,
                labels,
                name=settings.engine_dialect,
                is_echo_required=settings.prompt_echo == ECHO_REQUIRED,
            ),
            key_of=lambda session_id: session_key_of(group.run_secret, session_id),
            rules=_rules_of(settings, hooks),
        )
        opened.push_async_callback(core.close)
        await opened.enter_async_context(_running(core.expire_idle(settings.session_ttl_s)))
        yield core


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Work in a task of its own for as long as the context; cancelled and awaited at its end."""
    task = asyncio.create_task(work)
    task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        _log.error("background work ended", exc_info=task.exception())


def tally_of(state: Mapping[str, Any]) -> Tally:
    """What the application counts.

    Args:
        state: Of its lifespan; empty before it has begun.
    """
    if not state:
        return Tally()
    core: SessionCore = state["core"]
    replay: FileReplayStore = state["replay"]
    counts, usage = core.turns.counts, replay.usage()
    return Tally(
        ended_sessions=core.ended_sessions,
        recorded_turns=counts.recorded,
        unrecorded_turns=counts.unrecorded,
        failed_turns=counts.failed,
        turns_in_flight=len(core.turns),
        engine_bytes=core.asking.received_bytes,
        replay_bytes=usage.stored_bytes,
        replay_sessions=usage.sessions,
        ingest_bytes=core.ingest.held_bytes,
    )


def _rules_of(settings: Settings, hooks: SampleHooks) -> CoreRules:
    half_of_a_share = room_bytes(settings.spool_dir) // 2 // settings.shards
    return CoreRules(
        keepalive_s=settings.sse_keepalive_s,
        cancel_on_disconnect=settings.cancel_on_disconnect,
        replay=ReplayRules(
            is_wanted=settings.routing_replay,
            is_incremental=settings.replay_incremental,
            layers=settings.replay_layers,
        ),
        replay_budget_bytes=settings.replay_budget_bytes or half_of_a_share,
        ingest_budget_bytes=settings.ingest_budget_bytes,
        session=SessionOptions(
            mode=SessionMode(settings.mode),
            max_turns=settings.max_turns,
            max_session_tokens=settings.max_session_tokens,
            max_tree_turns=settings.max_tree_turns,
        ),
        hooks=hooks,
    )


class RolloutEndpoint:
    """Answers every request; the core is in the scope's state."""

    def __init__(self, run_secret: bytes, public_url: str, bind: str) -> None:
        """Remember what names sessions.

        Args:
            run_secret: Signs session keys.
            public_url: Base of the URLs that are handed out; empty to tell it by the request.
            bind: SESSIONS_BIND, for requests that do not tell it.
        """
        self._secret = run_secret
        self._public_url = public_url
        self._bind = bind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, one reply; silent when the client left before its body was whole."""
        try:
            response = await self._answer(scope, receive)
        except ClientDisconnect:
            return
        except ClientVisibleError as error:
            response = _error_reply_of(error, scope)
        except Exception:  # noqa: BLE001 - the top of a request
            _log.exception("request failed method=%s", scope["method"])
            response = _error_reply_of(
                InternalError("the request failed for a reason of ours"), scope
            )
        await response(scope, receive, _bodiless(send) if scope["method"] == "HEAD" else send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        """Refuse what the head alone tells, then read the body, then do the work.

        In this order a client that waits for `100 Continue` gets its refusal instead of it.
        """
        route = route_of(scope["raw_path"])
        operation = route.operation_of(scope["method"])
        session_id = self._session_id_of(route, operation, scope["headers"])
        core: SessionCore = scope["state"]["core"]
        if session_id and operation is not Operation.OPTIONS:
            core.check_known(session_id)
        body = await _read_body(receive)
        if operation is Operation.OPTIONS:
            return reply_of(204, [(b"allow", ", ".join(route.allow).encode())])
        if operation is Operation.GREET:
            return json_reply_of(_GREETING)
        if operation is Operation.CREATE:
            return core.create(self._public_url or origin_of(scope, self._bind), body)
        request = ClientRequest(
            method="GET" if scope["method"] == "HEAD" else scope["method"],
            query=scope["query_string"],
            headers=scope["headers"],
            body=body,
            wait_gone=lambda: _wait_gone(receive),
            is_head=scope["method"] == "HEAD",
        )
        return await _answer_in_session(core, operation, session_id, route.rest, request)

    def _session_id_of(
        self, route: Route, operation: Operation, headers: list[tuple[bytes, bytes]]
    ) -> str:
        if not route.is_plain or operation is Operation.OPTIONS:
            return route.session_id
        key = _session_key_in(headers)
        if key is not None:
            return verify_session_key(self._secret, key)
        if operation is Operation.MODELS:
            return ""
        raise BadSessionKeyError(
            "this path needs a session key as its API key, or the session in the path:"
            " POST /sessions returns both"
        )


async def _answer_in_session(
    core: SessionCore, operation: Operation, session_id: str, rest: bytes, request: ClientRequest
) -> Response:
    form = _FORMS.get(operation)
    if form is not None:
        return await core.chat(session_id, request, form)
    if operation is Operation.DELETE:
        return core.delete(session_id)
    if operation is Operation.PROXY:
        return await core.proxy(session_id, rest, request)
    answers = {
        Operation.READ: core.read,
        Operation.SAMPLES: core.samples,
        Operation.MODELS: core.models,
        Operation.COUNT_TOKENS: core.count_tokens,
    }
    return await answers[operation](session_id, request)


def _session_key_in(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The first credential that has a session key's form; the router reads the same ones."""
    by_name: dict[bytes, str] = {}
    for name, value in headers:
        by_name.setdefault(name, value.decode("latin-1"))
    bearer = by_name.get(b"authorization", "")
    texts = [bearer[len(_BEARER) :]] if bearer[: len(_BEARER)].lower() == _BEARER else []
    texts.append(by_name.get(b"x-api-key", ""))
    keys = (text.strip(" \t") for text in texts)
    return next((key for key in keys if id_of_session_key(key) is not None), None)


def _error_reply_of(error: ClientVisibleError, scope: Scope) -> Response:
    """The reply to a request that failed, in the shape of the path that it asked."""
    headers = [(name.encode(), value.encode()) for name, value in error.headers]
    return reply_of(error.status, headers, refusal_body_of(error, scope["raw_path"]))


async def _read_body(receive: Receive) -> bytes:
    """The whole body.

    Raises:
        ClientDisconnect: The client left before its end.
    """
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _bodiless(send: Send) -> Send:
    """HEAD is GET whose body is not sent."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
