from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessions.core.named_code import load_function
from sessions.errors.unseen import SettingsError


def plain() -> str:
    return "called"


async def lazy() -> None:
    pass


async def lazy_row() -> AsyncIterator[int]:
    yield 1


class LazyObject:
    async def __call__(self) -> None:
        pass


LAZY_OBJECT = LazyObject()
NOT_CALLABLE = 3


def test_a_function_is_found_by_its_name():
    assert load_function("os.path:join")("a", "b") == "a/b"
    assert load_function(f"{__name__}:plain") is plain


def test_a_class_and_an_object_can_be_called_too():
    assert load_function("pathlib:Path")("a").name == "a"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module_here:x", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("os.path:no_such_name", "it names nothing that can be called"),
        (f"{__name__}:NOT_CALLABLE", "it names nothing that can be called"),
        (f"{__name__}:lazy", "it is asynchronous"),
        (f"{__name__}:LAZY_OBJECT", "it is asynchronous"),
        (f"{__name__}:lazy_row", "it is asynchronous"),
    ],
)
def test_what_cannot_be_called_at_once_is_refused_in_one_line(name: str, reason: str):
    with pytest.raises(SettingsError, match=reason) as caught:
        load_function(name)
    assert "\n" not in str(caught.value)


def test_a_module_that_leaves_when_it_is_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a_script_of_somebodys.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match="it cannot be loaded: SystemExit: 0"):
        load_function("a_script_of_somebodys:main")
