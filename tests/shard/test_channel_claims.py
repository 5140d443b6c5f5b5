"""A shard's claims over its channel, with a fake channel as the router."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from sessions.errors.episodes import DuplicateClaimError
from sessions.errors.unseen import LocalProtocolError
from sessions.lending.channel import Channel
from sessions.lending.messages import Claimed, Kind, Message
from sessions.shard.channel_claims import ChannelClaims
from sessions.tools.claims import LocalClaims
from tests.support.fake_links import FakeChannel
from tests.support.loops import turn

KEY, OTHER = b"k" * 16, b"o" * 16


class Desk:
    """Claims, and what they say to the router."""

    def __init__(self) -> None:
        self.channel = FakeChannel()
        self.claims = ChannelClaims()
        self.claims.attach(cast("Channel", self.channel))

    def answer(self, request: Message, word: Claimed) -> None:
        """Answer as the router does."""
        self.claims.on_claimed(Message(Kind.CLAIMED, word, 0, 0, request.generation, b""))

    async def taken(self, key: bytes, word: Claimed = Claimed.GRANTED) -> asyncio.Task[None]:
        """A claim that was asked for and answered."""
        task = asyncio.create_task(self.claims.claim(key))
        await turn()
        self.answer(self.channel.messages[-1], word)
        await asyncio.wait((task,))
        return task


@pytest.fixture
async def desk() -> Desk:
    return Desk()


async def test_a_claim_is_asked_for_and_lasts_until_it_is_answered(desk: Desk) -> None:
    task = asyncio.create_task(desk.claims.claim(KEY))
    await turn(3)
    assert not task.done()
    assert desk.channel.messages == [Message(Kind.CLAIM, 0, 0, 0, 1, KEY)]
    assert not desk.claims.holds(KEY)
    desk.answer(desk.channel.messages[0], Claimed.GRANTED)
    await task
    assert desk.claims.holds(KEY)


async def test_answers_find_their_claims_in_any_order(desk: Desk) -> None:
    tasks = [asyncio.create_task(desk.claims.claim(key)) for key in (KEY, OTHER)]
    await turn()
    first, second = desk.channel.messages
    desk.answer(second, Claimed.HELD)
    desk.answer(first, Claimed.GRANTED)
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in done] == [type(None), DuplicateClaimError]
    assert desk.claims.holds(KEY)
    assert not desk.claims.holds(OTHER)


async def test_a_duplicate_is_refused_and_releases_nothing(desk: Desk) -> None:
    task = await desk.taken(KEY, Claimed.HELD)
    with pytest.raises(DuplicateClaimError):
        await task
    desk.claims.release(KEY)
    assert [message.kind for message in desk.channel.messages] == [Kind.CLAIM]


async def test_a_duplicate_gets_the_same_words_as_in_a_lone_shard(desk: Desk) -> None:
    lone = LocalClaims()
    await lone.claim(KEY)
    with pytest.raises(DuplicateClaimError) as alone:
        await lone.claim(KEY)
    with pytest.raises(DuplicateClaimError) as routed:
        await (await desk.taken(KEY, Claimed.HELD))
    assert routed.value.body == alone.value.body


async def test_a_release_is_said_once(desk: Desk) -> None:
    await (await desk.taken(KEY))
    for key in (KEY, KEY, OTHER):
        desk.claims.release(key)
    assert desk.channel.messages[1:] == [Message(Kind.UNCLAIM, 0, 0, 0, 0, KEY)]
    assert not desk.claims.holds(KEY)


async def test_what_is_over_is_told_and_stays_held(desk: Desk) -> None:
    await (await desk.taken(KEY))
    for key in (KEY, OTHER):
        desk.claims.end(key)
    assert desk.channel.messages[1:] == [Message(Kind.END_CLAIM, 0, 0, 0, 0, KEY)]
    assert desk.claims.holds(KEY)
    with pytest.raises(DuplicateClaimError):
        await desk.claims.claim(KEY)


@pytest.mark.parametrize("word", Claimed)
async def test_a_claim_whose_claimant_was_cancelled_is_given_up_if_it_is_granted(
    desk: Desk, word: Claimed
) -> None:
    task = asyncio.create_task(desk.claims.claim(KEY))
    await turn()
    task.cancel()
    await asyncio.wait((task,))
    desk.answer(desk.channel.messages[0], word)
    given_up = [Message(Kind.UNCLAIM, 0, 0, 0, 0, KEY)] if word is Claimed.GRANTED else []
    assert desk.channel.messages[1:] == given_up
    assert not desk.claims.holds(KEY)


async def test_a_claimant_cancelled_as_the_answer_comes_holds_nothing(desk: Desk) -> None:
    task = asyncio.create_task(desk.claims.claim(KEY))
    await turn()
    desk.answer(desk.channel.messages[0], Claimed.GRANTED)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert not desk.claims.holds(KEY)
    assert desk.channel.messages[1:] == [Message(Kind.UNCLAIM, 0, 0, 0, 0, KEY)]


async def test_a_duplicate_cancelled_as_its_refusal_comes_leaves_the_claim_held(desk: Desk) -> None:
    both = [asyncio.create_task(desk.claims.claim(KEY)) for _ in range(2)]
    await turn()
    first, second = desk.channel.messages
    desk.answer(first, Claimed.GRANTED)
    desk.answer(second, Claimed.HELD)
    both[1].cancel()
    await asyncio.wait(both)
    assert both[1].cancelled()
    assert desk.claims.holds(KEY)
    assert [message.kind for message in desk.channel.messages] == [Kind.CLAIM, Kind.CLAIM]


async def test_what_is_held_here_is_a_duplicate_without_asking(desk: Desk) -> None:
    await (await desk.taken(KEY))
    with pytest.raises(DuplicateClaimError):
        await desk.claims.claim(KEY)
    assert len(desk.channel.messages) == 1
    assert desk.claims.holds(KEY)


def at_once(desk: Desk, key: bytes = KEY) -> None:
    """Claim without waiting, which a coroutine does that ends in its first step."""
    with pytest.raises(StopIteration):
        desk.claims.claim(key).send(None)


async def test_what_is_reserved_here_is_claimed_without_waiting(desk: Desk) -> None:
    desk.claims.reserve(KEY)
    at_once(desk)
    assert desk.claims.holds(KEY)
    assert desk.channel.messages == [Message(Kind.CLAIM, 0, 0, 0, 1, KEY)]
    with pytest.raises(DuplicateClaimError):
        await desk.claims.claim(KEY)
    desk.claims.release(KEY)
    at_once(desk)
    kinds = [message.kind for message in desk.channel.messages]
    assert kinds == [Kind.CLAIM, Kind.UNCLAIM, Kind.CLAIM]
    for message in desk.channel.messages[::2]:
        desk.answer(message, Claimed.GRANTED)
    assert desk.claims.holds(KEY)


async def test_what_was_reserved_is_asked_for_when_all_who_named_it_are_done(desk: Desk) -> None:
    desk.claims.reserve(KEY)
    desk.claims.reserve(KEY)
    desk.claims.unreserve(KEY)
    at_once(desk)
    desk.claims.release(KEY)
    desk.claims.unreserve(KEY)
    task = asyncio.create_task(desk.claims.claim(KEY))
    await turn(3)
    assert not task.done()
    desk.answer(desk.channel.messages[-1], Claimed.GRANTED)
    await task


async def test_other_keys_are_asked_for_while_one_is_reserved(desk: Desk) -> None:
    desk.claims.reserve(OTHER)
    task = await desk.taken(KEY, Claimed.HELD)
    assert isinstance(task.exception(), DuplicateClaimError)


async def test_a_router_that_breaks_its_word_is_told_of(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.claims.reserve(KEY)
    at_once(desk)
    desk.answer(desk.channel.messages[0], Claimed.HELD)
    assert "reserved here is held by shard=0" in caplog.text


async def test_an_answer_to_no_claim_is_an_error(desk: Desk) -> None:
    with pytest.raises(LocalProtocolError, match="answer 7"):
        desk.claims.on_claimed(Message(Kind.CLAIMED, Claimed.GRANTED, 0, 0, 7, b""))


async def test_a_claim_before_the_shard_serves_is_an_error() -> None:
    with pytest.raises(LocalProtocolError, match="before"):
        await ChannelClaims().claim(KEY)
