"""The judges of deaths and stops find what they must find."""

from __future__ import annotations

import json
from typing import cast

import pytest

from tests.support.apps import pattern_of
from tests.support.crashes import Death, _fault_of_end, _fault_of_gone, _fault_of_halt
from tests.support.flight_app import FLOOD_BYTES
from tests.support.flights import End, Flight, Kind, Landing
from tests.support.raw import AsyncRawConnection
from tests.support.replies import Reply
from tests.support.stop_load import Stop, _fault_of, _Reset

CAUSE = "the server is going down because shard 1 (pid 7) was killed by SIGKILL"


def flight_of(kind: Kind, *, shard: int = 1, session: str = "s") -> Flight:
    connection = cast("AsyncRawConnection", None)
    return Flight(kind, connection, session=session, shard=shard, seed="f1")


def reply_of(status: int, body: bytes = b"", **headers: str) -> Reply:
    return Reply(
        version="1.1",
        status=status,
        reason="",
        headers=[(name.replace("_", "-"), value) for name, value in headers.items()],
        head=b"",
        body=body,
        body_bytes=len(body),
        framing="length",
    )


def refusal(status: int, code: str, message: str, *, connection: str = "close") -> Reply:
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    return reply_of(status, body, x_should_retry="false", connection=connection)


def fault_of_halt(flight: Flight, *replies: Reply, end: End, death: Death = Death.KILL) -> str:
    landing = Landing(replies=list(replies), end=end)
    return _fault_of_end(flight, landing) or _fault_of_halt(flight, landing, death)


TOLD = refusal(503, "group_dying", CAUSE)


@pytest.mark.parametrize("kind", [Kind.WAITING, Kind.SENDING, Kind.HALF_HEAD, Kind.EXITING])
def test_an_unanswered_client_must_be_told_what_died(kind: Kind):
    flight = flight_of(kind)
    assert fault_of_halt(flight, TOLD, end=End.CLOSED) == ""
    assert "dropped" in fault_of_halt(flight, end=End.CLOSED)
    assert "dropped" in fault_of_halt(flight, end=End.RESET)
    assert "hung" in fault_of_halt(flight, TOLD, end=End.HUNG)
    assert "more than one" in fault_of_halt(flight, TOLD, TOLD, end=End.CLOSED)
    assert "cut" in fault_of_halt(flight, end=End.CUT)
    vague = refusal(503, "group_dying", "shard 2 was killed by SIGKILL")
    assert "lacks" in fault_of_halt(flight, vague, end=End.CLOSED)
    open_end = refusal(503, "group_dying", CAUSE, connection="keep-alive")
    assert "lacks" in fault_of_halt(flight, open_end, end=End.CLOSED)
    assert "wrong" in fault_of_halt(flight, refusal(410, "gone", CAUSE), end=End.CLOSED)


def test_only_the_death_of_router_or_arbiter_may_leave_a_client_untold():
    for death in (Death.ROUTER, Death.ARBITER):
        assert fault_of_halt(flight_of(Kind.WAITING), end=End.RESET, death=death) == ""


@pytest.mark.parametrize("kind", [Kind.STALLED, Kind.DRIPPING, Kind.FLOODED])
def test_a_reply_in_its_middle_must_be_cut(kind: Kind):
    assert fault_of_halt(flight_of(kind), end=End.CUT) == ""
    assert fault_of_halt(flight_of(kind), end=End.RESET) == ""
    assert "not cut" in fault_of_halt(flight_of(kind), end=End.CLOSED)
    assert "not cut" in fault_of_halt(flight_of(kind), reply_of(200), end=End.CLOSED)


def test_a_shard_that_lives_longer_may_finish_a_reply_if_it_is_right():
    whole = reply_of(200, pattern_of("f1", FLOOD_BYTES))
    wrong = reply_of(200, pattern_of("f2", FLOOD_BYTES))
    flight = flight_of(Kind.FLOODED, shard=0)
    assert fault_of_halt(flight, whole, end=End.CLOSED, death=Death.STOP) == ""
    assert "not cut" in fault_of_halt(flight, wrong, end=End.CLOSED, death=Death.STOP)
    assert "not cut" in fault_of_halt(flight_of(Kind.FLOODED), whole, end=End.CLOSED)


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.PARKED, Kind.DISCARDING])
def test_a_client_that_had_its_reply_must_not_get_another(kind: Kind):
    assert fault_of_halt(flight_of(kind), end=End.CLOSED) == ""
    assert "second" in fault_of_halt(flight_of(kind), TOLD, end=End.CLOSED)


def test_under_continue_sessions_are_gone_and_other_requests_failed():
    message = "shard 1 (pid 7) that held it died"
    gone = Landing(replies=[refusal(410, "shard_gone", message)], end=End.CLOSED)
    failed = Landing(replies=[refusal(502, "shard_died", message)], end=End.CLOSED)
    named, plain = flight_of(Kind.WAITING), flight_of(Kind.WAITING, session="")
    assert (_fault_of_gone(named, gone), _fault_of_gone(plain, failed)) == ("", "")
    assert "wrong" in _fault_of_gone(named, failed)
    assert "wrong" in _fault_of_gone(plain, gone)


def test_a_reset_of_an_accepted_connection_is_told_from_one_of_the_backlog():
    stop = Stop(last_answered_at=10.0)
    stop.resets = [_Reset(connected_at=9.9), _Reset(connected_at=10.1)]
    stop.judge_resets()
    assert stop.faults == ["a new connection was accepted and reset"]
    assert stop.seen["backlog"] == 1


@pytest.mark.parametrize(
    ("headers", "code", "fault"),
    [
        ({"retry_after": "1", "connection": "close"}, "not_ready", False),
        ({"connection": "close"}, "not_ready", True),
        ({"retry_after": "1"}, "not_ready", True),
        ({"retry_after": "1", "connection": "close"}, "group_dying", True),
    ],
)
def test_a_503_of_a_stop_must_say_when_to_come_again(
    headers: dict[str, str], code: str, *, fault: bool
):
    body = json.dumps({"error": {"code": code}}).encode()
    assert bool(_fault_of(reply_of(503, body, **headers), "x")) is fault


def test_a_reply_of_another_request_is_a_fault():
    assert _fault_of(reply_of(200, pattern_of("other", 300)), "mine")
