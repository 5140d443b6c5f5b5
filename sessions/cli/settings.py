"""`settings`: every setting as this environment sets it, secrets hidden.

Spec: docs/settings.md
"""

from __future__ import annotations

import argparse
import enum
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from sessions.settings import Settings, read_settings, variable_of

_SECRET_NAMES: Final = ("_key", "_secret", "_token", "_password")
_URL_USER: Final = re.compile(r"//[^/@]*@")
_HIDDEN: Final = "********"


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """The command takes nothing."""


def run_command(_args: argparse.Namespace) -> None:
    """Print one line per setting: its variable, its value, and whether that is the default.

    Raises:
        SettingsError: The environment holds a value that the server would refuse.
    """
    rows = list(rows_of(read_settings()))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        print(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}")


def rows_of(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Variable, value as one would write it, and `default` or `set`, in the order declared."""
    for field in fields(Settings):
        value = getattr(settings, field.name)
        origin = "default" if value == field.default else "set"
        yield variable_of(field.name), _shown(field.name, value), origin


def _shown(field: str, value: object) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    if text and field.endswith(_SECRET_NAMES):
        return _HIDDEN
    return _URL_USER.sub(f"//{_HIDDEN}@", text)
