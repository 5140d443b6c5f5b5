"""What clients do at the HTTP edge of the rollout server, case by case, on one shard and on four.

Each test names its case (C-T1 …). What the corpus proves of the same cases at the level of bytes
stands in the files `*.http`; here a chat is at stake.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.chats import CHAT, RawSession, chat_body
from tests.support.group import RunningGroup, open_groups
from tests.support.raw import RawConnection, request_bytes
from tests.support.replies import ConnectionEndedError, Reply
from tests.support.topology import LONE, ROUTED_FOUR, Topology
from tests.support.transcript import Transcript

SAY_OK = {"content": "ok", "reasoning": None}
H2C = (
    ("Connection", "Upgrade, HTTP2-Settings"),
    ("Upgrade", "h2c"),
    ("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
)
WEBSOCKET = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)
JSON = (("Content-Type", "application/json"),)


@pytest.fixture(scope="module", params=[LONE, ROUTED_FOUR], ids=lambda topology: topology.name)
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    topology: Topology = request.param
    env = {"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_ROUTING_REPLAY": "1"}
    with ExitStack() as stack:
        yield topology.start(stack.enter_context(open_groups()), "", env)


@pytest.fixture
def session(group: RunningGroup) -> RawSession:
    return RawSession(group.address)


def error_of(reply: Reply) -> dict[str, object]:
    """The error of a reply in the one error shape, which it must have."""
    (error,) = json.loads(reply.body).values()
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


# --- C-T1, C-T2: replies that came through


def assert_single(reply: Reply) -> None:
    """Each header that may come once came once, and one framing."""
    assert reply.header("server") == "sessile"
    assert reply.header("date")
    assert (reply.header("content-length") is None) != (reply.header("transfer-encoding") is None)
    assert reply.header("content-type") or not reply.body


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("POST", CHAT, chat_body(sim=SAY_OK)),
        ("POST", CHAT, chat_body(sim=SAY_OK, stream=True)),
        ("POST", CHAT, chat_body(sim={**SAY_OK, "fault": {"kind": "chunked"}})),
        (
            "POST",
            CHAT,
            chat_body(
                sim={
                    "fault": {
                        "kind": "status",
                        "status": 429,
                        "headers": [
                            ["server", "engine"],
                            ["date", "Thu, 01 Jan 1970 00:00:00 GMT"],
                            ["content-type", "application/json"],
                        ],
                    }
                }
            ),
        ),
        ("POST", CHAT, chat_body(sim={"fault": {"kind": "status", "status": 500, "text": "no"}})),
        ("POST", CHAT, b"[]"),
        ("GET", "", b""),
        ("HEAD", "", b""),
        ("GET", "/v1/models", b""),
        ("GET", "/any?sim_server=engine&sim_date=x&sim_hop=1&sim_cookies=1", b""),
        ("POST", "/any?sim_status=404&sim_server=engine&sim_text=gone", b"{}"),
        ("HEAD", "/any?sim_server=engine", b""),
    ],
)
def test_c_t1_a_reply_has_one_of_each_header_whatever_the_engine_sent(
    session: RawSession, method: str, rest: str, body: bytes
):
    assert_single(session.ask(method, rest, body=body))


@pytest.mark.parametrize("stream", [False, True])
def test_c_t2_a_reply_without_its_replay_has_its_own_length(session: RawSession, *, stream: bool):
    reply = session.chat(sim={**SAY_OK, "blob_mib": 1, "copies": "both"}, stream=stream)
    assert reply.status == 200
    assert b"routed_experts" not in reply.body
    assert reply.body_bytes < 100_000
    assert len(session.ask("GET").body) > 1 << 20, "the replay is in the record"


@pytest.mark.parametrize("status", [200, 500])
def test_c_t2_so_has_one_that_passes_by(session: RawSession, status: int):
    reply = session.ask("GET", f"/any?sim_replay=1&sim_status={status}")
    assert (reply.status, reply.header("content-length")) == (status, str(len(reply.body)))
    assert b"routed_experts" not in reply.body


# --- C-T3, C-T4, C-T5, C-T7: where a chat's body ends


@pytest.mark.parametrize("chunk_bytes", [0, 7], ids=["length", "chunked"])
def test_c_t3_a_chat_that_offers_h2c_is_served_with_its_whole_body(
    group: RunningGroup, session: RawSession, chunk_bytes: int
):
    data = request_bytes(
        "POST", session.path + CHAT, H2C, chat_body(sim=SAY_OK), chunk_bytes=chunk_bytes
    )
    with RawConnection(group.address) as connection:
        assert connection.ask(data).status == 200
        assert connection.ask(request_bytes("GET", "/livez")).status == 200
    assert session.said() == ["ok"]


@pytest.mark.parametrize("length", ["5", "0"])
def test_c_t4_a_chat_with_two_framings_is_refused_and_not_run(
    group: RunningGroup, session: RawSession, length: str
):
    before = session.engine_saw()
    both = [("Content-Length", length)]
    with RawConnection(group.address) as connection:
        body = chat_body(sim=SAY_OK)
        reply = connection.ask(
            request_bytes("POST", session.path + CHAT, both, body, chunk_bytes=99)
        )
        assert (reply.status, error_of(reply)["code"]) == (400, "bad_request_head")
        assert connection.read_to_end() == b""
    assert (session.said(), session.engine_saw()) == ([], before)


@pytest.mark.parametrize("missing_bytes", [1, 3, 5, 6, 40])
def test_c_t5_a_chat_cut_before_its_last_chunk_is_not_run(
    group: RunningGroup, session: RawSession, missing_bytes: int
):
    before = session.engine_saw()
    data = request_bytes("POST", session.path + CHAT, (), chat_body(sim=SAY_OK), chunk_bytes=50)
    with RawConnection(group.address) as connection:
        connection.send(data[:-missing_bytes])
        connection.half_close()
        with pytest.raises(ConnectionEndedError):
            connection.read_reply()
    assert (session.said(), session.engine_saw()) == ([], before)


def test_c_t7_a_chat_in_chunks_is_the_chat_with_a_length(group: RunningGroup):
    body = chat_body(sim=SAY_OK, seed=1, metadata={"pad": "p" * 70_000})
    lines = []
    for chunk_bytes in (0, 1, 65536):
        script = Transcript(group.address, keep_alive=True)
        session_id = script.create()
        target = f"/sessions/{session_id}{CHAT}"
        script.send(request_bytes("POST", target, JSON, body, chunk_bytes=chunk_bytes))
        script.ask("GET", f"/sessions/{session_id}")
        script.close()
        lines.append(script.lines)
    assert lines[0] == lines[1] == lines[2]
    assert [line[1] for line in lines[0]] == [200, 200, 200]


# --- C-T9, C-T10: heads


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("X-Long", "y" * 70_000)], 431),
        ([("X-Long", "y" * 16_000)], 200),
        ([("Cookie", "c" * 8_000)], 200),
        ([(f"X-{number}", "z") for number in range(500)], 200),
        ([(f"X-{number}", "z" * 200) for number in range(500)], 431),
    ],
)
def test_c_t9_heads_of_16_kb_are_taken_and_of_70_kb_refused(
    session: RawSession, headers: list[tuple[str, str]], status: int
):
    reply = session.chat(sim=SAY_OK, headers=tuple(headers))
    assert reply.status == status
    assert session.said() == (["ok"] if status == 200 else [])


@pytest.mark.parametrize(
    ("first", "hosts", "status", "base"),
    [
        ("POST /sessions HTTP/1.1", [], 400, ""),
        ("POST /sessions HTTP/1.1", ["a", "a"], 400, ""),
        ("POST /sessions HTTP/1.1", ["a.test:81"], 200, "http://a.test:81/"),
        ("POST http://a.test/sessions HTTP/1.1", ["a.test"], 200, "http://a.test/"),
        ("POST http://a.test HTTP/1.1", ["a.test"], 400, ""),
    ],
)
def test_c_t10_one_host_is_wanted_and_makes_the_base_url(
    group: RunningGroup, first: str, hosts: list[str], status: int, base: str
):
    lines = [first, *(f"Host: {host}" for host in hosts), "Content-Length: 0", "", ""]
    with RawConnection(group.address) as connection:
        reply = connection.ask("\r\n".join(lines).encode())
    assert reply.status == status
    if status == 200:
        assert json.loads(reply.body)["base_url"].startswith(base + "sessions/")
    else:
        error_of(reply)


# --- C-T11, C-T13: methods and slashes


@pytest.mark.parametrize(
    ("target", "status"),
    [("/", 200), ("/health", 200), ("/livez", 200), ("/readyz", 200), ("/v1/models", 200),
     ("{session}", 200), ("/sessions/x", 404), ("/nope", 404)],
)  # fmt: skip
def test_c_t11_head_is_get_without_a_body(
    group: RunningGroup, session: RawSession, target: str, status: int
):
    target = target.replace("{session}", session.path)
    with RawConnection(group.address) as connection:
        got = connection.ask(request_bytes("GET", target))
        head = connection.ask(request_bytes("HEAD", target), head_only=True)
        ragged = {"date", "content-length"} if target == "/health" else {"date"}  # ages in it
        assert (got.status, head.status) == (status, status)
        assert [h for h in got.headers if h[0] not in ragged] == [
            h for h in head.headers if h[0] not in ragged
        ]


@pytest.mark.parametrize(
    ("target", "allow"),
    [
        ("/", "GET, HEAD, OPTIONS"),
        ("/sessions", "OPTIONS, POST"),
        ("{session}", "DELETE, GET, HEAD, OPTIONS"),
        ("{session}/v1/chat/completions", "OPTIONS, POST"),
        ("{session}/v1/models", "GET, HEAD, OPTIONS"),
        ("{session}/anything", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"),
        ("/v1/chat/completions", "OPTIONS, POST"),
        ("/v1/models", "GET, HEAD, OPTIONS"),
    ],
)
def test_c_t11_options_tell_the_methods_of_each_route(
    group: RunningGroup, session: RawSession, target: str, allow: str
):
    with RawConnection(group.address) as connection:
        target = target.replace("{session}", session.path)
        reply = connection.ask(request_bytes("OPTIONS", target))
        assert (reply.status, reply.header("allow"), reply.body) == (204, allow, b"")


@pytest.mark.parametrize(
    "target",
    ["/sessions/", "{session}/", "{session}/v1/chat/completions/", "{session}//v1/models", "/v1/"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_c_t13_a_slash_at_the_end_is_never_redirected(
    group: RunningGroup, session: RawSession, target: str, method: str
):
    before = session.engine_saw()
    data = request_bytes(
        method, target.replace("{session}", session.path), JSON, chat_body(sim=SAY_OK)
    )
    with RawConnection(group.address) as connection:
        reply = connection.ask(data)
    assert reply.header("location") is None
    assert reply.status in (200, 401, 404, 405)
    assert (session.said(), session.engine_saw()) == ([], before), "and no chat slips past"


# --- C-T15, C-T20, C-T23


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'"x"', 400),
        (b"null", 400),
        (b"1", 400),
        (b"{", 400),
        (b"{}", 400),
        (b"{'messages': []}", 400),
        (b"\xef\xbb\xbf" + chat_body(sim=SAY_OK), 400),
        (chat_body(sim=SAY_OK).decode().encode("utf-16"), 400),
        (chat_body("caf\xe9", sim=SAY_OK).replace(b"\\u00e9", b"\xe9"), 400),
        (b"\0" + chat_body(sim=SAY_OK), 400),
        (chat_body(sim=SAY_OK)[:-1] + b',"model":"again"}', 200),
        (chat_body(sim=SAY_OK) + b"\n", 200),
        (chat_body(sim=SAY_OK) + b"{}", 400),
        (b"[" * 100_000, 400),
    ],
    ids=range(16),
)
def test_c_t15_a_body_that_is_no_chat_is_refused_in_the_one_shape(
    session: RawSession, body: bytes, status: int
):
    reply = session.ask("POST", CHAT, JSON, body)
    assert reply.status == status
    if status == 400:
        assert error_of(reply)["type"] == "invalid_request_error"
    assert session.said() == (["ok"] if status == 200 else [])


def test_c_t20_slow_clients_hold_up_nobody(group: RunningGroup, session: RawSession):
    chat = request_bytes("POST", session.path + CHAT, JSON, chat_body(sim=SAY_OK))
    slow = [RawConnection(group.address) for _ in range(60)]
    for number, connection in enumerate(slow):
        cut = 20 if number % 2 else len(chat) - 1  # in the head, in the body
        connection.send(chat[:cut])
    assert session.chat(sim=SAY_OK).status == 200
    assert session.said() == ["ok"]
    for connection in slow:
        connection.close()


def test_c_t23_a_websocket_is_refused_at_once_and_the_post_after_it_served(
    group: RunningGroup, session: RawSession
):
    for target in ("/v1/responses", f"{session.path}/v1/responses"):
        with RawConnection(group.address) as connection:
            reply = connection.ask(request_bytes("GET", target, WEBSOCKET))
            assert (reply.status, error_of(reply)["code"]) == (426, "upgrade_refused")
            assert connection.read_to_end() == b""
    assert session.ask("POST", "/v1/responses", JSON, b'{"input": "hi"}').status == 200
