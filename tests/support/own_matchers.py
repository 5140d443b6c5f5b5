"""Matchers that somebody else could have written, good and bad.

Spec: docs/sessions.md#own-matchers
"""

from __future__ import annotations

from typing import Any, Final

NUMBER: Final = 1


def same_role(stored: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Only the role counts."""
    return bool(stored["role"] == sent["role"])


def stored_is_the_reply(stored: dict[str, Any], sent: dict[str, Any]) -> bool:
    """No equality: tells which argument is which."""
    return (stored["role"], sent["role"]) == ("assistant", "user")


def never(stored: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Nothing is the same."""
    del stored, sent
    return False


def gives_none(stored: dict[str, Any], sent: dict[str, Any]) -> None:
    """Forgets to return."""
    del stored, sent


def gives_one(stored: dict[str, Any], sent: dict[str, Any]) -> int:
    """Something that counts as true."""
    del stored, sent
    return 1


def raises(stored: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Looks for what is not there."""
    del sent
    return bool(stored["no such field"])


def leaves(stored: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Takes itself for a script."""
    raise SystemExit(3)


async def waits(stored: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Would have to be awaited."""
    return stored == sent
