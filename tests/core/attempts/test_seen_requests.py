"""Which requests join a turn, which are answered again, and which begin one."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sessions.core.attempts.retry_marks import RetryMarks
from sessions.core.attempts.seen_requests import (
    KEYS_KEPT,
    REPLIES_KEPT,
    REPLIES_KEPT_BYTES,
    SeenRequests,
)
from sessions.core.attempts.shared_turn import SharedTurn
from sessions.core.attempts.turn_reply import TurnReply
from sessions.core.histories.checkpoint import Checkpoint
from sessions.errors.engine import EngineTimeoutError
from sessions.errors.turns import IdempotencyKeyReusedError
from tests.support.turn_outcomes import checkpoint, turn_reply


class Stage:
    """Requests of one session, and turns that end when the test says so."""

    def __init__(self, *, linear: bool = True) -> None:
        self.seen = SeenRequests(joins_unmarked=linear)
        self._ends: dict[SharedTurn, asyncio.Future[TurnReply]] = {}

    def begin(self, marks: RetryMarks) -> SharedTurn:
        end: asyncio.Future[TurnReply] = asyncio.get_running_loop().create_future()

        async def run() -> TurnReply:
            return await end

        turn = SharedTurn(asyncio.create_task(run()))
        self._ends[turn] = end
        self.seen.begin(marks, turn)
        return turn

    async def end(self, turn: SharedTurn, outcome: TurnReply | Exception) -> None:
        if isinstance(outcome, TurnReply):
            self._ends[turn].set_result(outcome)
        else:
            self._ends[turn].set_exception(outcome)
        await asyncio.wait({turn.task})
        await asyncio.sleep(0)  # its callbacks

    async def answer(self, marks: RetryMarks, reply: TurnReply) -> None:
        await self.end(self.begin(marks), reply)

    def body_for(self, marks: RetryMarks) -> bytes | None:
        """The body of the reply that is kept for a request."""
        found = self.seen.find(marks)
        assert isinstance(found, TurnReply)
        return found.body


def plain(body: str) -> RetryMarks:
    return RetryMarks(digest=body.encode())


def retry(body: str) -> RetryMarks:
    return RetryMarks(digest=body.encode(), is_counted=True)


def keyed(body: str, key: str = "k") -> RetryMarks:
    return RetryMarks(digest=body.encode(), key=key.encode())


def after(*heads: Checkpoint, body: bytes = b"x") -> TurnReply:
    return replace(turn_reply(body), former_heads=heads)


async def test_a_request_that_was_never_seen_begins_a_turn():
    stage = Stage()
    assert stage.seen.find(plain("a")) is None
    assert stage.seen.find(retry("a")) is None
    assert stage.seen.find(keyed("a")) is None


@pytest.mark.parametrize("linear", [True, False])
async def test_a_retry_joins_its_turn_in_flight(*, linear: bool):
    stage = Stage(linear=linear)
    turn = stage.begin(plain("a"))
    assert stage.seen.find(retry("a")) is turn
    assert stage.seen.find(retry("b")) is None


async def test_the_same_body_joins_in_flight_only_where_one_could_be_recorded():
    linear, tree = Stage(linear=True), Stage(linear=False)
    turn = linear.begin(plain("a"))
    tree.begin(plain("a"))
    assert linear.seen.find(plain("a")) is turn
    assert linear.seen.find(plain("b")) is None
    assert tree.seen.find(plain("a")) is None


async def test_a_key_that_was_seen_marks_a_retry():
    stage = Stage(linear=False)
    assert stage.seen.find(keyed("a")) is None
    turn = stage.begin(keyed("a"))
    assert stage.seen.find(keyed("a")) is turn
    assert stage.seen.find(keyed("a", "other")) is None


async def test_a_retry_joins_the_turn_of_its_own_key_of_several():
    stage = Stage(linear=False)
    turns = {}
    for key in ("j", "k", "l"):
        assert stage.seen.find(keyed("a", key)) is None
        turns[key] = stage.begin(keyed("a", key))
    assert stage.seen.find(keyed("a", "k")) is turns["k"]
    assert stage.seen.find(retry("a")) is turns["l"]


@pytest.mark.parametrize("linear", [True, False])
async def test_a_key_that_was_seen_with_another_body_is_refused(*, linear: bool):
    stage = Stage(linear=linear)
    stage.seen.find(keyed("a"))
    with pytest.raises(IdempotencyKeyReusedError):
        stage.seen.find(keyed("b"))
    # It is still the key of the first body.
    assert stage.seen.find(keyed("a")) is None


async def test_a_retry_of_the_newest_turn_gets_its_reply_and_the_same_body_does_not():
    stage = Stage()
    await stage.answer(keyed("a"), turn_reply(b"one"))
    assert stage.body_for(retry("a")) == b"one"
    assert stage.seen.find(plain("a")) is None
    assert stage.seen.find(retry("b")) is None


async def test_a_key_that_was_seen_with_the_newest_turn_gets_its_reply():
    stage = Stage()
    stage.seen.find(keyed("a"))
    await stage.answer(keyed("a"), turn_reply(b"one"))
    assert stage.body_for(keyed("a")) == b"one"


async def test_a_turn_in_flight_goes_before_one_that_was_answered():
    stage = Stage()
    await stage.answer(plain("a"), turn_reply(b"one"))
    turn = stage.begin(plain("a"))
    assert stage.seen.find(retry("a")) is turn


@pytest.mark.parametrize(
    "outcome",
    [
        EngineTimeoutError("silent"),
        turn_reply(is_recorded=False),
        turn_reply(None, is_recorded=False),
    ],
)
async def test_a_turn_that_was_not_recorded_is_forgotten_at_its_end(outcome: Any):  # noqa: ANN401
    stage = Stage()
    turn = stage.begin(plain("a"))
    assert stage.seen.find(retry("a")) is turn
    await stage.end(turn, outcome)
    assert stage.seen.find(retry("a")) is None


async def test_a_turn_that_nobody_waits_for_any_more_is_not_joined():
    stage = Stage()
    turn = stage.begin(plain("a"))
    turn.join()
    assert turn.leave()
    assert stage.seen.find(retry("a")) is None
    await asyncio.wait({turn.task})
    await asyncio.sleep(0)
    assert stage.seen.find(retry("a")) is None


async def test_a_turn_that_was_cancelled_is_forgotten_without_a_word():
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    stage = Stage()
    turn = stage.begin(plain("a"))
    turn.task.cancel()
    await asyncio.wait({turn.task})
    await asyncio.sleep(0)
    assert stage.seen.find(retry("a")) is None
    assert told == []


async def test_a_linear_session_keeps_the_reply_of_its_newest_turn_alone():
    stage = Stage()
    first, second, third = after(body=b"one"), turn_reply(b"two"), turn_reply(b"three")
    assert first.turn
    assert second.turn
    await stage.answer(plain("a"), first)
    await stage.answer(plain("b"), replace(second, former_heads=(first.turn,)))
    assert stage.seen.find(retry("a")) is None
    assert stage.body_for(retry("b")) == b"two"
    # A roll-back: the dropped turn was the newest, and the first one is no head any more.
    await stage.answer(plain("b"), replace(third, former_heads=(second.turn, first.turn)))
    assert stage.body_for(retry("b")) == b"three"
    assert len(stage.seen._answered) == 1


async def test_each_branch_keeps_the_reply_of_its_newest_turn():
    stage = Stage(linear=False)
    root, left, right = turn_reply(b"root"), turn_reply(b"left"), turn_reply(b"right")
    assert root.turn
    await stage.answer(plain("root"), root)
    await stage.answer(plain("left"), replace(left, former_heads=(root.turn,)))
    await stage.answer(plain("right"), replace(right, former_heads=(root.turn,)))
    assert stage.body_for(retry("left")) == b"left"
    assert stage.body_for(retry("right")) == b"right"
    assert stage.seen.find(retry("root")) is None


async def test_of_equal_siblings_the_newest_is_answered():
    stage = Stage(linear=False)
    await stage.answer(plain("a"), turn_reply(b"one"))
    await stage.answer(plain("a"), turn_reply(b"two"))
    assert stage.body_for(retry("a")) == b"two"


async def test_of_equal_siblings_a_retry_gets_the_turn_of_its_own_key():
    stage = Stage(linear=False)
    for key in ("j", "k"):
        assert stage.seen.find(keyed("a", key)) is None
        await stage.answer(keyed("a", key), turn_reply(key.encode()))
    turn = stage.begin(plain("a"))
    assert stage.body_for(keyed("a", "j")) == b"j"
    assert stage.body_for(keyed("a", "k")) == b"k"
    assert stage.seen.find(retry("a")) is turn


async def test_a_kept_reply_does_not_hold_on_to_turns_that_were_dropped():
    stage = Stage()
    await stage.answer(plain("a"), after(checkpoint()))
    found = stage.seen.find(retry("a"))
    assert isinstance(found, TurnReply)
    assert found.former_heads == ()


async def test_over_the_limit_the_oldest_reply_is_forgotten():
    stage = Stage(linear=False)
    for number in range(REPLIES_KEPT + 1):
        await stage.answer(plain(f"body {number}"), turn_reply())
    assert stage.seen.find(retry("body 0")) is None
    assert stage.seen.find(retry("body 1")) is not None


async def test_long_replies_are_forgotten_sooner_and_the_newest_never():
    stage = Stage(linear=False)
    half = bytes(REPLIES_KEPT_BYTES // 2)
    for name in ("a", "b", "c"):
        await stage.answer(plain(name), turn_reply(half))
    assert [stage.seen.find(retry(name)) is not None for name in "abc"] == [False, True, True]
    await stage.answer(plain("d"), turn_reply(3 * half))
    assert [stage.seen.find(retry(name)) is not None for name in "bcd"] == [False, False, True]


async def test_over_the_limit_the_oldest_key_is_forgotten():
    stage = Stage(linear=False)
    for number in range(KEYS_KEPT):
        stage.seen.find(keyed("a", str(number)))
    with pytest.raises(IdempotencyKeyReusedError):
        stage.seen.find(keyed("b", "0"))
    stage.seen.find(keyed("a", str(KEYS_KEPT)))
    assert stage.seen.find(keyed("b", "0")) is None
    with pytest.raises(IdempotencyKeyReusedError):
        stage.seen.find(keyed("b", "2"))
