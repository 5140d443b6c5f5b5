"""What the server answered, as values: sessions, records, errors.

Pure functions from an `Answer` to a value or an error; no I/O, so both clients share them. JSON is
read with the standard library because a record may hold lone surrogates as escapes, which stricter
readers refuse.

Spec: docs/sessions.md#client
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sessions.client.errors import ErrorDetails, StatusError, UnusableReplyError, status_error

_SUCCESS: Final = range(200, 300)
_SHOWN: Final = 200  # characters of a foreign body in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One reply.

    Attributes:
        status: HTTP status.
        headers: Names lower-case; of several values the last.
        body: The whole body, decoded from any content coding.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def succeeded(self) -> bool:
        """Whether the status is a 2xx."""
        return self.status in _SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session as created.

    Attributes:
        session_id: Its id.
        base_url: For OpenAI clients, ends in `/v1`.
        anthropic_base_url: For Anthropic clients, which add `/v1` themselves.
        session_key: For clients that can set an API key but no path; a secret.
    """

    session_id: str
    base_url: str
    anthropic_base_url: str
    session_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Everything a session has recorded.

    Attributes:
        session_id: Its id.
        records: One JSON object per recorded turn, in order.
        metadata: `accumulated_token_ids`, `tito_session_mismatch` and what else the server tells.
    """

    session_id: str
    records: list[dict[str, Any]]
    metadata: dict[str, Any]


def parse_session(answer: Answer) -> Session:
    """The session that `POST /sessions` created.

    Raises:
        StatusError: It was refused.
        UnusableReplyError: The reply lacks a field.
    """
    found = _object_of(answer)
    names = ("session_id", "base_url", "anthropic_base_url", "session_key")
    if missing := [name for name in names if not isinstance(found.get(name), str)]:
        raise UnusableReplyError(f"the created session has no {', '.join(missing)}")
    return Session(**{name: found[name] for name in names})


def parse_records(answer: Answer, *, is_partial: bool = False) -> Records:
    """What `GET /sessions/{id}` tells.

    Args:
        answer: The reply.
        is_partial: Not everything was asked for: `records` and `metadata` may be missing.

    Raises:
        StatusError: It was refused.
        UnusableReplyError: The reply is not of that form.
    """
    found: dict[str, Any] = {"records": [], "metadata": {}} if is_partial else {}
    found |= _object_of(answer)
    session_id, records, metadata = (found.get(n) for n in ("session_id", "records", "metadata"))
    if (
        not isinstance(session_id, str)
        or not isinstance(records, list)
        or not isinstance(metadata, dict)
        or not all(isinstance(record, dict) for record in records)
    ):
        raise UnusableReplyError("the reply is not the records of a session")
    return Records(session_id=session_id, records=records, metadata=metadata)


def parse_nothing(answer: Answer) -> None:
    """Any success.

    Raises:
        StatusError: It was refused.
    """
    if not answer.succeeded:
        raise error_of(answer)


def prompt_ids(record: Mapping[str, Any]) -> list[int]:
    """The token ids that the engine was given for a recorded turn.

    Raises:
        UnusableReplyError: The record has none.
    """
    try:
        request = record["request"]
        if "kv_transfer_params" in request:  # vLLM's place; the other one is SGLang's
            return list(request["kv_transfer_params"]["prompt_token_ids"])
        return list(request["input_ids"])
    except (KeyError, TypeError):
        raise UnusableReplyError("the record's request has no prompt ids") from None


def sampled_ids(record: Mapping[str, Any]) -> list[int]:
    """The token ids that the engine sampled for a recorded turn, from its first choice.

    Raises:
        UnusableReplyError: The record has none.
    """
    try:
        choice = record["response"]["choices"][0]
        if "token_ids" in choice:  # vLLM's place; the other one is SGLang's
            return list(choice["token_ids"])
        return [token[1] for token in choice["meta_info"]["output_token_logprobs"]]
    except (KeyError, IndexError, TypeError):
        raise UnusableReplyError("the record's response has no sampled ids") from None


def error_of(answer: Answer) -> StatusError:
    """The error that a reply without success stands for, whatever its body is."""
    told: object = None
    if isinstance(found := json_of(answer.body), dict):
        told = found.get("error")
    error = told if isinstance(told, dict) else {}
    param = error.get("param")
    return status_error(
        ErrorDetails(
            status=answer.status,
            message=_text(error.get("message")) or excerpt(answer.body) or "no body",
            type=_text(error.get("type")),
            code=_text(error.get("code")),
            param=param if isinstance(param, str) else None,
            should_retry=_flag(answer.headers.get("x-should-retry")),
            retry_after_s=_seconds(answer.headers.get("retry-after")),
        )
    )


def json_of(body: bytes) -> object:
    """The JSON value of a body, or None if it is not JSON."""
    try:
        value: object = json.loads(body)
    except ValueError:  # not JSON, or not text
        return None
    return value


def excerpt(body: bytes) -> str:
    """The beginning of a foreign body on one line."""
    return " ".join(body[:_SHOWN].decode(errors="replace").split())


def _object_of(answer: Answer) -> dict[str, Any]:
    parse_nothing(answer)
    found = json_of(answer.body)
    if not isinstance(found, dict):
        raise UnusableReplyError(f"the reply is not a JSON object: {excerpt(answer.body)}")
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _flag(value: str | None) -> bool | None:
    return {"true": True, "false": False}.get((value or "").lower())


def _seconds(value: str | None) -> float | None:
    """Retry-After in its form of seconds; its form of a date is not sent by us."""
    return float(value) if value and value.isascii() and value.isdigit() else None
