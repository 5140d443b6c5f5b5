"""Both dialects have every part; what differs between them is tested where it is."""

import pytest

from sessions.errors.unseen import SimRefusalError
from sessions.sim.dialects import DIALECTS
from sessions.sim.options import Dialect


def test_every_dialect_of_the_options_is_there():
    assert set(DIALECTS) == set(Dialect)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_rows_may_begin_at_the_end_of_the_prompt_and_not_behind_it(dialect: Dialect):
    DIALECTS[dialect].check_start(5, 5)
    with pytest.raises(SimRefusalError) as caught:
        DIALECTS[dialect].check_start(6, 5)
    assert str(caught.value.param).startswith("routed_experts_")


def test_errors_are_flat_or_wrapped():
    error = SimRefusalError("why", param="x")
    fields = {"message": "why", "type": "BadRequestError", "param": "x", "code": 400}
    assert DIALECTS[Dialect.SGLANG].error_of(error) == {"object": "error", **fields}
    assert DIALECTS[Dialect.VLLM].error_of(error) == {"error": fields}
