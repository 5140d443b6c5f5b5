"""Scripts of one connection for hypothesis: all that may be drawn, and one for each cell.

A cell is a state, a touch and a trouble. `script_of_cell` fills in the rest by the cell's number,
so that a run may go through all cells for sure; `scripts` draws freely.

Spec: docs/lending.md#guards
"""

from __future__ import annotations

import itertools
import random
from typing import Final

from hypothesis import strategies as st

from tests.support.model import (
    BODY_FORMS,
    ENDING_FORMS,
    NOBODY,
    Ask,
    Form,
    Script,
    State,
    Touch,
    Trouble,
)

Cell = tuple[State, Touch, Trouble]
_OWNERS: Final = (NOBODY, 0, 1, 2)
_PAUSES_MS: Final = (0, 0, 3, 20, 60)  # shorter and longer than the sweep of a shard
_PIECES_BYTES: Final = (0, 0, 700, 9000)
_KEEPING: Final = tuple(form for form in Form if form not in ENDING_FORMS)
_MAX_BODY_BYTES: Final = 90_000
_MAX_REPLY_BYTES: Final = 4000

CELLS: Final[tuple[Cell, ...]] = tuple(itertools.product(State, Touch, Trouble))


def asks(forms: tuple[Form, ...] = _KEEPING) -> st.SearchStrategy[Ask]:
    """Ordinary requests of these forms."""
    return st.builds(
        Ask,
        form=st.sampled_from(forms),
        owner=st.sampled_from(_OWNERS),
        size=st.integers(0, _MAX_BODY_BYTES),
        out=st.integers(0, _MAX_REPLY_BYTES),
    )


def scripts(troubles: tuple[Trouble, ...] = tuple(Trouble)) -> st.SearchStrategy[Script]:
    """Any script with one of these troubles."""
    last = st.lists(asks(tuple(Form)), max_size=1)
    follow = st.tuples(st.lists(asks(), max_size=2), last).map(lambda parts: (*parts[0], *parts[1]))
    burst = st.lists(asks(), min_size=1, max_size=3).map(tuple)
    return st.builds(
        Script,
        before=st.lists(burst, max_size=2).map(tuple),
        state=st.sampled_from(State),
        touch=st.sampled_from(Touch),
        trouble=st.sampled_from(troubles),
        owner=st.sampled_from(_OWNERS),
        is_trouble_first=st.booleans(),
        is_ahead=st.booleans(),
        is_frozen_first=st.booleans(),
        is_hasty=st.booleans(),
        pause_ms=st.sampled_from(_PAUSES_MS),
        piece_bytes=st.sampled_from(_PIECES_BYTES),
        is_chunked=st.booleans(),
        follow=follow,
    )


def script_of_cell(cell: Cell) -> Script:
    """A script that gets into this cell: the trouble comes when the state is reached."""
    rng = random.Random(str(cell))
    state, touch, trouble = cell
    follow = [_some_ask(rng) for _ in range(rng.randrange(1, 3))]
    if touch is Touch.STOPS_READING:  # a reply that waits for its reader, another shard's behind it
        owner = rng.randrange(3)
        follow = [
            Ask(form=Form.BIG, owner=owner, size=rng.randrange(_MAX_BODY_BYTES)),
            Ask(form=Form.GET, owner=owner + 1),
        ]
    return Script(
        before=tuple((_some_ask(rng),) for _ in range(rng.randrange(2))),
        state=state,
        touch=touch,
        trouble=trouble,
        owner=rng.choice(_OWNERS),
        is_trouble_first=rng.random() < 0.5,
        is_frozen_first=rng.random() < 0.5,
        is_hasty=rng.random() < 0.5,
        pause_ms=rng.choice(_PAUSES_MS),
        piece_bytes=rng.choice(_PIECES_BYTES),
        is_chunked=rng.random() < 0.5,
        follow=tuple(follow),
    )


def _some_ask(rng: random.Random) -> Ask:
    form = rng.choice(_KEEPING)
    size = rng.randrange(_MAX_BODY_BYTES) if form in BODY_FORMS else 0
    return Ask(form=form, owner=rng.choice(_OWNERS), size=size, out=rng.randrange(1000))
