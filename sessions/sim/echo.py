"""Any path that the engine does not serve: answers with what it received.

So a proxy's pass-through can be tested: the reply is JSON of method, path, query, headers and a
digest of the body. The query asks for what engines and the servers before them may send: another
status, cookies, own Server and Date, hop-by-hop headers, experts, plain text.

Spec: docs/sim.md#echo
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import orjson
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from sessions.errors.unseen import SimRefusalError
from sessions.sim.faults import WIRE_EXTENSION, Headers, Wire

_REPLAY: Final = "AAAAAAAAAAA="  # two experts of one token
_STATUS_LOW: Final = 200
_STATUS_HIGH: Final = 599


class EchoEndpoint:
    """The ASGI application of the echo."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            SimRefusalError: The query asks for something impossible; nothing was sent.
        """
        await _serve(scope, receive, send)


async def _serve(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    try:
        body = await request.body()
    except ClientDisconnect:
        return
    query = request.query_params
    status = _status_of(query)
    headers = _headers_of(query)
    if "sim_server" in query or "sim_date" in query:
        wire: Wire | None = scope.get("extensions", {}).get(WIRE_EXTENSION)
        if wire is not None:
            wire.drop_standard_headers()
    content = _text_of(query) or _document_of(scope, body, query)
    headers.append(("content-length", str(len(content))))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _status_of(query: QueryParams) -> int:
    text = query.get("sim_status", str(_STATUS_LOW))
    if not text.isdigit() or not _STATUS_LOW <= int(text) <= _STATUS_HIGH:
        message = f"sim_status must be {_STATUS_LOW} to {_STATUS_HIGH}"
        raise SimRefusalError(message, param="sim_status")
    return int(text)


def _headers_of(query: QueryParams) -> Headers:
    plain = "sim_text" in query
    headers = [("content-type", "text/plain; charset=utf-8" if plain else "application/json")]
    if "sim_cookies" in query:
        headers += [("set-cookie", "first=1; Path=/"), ("set-cookie", "second=2; Path=/")]
    if "sim_hop" in query:
        headers += [("connection", "x-sim-hop"), ("x-sim-hop", "1"), ("keep-alive", "timeout=9")]
    for parameter, name in (
        ("sim_server", "server"),
        ("sim_date", "date"),
        ("sim_location", "location"),
    ):
        if parameter in query:
            headers.append((name, query[parameter]))
    return headers


def _text_of(query: QueryParams) -> bytes:
    return query.get("sim_text", "").encode()


def _document_of(scope: Scope, body: bytes, query: QueryParams) -> bytes:
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    document: dict[str, object] = {
        "method": scope["method"],
        "path": scope["path"],
        "raw_path": raw_path.decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "headers": [(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]],
        "body_bytes": len(body),
        "body_sha256": sha256(body).hexdigest(),
    }
    if "sim_replay" in query:
        experts = {"routed_experts": _REPLAY, "indexer_topk": _REPLAY}
        document["choices"] = [{"index": 0, "meta_info": {"id": "echo", **experts}}]
        document["sglext"] = dict(experts)
    return orjson.dumps(document)
