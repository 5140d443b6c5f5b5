"""Both forms of the client, against a fake server and against sockets that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from starlette.responses import JSONResponse, Response

from sessions.client.async_client import AsyncSessionClient
from sessions.client.errors import (
    GoneSessionError,
    StatusError,
    UnavailableError,
    UnhealthyError,
    UnknownSessionError,
    UnreachableError,
    UnusableReplyError,
)
from sessions.client.sync_client import SessionClient
from sessions.errors.group import NotReadyError
from tests.support.fake_server import URL, FakeServer

if TYPE_CHECKING:
    from tests.client.conftest import Ask, MakeClient


async def test_a_session_is_created_read_and_deleted(ask: Ask, server: FakeServer):
    session = await ask("create")
    assert session.base_url == f"{URL}/sessions/{session.session_id}/v1"
    assert session.anthropic_base_url == f"{URL}/sessions/{session.session_id}"
    assert session.session_key.startswith(session.session_id)
    server.sessions[session.session_id].append({"request": {"input_ids": [1]}})
    found = await ask("records", session.session_id)
    assert found.session_id == session.session_id
    assert found.records == [{"request": {"input_ids": [1]}}]
    assert found.metadata["max_trim_tokens"] == 0
    assert await ask("delete", session.session_id) is None
    assert server.sessions == {}


async def test_some_of_the_records_can_be_asked_for(ask: Ask, server: FakeServer):
    session_id = (await ask("create")).session_id
    server.canned[f"/sessions/{session_id}"] = JSONResponse({"session_id": session_id})
    fields = ["timestamp", "response"]
    found = await ask("records", session_id, turns="-2", fields=fields, has_replay=False)
    assert (found.records, found.metadata) == ([], {})
    assert server.seen[-1].url.query == "turns=-2&fields=timestamp%2Cresponse&replay=0"
    with pytest.raises(UnusableReplyError):
        await ask("records", session_id)


async def test_the_session_key_is_not_in_the_repr(ask: Ask):
    session = await ask("create")
    assert session.session_key not in repr(session)


@pytest.mark.parametrize("method", ["records", "delete"])
async def test_a_session_never_created_and_one_deleted_are_told_apart(ask: Ask, method: str):
    with pytest.raises(UnknownSessionError, match="404 session_not_found: no session nope"):
        await ask(method, "nope")
    session = await ask("create")
    await ask("delete", session.session_id)
    with pytest.raises(GoneSessionError) as caught:
        await ask(method, session.session_id)
    assert caught.value.details.type == "gone_error"
    assert caught.value.details.should_retry is False


async def test_unavailable_tells_when_to_try_again(ask: Ask, server: FakeServer):
    error = NotReadyError("the group is draining")
    server.canned["/sessions"] = Response(error.body, error.status, dict(error.headers))
    with pytest.raises(UnavailableError, match="the group is draining") as caught:
        await ask("create")
    assert caught.value.details.should_retry is True
    assert caught.value.details.retry_after_s == 1.0


async def test_a_foreign_refusal_is_shown_in_one_line(ask: Ask, server: FakeServer):
    server.canned["/sessions"] = Response("<html>\n<h1>Bad Gateway</h1>", 502)
    with pytest.raises(StatusError) as caught:
        await ask("create")
    assert str(caught.value) == "502: <html> <h1>Bad Gateway</h1>"
    assert type(caught.value) is StatusError


async def test_a_redirect_is_not_followed(ask: Ask, server: FakeServer):
    server.canned["/sessions"] = Response("", 307, {"location": "/healthz"})
    with pytest.raises(StatusError, match="307"):
        await ask("create")
    assert len(server.seen) == 1


async def test_a_success_that_is_not_ours_is_refused(ask: Ask, server: FakeServer):
    server.canned["/sessions"] = JSONResponse({"session_id": "x", "base_url": "y"})
    with pytest.raises(UnusableReplyError, match="no anthropic_base_url, session_key"):
        await ask("create")
    server.canned["/sessions/a"] = Response("welcome")
    with pytest.raises(UnusableReplyError, match="not a JSON object: welcome"):
        await ask("records", "a")


async def test_an_odd_session_id_stays_one_path_segment(ask: Ask, server: FakeServer):
    with pytest.raises(StatusError):
        await ask("records", "a/b?c#d%2e e")
    assert server.seen[0].scope["raw_path"] == b"/sessions/a%2Fb%3Fc%23d%252e%20e"


async def test_a_path_before_the_server_is_kept(make_client: MakeClient, server: FakeServer):
    server.canned["/pool/a/sessions"] = Response("", 418)
    with pytest.raises(StatusError, match="418"):
        await make_client(f"{URL}/pool/a/", server.app)("create")


async def test_check_returns_the_health_of_a_healthy_server(ask: Ask, server: FakeServer):
    health = await ask("check")
    assert health.instance_id == server.health["instance_id"]
    assert [row.index for row in health.shards] == [0, 1]


async def test_check_names_the_server_and_what_died(make_client: MakeClient, server: FakeServer):
    ask = make_client(f"{URL}/", server.app)
    server.health.update(status="dying", cause="shard 1 (pid 101) was killed by signal 9")
    with pytest.raises(UnhealthyError) as caught:
        await ask("check")
    assert str(caught.value) == f"{URL} is going down: shard 1 (pid 101) was killed by signal 9"


def refused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.asynccontextmanager
async def listening(reply: bytes | None) -> AsyncIterator[str]:
    """A server that answers these bytes and ends each connection; None never answers."""
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if reply is None:
            await release.wait()
        else:
            writer.write(reply)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
        release.set()


async def test_a_refused_connection_is_named_in_one_line(make_client: MakeClient):
    url = refused_url()
    ask = make_client(url)
    with pytest.raises(UnhealthyError) as unhealthy:
        await ask("check")
    assert str(unhealthy.value) == f"{url} does not answer: connection refused"
    with pytest.raises(UnreachableError, match="connection refused"):
        await ask("create")


async def test_a_host_that_does_not_resolve_is_named_in_one_line(make_client: MakeClient):
    with pytest.raises(UnhealthyError, match=r"^http://no-such\.invalid does not answer: [^\n]+$"):
        await make_client("http://no-such.invalid")("check")


async def test_silence_ends_at_the_time_out(make_client: MakeClient):
    async with listening(None) as url:
        with pytest.raises(UnhealthyError, match="does not answer: timed out"):
            await make_client(url)("check", timeout_s=0.05)
        with pytest.raises(UnreachableError, match="does not answer: timed out"):
            await make_client(url, timeout_s=0.05)("records", "a")


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"no\r\n"]
)
async def test_a_reply_that_is_cut_or_none_is_unreachable(make_client: MakeClient, reply: bytes):
    async with listening(reply) as url:
        with pytest.raises(UnreachableError):
            await make_client(url)("records", "a")
        with pytest.raises(UnhealthyError):
            await make_client(url)("check")


async def test_proxies_of_the_environment_are_ignored(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTP_PROXY", refused_url())
    monkeypatch.setenv("ALL_PROXY", refused_url())
    head = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
    async with listening(head) as url:
        assert await make_client(url)("delete", "a") is None


async def test_both_clients_close_with_their_block(server: FakeServer):
    async with AsyncSessionClient(refused_url()) as client:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await client.check()
    with SessionClient(refused_url()) as blocking:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        blocking.check()
