"""From two settings to a builder: tokenizer, family, template, and what the log says."""

import logging
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from sessions.errors.unseen import SettingsError
from sessions.tokens.families.declaration import Family
from sessions.tokens.families.table import DEFAULT, FAMILIES, family_of
from sessions.tokens.prompts import PromptBuilder, load_prompt_builder
from tests.support.families import NATIVE, marks_of

USER = {"role": "user", "content": "hi"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
NATIVES = [family for family in FAMILIES if family.template is None]
WARNING, INFO = logging.WARNING, logging.INFO


def write_model(folder: Path, marks: tuple[str, ...], template: str | None) -> str:
    """A model folder: a token for each byte, then the marks; and a template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in marks])
    tokenizer.save(str(folder / "tokenizer.json"))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return str(folder)


@pytest.fixture(autouse=True)
def _log_of_tokens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(INFO, logger="sessions.tokens")


def lines_of(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_auto_picks_the_family_and_logs_why(caplog: pytest.LogCaptureFixture):
    builder = load_prompt_builder("pkg:qwen3")
    assert builder.family is family_of("qwen3")
    ((level, line),) = lines_of(caplog)
    assert level == INFO
    for told in ("tito family picked", "family=qwen3", "<think> is 151667", "also_fits=none"):
        assert told in line


@pytest.mark.parametrize(
    "family", [each for each in NATIVES if each is not DEFAULT], ids=lambda family: family.name
)
def test_auto_picks_a_family_by_the_template_of_the_model_and_renders_with_it(
    family: Family, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    template = NATIVE[family.name] + "{# tools_ts_str #}"
    builder = load_prompt_builder(write_model(tmp_path, marks_of([family]), template))
    assert builder.family is family
    text = builder.tokenizer.decode(builder.first([{"role": "user", "content": "ping"}]))
    assert text.count("ping") == 1
    ((level, line),) = lines_of(caplog)
    assert level == INFO
    assert "family=" + family.name in line


def test_auto_says_which_less_specific_family_fits_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    template = NATIVE["kimi26"] + "{# tools_ts_str #}"
    load_prompt_builder(write_model(tmp_path, marks_of([family_of("kimi26")]), template))
    ((level, line),) = lines_of(caplog)
    assert (level, line.rpartition(" ")[2]) == (INFO, "also_fits=kimi25")


def test_auto_warns_when_it_cannot_tell_two_families_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    marks = marks_of([family_of("minimax_m25"), family_of("inkling")])
    builder = load_prompt_builder(write_model(tmp_path, marks, None))
    assert builder.family is family_of("minimax_m25")
    ((level, line),) = lines_of(caplog)
    assert (level, line.rpartition(" ")[2]) == (WARNING, "also_fits=inkling")


def test_a_family_that_the_model_contradicts_is_taken_with_a_warning(
    caplog: pytest.LogCaptureFixture,
):
    assert load_prompt_builder("pkg:qwen3", "qwen35").family is family_of("qwen35")
    ((level, line),) = lines_of(caplog)
    assert level == WARNING
    assert "family=qwen35 looks_like=qwen3 " in line


@pytest.mark.parametrize("name", ["qwen3", "qwennext"])
def test_a_family_that_the_model_does_not_contradict_is_taken_in_silence(
    name: str, caplog: pytest.LogCaptureFixture
):
    assert load_prompt_builder("pkg:qwen3", name).family.name == name
    assert lines_of(caplog) == []


def test_the_default_family_is_taken_in_silence_when_it_is_named(
    native_folder: Path, caplog: pytest.LogCaptureFixture
):
    assert load_prompt_builder(str(native_folder), "default").family is DEFAULT
    assert lines_of(caplog) == []


def test_the_template_of_another_family_contradicts_the_one_that_is_named(
    native_folder: Path, caplog: pytest.LogCaptureFixture
):
    load_prompt_builder(str(native_folder), "qwennext")
    ((level, line),) = lines_of(caplog)
    assert level == WARNING
    assert "family=qwennext looks_like=qwen3 " in line


def test_a_family_whose_models_have_no_template_is_told_by_its_absence(tmp_path: Path):
    family = family_of("deepseekv32")
    folder = write_model(tmp_path, marks_of([family]), None)
    # Its tokens have other ids here.
    assert load_prompt_builder(folder, "deepseekv32").family is family
    with pytest.raises(SettingsError, match="no chat template in"):
        load_prompt_builder(folder)


def test_the_native_template_is_found_beside_the_file_too(
    native_folder: Path, native_builder: PromptBuilder
):
    builder = load_prompt_builder(str(native_folder / "tokenizer.json"), "default")
    assert builder.first([USER], TOOLS) == native_builder.first([USER], TOOLS)


@pytest.mark.parametrize("family", NATIVES, ids=lambda family: family.name)
def test_packaged_ranks_bring_no_native_template(family: Family):
    with pytest.raises(SettingsError, match="pkg:qwen3 brings none"):
        load_prompt_builder("pkg:qwen3", family.name)


def test_an_unknown_family_is_refused():
    with pytest.raises(SettingsError, match="no TITO family 'nope'"):
        load_prompt_builder("pkg:qwen3", "nope")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_tokenizer_without_a_token_of_the_rules_is_refused(family: Family, tmp_path: Path):
    folder = write_model(tmp_path, (), NATIVE.get(family.name))
    needed = [*family.shared_tokens, *([family.end_of_turn] if family.end_of_turn else [])]
    if not needed:
        assert load_prompt_builder(folder, family.name).family is family
        return
    with pytest.raises(SettingsError, match=rf"no token .*{family.name} needs"):
        load_prompt_builder(folder, family.name)
