import shutil
from pathlib import Path

import pytest

from sessions.errors.unseen import SettingsError
from sessions.tokens.tokenizer import load_tokenizer


def test_a_name_with_the_package_prefix_loads_packaged_ranks():
    assert load_tokenizer("pkg:qwen3").encode("<|im_end|>") == [151645]


def test_a_folder_and_the_file_in_it_load_the_same_tokenizer(native_folder: Path):
    in_folder = load_tokenizer(str(native_folder))
    by_file = load_tokenizer(str(native_folder / "tokenizer.json"))
    assert in_folder.encode("hi <think>") == by_file.encode("hi <think>")


def test_a_file_of_another_name_is_loaded(native_folder: Path, tmp_path: Path):
    shutil.copy(native_folder / "tokenizer.json", tmp_path / "mine.json")
    assert load_tokenizer(str(tmp_path / "mine.json")).vocab_size == 151669


@pytest.mark.parametrize("name", ["", "pkg:", "pkg:nope", "/no/such/folder", "no\nfile"])
def test_a_name_without_a_tokenizer_is_refused_in_one_line(name: str):
    with pytest.raises(SettingsError) as refused:
        load_tokenizer(name)
    assert repr(name) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_without_the_file_is_refused_by_the_file(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"tokenizer\.json"):
        load_tokenizer(str(tmp_path))


def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text('{"model":\n\n"x"}')
    with pytest.raises(SettingsError, match="cannot be loaded") as refused:
        load_tokenizer(str(tmp_path))
    assert "\n" not in str(refused.value)
