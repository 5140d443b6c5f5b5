import re
from pathlib import Path

import pytest

import sessions
from sessions.errors import SettingsError
from sessions.settings import TITO_FAMILIES
from sessions.tokens.families import AUTO, DEFAULT, FAMILIES, Family, detect_family, family_of
from sessions.tokens.templates import read_shipped_template
from sessions.tokens.tokenizer import Tokenizer
from tests.support.tokenizers import CHATML, byte_tokenizer

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@every_family
def test_a_family_is_found_by_its_name(family: Family):
    assert family_of(family.name) is family


@pytest.mark.parametrize("name", ["", "Qwen3", AUTO])
def test_an_unknown_name_is_refused_with_the_names_there_are(name: str):
    with pytest.raises(SettingsError, match="auto, qwen3, default"):
        family_of(name)


def test_qwen3_is_detected_by_its_special_tokens(qwen3: Tokenizer, native_qwen3: Tokenizer):
    for tokenizer in (qwen3, native_qwen3):
        detection = detect_family(tokenizer)
        assert detection.family is family_of("qwen3")
        assert "<think> is 151667" in detection.reason


@pytest.mark.parametrize("specials", [(), CHATML, (*CHATML, "<tool_call>")])
def test_default_is_picked_when_the_same_texts_have_other_ids(specials: tuple[str, ...]):
    detection = detect_family(byte_tokenizer(*specials))
    assert detection.family is DEFAULT
    assert detection.reason


@every_family
def test_a_family_that_drops_tokens_declares_how_many(family: Family):
    assert bool(family.shared_tokens) == (family.max_trim_count > 0)


@every_family
def test_a_family_with_a_template_ships_it(family: Family):
    if family.template is not None:
        read_shipped_template(family.template)


def test_the_setting_takes_the_families_there_are():
    assert {AUTO, *(family.name for family in FAMILIES)} == set(TITO_FAMILIES)


def test_no_other_module_knows_the_name_of_a_family():
    root = Path(sessions.__file__).parent
    # A packaged tokenizer has a name of its own, which may be the same word; the setting lists
    # what it takes.
    allowed = {
        root / "tokens" / "families.py",
        root / "tokens" / "packaged.py",
        root / "settings.py",
    }
    names = "|".join(re.escape(family.name) for family in FAMILIES if family is not DEFAULT)
    quoted = re.compile(rf"""["']({names})["']""")
    found = [path for path in sorted(root.rglob("*.py")) if quoted.search(path.read_text())]
    assert [path for path in found if path not in allowed] == []
