"""Claim keys: fixed size, kinds apart, the same everywhere."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.routing.claim_keys import CLAIM_KEY_BYTES, claim_key

texts = st.text(st.characters(codec=None), max_size=40)


def test_a_key_never_changes_between_versions():
    assert claim_key("episode", "r1").hex() == "b232bb733415f7d2c5870fa9f5311ff2"


@settings(derandomize=True, deadline=None)
@given(texts, texts, texts, texts)
def test_keys_are_equal_only_when_kind_and_text_are(a: str, b: str, c: str, d: str):
    assert len(claim_key(a, b)) == CLAIM_KEY_BYTES
    assert (claim_key(a, b) == claim_key(c, d)) == ((a, b) == (c, d))


def test_the_border_between_kind_and_text_is_part_of_the_key():
    assert claim_key("ab", "c") != claim_key("a", "bc")
    assert claim_key("1:a", "") != claim_key("1", ":a")


def test_a_text_of_any_length_and_content_has_a_key():
    assert claim_key("episode", "x" * 1_000_000) != claim_key("episode", "x" * 999_999)
    assert claim_key("episode", "\ud800") != claim_key("episode", "\udfff")
