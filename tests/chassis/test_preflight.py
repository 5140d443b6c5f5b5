"""What the preflight refuses before the forks, and that it imports nothing of the application."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sessions.chassis.preflight import check_application
from sessions.errors.unseen import SettingsError
from sessions.settings import Settings


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that fails when it is imported."""
    folder = tmp_path / "explosive"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


@pytest.mark.parametrize(
    "settings",
    [
        Settings(engine_url="sim:"),
        Settings(engine_url="sim:?layers=3&latency_s=0.5"),
        Settings(engine_url="http://engine:30000", tokenizer="a folder"),
        Settings(app="json:loads", engine_url="sim:?nothing=1"),
        Settings(app="json:loads", matcher="nowhere.module:f"),
        Settings(engine_url="sim:", matcher="loose_tool_call"),
        Settings(engine_url="sim:", matcher="json.nowhere:f"),
        Settings(engine_url="sim:", sample_picker="json.nowhere:f"),
    ],
)
def test_what_may_be_right_passes(settings: Settings):
    check_application(settings)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (Settings(), "SESSIONS_ENGINE_URL is not set"),
        (Settings(engine_url="http://engine:30000"), "SESSIONS_TOKENIZER is not set"),
        (
            Settings(engine_url="sim:?layer=3"),
            "SESSIONS_ENGINE_URL='sim:?layer=3' is refused: unknown option 'layer' of",
        ),
        (
            Settings(engine_url="sim:?layers=0"),
            "SESSIONS_ENGINE_URL='sim:?layers=0' is refused: option layers='0' of",
        ),
        (
            Settings(app="nowhere.module:app"),
            "SESSIONS_APP='nowhere.module:app' is refused: there is no module 'nowhere'",
        ),
        (Settings(app="__main__:app"), ""),
        (
            Settings(engine_url="sim:", sample_picker="nowhere.module:f"),
            "SESSIONS_SAMPLE_PICKER='nowhere.module:f' is refused: there is no module 'nowhere'",
        ),
        (
            Settings(engine_url="sim:", sample_post_processor="nowhere:f"),
            "SESSIONS_SAMPLE_POST_PROCESSOR='nowhere:f' is refused: there is no module 'nowhere'",
        ),
        (
            Settings(engine_url="sim:", matcher="nowhere.module:f"),
            "SESSIONS_MATCHER='nowhere.module:f' is refused: there is no module 'nowhere'",
        ),
    ],
)
def test_what_cannot_be_right_is_refused_in_one_line(
    settings: Settings, line: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(SettingsError) as caught:
        check_application(settings)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("module", ["explosive", "explosive.inner.nothing"])
def test_nothing_of_the_application_is_imported(package: str, module: str):
    check_application(Settings(app=f"{module}:app"))
    assert package not in sys.modules


def test_a_namespace_package_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "spacious").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    check_application(Settings(app="spacious.module:app"))
