import asyncio
import time

from sessions.shard.loop_lag import LoopLag
from tests.support.waiting import wait_until_async


async def test_a_loop_that_was_blocked_is_late_and_told_once():
    lag = LoopLag()
    lag.start()
    try:
        await asyncio.sleep(0)
        time.sleep(0.4)  # noqa: ASYNC251 - blocking is what is measured; a tick is due after 0.1 s
        told: list[float] = []

        def is_told() -> bool:
            told[:] = [lag.take_worst_s(), lag.take_worst_s()]
            return told[0] > 0

        await wait_until_async(is_told, "the lag was told")
        assert told[0] > 0.25
        assert told[1] == 0
    finally:
        lag.stop()


async def test_nothing_is_measured_after_the_end():
    lag = LoopLag()
    lag.start()
    lag.stop()
    time.sleep(0.15)  # noqa: ASYNC251 - blocking is what would be measured
    await asyncio.sleep(0.05)
    assert lag.take_worst_s() == 0
