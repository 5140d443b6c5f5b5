import pytest

from sessions.core.named_code import load_function
from sessions.errors import SettingsError


def plain() -> str:
    return "called"


async def lazy() -> None:
    pass


class LazyObject:
    async def __call__(self) -> None:
        pass


LAZY_OBJECT = LazyObject()
NOT_CALLABLE = 3


def test_a_function_is_found_by_its_name():
    assert load_function("os.path:join", "SESSIONS_X")("a", "b") == "a/b"
    assert load_function(f"{__name__}:plain", "SESSIONS_X") is plain


def test_a_class_and_an_object_can_be_called_too():
    assert load_function("pathlib:Path", "SESSIONS_X")("a").name == "a"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("os.path.join", "expected package.module:attribute"),
        (":join", "expected package.module:attribute"),
        ("os.path:", "expected package.module:attribute"),
        ("no_such_module_here:x", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("os.path:no_such_name", "AttributeError: module 'posixpath' has no attribute"),
        (f"{__name__}:NOT_CALLABLE", "it cannot be called"),
        (f"{__name__}:lazy", "it must not be async"),
        (f"{__name__}:LAZY_OBJECT", "it must not be async"),
    ],
)
def test_what_cannot_be_called_is_refused_by_the_name_of_the_setting(name: str, reason: str):
    with pytest.raises(SettingsError) as caught:
        load_function(name, "SESSIONS_X")
    assert str(caught.value).startswith(f"SESSIONS_X={name!r} is refused: {reason}")
    assert "\n" not in str(caught.value)
