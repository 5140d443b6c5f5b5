"""Fixtures of all tests."""

from collections.abc import Iterator

import pytest

from tests.support.group import Groups, open_groups


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def groups() -> Iterator[Groups]:
    """Starts real groups; fails the test when one leaves a process or a socket file."""
    with open_groups() as started:
        yield started
