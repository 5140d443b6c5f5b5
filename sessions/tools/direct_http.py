"""Direct HTTP: `POST /tools/<name>` with a JSON object, the token in a header, the result as JSON.

The token is looked at before the body is read, so a client that waits for `100 Continue` gets its
refusal instead of it. A client that leaves in the middle cancels its call.

Spec: docs/tools.md#direct-http
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sessions.tools.episode_registry import EpisodeRegistry
from sessions.tools.grants import DIRECT_PATH
from sessions.tools.http_json import json_reply_of, read_object, run_while_connected


def direct_route(registry: EpisodeRegistry) -> Route:
    """The route of all direct calls.

    Args:
        registry: Finds the episode of a call.
    """

    async def answer(request: Request) -> Response:
        served = registry.tools_for(request.headers)
        name = request.path_params["name"]
        served.tool_named(name)
        arguments = await read_object(request)
        call, rest = served.begin(name, arguments)
        if rest is not None:  # else no task is needed: 10 us of 100 for a call (measured)
            await run_while_connected(request.receive, rest)
        return json_reply_of(call.result)

    return Route(f"{DIRECT_PATH}/{{name}}", answer, methods=["POST"])
