"""The code of an environment, contained: whatever it raises fails its own request, and no more.

A `SystemExit` would end the loop and the shard with it. A `CancelledError` that nobody asked for
looks like a client that left, so its request would get no reply, and clients send it again. What is
no `Exception` passes the guards of others: the SDK's, for one, which serves no MCP afterwards.
Here all of these become a `BrokenOutError`.

Must not know what the code is for.

Spec: docs/tools.md#tools
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sessions.errors.unseen import BrokenOutError

_T = TypeVar("_T")


def run_contained(function: Callable[..., Any], **arguments: Any) -> Any:  # noqa: ANN401 - a user's
    """Call a plain function.

    Raises:
        BrokenOutError: It raised what is no `Exception`.
        Exception: Its own.
    """
    try:
        return function(**arguments)
    except Exception:
        raise  # a group of such, too
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _contained_error(error) from error


async def wait_contained(found: Awaitable[_T]) -> _T:
    """Wait for what an async function gave; in a task that is cancelled, this is cancelled.

    Raises:
        BrokenOutError: It raised what is no `Exception`, or a `CancelledError` of its own.
        CancelledError: Somebody cancelled the task.
        Exception: Its own.
    """
    try:
        return await found
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise _contained_error(error) from error
    except (Exception, GeneratorExit, KeyboardInterrupt):
        raise  # the second ends a task that is thrown away
    except BaseException as error:
        raise _contained_error(error) from error


def _contained_error(error: BaseException) -> BrokenOutError:
    return BrokenOutError(f"code of the environment raised {error!r}")
