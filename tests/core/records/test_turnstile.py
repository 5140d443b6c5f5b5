import asyncio

from sessions.core.records.turnstile import Turnstile
from tests.support.loops import turn


class Passers:
    """Tasks that go through a turnstile again and again, and note when they did."""

    def __init__(self, turnstile: Turnstile) -> None:
        self.turnstile = turnstile
        self.passed: list[str] = []

    async def go(self, name: str, times: int) -> None:
        """Go through so often."""
        for _ in range(times):
            await self.turnstile.wait_turn()
            self.passed.append(name)


async def test_one_alone_goes_through_at_once_and_then_once_a_turn():
    passers = Passers(Turnstile())
    task = asyncio.create_task(passers.go("a", 100))
    await turn(4)
    assert 1 <= len(passers.passed) <= 4
    await task


async def test_all_take_turns_in_the_order_in_which_they_came():
    passers = Passers(Turnstile())
    await asyncio.gather(*(passers.go(name, 3) for name in "abc"))
    assert passers.passed == list("aabcabcbc")  # a came again before b came


async def test_eight_go_through_no_more_often_than_one():
    passers = Passers(Turnstile())
    tasks = [asyncio.create_task(passers.go(name, 10)) for name in "abcdefgh"]
    for _ in range(40):
        before = len(passers.passed)
        await turn(1)
        assert len(passers.passed) - before <= 1
    await asyncio.gather(*tasks)


async def test_who_is_cancelled_while_waiting_holds_nobody_up():
    passers = Passers(Turnstile())
    tasks = [asyncio.create_task(passers.go(name, 2)) for name in "abc"]
    await turn(1)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert passers.passed == list("aacc")
    await asyncio.wait_for(passers.turnstile.wait_turn(), 5)


async def test_it_is_open_again_when_all_are_through():
    turnstile = Turnstile()
    await turnstile.wait_turn()
    await turn()
    assert turnstile._is_open
