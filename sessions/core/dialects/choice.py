"""Which dialect an engine speaks: as the settings say, or asked of the engine once.

`auto` asks when the first turn needs to know, so an engine that starts late delays no start of
ours. What engines say of themselves is looked at in this order: the owner in `/v1/models`, then
pages that only one kind serves. The answer is kept for all sessions; when a reply could not be
used it is asked for again, since another engine may have come to the same address. All engines of
a group are of one kind.

Must not know turns.

Spec: docs/engines.md#detection
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, Protocol

from sessions.core.dialects.dialect import EngineDialect
from sessions.core.dialects.reply_parts import object_of
from sessions.core.dialects.sglang import SGLangDialect
from sessions.core.dialects.vllm import VLLMDialect
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.http_exchange.headers import EngineHeaders
from sessions.core.texts.json_text import Json, JsonObject, parse_engine_json
from sessions.engine.engine import Engine, EngineRequest
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.engine import (
    EngineDialectUnknownError,
    EngineReplyUnusableError,
    EngineTimeoutError,
)

_log = logging.getLogger(__name__)

AUTO: Final = "auto"
# These pages cost an engine nothing; one that is silent for so long is stuck (a guess).
PROBE_TIMEOUT_S: Final = 10.0
_CREDENTIALS: Final = frozenset({b"authorization", b"x-api-key"})
_MODELS: Final = b"/v1/models"
# Page, the member of its JSON object that tells, and what it tells.
_PAGES: Final = (
    (b"/get_model_info", "model_path", SGLangDialect.name),
    (b"/version", "version", VLLMDialect.name),
)


class MakesDialect(Protocol):
    """Makes a dialect."""

    def __call__(self, *, is_echo_required: bool = True) -> EngineDialect:
        """See the dialects."""
        ...


DIALECTS: Final[Mapping[str, MakesDialect]] = MappingProxyType(
    {SGLangDialect.name: SGLangDialect, VLLMDialect.name: VLLMDialect}
)


class DialectChoice:
    """See the module docstring; one for all sessions of a shard."""

    def __init__(
        self,
        engine: Engine,
        labels: EngineHeaders,
        *,
        name: str = AUTO,
        is_echo_required: bool = True,
        timeout_s: float = PROBE_TIMEOUT_S,
    ) -> None:
        """Ask nothing yet.

        Args:
            engine: Is asked if need be.
            labels: Of requests to it.
            name: A dialect's, or `auto`.
            is_echo_required: As the dialects take it.
            timeout_s: How long asking may take in all.
        """
        self._engine = engine
        self._labels = labels
        self._timeout_s = timeout_s
        self._dialects = {
            key: make(is_echo_required=is_echo_required) for key, make in DIALECTS.items()
        }
        self._is_asking = name == AUTO
        self._found: EngineDialect | None = None if self._is_asking else self._dialects[name]
        self._lock = asyncio.Lock()
        self._asked_count = 0
        self._failure: ClientVisibleError | None = None

    @property
    def found(self) -> EngineDialect | None:
        """The dialect, None as long as nobody needed it."""
        return self._found

    async def find(self, headers: Sequence[tuple[bytes, bytes]]) -> EngineDialect:
        """The engine's dialect; asks for it if nobody has.

        Args:
            headers: Of the client's request; its credentials are the probe's.

        Raises:
            EngineDialectUnknownError: The engine does not tell.
            EngineTimeoutError: It is silent.
            ClientVisibleError: No reply; see `Engine.exchange`.
        """
        if self._found is not None:
            return self._found
        asked_before = self._asked_count
        async with self._lock:  # one asks, the others wait for its answer
            if self._found is None:
                if self._failure is not None and self._asked_count != asked_before:
                    # Else each of many turns would wait for the time-outs of all before it.
                    raise self._failure
                self._found = await self._find(headers)
            return self._found

    def read(
        self, dialect: EngineDialect, reply: Json, text: bytes, prompt_ids: array[int]
    ) -> Sampled:
        """Read a reply; see `EngineDialect.read`.

        Args:
            dialect: In which it was asked for.
            reply: Likewise.
            text: Likewise.
            prompt_ids: Likewise.

        Raises:
            EngineReplyUnusableError: No turn can be made of it. Under `auto` the engine is asked
                again before the next turn.
        """
        try:
            return dialect.read(reply, text, prompt_ids)
        except EngineReplyUnusableError:
            if self._is_asking and self._found is dialect:
                self._found = None
            raise

    async def _find(self, headers: Sequence[tuple[bytes, bytes]]) -> EngineDialect:
        self._failure = None
        try:
            found = self._dialects[await self._ask(headers)]
        except ClientVisibleError as error:
            self._failure = error
            raise
        finally:
            self._asked_count += 1
        _log.info("engine dialect found dialect=%s", found.name)
        return found

    async def _ask(self, headers: Sequence[tuple[bytes, bytes]]) -> str:
        own = [(name, value) for name, value in headers if name in _CREDENTIALS]
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._look(own)
        except TimeoutError as error:
            raise EngineTimeoutError(
                f"the engine did not say what it is within {self._timeout_s:g} s"
            ) from error

    async def _look(self, headers: Sequence[tuple[bytes, bytes]]) -> str:
        status, page = await self._read(_MODELS, headers)
        name = _owner_in(page)
        if name in self._dialects:
            return name
        seen = [f"{_MODELS.decode()} {status} (owned_by {name!r})"]
        for path, member, dialect in _PAGES:
            status, page = await self._read(path, headers)
            if isinstance(page.get(member), str):
                return dialect
            seen.append(f"{path.decode()} {status}")
        raise EngineDialectUnknownError(
            f"the engine does not say what it is ({', '.join(seen)}): set"
            f" SESSIONS_ENGINE_DIALECT to {' or '.join(self._dialects)}"
        )

    async def _read(
        self, path: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> tuple[int, JsonObject]:
        """A page's status, and its JSON object if it has one."""
        reply = await self._engine.exchange(
            EngineRequest(
                method="GET",
                target=path,
                headers=self._labels.request_headers_of(headers, ""),
                body=b"",
            )
        )
        if reply.status != HTTPStatus.OK:
            return reply.status, {}
        try:
            page, _ = parse_engine_json(reply.body)
        except ValueError:
            page = None
        return reply.status, object_of(page)


def _owner_in(models: JsonObject) -> str:
    listed: Json = models.get("data")
    first = object_of(listed[0]) if isinstance(listed, list) and listed else {}
    owner = first.get("owned_by")
    return owner.lower() if isinstance(owner, str) else ""
