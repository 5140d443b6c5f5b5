"""The server: faults as a raw client sees them, a shared loop, and ends that wait for nobody."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import AsyncExitStack

import httpx
import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from sessions.errors.unseen import SettingsError
from sessions.sim.options import SimOptions
from sessions.sim.server import (
    _config_of,
    _ConnectionWire,
    run_sim,
    serve_sim,
    simulated_engine,
)
from sessions.tokens.tokenizer import Tokenizer
from tests.support.processes import descriptor_count
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import ConnectionEndedError, ReplyCutError
from tests.support.waiting import wait_until_async

Address = tuple[str, int]


@pytest.fixture(
    scope="module",
    params=[("asyncio", {}), ("asyncio", {"use_uvloop": True})],
    ids=["asyncio", "uvloop"],
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def chat_bytes(**fields: object) -> bytes:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    headers = [("content-type", "application/json")]
    return request_bytes("POST", "/v1/chat/completions", headers, json.dumps(body).encode())


def faulty(kind: str, **fields: object) -> bytes:
    return chat_bytes(sim={"content": "x" * 100, "fault": {"kind": kind, **fields}})


async def test_a_reply_has_one_date_and_server_and_the_connection_stays(address: Address):
    async with open_raw(address) as raw:
        for _ in range(2):
            reply = await raw.ask(chat_bytes())
            assert reply.status == 200
            assert reply.framing == "length"
            assert [name for name, _ in reply.headers] == [
                "date",
                "server",
                "content-type",
                "content-length",
            ]


@pytest.mark.parametrize("address", ["sim:?layers=48&topk=8"], indirect=True)
async def test_large_bodies_arrive_whole(address: Address):
    async with open_raw(address) as raw:
        fields = {"return_meta_info": True, "return_routed_experts": True, "max_tokens": 8}
        reply = await raw.ask(chat_bytes(sim={"blob_mib": 20}, copies="both", **fields))
        document = json.loads(reply.body)
        assert len(document["choices"][0]["meta_info"]["routed_experts"]) >= 20 << 20
        reply = await raw.ask(chat_bytes(input_ids=list(range(3000)), **fields))
        document = json.loads(reply.body)
        rows = b64decode(document["choices"][0]["meta_info"]["routed_experts"], validate=True)
        assert len(rows) == (3000 + 8 - 1) * 48 * 8 * 4


async def test_other_requests_are_answered_while_a_large_body_is_sent(address: Address):
    async with open_raw(address) as slow, open_raw(address) as quick:
        await slow.send(chat_bytes(return_routed_experts=True, max_tokens=8, sim={"blob_mib": 200}))
        while b"\r\n\r\n" not in slow.parser.leftover:
            await slow._read()
        assert (await quick.ask(request_bytes("GET", "/health"))).status == 200
        assert len(slow.parser.leftover) < 100 << 20


async def test_chunks_instead_of_a_length_keep_the_connection(address: Address):
    async with open_raw(address) as raw:
        reply = await raw.ask(faulty("chunked"))
        assert reply.framing == "chunked"
        assert json.loads(reply.body)["choices"]
        assert (await raw.ask(chat_bytes())).status == 200


@pytest.mark.parametrize("after", [0, 1, 100])
async def test_a_cut_comes_after_exactly_so_many_bytes(address: Address, after: int):
    async with open_raw(address) as raw:
        with pytest.raises(ReplyCutError) as caught:
            await raw.ask(faulty("cut", after_bytes=after))
        assert len(caught.value.body) == after


async def test_a_cut_before_the_head_sends_nothing(address: Address):
    async with open_raw(address) as raw:
        with pytest.raises(ConnectionEndedError):
            await raw.ask(faulty("cut"))


@pytest.mark.parametrize("after", [None, 0, 50])
async def test_a_reset_is_a_reset(address: Address, after: int | None):
    async with open_raw(address) as raw:
        await raw.send(faulty("reset", after_bytes=after))
        with pytest.raises(ConnectionResetError):
            await raw.read_to_end()
        head, _, body = raw.parser.leftover.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n" if after is not None else b"")
        assert len(body) == (after or 0)


async def test_a_stalled_reply_neither_goes_on_nor_ends(address: Address):
    async with open_raw(address) as raw, open_raw(address) as other:
        await raw.send(faulty("stall", after_bytes=5))
        while not raw.parser.leftover.partition(b"\r\n\r\n")[2]:
            await raw._read()
        assert (await other.ask(chat_bytes())).status == 200
        assert len(raw.parser.leftover.partition(b"\r\n\r\n")[2]) == 5
        assert not raw.parser.ended


async def test_a_length_can_be_too_long(address: Address):
    async with open_raw(address) as raw:
        with pytest.raises(ReplyCutError) as caught:
            await raw.ask(faulty("length", by=7))
        assert json.loads(caught.value.body)


async def test_a_length_can_be_too_short(address: Address):
    async with open_raw(address) as raw:
        reply = await raw.ask(faulty("length", by=-7))
        assert reply.header("connection") == "close"
        rest = await raw.read_to_end()
        assert len(rest) == 7
        assert json.loads(reply.body + rest)


async def test_own_server_and_date_come_once(address: Address):
    async with open_raw(address) as raw:
        reply = await raw.ask(request_bytes("GET", "/x?sim_server=own&sim_date=then"))
        assert (reply.header("server"), reply.header("date")) == ("own", "then")
        reply = await raw.ask(request_bytes("GET", "/x"))
        assert reply.header("server") == "sim"
        reply = await raw.ask(request_bytes("HEAD", "/x"), head_only=True)
        assert reply.status == 200


async def test_a_stream_is_chunked_and_ends(address: Address):
    async with open_raw(address) as raw:
        reply = await raw.ask(chat_bytes(stream=True))
        assert reply.framing == "chunked"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert (await raw.ask(chat_bytes())).status == 200


def test_the_idle_time_is_an_option(tokenizer: Tokenizer):
    assert _config_of(SimOptions(keep_alive_s=7), tokenizer).timeout_keep_alive == 7


class FakeTransport(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[object] = []
        self.closing = False

    def write(self, data: object) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing


async def test_a_wire_waits_for_room_and_yields():
    transport = FakeTransport()
    flow = FlowControl(transport)
    wire = _ConnectionWire(transport, flow, None)  # type: ignore[arg-type]
    flow.pause_writing()
    writing = asyncio.create_task(wire.write(b"a"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert transport.written == []
    flow.resume_writing()
    await writing
    assert transport.written == [b"a"]
    writing = asyncio.create_task(wire.write(b"b"))
    await asyncio.sleep(0)
    assert transport.written == [b"a", b"b"]
    assert not writing.done()
    await writing
    transport.closing = True
    await wire.write(b"c")
    assert transport.written == [b"a", b"b"]


@pytest.mark.parametrize("address", ["sim:?token_s=3000"], indirect=True)
async def test_a_stream_takes_its_time_and_ends_with_its_client(address: Address):
    before = len(asyncio.all_tasks())
    async with open_raw(address) as raw:
        await raw.send(chat_bytes(stream=True))
        while b"data: " not in raw.parser.leftover:
            await raw._read()
        await wait_seen(address, 1)
        assert raw.parser.leftover.count(b"data: ") == 1
    await wait_until_async(lambda: len(asyncio.all_tasks()) == before, "the request ended")


async def wait_seen(address: Address, count: int) -> None:
    """Wait until so many chats have reached the engine."""
    async with httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}") as client:
        # Each look is a round through the loop that the engine shares.
        while (await client.get("/sim/requests")).json()["seen"] < count:
            pass


async def test_a_client_that_goes_ends_its_request(
    address: Address, caplog: pytest.LogCaptureFixture
):
    before = len(asyncio.all_tasks())
    async with open_raw(address) as raw:
        await raw.send(chat_bytes(sim={"delay_s": 3000}))
        await wait_seen(address, 1)
        assert len(asyncio.all_tasks()) > before
    await wait_until_async(lambda: len(asyncio.all_tasks()) == before, "the request ended")
    assert caplog.records == []


async def test_a_client_that_goes_within_its_body_is_no_error(
    address: Address, caplog: pytest.LogCaptureFixture
):
    before = len(asyncio.all_tasks())
    for target in ("/v1/chat/completions", "/x"):
        async with open_raw(address) as raw:
            await raw.send(request_bytes("POST", target, body=b"x" * 100)[:-50])
            await wait_until_async(lambda: len(asyncio.all_tasks()) > before, "it began")
        await wait_until_async(lambda: len(asyncio.all_tasks()) == before, "it ended")
    assert caplog.records == []


async def busy(raw: AsyncRawConnection, kind: str, address: Address) -> None:
    if kind == "waiting":
        await raw.send(chat_bytes(sim={"delay_s": 3000}))
        await wait_seen(address, 1)
    elif kind == "stalled":
        await raw.send(faulty("stall", after_bytes=1))
        await wait_seen(address, 1)
    elif kind == "sending":
        await raw.send(chat_bytes(return_routed_experts=True, max_tokens=8, sim={"blob_mib": 100}))
        await raw._read()
        for _ in range(400):  # of 128 KiB each: more than all buffers on the way take
            await asyncio.sleep(0)
    else:
        await raw.ask(chat_bytes())


@pytest.mark.parametrize("kind", ["idle", "waiting", "stalled", "sending"])
async def test_an_end_waits_for_nobody_and_leaves_nothing(
    tokenizer: Tokenizer, kind: str, caplog: pytest.LogCaptureFixture
):
    async with simulated_engine("sim:", tokenizer):
        pass  # uvloop opens a descriptor of its own with the first server
    tasks, descriptors = asyncio.all_tasks(), descriptor_count(os.getpid())
    async with AsyncExitStack() as clients:
        async with simulated_engine("sim:", tokenizer) as url:
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            raw = await clients.enter_async_context(open_raw(address))
            await busy(raw, kind, address)
        assert asyncio.all_tasks() == tasks
        assert descriptor_count(os.getpid()) == descriptors + 1  # the client's
    await wait_until_async(lambda: descriptor_count(os.getpid()) == descriptors, "descriptors back")
    assert caplog.records == []


async def test_no_connection_is_left_when_serving_returns(tokenizer: Tokenizer):
    async with simulated_engine("sim:", tokenizer):
        pass  # as above
    descriptors = descriptor_count(os.getpid())
    sock = socket.create_server(("127.0.0.1", 0))
    sock.settimeout(0)
    stop = asyncio.Event()
    async with open_raw(sock.getsockname()) as raw:

        async def ask_and_stop() -> None:
            await raw.ask(chat_bytes())
            stop.set()

        asking = asyncio.create_task(ask_and_stop())
        await serve_sim(SimOptions(), tokenizer, sock, stop=stop)
        assert descriptor_count(os.getpid()) == descriptors + 1  # the client's
        await asking


async def test_nobody_listens_after_the_end(tokenizer: Tokenizer):
    async with simulated_engine("sim:", tokenizer) as url, httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/health")).status_code == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))


async def test_engines_in_one_loop_do_not_share_anything(tokenizer: Tokenizer):
    async with (
        simulated_engine("sim:?model=a", tokenizer) as first,
        simulated_engine("sim:?model=b", tokenizer) as second,
        httpx.AsyncClient() as client,
    ):
        await client.post(f"{first}/v1/chat/completions", json={"messages": []})
        assert (await client.get(f"{first}/sim/requests")).json()["seen"] == 1
        assert (await client.get(f"{second}/sim/requests")).json()["seen"] == 0
        assert (await client.get(f"{second}/v1/models")).json()["data"][0]["id"] == "b"


async def test_a_refused_engine_never_starts(tokenizer: Tokenizer):
    with pytest.raises(SettingsError, match="unknown option"):
        async with simulated_engine("sim:?nothing=1", tokenizer):
            pass


@pytest.mark.parametrize("cancel", [False, True])
async def test_serving_a_given_socket_ends_by_event_or_cancellation(
    tokenizer: Tokenizer, *, cancel: bool
):
    sock = socket.create_server(("127.0.0.1", 0))
    sock.settimeout(0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_sim(SimOptions(), tokenizer, sock, stop=stop))
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/health")).status_code == 200
        serving.cancel() if cancel else stop.set()
        await asyncio.wait([serving])
    assert serving.cancelled() is cancel
    assert sock.fileno() == -1


async def test_the_access_log_of_the_process_is_left_alone(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    access = logging.getLogger("uvicorn.access")
    before = (access.level, access.propagate, list(access.handlers), access.disabled)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with simulated_engine("sim:", tokenizer) as url, httpx.AsyncClient() as client:
        await client.get(f"{url}/health")
        assert (access.level, access.propagate, list(access.handlers), access.disabled) == before
        assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


ALONE = """
from sessions.sim.options import SimOptions
from sessions.sim.server import run_sim
run_sim("127.0.0.1", 0, SimOptions(model="alone"), announce=lambda url: print(url, flush=True))
"""


@pytest.fixture
def alone() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True) as made:
        yield made
        made.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_engine_alone_serves_until_it_is_told_to_end(
    alone: subprocess.Popen[str], number: signal.Signals
):
    assert alone.stdout is not None
    url = alone.stdout.readline().strip()
    found = httpx.get(f"{url}/v1/models").json()
    assert found["data"][0]["id"] == "alone"
    alone.send_signal(number)
    assert alone.wait(10) == 0


def test_an_address_in_use_is_refused_in_one_line():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(SettingsError, match=r"cannot listen on 127\.0\.0\.1 port"),
    ):
        run_sim("127.0.0.1", taken.getsockname()[1], SimOptions())
