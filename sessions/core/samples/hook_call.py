"""Calling a hook: whatever it does, the client gets one clear error and the session is unharmed.

Must not know what hooks are for.

Spec: docs/samples.md#hooks
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sessions.errors.samples import SampleHookError

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


def call_hook(name: str, hook: Callable[..., Any], *given: object) -> object:
    """Call a hook.

    Args:
        name: What it is, for messages.
        hook: The hook.
        given: Its arguments.

    Returns:
        What it gives, unchecked.

    Raises:
        SampleHookError: It raised; the log has where.
    """
    try:
        return hook(*given)
    except BaseException as error:
        # In a thread; SystemExit and CancelledError would end the loop, or the request, from there.
        _log.exception("hook failed hook=%s", name)
        reason = " ".join(str(error).split())
        raise SampleHookError(f"the {name} raised {type(error).__name__}: {reason}") from error


def chosen_of(name: str, chosen: object, given: Iterable[_T]) -> list[_T]:
    """Check that a hook gives what it was given, each at most once.

    Args:
        name: What the hook is, for messages.
        chosen: What it gives.
        given: What it was given.

    Returns:
        The chosen ones in the hook's order.

    Raises:
        SampleHookError: It gives something else.
    """
    if not isinstance(chosen, list | tuple):
        raise SampleHookError(f"the {name} gives {type(chosen).__name__} instead of a list")
    left = {id(each): each for each in given}
    found: list[_T] = []
    for place, each in enumerate(chosen):
        one = left.pop(id(each), None)
        if one is None:
            raise SampleHookError(
                f"the {name} gives at place {place} what it was not given, or gave already"
            )
        found.append(one)
    return found
