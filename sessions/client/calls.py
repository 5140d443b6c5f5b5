"""The calls of the client, without I/O: what to send, and what an answer or its absence means.

A `Call` is data and two functions. The sync and the async client only carry it: send, then give
the answer to `parse`, or the loss to `lost`.

Spec: docs/sessions.md#client
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from sessions.client.answers import (
    Answer,
    Records,
    Session,
    parse_nothing,
    parse_records,
    parse_session,
)
from sessions.client.errors import SessionsClientError, UnhealthyError, UnreachableError
from sessions.client.health import Health, parse_healthy
from sessions.client.samples import Samples, parse_samples

T = TypeVar("T")

TIMEOUT_S: Final = 60.0  # a guess: a shard may be busy with another session's records
CHECK_TIMEOUT_S: Final = 5.0  # probes are answered from shared memory, so a late one is a fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One exchange with the server.

    Attributes:
        method: HTTP method.
        path: Below the server's address, escaped, with its query.
        body: What is sent, JSON or nothing.
        parse: From the answer to the result, or raises a SessionsClientError.
        lost: From the reason why no answer came to the error to raise.
    """

    method: str
    path: str
    parse: Callable[[Answer], T]
    body: bytes = b""
    lost: Callable[[str], SessionsClientError] = UnreachableError


def create_call(options: Mapping[str, Any] | None = None) -> Call[Session]:
    """Create a session; see `SessionClient.create`."""
    return Call(method="POST", path="/sessions", parse=parse_session, body=_body_of(options or {}))


def records_call(
    session_id: str,
    *,
    turns: str | None = None,
    fields: Sequence[str] | None = None,
    has_replay: bool = True,
) -> Call[Records]:
    """Read the records of a session, or some of them; see `SessionClient.records`."""
    query = {
        "turns": turns,
        "fields": None if fields is None else ",".join(fields),
        "replay": None if has_replay else "0",
    }
    told = urlencode({name: value for name, value in query.items() if value is not None})
    path = _path_of(session_id) + (f"?{told}" if told else "")
    return Call(
        method="GET", path=path, parse=partial(parse_records, is_partial=fields is not None)
    )


def samples_call(
    session_id: str,
    max_seq_len: int | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call[Samples]:
    """Make the samples of a session; see `SessionClient.samples`."""
    told = {"max_seq_len": max_seq_len, "metadata": metadata}
    body = _body_of({name: value for name, value in told.items() if value is not None})
    path = f"{_path_of(session_id)}/samples"
    return Call(method="POST", path=path, parse=parse_samples, body=body)


def delete_call(session_id: str) -> Call[None]:
    """Delete a session."""
    return Call(method="DELETE", path=_path_of(session_id), parse=parse_nothing)


def check_call(url: str) -> Call[Health]:
    """Ask the group at this address for its health; if not healthy it is an UnhealthyError."""
    parse = partial(parse_healthy, url=url)
    return Call(method="GET", path="/healthz", parse=parse, lost=UnhealthyError)


def _body_of(members: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(members)).encode() if members else b""


def _path_of(session_id: str) -> str:
    return f"/sessions/{quote(session_id, safe='')}"


def reason_of(error: BaseException, url: str) -> str:
    """Why no answer came, on one line; the same words whichever I/O library says it.

    Args:
        error: As raised by the HTTP library.
        url: The server's address, for the line.
    """
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno:
            return f"{url} does not answer: {os.strerror(cause.errno).lower()}"
    kind = type(error).__name__
    if "Timeout" in kind:
        return f"{url} does not answer: timed out ({kind})"
    return f"{url} does not answer: {' '.join(str(error).split()) or kind}"


def _chain(error: BaseException) -> list[BaseException]:
    """An error and its causes, outermost first; of a group of errors the last one."""
    found: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = (
            at.exceptions[-1]
            if isinstance(at, BaseExceptionGroup)
            else at.__cause__ or at.__context__
        )
    return found
