"""State cells: a word speaks of its own generation only, across processes too."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.lending.cells import Cells, CellState


@pytest.mark.parametrize("state", CellState)
def test_reads_what_was_marked_for_the_same_generation(state: CellState) -> None:
    cells = Cells(4)
    cells.mark(2, 9, state)
    assert cells.read(2, 9) is state


@pytest.mark.parametrize("generation", [0, 8, 10, 9 << 8, 1 << 40])
def test_says_nothing_about_another_generation(generation: int) -> None:
    cells = Cells(4)
    cells.mark(2, 9, CellState.REPLYING)
    assert cells.read(2, generation) is CellState.AWAITING


def test_a_new_cell_awaits() -> None:
    assert Cells(1).read(0, 0) is CellState.AWAITING
    assert Cells(1).read(0, 1) is CellState.AWAITING


def test_a_group_without_slots_has_cells_all_the_same() -> None:
    assert Cells(0).read(0, 1) is CellState.AWAITING


MARKS = st.tuples(st.integers(0, 3), st.integers(0, 2**56 - 1), st.sampled_from(CellState))


@settings(derandomize=True, deadline=None)
@given(st.lists(MARKS, max_size=20))
def test_each_cell_holds_its_last_mark(marks: list[tuple[int, int, CellState]]) -> None:
    cells, last = Cells(4), {}
    for slot, generation, state in marks:
        cells.mark(slot, generation, state)
        last[slot] = generation, state
    for slot, (generation, state) in last.items():
        assert cells.read(slot, generation) is state


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_mark_of_a_dead_child_is_read_by_its_parent() -> None:
    cells = Cells(2)
    pid = os.fork()
    if pid == 0:
        cells.mark(1, 3, CellState.COMPLETE)
        os._exit(0)
    os.waitpid(pid, 0)
    assert cells.read(1, 3) is CellState.COMPLETE
    assert cells.read(0, 3) is CellState.AWAITING
