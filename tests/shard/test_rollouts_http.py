import json

import httpx
import pytest

from sessions.shard.rollouts import RolloutEndpoint
from sessions.tokens.prompts import PromptBuilder
from tests.support.rollouts import CHAT, SECRET, call, create, error_of, open_rollouts, user


async def test_addresses_come_from_the_host_header(client: httpx.AsyncClient):
    response = await client.post("/sessions", headers={"host": "pod-7.example:81"})
    assert response.json()["base_url"].startswith("http://pod-7.example:81/sessions/")


async def test_addresses_come_from_the_setting_when_it_is_there(prompts: PromptBuilder):
    async with open_rollouts(prompts, public_url="https://roll.example/base/") as client:
        created = await create(client)
        session = created["session_id"]
        assert created["base_url"] == f"https://roll.example/base/sessions/{session}/v1"


@pytest.mark.parametrize(
    ("server", "origin"),
    [(("10.0.0.1", 80), "http://10.0.0.1:80"), (("::1", 80), "http://[::1]:80")],
)
async def test_addresses_come_from_the_socket_for_a_client_without_host(
    server: tuple[str, int], origin: str, client: httpx.AsyncClient
):
    asgi = client._transport.app  # type: ignore[attr-defined]
    sent = await call(asgi, "POST", "/sessions", server=server)
    assert json.loads(sent[1]["body"])["base_url"].startswith(f"{origin}/sessions/")


async def test_a_client_that_leaves_while_it_waits_cancels_its_turn_when_told_to(
    prompts: PromptBuilder,
):
    async with open_rollouts(prompts, cancel_on_disconnect="1") as client:
        asgi = client._transport.app  # type: ignore[attr-defined]
        session = (await create(client))["session_id"]
        body = json.dumps({"messages": [user("hi")], "sim": {"delay_s": 30}}).encode()
        messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
        sent = await call(asgi, "POST", f"/sessions/{session}{CHAT}", messages=messages)
        assert sent[0]["status"] == 499
        read = (await client.get(f"/sessions/{session}")).json()
        assert read["records"] == []
        assert len(read["metadata"]["cancelled_turns"]) == 1


async def test_a_client_that_leaves_while_it_sends_is_not_answered(client: httpx.AsyncClient):
    asgi = client._transport.app  # type: ignore[attr-defined]
    session = (await create(client))["session_id"]
    gone = {"type": "http.disconnect"}
    assert await call(asgi, "POST", f"/sessions/{session}{CHAT}", messages=[gone]) == []
    assert (await client.get(f"/sessions/{session}")).json()["records"] == []


@pytest.mark.parametrize(
    "path", ["/", "/sessions/{}", "/v1/models", "/sessions/{}/v1/models", "/sessions/{}/health"]
)
async def test_head_is_get_without_its_body(path: str, client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    url = path.format(session)
    got, head = await client.get(url), await client.head(url)
    assert got.status_code == head.status_code == 200
    assert head.content == b""
    assert list(head.headers) == list(got.headers)
    assert head.headers["content-length"] == str(len(got.content))


async def test_head_sends_no_body_even_to_a_server_that_would_write_it(client: httpx.AsyncClient):
    asgi = client._transport.app  # type: ignore[attr-defined]
    head, *bodies = await call(asgi, "HEAD", "/")
    assert dict(head["headers"])[b"content-length"] != b"0"
    assert [message["body"] for message in bodies] == [b""]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", f"/sessions/x{CHAT}", 404), ("POST", CHAT, 401), ("PUT", "/sessions", 405)],
)
async def test_what_the_head_alone_tells_is_refused_before_the_body_is_read(
    method: str, path: str, status: int, client: httpx.AsyncClient
):
    asgi = client._transport.app  # type: ignore[attr-defined]
    sent = await call(asgi, method, path, messages=[])
    assert sent[0]["status"] == status


async def test_head_of_what_is_not_there_says_so(client: httpx.AsyncClient):
    head = await client.head("/sessions/x")
    assert (head.status_code, head.content) == (404, b"")


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/", "GET, HEAD, OPTIONS"),
        ("/sessions", "OPTIONS, POST"),
        ("/sessions/x", "DELETE, GET, HEAD, OPTIONS"),
        ("/sessions/x/v1/chat/completions", "OPTIONS, POST"),
        ("/v1/chat/completions", "OPTIONS, POST"),
        ("/sessions/x/any", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
    ],
)
async def test_options_tells_the_methods(path: str, allow: str, client: httpx.AsyncClient):
    response = await client.options(path)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["allow"] == allow


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sessions"),
        ("PUT", "/sessions/x"),
        ("GET", f"/sessions/x{CHAT}"),
        ("TRACE", "/sessions/x/a"),
    ],
)
async def test_a_wrong_method_is_a_405_with_the_right_ones(
    method: str, path: str, client: httpx.AsyncClient
):
    response = await client.request(method, path)
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert "OPTIONS" in response.headers["allow"]
    assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "path",
    ["/nope", "/docs", "/openapi.json", "/sessions/", f"/sessions/x{CHAT}/", f"{CHAT}/", "/v1"],
)
async def test_an_unknown_path_is_a_404_and_never_a_redirect(path: str, client: httpx.AsyncClient):
    for method in ("GET", "POST"):
        response = await client.request(method, path)
        assert error_of(response, 404)["type"] == "not_found_error"


@pytest.mark.parametrize("session", ["a%2Fb", "a b", "a%00", "%", "a" * 129, "a%252Eb"])
async def test_what_is_no_session_id_is_a_400_that_names_the_rule(
    session: str, client: httpx.AsyncClient
):
    response = await client.get(f"/sessions/{session}")
    assert "1 to 128 characters" in error_of(response, 400)["message"]


async def test_an_id_may_be_percent_encoded(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    encoded = "".join(f"%{ord(character):02X}" for character in session)
    assert (await client.get(f"/sessions/{encoded}")).json()["session_id"] == session


async def test_every_path_of_an_unknown_session_is_a_404(client: httpx.AsyncClient):
    for method, path in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", CHAT),
        ("GET", "/v1/models"),
        ("POST", "/generate"),
    ]:
        response = await client.request(method, f"/sessions/{'0' * 32}{path}")
        assert error_of(response, 404)["code"] == "session_not_found"
        assert "x-turn-recorded" not in response.headers


async def test_every_path_of_a_deleted_session_is_a_410(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    gone = await client.delete(f"/sessions/{session}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert "content-type" not in gone.headers
    for method, path in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", CHAT),
        ("GET", "/v1/models"),
        ("POST", "/generate"),
    ]:
        response = await client.request(method, f"/sessions/{session}{path}")
        assert "deleted" in error_of(response, 410)["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'"x"',
        b"null",
        b"{",
        b"\xef\xbb\xbf{}",
        '{"messages":[]}'.encode("utf-16"),
        b'{"messages":["\xe9"]}',
        b"[" * 100_000,
    ],
)
async def test_a_body_that_is_no_chat_is_a_400_in_the_one_shape(
    content: bytes, client: httpx.AsyncClient
):
    session = (await create(client))["session_id"]
    response = await client.post(f"/sessions/{session}{CHAT}", content=content)
    assert error_of(response, 400)["type"] == "invalid_request_error"
    assert response.headers["x-turn-recorded"] == "false"
    assert response.headers["x-should-retry"] == "false"


async def test_a_body_is_read_as_json_whatever_its_content_type(client: httpx.AsyncClient):
    session = (await create(client))["session_id"]
    body = json.dumps({"messages": [user("hi")]}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    response = await client.post(f"/sessions/{session}{CHAT}", content=body, headers=headers)
    assert response.status_code == 200


async def test_what_nobody_expected_is_a_500_in_the_one_shape_and_logged(
    caplog: pytest.LogCaptureFixture,
):
    endpoint = RolloutEndpoint(SECRET, "", "127.0.0.1:8000")
    sent = await call(endpoint, "GET", "/v1/models", state={})
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"])["error"]["code"] == "internal_error"
    assert "KeyError" in caplog.text
    assert b"KeyError" not in sent[1]["body"]
