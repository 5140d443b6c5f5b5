from dataclasses import replace

from sessions.core.histories.linear import LinearHistory
from tests.support.histories import checkpoint_of, user


def test_checkpoints_are_compared_by_identity():
    checkpoint = checkpoint_of(LinearHistory().plan([user("1")]), "a")
    assert replace(checkpoint) != checkpoint


def test_a_checkpoint_gives_the_ids_that_it_was_made_with():
    checkpoint = checkpoint_of(LinearHistory().plan([user("1")]), "abc")
    assert checkpoint.token_ids.tolist() == [3]
