from dataclasses import astuple, fields

from sessions.lending.board import Board
from sessions.lending.tally import Tally


def test_each_shard_has_numbers_of_its_own_and_none_is_lost():
    board = Board(3)
    count = len(fields(Tally))
    tallies = [
        Tally(**{f.name: 1000 * shard + i for i, f in enumerate(fields(Tally))})
        for shard in range(3)
    ]
    for shard, tally in enumerate(tallies):
        board.set_tally(board.row_of_shard(shard), tally)
    assert [board.tally_of(board.row_of_shard(shard)) for shard in range(3)] == tallies
    assert astuple(tallies[2]) == tuple(range(2000, 2000 + count))
    board.set_cause("shard 1 died")
    assert board.tally_of(board.row_of_shard(2)) == tallies[2]
    assert board.cause == "shard 1 died"


def test_a_shard_that_never_beat_counted_nothing():
    assert Board(1).tally_of(1) == Tally()


def test_numbers_beyond_32_bits_are_kept():
    board = Board(1)
    board.set_tally(1, Tally(engine_bytes=1 << 62))
    assert board.tally_of(1).engine_bytes == 1 << 62
