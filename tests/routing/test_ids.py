"""Ids: grammar, owners that every process agrees on, minting."""

import os
import string
import subprocess
import sys
from collections import Counter
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.sessions import BadSessionIdError
from sessions.routing.ids import mint_session_id, owner_of, parse_session_id

ALPHABET = string.ascii_letters + string.digits + "._~-"
ids = st.text(ALPHABET, min_size=1, max_size=128)


@pytest.mark.parametrize(
    ("raw", "session_id"),
    [
        ("a", "a"),
        ("A-Z_a~z.0", "A-Z_a~z.0"),
        ("x" * 128, "x" * 128),
        ("%61bc", "abc"),
        ("a%2Db", "a-b"),
        ("%41" * 128, "A" * 128),
        ("..", ".."),
    ],
)
def test_parses_an_id_when_the_grammar_holds(raw: str, session_id: str):
    assert parse_session_id(raw) == session_id


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "x" * 129,
        "a/b",
        "a%2Fb",
        "a b",
        "a+b",
        "a%20b",
        "%2561",
        "%",
        "%zz",
        "é",
        "%C3%A9",
        "a\n",
        "a%0A",
        "a\x00",
        "٣",
        "a;b",
        "a:b",
        "a@b",
        "a%",
        "a?b",
    ],
)
def test_refuses_an_id_outside_of_the_grammar_and_names_the_rule(raw: str):
    with pytest.raises(BadSessionIdError, match=r"1 to 128 characters of A-Z a-z 0-9 \. _ ~ -"):
        parse_session_id(raw)


@settings(derandomize=True, deadline=None)
@given(ids)
def test_parsing_undoes_quoting(session_id: str):
    assert parse_session_id(quote(session_id, safe="")) == session_id
    assert parse_session_id("".join(f"%{ord(c):02x}" for c in session_id)) == session_id


@pytest.mark.parametrize(
    ("session_id", "shards", "owner"),
    [("a", 1, 0), ("a", 4, 3), ("b", 4, 1), ("session-1", 7, 1), ("session-1", 16, 12)],
)
def test_owner_never_changes_between_versions(session_id: str, shards: int, owner: int):
    assert owner_of(session_id, shards) == owner


@settings(derandomize=True, deadline=None)
@given(ids, st.integers(1, 64))
def test_owner_is_a_shard_of_the_group(session_id: str, shards: int):
    assert 0 <= owner_of(session_id, shards) < shards
    assert owner_of(session_id, shards) == owner_of(session_id, shards)


def test_owner_is_the_same_in_a_process_with_another_hash_seed():
    samples = [f"session-{i}" for i in range(50)]
    code = (
        "import sys; from sessions.routing.ids import owner_of; "
        "print(*(owner_of(s, 16) for s in sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *samples],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert [int(word) for word in done.stdout.split()] == [owner_of(s, 16) for s in samples]


@pytest.mark.parametrize("shards", [2, 4, 7, 16])
def test_owners_are_spread_evenly(shards: int):
    total = 1000 * shards
    counts = Counter(owner_of(f"id-{i}", shards) for i in range(total))
    # A fair draw has a standard deviation of about 32 around 1000.
    assert set(counts) == set(range(shards))
    assert all(850 < count < 1150 for count in counts.values())


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 16).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_minted_ids_are_owned(place: tuple[int, int]):
    shard, shards = place
    session_id = mint_session_id(shard, shards, "pod-3.")
    assert owner_of(session_id, shards) == shard
    assert parse_session_id(session_id) == session_id
    assert session_id.startswith("pod-3.")
    assert len(session_id) == len("pod-3.") + 32
    assert set(session_id[6:]) <= set("0123456789abcdef")


def test_minted_ids_differ():
    assert len({mint_session_id(0, 2) for _ in range(100)}) == 100


@pytest.mark.parametrize(("shard", "shards"), [(-1, 2), (2, 2), (0, 0)])
def test_refuses_to_mint_for_a_shard_that_is_not(shard: int, shards: int):
    with pytest.raises(ValueError, match="no shard"):
        mint_session_id(shard, shards)


def test_takes_the_longest_prefix_and_refuses_one_more():
    assert len(mint_session_id(0, 1, "p" * 96)) == 128
    with pytest.raises(ValueError, match="makes no session id"):
        mint_session_id(0, 1, "p" * 97)


def test_refuses_a_prefix_outside_of_the_grammar():
    with pytest.raises(ValueError, match="makes no session id"):
        mint_session_id(0, 1, "a/b")
