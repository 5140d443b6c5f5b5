import gc
import weakref
from collections.abc import Iterator

import pytest

from sessions.shard.collector import set_loaded_aside


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


class Node:
    def __init__(self) -> None:
        self.me = self


def test_what_is_there_is_left_out_of_collections_and_what_comes_is_not():
    there = Node()
    set_loaded_aside()
    assert gc.get_freeze_count() > 0
    found = weakref.ref(there)
    comes = weakref.ref(Node())
    del there
    gc.collect()
    assert found() is not None
    assert comes() is None


def test_the_garbage_of_loading_is_collected_first():
    garbage = weakref.ref(Node())
    set_loaded_aside()
    assert garbage() is None
