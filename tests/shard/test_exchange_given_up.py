"""An exchange that the end of the process overtakes: answered, cut, or left to its own end."""

from __future__ import annotations

import pytest

from sessions.errors.group import GroupStoppedError
from sessions.wire.refusals import refusal_body_of
from tests.support.apps import pattern_of
from tests.support.fronts import error_code_of
from tests.support.held_app import HeldApp
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.raw import request_bytes
from tests.support.replies import ReplyCutError
from tests.support.stages import Stage, asked, serve_next
from tests.support.waiting import wait_until_async

GET = request_bytes("GET", "/one")
POST = request_bytes("POST", "/one", body=b"hello")
STOPPED = GroupStoppedError("the server stopped")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def give_up(stage: Stage) -> int:
    """What a farewell does; how many exchanges were cut."""
    if stage.house is not None:
        return stage.house.give_up(STOPPED)
    return sum(shard.loans.give_up(STOPPED) for shard in stage.shards)


@pytest.mark.parametrize("request_", [GET, POST, POST[:-1]], ids=["get", "post", "half a body"])
async def test_an_exchange_without_a_reply_is_answered_and_ended(
    stage: Stage, app: HeldApp, request_: bytes
) -> None:
    client, call = await asked(stage, app, request_)
    assert give_up(stage) == 1
    reply = await client.read_reply()
    assert (reply.status, error_code_of(reply)) == (503, "group_stopped")
    assert (reply.header("x-should-retry"), reply.header("retry-after")) == ("false", None)
    assert reply.header("connection") == "close"
    assert await client.read_to_end() == b""
    await call.reply(b"late")
    await stage.wait_back()


async def test_the_answer_on_the_path_of_mcp_is_an_error_of_json_rpc_too(
    stage: Stage, app: HeldApp
) -> None:
    client, _call = await asked(stage, app, request_bytes("POST", "/mcp?x", body=b"{}"))
    assert give_up(stage) == 1
    assert (await client.read_reply()).body == refusal_body_of(STOPPED, b"/mcp") != STOPPED.body


async def test_the_answer_to_head_has_no_body(stage: Stage, app: HeldApp) -> None:
    client, _call = await asked(stage, app, request_bytes("HEAD", "/one"))
    assert give_up(stage) == 1
    assert (await client.read_reply(head_only=True)).status == 503
    assert await client.read_to_end() == b""


async def test_a_head_that_has_not_left_gives_way_to_the_answer(stage: Stage, app: HeldApp) -> None:
    client, call = await asked(stage, app, GET)
    await call.start(length=2)
    assert give_up(stage) == 1
    assert (await client.read_reply()).status == 503


async def test_a_reply_in_the_middle_is_cut(stage: Stage, app: HeldApp) -> None:
    client, call = await asked(stage, app, GET)
    await call.start(length=10)
    await call.write(b"hello")
    assert give_up(stage) == 1
    with pytest.raises(ReplyCutError):
        await client.read_reply()
    await stage.wait_back()


async def test_a_whole_reply_before_the_end_of_its_request_is_kept_and_counts_as_no_cut(
    stage: Stage, app: HeldApp
) -> None:
    client, call = await asked(stage, app, POST[:-1])
    await call.reply(b"early")
    assert give_up(stage) == 0
    assert (await client.read_reply()).body == b"early"
    await stage.wait_back()


async def test_a_whole_reply_reaches_a_slow_reader(stage: Stage, app: HeldApp) -> None:
    client = await stage.connect(receive_buffer_bytes=4608)
    await client.send(GET)
    call = await app.call()
    answer = pattern_of("big", 8 << 20)
    await call.reply(answer)
    await turn(20)
    assert stage.lent_count == 1
    assert give_up(stage) == 0
    assert (await client.read_reply()).body == answer


async def test_an_exchange_is_given_up_once(stage: Stage, app: HeldApp) -> None:
    client, _call = await asked(stage, app, GET)
    assert [give_up(stage), give_up(stage)] == [1, 0]
    assert (await client.read_reply()).status == 503
    assert await client.read_to_end() == b""


async def test_connections_that_wait_for_their_next_request_are_left_alone(
    stage: Stage, app: HeldApp
) -> None:
    client = await stage.connect()
    await serve_next(client, app, 0)
    await wait_until_async(lambda: not stage.lent_count, "the end of the exchange")
    await turn(20)
    assert give_up(stage) == 0
    await serve_next(client, app, 1)
