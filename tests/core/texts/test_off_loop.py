from __future__ import annotations

import asyncio

from sessions.core.texts.off_loop import off_loop


async def test_little_work_stays_on_the_loop_and_much_leaves_it():
    def is_on_loop() -> bool:
        try:
            return asyncio.get_running_loop() is not None
        except RuntimeError:
            return False

    assert await off_loop(10, is_on_loop)
    assert not await off_loop(1 << 20, is_on_loop)
