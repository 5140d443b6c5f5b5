"""Scripts: what is refused, and that the page lists every kind of fault and field."""

import re
from pathlib import Path

import msgspec
import pytest

from sessions.sim.script import WIRE_FAULTS, Fault, FaultKind, Script

DOCS = Path(__file__).parents[2] / "docs" / "sim.md"


@pytest.mark.parametrize(
    "value",
    [
        {"contents": "x"},
        {"content": None},
        {"tool_calls": [{"arguments": {}}]},
        {"tool_calls": [{"name": "f", "arguments": 3}]},
        {"token_ids": [True]},
        {"token_ids": [-1]},
        {"delay_s": -1},
        {"blob_mib": 5000},
        {"pad": 0},
        {"copies": "two"},
        {"fault": {}},
        {"fault": {"kind": "unheard_of"}},
        {"fault": {"kind": "status", "status": 100}},
        {"fault": {"kind": "cut", "after_bytes": -1}},
        {"fault": {"kind": "cut", "after": 1}},
        "cut",
    ],
)
def test_a_typing_error_in_a_script_is_refused(value: object):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, Script)


def test_an_empty_script_leaves_everything_to_the_engine():
    script = msgspec.convert({}, Script)
    assert script.content is script.reasoning is script.tool_calls is msgspec.UNSET
    assert msgspec.convert({"reasoning": None}, Script).reasoning is None


def section_of(title: str) -> str:
    return DOCS.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_page_lists_every_kind_of_fault():
    assert re.findall(r"^\| `(\w+)` \|", section_of("Faults"), re.MULTILINE) == [
        kind.value for kind in FaultKind
    ]
    assert [kind for kind in FaultKind if kind in WIRE_FAULTS] == list(FaultKind)[-4:]


def test_the_page_lists_every_field_of_scripts_and_faults():
    assert re.findall(r"^\| `(\w+)` \|", section_of("Scripts"), re.MULTILINE) == list(
        Script.__struct_fields__
    )
    for field in Fault.__struct_fields__:
        assert f"`{field}`" in section_of("Faults") or f'"{field}"' in section_of("Faults")
