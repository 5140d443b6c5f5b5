from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.tokens.unicode_text import without_lone_surrogates


def test_valid_text_stays_the_same_object():
    text = "naïve 中文 🙂"
    assert without_lone_surrogates(text) is text


def test_a_lone_surrogate_becomes_the_replacement_character():
    assert without_lone_surrogates("a\ud800b\udc00") == "a\ufffdb\ufffd"


def test_a_surrogate_pair_becomes_its_character():
    assert without_lone_surrogates("\ud83d\ude42") == "🙂"


@settings(derandomize=True, deadline=None)
@given(st.text(st.characters(codec=None, categories=None)))
def test_any_text_can_be_written_as_utf8_afterwards(text: str):
    without_lone_surrogates(text).encode()
