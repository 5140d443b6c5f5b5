"""`settings`: every setting, as set, without secrets."""

from __future__ import annotations

import os
from dataclasses import fields

import pytest

from sessions.cli.main import main
from sessions.cli.settings import rows_of
from sessions.settings import Settings, read_settings, variable_of


@pytest.fixture(autouse=True)
def _no_settings_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SESSIONS_")]:
        monkeypatch.delenv(name)


def rows(**environ: str) -> dict[str, tuple[str, str]]:
    return {name: (value, origin) for name, value, origin in rows_of(read_settings(environ))}


def test_every_setting_is_shown_as_one_would_write_it():
    shown = rows()
    assert list(shown) == [variable_of(field.name) for field in fields(Settings)]
    assert {origin for _, origin in shown.values()} == {"default"}
    assert shown["SESSIONS_ROUTER"][0] == "auto"
    written = {name: value for name, (value, _) in shown.items() if value}
    assert read_settings(written) == Settings()


def test_what_the_environment_sets_is_marked():
    shown = rows(SESSIONS_SHARDS="4", SESSIONS_CANCEL_ON_DISCONNECT="1")
    assert shown["SESSIONS_SHARDS"] == ("4", "set")
    assert shown["SESSIONS_CANCEL_ON_DISCONNECT"] == ("1", "set")


def test_secrets_are_hidden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SESSIONS_ENGINE_API_KEY", "sk-visible")
    monkeypatch.setenv("SESSIONS_ENGINE_URL", "http://user:visible@engine:1/v1")
    assert main(["settings"]) == 0
    out = capsys.readouterr().out
    assert "visible" not in out
    assert "@engine:1/v1" in out


def test_a_refused_setting_exits_1_with_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SESSIONS_SHARDS", "many")
    assert main(["settings"]) == 1
    assert "SESSIONS_SHARDS='many' is refused" in capsys.readouterr().err
