"""Kinds as text: how a shard tells the router which kinds its application has.

The router never imports an application, so kinds travel as JSON, readers by their names. What a
reader needs of the run's secret is bound where the text is read: the secret does not travel.

Spec: docs/routing.md#kinds
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sessions.errors.unseen import LocalProtocolError
from sessions.routing.kinds import (
    BodyNaming,
    CookieNaming,
    HeaderNaming,
    Ownership,
    SessionKind,
)
from sessions.routing.readers import READERS, name_of_reader


def kinds_to_text(kinds: Sequence[SessionKind]) -> bytes:
    """Write kinds, in their order; equal kinds make equal text.

    Raises:
        ValueError: A reader has no name.
    """
    return json.dumps([_kind_to_json(kind) for kind in kinds], separators=(",", ":")).encode()


def kinds_of_text(text: bytes, secret: bytes) -> tuple[SessionKind, ...]:
    """Read kinds.

    Args:
        text: Of `kinds_to_text`.
        secret: The run's secret.

    Raises:
        LocalProtocolError: It says something else; the shard is broken.
    """
    try:
        return tuple(_kind_of_json(found, secret) for found in json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalProtocolError(f"no kinds of sessions in {text[:80]!r}") from error


def _kind_to_json(kind: SessionKind) -> dict[str, Any]:
    cookie, body = kind.cookie, kind.body
    return {
        "name": kind.name,
        "ownership": kind.ownership.name,
        "headers": [_header_to_json(naming) for naming in kind.headers],
        "cookie": cookie and {"name": cookie.name, "reader": name_of_reader(cookie.reader)},
        "mcp_token": kind.mcp_token and _header_to_json(kind.mcp_token),
        "path_prefix": kind.path_prefix,
        "path_claim": kind.path_claim,
        "body": body
        and {
            "field": body.field,
            "seed_routes": sorted(body.seed_routes),
            "close_routes": sorted(body.close_routes),
        },
    }


def _header_to_json(naming: HeaderNaming) -> dict[str, str]:
    return {
        "name": naming.name.decode("ascii"),
        "under": naming.under,
        "reader": name_of_reader(naming.reader),
    }


def _kind_of_json(found: dict[str, Any], secret: bytes) -> SessionKind:
    cookie, token, body = found["cookie"], found["mcp_token"], found["body"]
    return SessionKind(
        name=found["name"],
        ownership=Ownership[found["ownership"]],
        headers=tuple(_header_of_json(naming, secret) for naming in found["headers"]),
        cookie=None
        if cookie is None
        else CookieNaming(name=cookie["name"], reader=READERS[cookie["reader"]](secret)),
        mcp_token=None if token is None else _header_of_json(token, secret),
        path_prefix=found["path_prefix"],
        path_claim=found["path_claim"],
        body=None
        if body is None
        else BodyNaming(
            field=body["field"],
            seed_routes=frozenset(body["seed_routes"]),
            close_routes=frozenset(body["close_routes"]),
        ),
    )


def _header_of_json(found: dict[str, str], secret: bytes) -> HeaderNaming:
    return HeaderNaming(
        name=found["name"].encode("ascii"),
        under=found["under"],
        reader=READERS[found["reader"]](secret),
    )
