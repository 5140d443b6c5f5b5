from concurrent.futures import ThreadPoolExecutor

import pytest

from sessions.tokens.ranks import RanksTokenizer, parse_ranks
from sessions.tokens.tokenizer import Tokenizer
from tests.support.tokenizers import byte_tokenizer


def test_ranks_are_read_from_lines_of_base64_and_number():
    assert parse_ranks(b"IQ== 0\nIg== 1\n") == {b"!": 0, b'"': 1}


@pytest.mark.parametrize("data", [b"IQ==\n", b"IQ== x\n", b"I 0\n"])
def test_a_damaged_line_is_refused(data: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 - each part of a line has its own message
        parse_ranks(data)


@pytest.mark.parametrize("special_id", [1, 3])
def test_ids_with_a_hole_or_a_duplicate_are_refused(special_id: int):
    with pytest.raises(ValueError, match="fill 0 to 2"):
        RanksTokenizer("t", {b"a": 0, b"b": 1}, r"[\s\S]", {"<s>": special_id})


def test_special_tokens_in_text_become_their_ids():
    tokenizer = byte_tokenizer("<s>", "<s>+")
    assert tokenizer.encode("a<s>b<s>+") == [97, 256, 98, 257]


def test_nothing_is_added_to_an_empty_text():
    assert byte_tokenizer("<s>").encode("") == []


def test_text_is_normalised_but_not_across_a_special_token():
    tokenizer = byte_tokenizer("<s>")
    assert tokenizer.encode("e\u0301") == list("é".encode())
    assert tokenizer.encode("<s>\u0338") == [256, *"\u0338".encode()]


def test_a_special_token_that_normalisation_makes_is_plain_text():
    tokenizer = byte_tokenizer("K!")
    assert tokenizer.encode("\u212a!") == [*b"K!"]


def test_decode_keeps_special_tokens_as_text():
    assert byte_tokenizer("<s>").decode([97, 256]) == "a<s>"


@pytest.mark.parametrize("unknown", [-1, 257, 2**32, 2**70])
def test_an_id_without_a_token_decodes_to_nothing(unknown: int):
    assert byte_tokenizer("<s>").decode([97, unknown, 98]) == "ab"


def test_a_cut_character_decodes_to_the_replacement_character():
    assert byte_tokenizer().decode([*"é".encode()[:1], 97]) == "\ufffda"


def test_a_lone_surrogate_is_encoded_as_the_replacement_character():
    assert byte_tokenizer().encode("\ud800") == [*"\ufffd".encode()]


def test_a_tokenizer_without_special_tokens_encodes_text():
    assert byte_tokenizer().encode("ab") == [97, 98]


@pytest.mark.parametrize(
    "text",
    [
        " " * 1_050_000 + "x",
        " " * 120_000,
        " " * 400_000 + "\n",
        "." + "\t" * 120_000 + "1",
        "\n" + "\u3000" * 120_000 + "<|im_end|>" + " " * 120_000 + "\n",
        "".join(" " * 120_000 + mark for mark in "a\n.1"),
    ],
    ids=[
        "more than the stack holds",
        "nothing else",
        "a line break",
        "tabs",
        "wide blanks",
        "several runs",
    ],
)
def test_a_run_of_blanks_of_any_length_can_be_encoded(
    qwen3: Tokenizer, native_qwen3: Tokenizer, text: str
):
    assert qwen3.encode(text) == native_qwen3.encode(text)


def test_threads_may_share_one_tokenizer(qwen3: Tokenizer):
    texts = [f"line {number} 中文 <|im_end|>\n" * 50 for number in range(64)]
    wanted = [qwen3.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(qwen3.encode, texts)) == wanted
