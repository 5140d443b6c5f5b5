"""Both event loops for tests of code that must run alike on either.

A module that wants them defines the fixture itself, since tests of other modules of the same
folder do not:

    @pytest.fixture(params=BOTH_LOOPS)
    def anyio_backend(request: pytest.FixtureRequest) -> Backend: return request.param

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

Backend = tuple[str, dict[str, bool]]
BOTH_LOOPS: Final = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
]


@contextlib.contextmanager
def caught_in_callbacks() -> Iterator[list[BaseException]]:
    """Collect what callbacks of the running loop raise, instead of failing the test for it."""
    loop = asyncio.get_running_loop()
    caught: list[BaseException] = []

    def catch(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        caught.append(context.get("exception") or AssertionError(context["message"]))

    before = loop.get_exception_handler()
    loop.set_exception_handler(catch)
    try:
        yield caught
    finally:
        loop.set_exception_handler(before)


def open_descriptors() -> int:
    """How many sockets, pipes and files this process has open.

    The null device does not count: uvloop opens it with its first listener and keeps it.
    """
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of this very look
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(link != os.devnull for link in links)


async def turn(times: int = 3) -> None:
    """Let the running loop turn, so that what is ready happens."""
    for _ in range(times):
        await asyncio.sleep(0)
