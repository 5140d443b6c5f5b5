from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors

from sessions.tokens.huggingface import HuggingFaceTokenizer
from sessions.tokens.tokenizer import Tokenizer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One token for each byte, start and mark as added tokens, and every setting that we undo."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Library(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<start>"])
    library.add_tokens(["<mark>"])
    library.post_processor = processors.TemplateProcessing(
        single="<start> $A", special_tokens=[("<start>", 256)]
    )
    library.enable_truncation(3)
    library.enable_padding(length=9, pad_id=256, pad_token="<start>")
    path = tmp_path / "tokenizer.json"
    library.save(str(path))
    return path


def test_neither_start_token_nor_padding_nor_truncation_is_applied(file: Path):
    assert len(HuggingFaceTokenizer(file).encode("hi")) == 2
    assert len(HuggingFaceTokenizer(file).encode("abcdefghijk")) == 11


def test_all_added_tokens_are_special(file: Path):
    tokenizer = HuggingFaceTokenizer(file)
    assert tokenizer.special_ids == {"<start>": 256, "<mark>": 257}
    assert tokenizer.vocab_size == 258
    assert tokenizer.encode("<start><mark>") == [256, 257]


def test_decode_keeps_special_tokens_as_text(file: Path):
    tokenizer = HuggingFaceTokenizer(file)
    assert tokenizer.decode([256, *tokenizer.encode("hé"), 257]) == "<start>hé<mark>"


@pytest.mark.parametrize("unknown", [-1, 258, 2**32, 2**70])
def test_an_id_without_a_token_decodes_to_nothing(file: Path, unknown: int):
    tokenizer = HuggingFaceTokenizer(file)
    assert tokenizer.decode([unknown, *tokenizer.encode("a")]) == "a"


def test_a_cut_character_decodes_to_the_replacement_character(file: Path):
    tokenizer = HuggingFaceTokenizer(file)
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"


def test_a_lone_surrogate_is_encoded_as_the_replacement_character(file: Path):
    tokenizer = HuggingFaceTokenizer(file)
    assert tokenizer.encode("\ud800") == tokenizer.encode("\ufffd")


@pytest.mark.parametrize("content", [b"", b"{}", b"no json"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        HuggingFaceTokenizer(path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match=r"none\.json"):
        HuggingFaceTokenizer(tmp_path / "none.json")


def test_threads_may_share_one_tokenizer(native_qwen3: Tokenizer):
    texts = [f"line {number} 中文 <|im_end|>\n" * 50 for number in range(64)]
    wanted = [native_qwen3.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(native_qwen3.encode, texts)) == wanted
