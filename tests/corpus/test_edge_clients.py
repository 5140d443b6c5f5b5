"""What real clients do at the HTTP edge: curl, httpx, requests; each test names its case."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx
import pytest
import requests

from tests.support.chats import CHAT, RawSession, chat_body
from tests.support.group import Groups, RunningGroup, open_groups
from tests.support.raw import RawConnection
from tests.support.topology import LONE, ROUTED_FOUR, Topology

MIB: Final = 1 << 20
LIMIT_BYTES: Final = 32 * MIB
ENGINE: Final = {"SESSIONS_ENGINE_URL": "sim:"}
SAY_OK: Final = {"content": "ok", "reasoning": None}
TIMEOUT_S: Final = 30
FREE_PORT_OF_ALL: Final = "[::]:0"


@pytest.fixture(scope="module", params=[LONE, ROUTED_FOUR], ids=lambda topology: topology.name)
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    topology: Topology = request.param
    env = {**ENGINE, "SESSIONS_BODY_BYTES": str(LIMIT_BYTES)}
    with ExitStack() as stack:
        yield topology.start(stack.enter_context(open_groups()), "", env)


@pytest.fixture
def session(group: RunningGroup) -> RawSession:
    return RawSession(group.address)


def padded_chat(size_bytes: int) -> bytes:
    """A chat of exactly this size; the padding passes to the engine, which ignores it."""
    empty = chat_body(sim=SAY_OK, metadata={"pad": ""})
    return empty.replace(b'"pad": ""', b'"pad": "%b"' % (b"p" * (size_bytes - len(empty))))


def curl(*args: str, body: bytes = b"") -> tuple[str, dict[str, str]]:
    """Run curl on a body from stdin; its output, and what it measured."""
    found = shutil.which("curl")
    assert found, "curl is needed for this test: install it"
    facts = '\\n{"code":"%{http_code}","sent":"%{size_upload}","type":"%{content_type}"}'
    done = subprocess.run(
        [found, "-sS", "--noproxy", "*", "-m", str(TIMEOUT_S), "-w", facts, *args],
        input=body,
        capture_output=True,
        check=True,
    )
    text, _, told = done.stdout.decode().rpartition("\n")
    return text, json.loads(told)


def code_of(text: str | bytes) -> str:
    """The code of an error in the one shape."""
    code: str = json.loads(text)["error"]["code"]
    return code


# --- C-T6: Expect: 100-continue


def test_c_t6_curl_waits_for_100_and_then_sends_two_mib(group: RunningGroup, session: RawSession):
    body = padded_chat(2 * MIB)
    text, facts = curl(
        "-v",
        "-H",
        "Expect: 100-continue",
        "--data-binary",
        "@-",
        group.url + session.path + CHAT,
        body=body,
    )
    assert json.loads(text)["choices"][0]["message"]["content"] == "ok"
    assert (facts["code"], facts["sent"]) == ("200", str(len(body)))
    assert session.said() == ["ok"]


@pytest.mark.parametrize(
    ("target", "size_bytes", "refusal"),
    [
        ("/v1/chat/completions", 2 * MIB, ("401", "bad_session_key")),
        ("/sessions/nobody/v1/chat/completions", 2 * MIB, ("404", "session_not_found")),
        ("{session}/v1/chat/completions", LIMIT_BYTES + 1, ("413", "body_too_large")),
    ],
)
def test_c_t6_a_refused_client_gets_its_status_instead_of_a_100_and_sends_nothing(
    group: RunningGroup,
    session: RawSession,
    target: str,
    size_bytes: int,
    refusal: tuple[str, str],
):
    url = group.url + target.format(session=session.path)
    expect = ("-H", "Expect: 100-continue", "--expect100-timeout", "20")
    text, facts = curl(*expect, "--data-binary", "@-", url, body=padded_chat(size_bytes))
    assert (facts["code"], code_of(text)) == refusal
    assert facts["sent"] == "0"


# --- C-T14, C-T19: what curl says by itself


def test_c_t14_a_chat_that_curl_calls_a_form_is_read_as_json(
    group: RunningGroup, session: RawSession
):
    url = group.url + session.path + CHAT
    text, facts = curl("-d", chat_body(sim=SAY_OK).decode(), url)
    assert facts["code"] == "200", text
    assert session.said() == ["ok"]


@pytest.mark.parametrize("coding", ["zstd, br, gzip", "gzip;q=1.0, identity; q=0.5, *;q=0", ""])
def test_c_t19_whatever_coding_is_taken_the_reply_can_be_read(session: RawSession, coding: str):
    reply = session.chat(sim=SAY_OK, headers=(("Accept-Encoding", coding),))
    assert (reply.status, reply.header("content-encoding")) == (200, None)
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "ok"


def test_c_t19_curl_compressed_reads_the_reply(group: RunningGroup, session: RawSession):
    text, facts = curl(
        "--compressed", "--data-binary", "@-", group.url + session.path + CHAT, body=chat_body()
    )
    assert (facts["code"], "choices" in json.loads(text)) == ("200", True)


# --- C-T16: large bodies


@pytest.mark.parametrize("size_bytes", [30 * MIB, LIMIT_BYTES])
@pytest.mark.parametrize("chunk_bytes", [0, 65536], ids=["length", "chunked"])
def test_c_t16_a_body_up_to_the_limit_is_taken(
    session: RawSession, size_bytes: int, chunk_bytes: int
):
    body = padded_chat(size_bytes)
    assert len(body) == size_bytes
    assert session.ask("POST", CHAT, (), body, chunk_bytes=chunk_bytes).status == 200


def test_c_t16_a_body_over_the_limit_is_refused_before_it_comes(
    group: RunningGroup, session: RawSession
):
    for framing in (f"Content-Length: {LIMIT_BYTES + 1}", "Transfer-Encoding: chunked"):
        head = f"POST {session.path}{CHAT} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n".encode()
        size = b"" if "Length" in framing else b"%x\r\n" % (LIMIT_BYTES + 1)
        with RawConnection(group.address) as connection:
            reply = connection.ask(head + size + b"{")
            assert (reply.status, code_of(reply.body)) == (413, "body_too_large")


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_c_t16_clients_that_send_all_the_same_read_the_413(
    group: RunningGroup, session: RawSession, library: str, *, chunked: bool
):
    url = group.url + session.path + CHAT
    body = padded_chat(LIMIT_BYTES + MIB)
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    if library == "httpx":
        with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as client:
            answer = client.post(url, content=pieces if chunked else body)
            found = answer.status_code, code_of(answer.content)
    else:
        with requests.Session() as http:
            http.trust_env = False
            got = http.post(url, data=pieces if chunked else body, timeout=TIMEOUT_S)
            found = got.status_code, code_of(got.content)
    assert found == (413, "body_too_large")
    assert session.said() == []


# --- C-T21: addresses


def _needs_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")


@pytest.mark.parametrize("shards", [1, 2])
def test_c_t21_an_ipv6_address_is_bound_told_and_handed_out_in_brackets(
    groups: Groups, shards: int
):
    _needs_ipv6()
    running = groups.start(shards=shards, env={**ENGINE, "SESSIONS_BIND": "[::1]:0"})
    host, port = running.address
    assert (host, f"http://[::1]:{port} " in running.log()) == ("::1", True)
    told = json.loads((running.runtime_dir / "ready.json").read_bytes())["address"]
    assert told == f"[::1]:{port}"
    base = f"http://{told}"
    with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as client:
        assert client.get(f"{base}/health").json()["status"] == "ok"
        created = client.post(f"{base}/sessions").json()
        assert created["base_url"].startswith(f"{base}/sessions/")
        reply = client.post(f"{created['base_url']}/chat/completions", content=chat_body())
        assert reply.status_code == 200
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as plain:  # names no Host
        plain.sendall(b"POST /sessions HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(65536), b""))
    assert b'"base_url":"http://[::1]:%d/sessions/' % port in answer


def test_c_t21_all_addresses_are_bound_with_both_versions(groups: Groups):
    _needs_ipv6()
    running = groups.start(shards=2, env={**ENGINE, "SESSIONS_BIND": FREE_PORT_OF_ALL})
    _, port = running.address
    for host in ("[::1]", "127.0.0.1"):
        with httpx.Client(trust_env=False, timeout=TIMEOUT_S) as client:
            created = client.post(f"http://{host}:{port}/sessions").json()
            assert created["base_url"].startswith(f"http://{host}:{port}/sessions/")
            answer = client.post(f"{created['base_url']}/chat/completions", content=chat_body())
            assert answer.status_code == 200


# --- C-T1: the client that is strict about doubled headers


def test_c_t1_the_strictest_client_of_the_standard_library_reads_the_reply(
    group: RunningGroup, session: RawSession, tmp_path: Path
):
    """In a process of its own under `-X dev`, which turns lenient parsers strict."""
    script = tmp_path / "client.py"
    script.write_text(
        "import http.client, sys\n"
        "c = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=30)\n"
        "c.request('POST', sys.argv[3], sys.stdin.read())\n"
        "r = c.getresponse()\n"
        "names = [n.lower() for n, _ in r.getheaders()]\n"
        "assert len(names) == len(set(names)), names\n"
        "assert r.status == 200 and r.read()\n"
    )
    host, port = group.address
    target = session.path + CHAT
    command = [sys.executable, "-X", "dev", str(script), host, str(port), target]
    subprocess.run(command, input=chat_body(), check=True, timeout=TIMEOUT_S)
