from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import matched_count_of

REPLY = {"role": "assistant", "content": "hi"}


def test_matching_counts_from_the_start_until_the_first_difference():
    stored = [{"role": "user", "content": str(i)} for i in range(4)]
    assert matched_count_of(STRICT, stored, stored) == 4
    assert matched_count_of(STRICT, stored, [*stored, REPLY]) == 4
    assert matched_count_of(STRICT, stored, [*stored[:2], REPLY, stored[3]]) == 2
    assert matched_count_of(STRICT, stored, []) == 0
