from collections.abc import Mapping
from dataclasses import replace

import pytest

from sessions.tokens.families.declaration import Family
from sessions.tokens.families.detection import Traits, contradicts, detect_family
from sessions.tokens.families.table import DEFAULT, FAMILIES, family_of
from sessions.tokens.tokenizer import Tokenizer
from tests.support.families import NATIVE

CLUED = [family for family in FAMILIES if family.clues]
every_clued_family = pytest.mark.parametrize("family", CLUED, ids=lambda family: family.name)


def traits_of(family: Family, template: str | None = "", *, is_complete: bool = True) -> Traits:
    """What a model of a family shows: its tokens and a template with its clues."""
    clues = family.clues
    assert clues is not None
    if template == "":
        template = "|".join(["x", *clues.template])
    if clues.has_template is False:
        template = None
    ids = {text: 900 + i if n is None else n for i, (text, n) in enumerate(clues.tokens.items())}
    return Traits(special_ids=ids, template=template, is_complete=is_complete)


@every_clued_family
def test_a_family_is_known_by_its_clues_and_told_with_them(family: Family):
    detection = detect_family(traits_of(family))
    assert detection.family is family
    assert detection.is_sure
    clues = family.clues
    assert clues is not None
    for text in clues.tokens:
        assert f"{text} is " in detection.reason
    for text in clues.template:
        assert repr(text) in detection.reason


@every_clued_family
def test_a_family_is_not_seen_if_any_of_its_tokens_is_missing(family: Family):
    traits = traits_of(family)
    for text in traits.special_ids:
        fewer = {other: n for other, n in traits.special_ids.items() if other != text}
        assert detect_family(replace(traits, special_ids=fewer)).family is not family
        assert contradicts(family, replace(traits, special_ids=fewer))


@every_clued_family
def test_a_family_is_not_seen_if_an_id_that_tells_is_another_one(family: Family):
    traits = traits_of(family)
    clues = family.clues
    assert clues is not None
    for text in [text for text, number in clues.tokens.items() if number is not None]:
        other: Mapping[str, int] = {**traits.special_ids, text: 7}
        assert detect_family(replace(traits, special_ids=other)).family is not family
        assert contradicts(family, replace(traits, special_ids=other))


@every_clued_family
def test_a_family_is_not_seen_in_a_template_without_its_texts(family: Family):
    clues = family.clues
    assert clues is not None
    for text in clues.template:
        template = "|".join(other for other in clues.template if other != text)
        assert detect_family(traits_of(family, template + "x")).family is not family
        assert contradicts(family, traits_of(family, template + "x"))
    for text in clues.foreign:
        template = "|".join([*clues.template, text])
        assert detect_family(traits_of(family, template)).family is not family
        assert contradicts(family, traits_of(family, template))


def test_a_model_like_no_family_is_of_the_default_one():
    detection = detect_family(Traits(special_ids={"<s>": 1}, template="x", is_complete=True))
    assert (detection.family, detection.rivals, detection.is_sure) == (DEFAULT, (), True)
    assert detection.reason


def test_the_more_specific_of_two_that_fit_is_taken_and_the_other_named():
    detection = detect_family(traits_of(family_of("qwennext")))
    assert (detection.family.name, [rival.name for rival in detection.rivals]) == (
        "qwennext",
        ["qwen3"],
    )
    detection = detect_family(traits_of(family_of("kimi26")))
    assert (detection.family.name, [rival.name for rival in detection.rivals]) == (
        "kimi26",
        ["kimi25"],
    )


def test_equal_rivals_are_taken_in_the_order_of_the_table_and_not_called_sure():
    deepseek, inkling = family_of("deepseekv4"), family_of("inkling")
    both = {**traits_of(deepseek).special_ids, **traits_of(inkling).special_ids}
    detection = detect_family(Traits(special_ids=both, template=None, is_complete=True))
    assert detection.family is deepseek
    assert detection.rivals == (inkling,)
    assert not detection.is_sure


def test_a_line_break_in_a_template_may_be_spelled_or_real():
    family = family_of("qwennext")
    for text in ("{{ '<|im_start|>assistant\\n<think>\\n' }}", "<|im_start|>assistant\n<think>\n"):
        assert detect_family(traits_of(family, text)).family is family


def test_a_coder_with_the_vocabulary_of_another_family_is_not_of_it():
    for name in ("qwen3", "qwennext"):
        traits = traits_of(family_of(name), "<|im_start|>assistant\\n<think>\\n <function=")
        assert detect_family(traits).family is DEFAULT
        assert contradicts(family_of(name), traits)


def test_packaged_ranks_tell_nothing_of_the_template():
    for name in ("qwennext", "nemotron3", "deepseekv32"):
        family = family_of(name)
        traits = traits_of(family, None, is_complete=False)
        assert detect_family(traits).family is not family
        assert not contradicts(family, traits)


def test_a_model_without_a_template_is_told_from_one_with_another_template():
    family = family_of("deepseekv32")
    assert detect_family(traits_of(family)).family is family
    with_template = replace(traits_of(family), template="x")
    assert detect_family(with_template).family is DEFAULT


def test_nothing_contradicts_the_default_family():
    assert not contradicts(DEFAULT, traits_of(family_of("qwen3")))


@pytest.mark.parametrize("name", [name for name in NATIVE if name not in {"default", "kimi26"}])
def test_templates_like_the_models_own_have_the_clues(name: str):
    family = family_of(name)
    assert detect_family(traits_of(family, NATIVE[name])).family is family


def test_the_packaged_tokenizers_are_told_by_their_ids(
    qwen3: Tokenizer, native_qwen3: Tokenizer, qwen35: Tokenizer
):
    for tokenizer, name in ((qwen3, "qwen3"), (native_qwen3, "qwen3"), (qwen35, "qwen35")):
        traits = Traits(special_ids=tokenizer.special_ids, template=None, is_complete=False)
        assert detect_family(traits).family is family_of(name)
