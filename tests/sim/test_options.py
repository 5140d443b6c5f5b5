"""Options: the URL form and what it refuses."""

import dataclasses
import re
from pathlib import Path

import pytest

from sessions.errors.unseen import SettingsError
from sessions.sim.options import Copies, Dialect, SimOptions, Thinking, options_of, parse_sim_url

DOCS = Path(__file__).parents[2] / "docs" / "sim.md"


def test_the_bare_url_has_all_defaults():
    assert parse_sim_url("sim:") == SimOptions() == parse_sim_url("sim:?")


def test_every_option_can_be_set():
    url = (
        "sim:?dialect=vllm&replay=0&model=m%20x&context=4096&layers=48&topk=8&experts=64&pad=3&copies=both&latency_s=0.5"
        "&token_s=0.01&words=9&thinking=empty&calls=0&seed=7&weight_version=v2&journal=3"
        "&keep_alive_s=60"
    )
    assert parse_sim_url(url) == SimOptions(
        dialect=Dialect.VLLM,
        replay=False,
        model="m x",
        context=4096,
        layers=48,
        topk=8,
        experts=64,
        pad=3,
        copies=Copies.BOTH,
        latency_s=0.5,
        token_s=0.01,
        words=9,
        thinking=Thinking.EMPTY,
        calls=False,
        seed=7,
        weight_version="v2",
        journal=3,
        keep_alive_s=60,
    )
    assert len(url.split("&")) == len(dataclasses.fields(SimOptions))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://sim", "expected sim:"),
        ("sim:layers=4", "question mark"),
        ("sim:?layer=4", "unknown option 'layer'.*layers"),
        ("sim:?layers=4&layers=4", "twice"),
        ("sim:?layers=0", "layers='0'.*from 1 to 256"),
        ("sim:?layers=257", "from 1 to 256"),
        ("sim:?layers=", "from 1 to 256"),
        ("sim:?layers=\uff14", "from 1 to 256"),
        ("sim:?topk=65", "from 1 to 64"),
        ("sim:?experts=257", "from 1 to 256"),
        ("sim:?latency_s=-1", "seconds from 0"),
        ("sim:?latency_s=nan", "seconds from 0"),
        ("sim:?token_s=x", "seconds from 0"),
        ("sim:?thinking=some", "one of full, empty, none"),
        ("sim:?calls=yes", "0 or 1"),
        ("sim:?model=", "printable"),
        ("sim:?weight_version=a%0Ab", "printable"),
    ],
)
def test_what_is_no_option_is_refused_by_name(url: str, says: str):
    with pytest.raises(SettingsError, match=says):
        parse_sim_url(url)


def test_options_of_a_command_line_are_the_same():
    assert options_of([("layers", "9")]) == parse_sim_url("sim:?layers=9")


def test_the_page_names_every_option_with_its_default():
    section = DOCS.read_text().partition("## Options")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \|", section, re.MULTILINE))
    shown = {}
    for field in dataclasses.fields(SimOptions):
        value = getattr(SimOptions(), field.name)
        value = getattr(value, "value", value)
        shown[field.name] = f"{value:g}" if isinstance(value, (bool, float)) else str(value)
    assert rows == shown
