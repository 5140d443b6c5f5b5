"""The client for a program with an event loop; what it does is told in `sync_client`.

Both only carry the calls of `sessions.client.calls`, so they cannot differ in what they send or in
how they read an answer.

Spec: docs/sessions.md#client
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeVar

import httpx

from sessions.client.answers import Answer, Records, Session
from sessions.client.calls import (
    CHECK_TIMEOUT_S,
    TIMEOUT_S,
    Call,
    check_call,
    create_call,
    delete_call,
    reason_of,
    records_call,
    samples_call,
)
from sessions.client.health import Health
from sessions.client.samples import Samples

T = TypeVar("T")


class AsyncSessionClient:
    """Speaks with one server over kept-alive connections of one event loop."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Make a client; arguments as of `SessionClient`."""
        self._url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self._url, timeout=timeout_s, trust_env=False, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def create(self, options: Mapping[str, Any] | None = None) -> Session:
        """Create a session; arguments as of `SessionClient.create`.

        Raises:
            SessionsClientError: As `SessionClient.create`.
        """
        return await self._carry(create_call(options))

    async def records(
        self,
        session_id: str,
        *,
        turns: str | None = None,
        fields: Sequence[str] | None = None,
        has_replay: bool = True,
    ) -> Records:
        """What the session has recorded; arguments as of `SessionClient.records`.

        Raises:
            SessionsClientError: As `SessionClient.records`.
        """
        return await self._carry(
            records_call(session_id, turns=turns, fields=fields, has_replay=has_replay)
        )

    async def samples(
        self,
        session_id: str,
        max_seq_len: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Samples:
        """The session as training samples; arguments as of `SessionClient.samples`.

        Raises:
            SessionsClientError: As `SessionClient.samples`.
        """
        return await self._carry(samples_call(session_id, max_seq_len, metadata))

    async def delete(self, session_id: str) -> None:
        """Delete the session.

        Raises:
            SessionsClientError: As `SessionClient.delete`.
        """
        await self._carry(delete_call(session_id))

    async def check(self, *, timeout_s: float = CHECK_TIMEOUT_S) -> Health:
        """Make sure that the server is healthy.

        Raises:
            UnhealthyError: As `SessionClient.check`.
        """
        return await self._carry(check_call(self._url), timeout_s)

    async def _carry(self, call: Call[T], timeout_s: float | None = None) -> T:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        try:
            reply = await self._http.request(
                call.method, call.path, content=call.body or None, timeout=timeout
            )
        except httpx.RequestError as error:
            raise call.lost(reason_of(error, self._url)) from error
        return call.parse(
            Answer(status=reply.status_code, headers=dict(reply.headers), body=reply.content)
        )
