"""JSON over HTTP for tool environments: read an object, answer one, stop when the client leaves.

`Answered` is the top of every request: it turns errors into replies of the one shape.

Spec: docs/tools.md#statuses
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sessions.errors.client_visible import ClientVisibleError, InternalError, RequestError
from sessions.errors.protocol import MethodNotAllowedError, UnknownPathError
from sessions.tools.cleanup import wait_through
from sessions.wire.refusals import refusal_body_of

_log: Final = logging.getLogger(__name__)
_JSON: Final = "application/json"
_T = TypeVar("_T")


async def read_object(request: Request) -> dict[str, Any]:
    """The body, which must be a JSON object; an empty body is an empty one.

    Raises:
        RequestError: It is not.
        ClientDisconnect: The client left before its end.
    """
    body = await request.body()
    if not body:
        return {}
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise RequestError("the body is not a JSON object")
    return found


def json_reply_of(value: object) -> Response:
    """A 200 with a value as JSON.

    Raises:
        TypeError: JSON cannot say the value.
    """
    return Response(msgspec.json.encode(value), media_type=_JSON)


def error_reply_of(error: ClientVisibleError, scope: Scope) -> Response:
    """The reply to a request that failed, in the shape of the path that it asked."""
    body = refusal_body_of(error, scope.get("raw_path") or b"")
    response = Response(body, status_code=error.status)
    headers = [(name.encode(), value.encode()) for name, value in error.headers]
    response.raw_headers = [*headers, *response.raw_headers]
    return response


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T:
    """Run work for a client; when the client leaves, or we are cancelled, the work is cancelled.

    It is waited for in any case: when this returns nothing of it runs.

    Args:
        receive: Of a request whose body was read.
        work: What the reply needs.

    Raises:
        ClientDisconnect: The client left, and the work ended by that.
        CancelledError: We were cancelled, or the work was, by somebody else.
        Exception: The work's own.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.sleep(0)  # what waits for nothing is done now, without a second task
        if not task.done():
            await _wait_done_or_gone(receive, task)
    finally:
        is_left = not task.done()
        if is_left:
            task.cancel()
            await wait_through(task)
    if is_left and task.cancelled():
        raise ClientDisconnect
    return task.result()


async def _wait_done_or_gone(receive: Receive, task: asyncio.Future[_T]) -> None:
    gone = asyncio.create_task(_wait_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Answered:
    """An application whose errors become replies; see the module docstring."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; silent when its client left."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def noted_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted_send)
        except ClientDisconnect:
            pass
        except Exception as error:
            if has_begun:
                raise
            reply = error_reply_of(_visible_error_of(error, scope), scope)
            await reply(scope, receive, send)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Say in our shape what Starlette's routing refuses: no such path, no such method."""
    scope = request.scope
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allow = (error.headers or {}).get("Allow", "").split(", ")
        refusal: ClientVisibleError = MethodNotAllowedError(
            f"{scope['path']} has no {scope['method']}", allow=allow
        )
    else:
        refusal = UnknownPathError(f"there is no {scope['path']} on this server")
    return error_reply_of(refusal, scope)


def _visible_error_of(error: Exception, scope: Scope) -> ClientVisibleError:
    if isinstance(error, ClientVisibleError):
        return error
    _log.error("request failed path=%s", scope["path"], exc_info=error)
    return InternalError("the request failed for a reason of ours")
