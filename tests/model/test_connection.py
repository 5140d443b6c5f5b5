"""One connection to real groups does what the model says, whatever client and group do.

`MODEL_EXAMPLES=1000` for more examples than the suite's, and every cell of state, touch and
trouble. The cells that were reached are printed.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from tests.support.model import Policy, Script, State, Touch, Trouble
from tests.support.model_arena import open_arena
from tests.support.model_play import play
from tests.support.model_run import EXAMPLES, IS_FULL
from tests.support.model_scripts import CELLS, Cell, script_of_cell, scripts
from tests.support.topology import LONE, Topology

ROUTED_THREE: Final = Topology(name="router+3", shards=3)
LONE_TROUBLES: Final = tuple(t for t in Trouble if t is not Trouble.ROUTER_SLOW)
HALT_EXAMPLES: Final = 40 if IS_FULL else 4


def chosen_cells(troubles: tuple[Trouble, ...]) -> list[Cell]:
    """Every cell in a full run; in the suite every pair of two of the three."""
    cells = [cell for cell in CELLS if cell[2] in troubles]
    if IS_FULL:
        return cells
    return [
        (state, touch, troubles[(x + y) % len(troubles)])
        for x, state in enumerate(State)
        for y, touch in enumerate(Touch)
    ]


def run(
    topology: Topology,
    policy: Policy,
    troubles: tuple[Trouble, ...],
    cells: list[Cell],
    count: int,
) -> None:
    reached: Counter[Cell] = Counter()
    numbers = itertools.count()

    with open_arena(topology, policy) as arena:

        def one(script: Script) -> None:
            faults = asyncio.run(play(arena, next(numbers), script))
            assert faults == []
            if not script.starts_in_trouble:
                reached[script.state, script.touch, script.trouble] += 1

        checked = given(script=scripts(troubles))(one)
        for cell in cells:
            checked = example(script=script_of_cell(cell))(checked)
        checked = settings(
            max_examples=count - len(cells),
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(checked)
        checked()
        report(f"{topology.name} {policy.name}", next(numbers), arena.started_count, reached)
    if IS_FULL:
        assert set(cells) <= set(reached)


def report(name: str, examples: int, groups: int, reached: Counter[Cell]) -> None:
    """Print how many examples reached each cell."""
    lines = [f"model of one connection: {name}, {examples} examples, {groups} groups\n"]
    lines += [
        f"{state.name:11} {touch.name:13} "
        + " ".join(f"{trouble.name}={reached[state, touch, trouble]}" for trouble in Trouble)
        + "\n"
        for state in State
        for touch in Touch
    ]
    lines.append(f"{len(reached)} of {len(CELLS)} cells\n")
    sys.stdout.writelines(lines)


@pytest.mark.timeout(3600 if IS_FULL else 120)
def test_a_connection_to_a_lone_shard_does_what_the_model_says():
    cells = chosen_cells(LONE_TROUBLES)
    run(LONE, Policy.LONE, LONE_TROUBLES, cells, EXAMPLES)


@pytest.mark.timeout(3600 if IS_FULL else 120)
def test_a_connection_to_a_group_that_goes_on_does_what_the_model_says():
    troubles = tuple(Trouble)
    run(ROUTED_THREE, Policy.CONTINUE, troubles, chosen_cells(troubles), EXAMPLES)


@pytest.mark.timeout(3600 if IS_FULL else 120)
def test_a_connection_to_a_group_that_halts_does_what_the_model_says():
    cells = [cell for cell in CELLS if cell[2] is Trouble.KILLED][:: 1 if IS_FULL else 22]
    run(ROUTED_THREE, Policy.HALT, (Trouble.KILLED,), cells, max(HALT_EXAMPLES, len(cells) + 1))
