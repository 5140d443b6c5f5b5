"""MCP for episodes over real sockets: the SDK's clients, plain HTTP, refusals, leaving."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from mcp import MCPError
from mcp_types import CallToolResult, TextContent
from starlette.applications import Starlette
from starlette.middleware import Middleware

from sessions.errors.episodes import ToolError
from sessions.routing.episode_tokens import sign_episode_token
from sessions.routing.episodes import EpisodeId
from sessions.tools.episode_registry import EpisodeRegistry
from sessions.tools.http_json import Answered
from sessions.tools.mcp_endpoint import BODY_LIMIT_BYTES, McpEndpoint
from sessions.tools.mcp_rules import McpRules
from sessions.tools.served_episode import ServedEpisode
from sessions.tools.served_tools import ToolCall
from sessions.tools.tool import tool_of
from tests.support.mcp_clients import MODES, refusal_of, serving, talking
from tests.support.raw import open_raw, request_bytes
from tests.support.waiting import wait_until_async

SECRET = b"s" * 32
HEADER = "X-Episode"
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


class Stage:
    """A server with two episodes: `one` adds, and can do what tools do; `two` has another tool.

    Attributes:
        calls: Of `one`.
        served: `one`.
        total: Of `one`.
        stuck: Tools of `one` that wait for ever, now.
        cancelled: How many of them were cancelled.
    """

    def __init__(self) -> None:
        self.registry = EpisodeRegistry(SECRET, HEADER)
        self.calls: list[ToolCall] = []
        self.total = self.stuck = self.cancelled = 0
        tools = [tool_of(f) for f in (self.add, self.refuse, self.fail, self.wait, self.greet)]
        self.served = ServedEpisode(EpisodeId(rollout_id="one"), "n1", tools, self.calls)
        self.registry.add(self.served)
        other = ServedEpisode(EpisodeId(rollout_id="two"), "n2", [tool_of(self.greet)], [])
        self.registry.add(other)
        self.url = ""

    def add(self, n: int) -> dict[str, int]:
        """Add to the total."""
        self.total += n
        return {"total": self.total}

    def greet(self) -> str:
        return "hello"

    def refuse(self) -> None:
        raise ToolError("not now")

    def fail(self) -> None:
        raise ZeroDivisionError("a secret")

    async def wait(self) -> None:
        self.stuck += 1
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.stuck -= 1

    async def post(self, headers: dict[str, str], content: bytes | str = "") -> httpx.Response:
        """Plain HTTP with nothing but these headers."""
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.post(self.url, headers=headers, content=content)


def token_of(key: str = "one", nonce: str = "n1", secret: bytes = SECRET) -> dict[str, str]:
    return {HEADER: sign_episode_token(secret, key, nonce)}


@asynccontextmanager
async def open_stage(rules: McpRules) -> AsyncIterator[Stage]:
    stage = Stage()
    endpoint = McpEndpoint(stage.registry, rules)

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        async with endpoint.serving():
            yield

    app = Starlette(routes=endpoint.routes, middleware=[Middleware(Answered)], lifespan=life)
    async with serving(app) as base:
        stage.url = f"{base}/mcp"
        yield stage


@pytest.fixture(params=[True, False], ids=["json", "sse"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with open_stage(McpRules(has_json_replies=request.param)) as opened:
        yield opened


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


# --- served


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_client_lists_and_calls_exactly_the_tools_of_its_episode(
    stage: Stage, mode: str, slash: str
):
    async with talking(stage.url + slash, token_of("two", "n2"), mode) as talk:
        assert [tool.name for tool in (await talk.client.list_tools()).tools] == ["greet"]
        assert text_of(await talk.client.call_tool("greet", {})) == "hello"
        with pytest.raises(MCPError, match=r"no tool 'add' .*greet"):
            await talk.client.call_tool("add", {"n": 1})
    assert stage.total == 0


@pytest.mark.parametrize("mode", MODES)
async def test_calls_act_on_one_episode_over_many_connections(stage: Stage, mode: str):
    async with talking(stage.url, token_of(), mode) as talk:
        results = [await talk.client.call_tool("add", {"n": n}) for n in (1, 2, 3)]
    assert [result.structured_content for result in results] == [
        {"total": 1},
        {"total": 3},
        {"total": 6},
    ]
    assert [call.arguments for call in stage.calls] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert len(talk.requests) >= 4


async def test_the_older_generation_shakes_hands_and_keeps_no_session(stage: Stage):
    async with talking(stage.url, token_of(), "legacy") as talk:
        await talk.client.list_tools()
        assert talk.client.protocol_version == "2025-11-25"
    assert [request[:2] for request in talk.requests] == [
        ("POST", 200),  # initialize
        ("POST", 202),  # notifications/initialized
        ("POST", 200),
    ]


async def test_the_newer_generation_asks_at_once(stage: Stage):
    async with talking(stage.url, token_of(), "2026-07-28") as talk:
        await talk.client.list_tools()
    assert [request[:2] for request in talk.requests] == [("POST", 200)]


@pytest.mark.parametrize("is_json", [True, False])
async def test_replies_are_streams_or_not_as_the_operator_says(*, is_json: bool):
    async with (
        open_stage(McpRules(has_json_replies=is_json)) as stage,
        talking(stage.url, token_of(), "legacy") as talk,
    ):
        await talk.client.list_tools()
        expected = "application/json" if is_json else "text/event-stream"
        assert talk.requests[-1] == ("POST", 200, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("add", {"n": "x"}, "bad arguments of tool 'add'"),
        ("add", {}, "missing required field `n`"),
        ("add", {"n": 1, "m": 2}, "unknown field `m`"),
        ("refuse", {}, "not now"),
        ("fail", {}, "tool 'fail' failed"),
    ],
)
async def test_what_goes_wrong_with_a_call_is_shown_to_the_agent(
    stage: Stage, mode: str, name: str, arguments: dict[str, object], message: str
):
    async with talking(stage.url, token_of(), mode) as talk:
        result = await talk.client.call_tool(name, arguments)
    assert result.is_error
    assert message in text_of(result)
    assert "secret" not in text_of(result)
    assert stage.total == 0


# --- refused

REFUSALS = [
    ({}, 401),
    ({HEADER: "garbage"}, 401),
    (token_of(secret=b"another run"), 401),
    (token_of(nonce="n2"), 403),
    (token_of("three"), 410),
]


@pytest.mark.parametrize(("headers", "status"), REFUSALS)
async def test_a_refusal_is_read_by_plain_http(stage: Stage, headers: dict[str, str], status: int):
    reply = await stage.post(headers)
    assert reply.status_code == status
    assert reply.headers["x-should-retry"] == "false"
    assert "www-authenticate" not in reply.headers
    assert reply.json()["detail"] == reply.json()["error"]["message"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("headers", "status"), REFUSALS)
async def test_a_refusal_is_read_by_a_client_of_mcp(
    stage: Stage, headers: dict[str, str], status: int, mode: str
):
    told = (await stage.post(headers)).json()
    error = await refusal_of(stage.url, headers, mode)
    assert (error.code, error.message) == (status, told["detail"])
    assert not stage.calls


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_another_content_type_is_refused_in_our_shape(stage: Stage, content_type: str):
    async with httpx.AsyncClient(trust_env=False) as client:
        headers = ACCEPT | token_of() | {"content-type": content_type}
        reply = await client.post(stage.url, content=json.dumps(LIST), headers=headers)
        assert reply.status_code == 400
        assert "application/json" in reply.json()["error"]["message"]
        headers |= {"content-type": "application/json; charset=utf-8"}
        reply = await client.post(stage.url, content=json.dumps(LIST), headers=headers)
        assert reply.status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_served_and_only_with_a_token(stage: Stage, method: str):
    async with httpx.AsyncClient(trust_env=False) as client:
        reply = await client.request(method, stage.url, headers=ACCEPT | token_of())
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
        assert (await client.request(method, stage.url, headers=ACCEPT)).status_code == 401


async def test_a_body_at_the_limit_is_read_and_one_over_it_is_not(stage: Stage):
    headers = ACCEPT | token_of()
    padded = json.dumps(LIST).ljust(BODY_LIMIT_BYTES)
    assert (await stage.post(headers, padded)).status_code == 200
    reply = await stage.post(headers, padded + " ")
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, 413)


async def test_white_space_around_the_value_of_a_header_is_none_of_it(stage: Stage):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "greet", "arguments": {}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = ACCEPT | token_of() | {"mcp-protocol-version": "2026-07-28"}
    headers |= {"mcp-method": "tools/call", "mcp-name": "greet"}
    spaced = [(name, f" {value} \t") for name, value in headers.items()]
    address = httpx.URL(stage.url)
    async with open_raw((address.host, address.port or 0)) as connection:
        asked = request_bytes("POST", "/mcp", spaced, json.dumps(message).encode())
        assert (await connection.ask(asked)).status == 200


async def test_hosts_are_checked_before_anything_else_when_they_are_named():
    rules = McpRules(allowed_hosts=frozenset({"tools.example"}))
    async with open_stage(rules) as stage:
        served = ACCEPT | token_of() | {"host": "tools.example:80"}
        assert (await stage.post(served, json.dumps(LIST))).status_code == 200
        assert (await stage.post(ACCEPT | token_of())).status_code == 421
        assert (await stage.post(served | {"origin": "http://x.example"})).status_code == 403


# --- ends


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_a_client_that_leaves_cancels_its_call(stage: Stage, version: str):
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: dict[str, object] = {"name": "wait", "arguments": {}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = ACCEPT | token_of() | {"mcp-protocol-version": version}
    headers |= {"mcp-method": "tools/call", "mcp-name": "wait"}
    asking = asyncio.create_task(stage.post(headers, json.dumps(body)))
    await wait_until_async(lambda: stage.stuck == 1, "the call")
    asking.cancel()
    await asyncio.wait([asking])
    await wait_until_async(lambda: stage.stuck == 0, "the end of the call")
    assert stage.cancelled == 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_the_episode_does_not_outlive_is_answered_as_gone(
    stage: Stage, mode: str
):
    async with talking(stage.url, token_of(), mode) as talk:
        calling = asyncio.create_task(talk.client.call_tool("wait", {}))
        await wait_until_async(lambda: stage.stuck == 1, "the call")
        stage.served.close()
        with pytest.raises(MCPError, match="not running on this server") as caught:
            await calling
        assert caught.value.code == 410
