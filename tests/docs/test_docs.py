"""The tables and the diagram of docs/ tell what the code does."""

from __future__ import annotations

import enum
import re
from dataclasses import fields
from typing import Final, TypeVar

import pytest
from gunicorn.config import Config
from gunicorn.workers.base import Worker

from sessions.chassis.keeper import LAST_WORDS_S
from sessions.chassis.refusals import REFUSED_SIGNALS, refused_settings, refused_worker_class
from sessions.chassis.verdicts import ExitCode
from sessions.chassis.worker import GroupWorker
from sessions.client.errors import SessionsClientError
from sessions.core.histories.linear import MAX_ROLLBACK_TURNS
from sessions.core.samples.samples_request import NESTING_LIMIT
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.unseen import SettingsError
from sessions.lending.board import Phase
from sessions.lending.cells import CellState
from sessions.lending.channel import QUEUE_LIMIT_BYTES
from sessions.lending.connection import LINGER_QUIET_S, LINGER_TOTAL_S
from sessions.lending.group_state import STALE_BEAT_S, GroupState
from sessions.lending.messages import MAX_BYTES, Kind
from sessions.lending.slots import TRANSITIONS, SlotState
from sessions.replay.appender import QUEUE_BYTES
from sessions.replay.budget import SMALL_BYTES, STALL_S
from sessions.replay.comparison import CHAIN_LIMIT
from sessions.replay.npy_head import LIMIT_CHARS
from sessions.replay.session_blobs import CANDIDATES
from sessions.settings import Settings, read_settings, variable_of
from sessions.shard.exchange import LEFTOVER_LIMIT_BYTES
from sessions.wire.chunked import LINE_LIMIT_BYTES
from tests.support.error_classes import error_classes
from tests.support.pages import ROOT, project_files, rows_of, section_of

T = TypeVar("T")
RANGE: Final = re.compile(r"^([\d.]+) to ([\d.]+)")
RULE_WORDS: Final = re.compile(r"\brules? (\d+(?:(?:, | and |, and )\d+)*)")
TEST_NAME: Final = re.compile(r"`(tests/\w+)::(test_\w+)`")


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def codes_of(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def first_codes(text: str) -> list[str]:
    return [code for row in rows_of(text) for code in codes_of(row[0])]


# --- settings


def setting_rows() -> dict[str, list[str]]:
    rows = rows_of(section_of(page("settings"), "all-settings"))
    return {codes_of(row[0])[0]: row for row in rows}


def as_written(value: object) -> str:
    if value == "":
        return "unset"
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        value = int(value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_the_settings_of_the_page_are_those_of_the_code_with_their_defaults():
    told = {name: row[1] for name, row in setting_rows().items()}
    true = {variable_of(field.name): as_written(field.default) for field in fields(Settings)}
    assert told == true


def test_no_setting_stands_twice():
    rows = list(rows_of(section_of(page("settings"), "all-settings")))
    assert len(rows) == len(setting_rows())


@pytest.mark.parametrize("name", [n for n, row in setting_rows().items() if RANGE.match(row[2])])
def test_the_range_of_a_setting_is_that_of_the_code(name: str):
    match = RANGE.match(setting_rows()[name][2])
    assert match is not None
    for text in match.groups():
        read_settings({name: text})
        assert text == text.lstrip() != ""
    step = 1 if "." not in match[1] else 0.01
    for beyond in (float(match[1]) - step, float(match[2]) + 1):
        with pytest.raises(SettingsError, match=name):
            read_settings({name: f"{beyond:.10g}"})


def test_every_number_among_the_settings_has_a_range():
    numbers = {
        variable_of(f.name)
        for f in fields(Settings)
        if isinstance(f.default, int | float) and not isinstance(f.default, bool)
    }
    assert numbers == {name for name, row in setting_rows().items() if RANGE.match(row[2])}


# --- refusals


def harmful() -> Config:
    cfg = Config()
    values: dict[str, object] = {
        "workers": 99,
        "timeout": 1,
        "graceful_timeout": 1,
        "preload_app": True,
        "max_requests": 1,
        "reload": True,
        "reuse_port": True,
        "daemon": True,
        "dirty_workers": 1,
        "dirty_apps": ["a:b"],
        "control_socket_disable": False,
        "certfile": "c.pem",
        "keyfile": "k.pem",
        "proxy_protocol": "auto",
        "logconfig": "file",
        "logconfig_json": "file",
        "syslog": True,
        "paste": "file",
        "raw_env": ["SESSIONS_SHARDS=3"],
    }
    for name, value in values.items():
        cfg.set(name, value)
    return cfg


def key_of(told: str) -> str:
    """`--workers` of "`--workers` other than …" and of "--workers 99: …"."""
    word = told.removeprefix("an ").replace("`", "").split()[0]
    return word.partition("=")[0].rstrip(":")


def test_the_refused_options_of_the_page_are_those_of_the_code():
    reasons = [
        *refused_settings(harmful(), Settings(), {"WEB_CONCURRENCY": "2"}, app_uri="an:app"),
        *refused_worker_class(Worker, GroupWorker),
    ]
    rows = rows_of(section_of(page("settings"), "refused-gunicorn-settings"))
    assert sorted(key_of(row[0]) for row in rows) == sorted(key_of(reason) for reason in reasons)


def test_the_refused_signals_of_the_page_are_those_of_the_code():
    rows = rows_of(section_of(page("settings"), "refused-signals"))
    assert [row[0] for row in rows] == [f"SIG{name}" for name in REFUSED_SIGNALS]
    (told,) = [
        row[0] for row in rows_of(section_of(page("operations"), "signals")) if "HUP" in row[0]
    ]
    assert set(told.split(", ")) == {f"SIG{name}" for name in REFUSED_SIGNALS}


# --- errors


def subclasses_of(kind: type[T]) -> set[type[T]]:
    found = {kind}
    for child in kind.__subclasses__():
        found |= subclasses_of(child)
    return found


def error_row(kind: type[ClientVisibleError]) -> list[str]:
    after = "" if kind.retry_after_s is None else str(kind.retry_after_s)
    retry = "yes" if kind.should_retry else "no"
    return [
        f"`{kind.__name__}`",
        str(kind.status),
        f"`{kind.type}`",
        f"`{kind.code}`",
        retry,
        after,
    ]


def test_the_errors_of_the_page_are_those_of_the_code():
    told = [row[:6] for row in rows_of(section_of(page("errors"), "statuses"))]
    true = [error_row(kind) for kind in error_classes(ClientVisibleError)]
    assert sorted(told) == sorted(true)


def test_the_errors_of_the_client_are_those_of_the_code():
    told = first_codes(section_of(page("errors"), "client"))
    true = {
        k.__name__
        for k in subclasses_of(SessionsClientError)
        if k.__module__.startswith("sessions.")
    }
    true.remove("SessionsClientError")
    assert sorted(told) == sorted(true)


# --- states and words


def slot_diagram() -> str:
    lines = [f"    [*] --> {SlotState.HEAD.name}"]
    lines += [
        f"    {before.name} --> {after.name} : {event.name.lower().replace('_', ' ')}"
        for (before, event), after in TRANSITIONS.items()
    ]
    lines.append(f"    {SlotState.CLOSED.name} --> [*]")
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def test_the_diagram_of_slots_is_drawn_from_the_table():
    assert slot_diagram() in section_of(page("lending"), "slots"), slot_diagram()


def test_the_words_of_the_channel_are_those_of_the_code():
    told = [row[0] for row in rows_of(section_of(page("lending"), "messages"))]
    assert set(told) >= {kind.name for kind in Kind}
    assert [row[0] for row in rows_of(section_of(page("lending"), "state-cell"))] == [
        state.name for state in CellState
    ]


def test_exit_codes_are_told_on_both_pages():
    for name, anchor in (("architecture", "life-and-death"), ("operations", "exit-codes")):
        told = [row[0] for row in rows_of(section_of(page(name), anchor))]
        assert told == [str(code.value) for code in ExitCode], name


def test_the_states_of_probes_are_those_of_the_code():
    section = section_of(page("operations"), "probes")
    assert {state.value for state in GroupState} <= set(first_codes(section))
    assert ", ".join(f"`{phase.name.lower()}`" for phase in Phase) in section


# --- limits

KIB: Final = 1024
LIMITS: Final = [
    ("roll-back", "1 turn", MAX_ROLLBACK_TURNS, 1),
    ("nesting of a sample's metadata and reward", "64 levels", NESTING_LIMIT, 64),
    (
        "line of a chunked body; all its extensions; all its trailers",
        "16 KiB each",
        LINE_LIMIT_BYTES,
        16 * KIB,
    ),
    ("bytes read behind a request", "64 KiB", LEFTOVER_LIMIT_BYTES, 64 * KIB),
    ("channel message", "32 KiB", MAX_BYTES, 32 * KIB),
    ("queue of one shard's channel", "4 MiB", QUEUE_LIMIT_BYTES, 4 * KIB * KIB),
    ("lingering close", "2 s of silence", LINGER_QUIET_S, 2),
    ("lingering close", "30 s in all", LINGER_TOTAL_S, 30),
    ("beat of a shard", "10 s old", STALE_BEAT_S, 10),
    ("last words", "250 ms", LAST_WORDS_S, 0.25),
    ("changing head of an `.npy` blob", "4096 characters", LIMIT_CHARS, 4096),
    ("pieces in which a blob lies", "256", CHAIN_LIMIT, 256),
    ("blobs that are looked at where one goes on differently", "32", CANDIDATES, 32),
    ("new bytes of one blob on their way to the spool's disk", "4 MiB", QUEUE_BYTES, 4 * KIB * KIB),
    (
        "reply in flight that never waits for the ingest budget",
        "less than 64 KiB",
        SMALL_BYTES,
        64 * KIB,
    ),
    ("reply in flight that the others wait for", "5 s without progress", STALL_S, 5),
]


@pytest.mark.parametrize(("what", "told", "true", "value"), LIMITS)
def test_a_limit_in_the_code_is_told_as_it_is(what: str, told: str, true: float, value: float):
    rows = {row[0]: row[1] for row in rows_of(section_of(page("limits"), "limits-in-the-code"))}
    assert told in rows[what]
    assert true == value


# --- rules


def told_rules() -> set[int]:
    rows = rows_of(section_of(page("lending"), "rules"))
    return {int(row[0].split(".")[0]) for row in rows}


def test_every_rule_that_the_code_names_is_told():
    named = {
        int(number)
        for path in project_files()
        if path.suffix == ".py"
        for numbers in RULE_WORDS.findall(path.read_text())
        for number in re.findall(r"\d+", numbers)
    }
    assert named <= told_rules()
    assert named, "the code names its rules"


def known_tests(folder: str) -> set[str]:
    found: set[str] = set()
    for path in (ROOT / folder).rglob("test_*.py"):
        found.update(re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))
    return found


def test_every_test_that_a_page_names_is_there():
    named: dict[str, set[str]] = {}
    for path in (ROOT / "docs").glob("*.md"):
        for folder, name in TEST_NAME.findall(path.read_text()):
            named.setdefault(folder, set()).add(name)
    missing = {folder: names - known_tests(folder) for folder, names in named.items()}
    assert {folder: names for folder, names in missing.items() if names} == {}
    assert named, "the rules name their tests"
