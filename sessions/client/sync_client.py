"""The blocking client: create a session, read its records or samples, delete it, check the server.

For chatting use an OpenAI or Anthropic SDK with the session's `base_url`. Proxies and credentials
from the environment are ignored: a session server is inside of the cluster. Nothing is retried
here, because a create that is sent twice leaks a session; the errors tell what may be.

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


class SessionClient:
    """Speaks with one server over kept-alive connections; safe to share between threads."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Make a client; nothing is sent yet.

        Args:
            url: The server's address, with any path below which it is reached.
            timeout_s: Limit of a connect, and of each wait for bytes.
            transport: Instead of the network, for tests.
        """
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self._url, timeout=timeout_s, trust_env=False, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def create(self, options: Mapping[str, Any] | None = None) -> Session:
        """Create a session.

        Args:
            options: What it shall be like, JSON: `mode`, `sampling` and others; the rest is as the
                server's settings say.

        Raises:
            UnreachableError: No answer came; a session may have been created all the same.
            StatusError: The server refused; UnavailableError while it starts or drains.
            UnusableReplyError: What answered is no sessile server.
        """
        return self._carry(create_call(options))

    def records(
        self,
        session_id: str,
        *,
        turns: str | None = None,
        fields: Sequence[str] | None = None,
        has_replay: bool = True,
    ) -> Records:
        """What the session has recorded; its size is that of the replay data.

        Args:
            session_id: Its id.
            turns: Which records, by index from 0: "3", "2-5", "2-", or "-2" for the last two.
            fields: `records`, `metadata`, or names of members of the records; all if None. What is
                not asked for is empty in the result.
            has_replay: Whether replay data is sent; else null stands for it.

        Raises:
            UnreachableError: No whole answer came.
            UnknownSessionError: It was never created there.
            GoneSessionError: It was deleted, expired, or died with its shard.
            StatusError: The server refused for another reason.
            UnusableReplyError: What answered is no sessile server.
        """
        return self._carry(
            records_call(session_id, turns=turns, fields=fields, has_replay=has_replay)
        )

    def samples(
        self,
        session_id: str,
        max_seq_len: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Samples:
        """The session as training samples; it stays as it is.

        Args:
            session_id: Its id.
            max_seq_len: The most tokens that a sample may have; None for no limit.
            metadata: What the caller knows of it, JSON; merged into the samples' metadata, and its
                `reward` is theirs, unless the server has other hooks.

        Raises:
            UnreachableError: No whole answer came.
            UnknownSessionError: It was never created there.
            GoneSessionError: It was deleted, expired, or died with its shard.
            StatusError: The server refused; 422 if no sample can be made, `details.code` says why.
            UnusableReplyError: What answered is no sessile server.
        """
        return self._carry(samples_call(session_id, max_seq_len, metadata))

    def delete(self, session_id: str) -> None:
        """Delete the session; a generation in flight still gets its reply, unrecorded.

        Raises:
            UnreachableError: No answer came; the session may be deleted all the same.
            UnknownSessionError: It was never created there.
            GoneSessionError: It is gone already.
            StatusError: The server refused for another reason.
        """
        self._carry(delete_call(session_id))

    def check(self, *, timeout_s: float = CHECK_TIMEOUT_S) -> Health:
        """Make sure that the server is healthy; call it before each generate and eval.

        Args:
            timeout_s: Limit of a connect, and of each wait for bytes.

        Raises:
            UnhealthyError: It is not; the message is one line that names what died.
        """
        return self._carry(check_call(self._url), timeout_s)

    def _carry(self, call: Call[T], timeout_s: float | None = None) -> T:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        try:
            reply = self._http.request(
                call.method, call.path, content=call.body or None, timeout=timeout
            )
        except httpx.RequestError as error:
            raise call.lost(reason_of(error, self._url)) from error
        return call.parse(
            Answer(status=reply.status_code, headers=dict(reply.headers), body=reply.content)
        )
