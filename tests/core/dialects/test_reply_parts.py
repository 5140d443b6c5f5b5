"""The edges of what parts of a reply may be; the suite of dialects has the rest."""

import math
from array import array

import pytest

from sessions.core.dialects.reply_parts import (
    check_prompt,
    count_of,
    log_prob_of,
    object_of,
    seconds_of,
    word_of,
)
from sessions.errors.engine import EngineReplyUnusableError

ODD: list[object] = [None, True, -1, "x", [], {}, 1e300, 1 << 70]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_count_or_time_is_none(odd: object):
    assert count_of(odd) == 0
    assert seconds_of(odd) is None


def test_the_first_value_of_its_kind_counts():
    assert count_of(None, [], 0, 5) == 0
    assert count_of("x", 4, 5) == 4
    assert word_of(None, "", 7, "stop", "length") == "stop"
    assert word_of(None, {}) == ""
    assert (object_of({"a": 1}), object_of([]), object_of(None)) == ({"a": 1}, {}, {})
    assert (seconds_of(0), seconds_of(0.25)) == (0.0, 0.25)


@pytest.mark.parametrize("odd", [None, True, "x", [], 1e300, math.nan, math.inf])
def test_a_log_probability_that_is_none_is_nan(odd: object):
    assert math.isnan(log_prob_of(odd))


def test_of_several_echoes_each_is_compared():
    sent = array("I", [1, 2])
    check_prompt(sent, [("a", [1, 2]), ("b", None)], [], is_required=True)
    with pytest.raises(EngineReplyUnusableError, match="b has 1 ids"):
        check_prompt(sent, [("a", [1, 2]), ("b", [1])], [], is_required=True)


@pytest.mark.parametrize("told", [*ODD, 0])
def test_without_an_echo_an_odd_count_decides_nothing(told: object):
    check_prompt(array("I", [1, 2]), [("a", None)], [told], is_required=False)
