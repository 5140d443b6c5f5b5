"""All classes of errors, of whatever module.

Spec: docs/errors.md
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TypeVar

from sessions import errors

T = TypeVar("T", bound=Exception)


def error_classes(base: type[T], module: str = "") -> list[type[T]]:
    """The classes of `sessions.errors` that derive from a base, itself included.

    Args:
        base: Of all of them.
        module: Only those of this one, by its short name; of all if empty.
    """
    found: list[type[T]] = []
    for info in pkgutil.iter_modules(errors.__path__, "sessions.errors."):
        place = importlib.import_module(info.name)
        if module and info.name != f"sessions.errors.{module}":
            continue
        found += [
            kind
            for kind in vars(place).values()
            if isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == info.name
        ]
    return found
