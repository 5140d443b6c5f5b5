import re
from pathlib import Path

import pytest

import sessions
from sessions.errors.unseen import SettingsError
from sessions.settings import TITO_FAMILIES
from sessions.tokens.families.declaration import ALL_ROLES, Family
from sessions.tokens.families.table import AUTO, DEFAULT, FAMILIES, family_of
from sessions.tokens.templates import read_shipped_template

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
# SGLang's names, as its --reasoning-parser and --tool-call-parser take them.
REASONING_PARSERS = {
    "deepseek-v3",
    "deepseek-v4",
    "glm45",
    "inkling",
    "kimi_k2",
    "minimax-append-think",
    "nemotron_3",
    "qwen3",
}
TOOL_CALL_PARSERS = {
    "deepseekv32",
    "deepseekv4",
    "glm47",
    "inkling",
    "kimi_k2_raw_id",
    "minimax-m2",
    "qwen25",
    "qwen3_coder",
}


@every_family
def test_a_family_is_found_by_its_name(family: Family):
    assert family_of(family.name) is family


@pytest.mark.parametrize("name", ["", "Qwen3", AUTO])
def test_an_unknown_name_is_refused_with_the_names_there_are(name: str):
    with pytest.raises(SettingsError, match=r"auto, qwen3, .*, inkling, default"):
        family_of(name)


@every_family
def test_a_family_that_drops_tokens_declares_how_many(family: Family):
    assert bool(family.shared_tokens) == (family.max_trim_count > 0)


@every_family
def test_what_is_written_after_a_turn_is_declared_with_the_token_before_it(family: Family):
    assert bool(family.end_of_turn) == bool(family.after_turn)
    # Either a token gives way or a text is put in: nobody knows which goes first.
    assert not (family.end_of_turn and family.shared_tokens)


@every_family
def test_what_follows_the_last_turn_is_overlooked_by_the_comparison(family: Family):
    written = [family.after_turn] if family.after_turn else []
    assert {*written, *family.shared_tokens} <= set(family.ignored_tail)


@every_family
def test_a_family_that_tells_the_assistant_apart_cuts_where_it_starts(family: Family):
    if family.assistant_start:
        assert family.segment_specials is not None
        assert family.assistant_start.startswith(tuple(family.segment_specials))


@every_family
def test_a_family_with_a_template_ships_it(family: Family):
    if family.template is not None:
        read_shipped_template(family.template, family.template_texts)
    else:
        assert not family.template_texts


@every_family
def test_users_and_tools_may_always_speak_after_a_reply(family: Family):
    assert {"user", "tool"} <= family.append_roles <= ALL_ROLES


@every_family
def test_a_fixed_kwarg_is_no_thinking_switch(family: Family):
    if family.thinking is not None:
        names = {*family.thinking.names, family.thinking.mode_name}
        assert not names & set(family.fixed_kwargs)


@every_family
def test_the_parsers_are_ones_that_the_engine_knows(family: Family):
    if family is DEFAULT:
        assert family.reasoning_parser is family.tool_call_parser is None
    else:
        assert family.reasoning_parser in REASONING_PARSERS
        assert family.tool_call_parser in TOOL_CALL_PARSERS


def test_names_differ_and_default_comes_last():
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert FAMILIES[-1] is DEFAULT


def test_the_setting_takes_the_families_there_are():
    assert (AUTO, *(family.name for family in FAMILIES)) == TITO_FAMILIES


def test_no_other_module_knows_the_name_of_a_family():
    root = Path(sessions.__file__).parent
    # A packaged tokenizer has a name of its own, which may be the same word; the setting lists
    # what it takes.
    allowed = {
        root / "tokens" / "families" / "table.py",
        root / "tokens" / "packaged.py",
        root / "settings.py",
    }
    names = "|".join(re.escape(family.name) for family in FAMILIES if family is not DEFAULT)
    quoted = re.compile(rf"""["']({names})["']""")
    found = [path for path in sorted(root.rglob("*.py")) if quoted.search(path.read_text())]
    assert set(found) <= allowed
    assert root / "tokens" / "families" / "table.py" in found


def test_no_template_knows_the_name_of_a_family():
    folder = Path(sessions.__file__).parent / "tokens" / "chat"
    names = re.compile("|".join(re.escape(f.name) for f in FAMILIES if f is not DEFAULT))
    texts = {path: path.read_text() for path in folder.glob("*.jinja")}
    assert len(texts) == len({family.template for family in FAMILIES if family.template})
    assert [path for path, text in texts.items() if names.search(text)] == []
