"""Functions that a setting names as `package.module:attribute`.

They are loaded before the first request, so what is misspelled stops the start.

Must not know what they do.

Spec: docs/settings.md#named-functions
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from sessions.errors import SettingsError


def load_function(name: str, variable: str) -> Callable[..., Any]:
    """Import a function.

    Args:
        name: `package.module:attribute`.
        variable: The setting that names it, for messages.

    Raises:
        SettingsError: There is none of that name, or it is not a plain function that can be
            called; the message names the setting.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise _refused(variable, name, "expected package.module:attribute")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise _refused(variable, name, reason) from error
    if not callable(found):
        raise _refused(variable, name, "it cannot be called")
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(
        getattr(found, "__call__", None)  # noqa: B004 - an object with an async __call__
    ):
        raise _refused(variable, name, "it must not be async")
    loaded: Callable[..., Any] = found
    return loaded


def _refused(variable: str, name: str, reason: str) -> SettingsError:
    return SettingsError(f"{variable}={name!r} is refused: {reason}")
