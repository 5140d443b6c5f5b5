"""Functions that a setting names as `package.module:attribute`.

They are loaded before the first request, so what is misspelled stops the start.

Must not know what they do.

Spec: docs/settings.md#named-functions
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

from sessions.errors.unseen import SettingsError

_log = logging.getLogger(__name__)


def load_function(name: str) -> Callable[..., Any]:
    """Import a function.

    Args:
        name: `package.module:attribute`.

    Raises:
        SettingsError: It cannot be imported, or is no function that answers at once. One line, to
            follow the name of the setting.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except (Exception, SystemExit) as error:
        _log.exception("function failed to load name=%s", name)
        reason = " ".join(str(error).split())
        raise SettingsError(f"it cannot be loaded: {type(error).__name__}: {reason}") from error
    if not callable(found):
        raise SettingsError("it names nothing that can be called")
    if any(map(_is_async, (found, getattr(found, "__call__", None)))):  # noqa: B004 - an object's
        raise SettingsError("it is asynchronous, and has to answer at once")
    loaded: Callable[..., Any] = found
    return loaded


def _is_async(found: object) -> bool:
    return inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)
