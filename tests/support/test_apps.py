"""The test applications, asked without a server."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import pytest

from tests.support import apps
from tests.support.apps import App, pattern_of, receipt_of


def client_of(app: App) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


async def test_echo_answers_a_pattern_and_a_receipt():
    async with client_of(apps.cases()) as client:
        reply = await client.post("/sessions/s/echo?id=abc&out=1000", content=b"hello")
    assert reply.status_code == 200
    assert reply.content == pattern_of("abc", 1000)
    assert reply.headers["x-got"] == receipt_of(b"hello")
    assert reply.headers["x-id"] == "abc"
    assert reply.headers["content-length"] == "1000"


@pytest.mark.parametrize("option", ["ch", "drip", "ch&drip", "sleep=0.01", "pre&sleep=0.01", "cl"])
async def test_echo_options_change_no_byte_of_the_body(option: str):
    async with client_of(apps.cases()) as client:
        reply = await client.post(f"/echo?id=q&out=200000&{option}", content=b"x" * 70000)
    assert reply.content == pattern_of("q", 200000)
    assert reply.headers["x-got"] == receipt_of(b"x" * 70000)
    assert ("content-length" in reply.headers) is ("ch" not in option.split("&"))
    assert ("connection" in reply.headers) is (option == "cl")


async def test_an_early_echo_answers_without_reading():
    read = []

    async def receive() -> apps.Message:
        read.append(1)
        return {"type": "http.request"}

    sent: list[apps.Message] = []

    async def send(message: apps.Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/echo", "query_string": b"id=a&early"}
    await apps.cases()(scope, receive, send)
    assert not read
    assert (sent[0]["status"], sent[1]["body"]) == (413, pattern_of("a", 100))


async def test_echo_stops_when_the_client_has_gone():
    sent: list[apps.Message] = []

    async def receive() -> apps.Message:
        return {"type": "http.disconnect"}

    async def send(message: apps.Message) -> None:
        sent.append(message)

    await apps.cases()({"type": "http", "path": "/echo", "query_string": b""}, receive, send)
    assert sent == []


async def test_trivial_answers_one_kibibyte_of_json():
    for app in (apps.trivial(), apps.cases()):
        async with client_of(app) as client:
            reply = await client.post("/trivial", content=b"x" * 1024)
        assert len(reply.content) == apps.TRIVIAL_BYTES
        assert set(reply.json()) == {"pad"}


async def test_big_frames_the_size_asked_for():
    size = 3 * apps.PIECE_BYTES + 17
    async with client_of(apps.big()) as client:
        reply = await client.get(f"/?bytes={size}")
    assert len(reply.content) == int(reply.headers["content-length"]) == size


async def test_where_tells_the_process_and_other_paths_are_unknown():
    async with client_of(apps.cases()) as client:
        assert (await client.get("/sessions/s/where")).text == str(os.getpid())
        assert (await client.get("/elsewhere/")).status_code == 404


def test_patterns_of_different_seeds_differ():
    assert pattern_of("a", 100) != pattern_of("b", 100)
    assert pattern_of("a", 0) == b""
    assert pattern_of("a", 1000)[:10] == pattern_of("a", 10)


def test_a_boot_failure_raises():
    with pytest.raises(RuntimeError):
        apps.boot_failure()


def test_a_boot_exit_ends_the_process_with_its_code():
    code = "from tests.support.apps import boot_exit; boot_exit()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 3


async def test_told_shows_the_request_as_the_application_sees_it():
    async with client_of(apps.cases()) as client:
        reply = await client.put("/a%20b/told?q=1", headers={"x-one": "1"})
    lines = reply.text.splitlines()
    assert lines[0] == "PUT /a%20b/told?q=1 1.1"
    assert "x-one: 1" in lines


async def test_a_trap_says_on_stderr_that_it_was_sprung(capfd: pytest.CaptureFixture[str]):
    async with client_of(apps.cases()) as client:
        reply = await client.get("/trap?somebody")
    assert reply.headers["x-id"] == "trap"
    assert capfd.readouterr().err == f"{apps.SPRUNG} by somebody\n"
