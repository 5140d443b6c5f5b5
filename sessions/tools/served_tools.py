"""Tools that are served to an agent: what was called, until when.

A call names a tool and brings arguments; `call` checks both, runs the tool and records the call.
Refused calls leave no trace: no tool runs for them and the record does not show them. It is in the
order in which the server began the calls, and each call begins exactly once.

When they are closed, calls that still run are cancelled and answered as gone, so that nothing of
an episode or a session outlives it. Transports (direct HTTP, MCP) stand above and know no tools;
who may call is said by those who serve.

Spec: docs/tools.md#calls
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from sessions.episode_errors import EpisodeNotRunningError, UnknownToolError
from sessions.errors import ClientVisibleError, InternalError, LocalProtocolError
from sessions.tools.cleanup import wait_through
from sessions.tools.tool import Tool

_log: Final = logging.getLogger(__name__)


class CallState(enum.Enum):
    """Where a call stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True, kw_only=True)
class ToolCall:
    """One call that reached its tool.

    Attributes:
        name: Of the tool.
        arguments: As the agent sent them.
        state: Where it stands; only DONE has a result, only FAILED an error.
        result: What the tool gave, as JSON says it.
        error: What the agent was told instead.
    """

    name: str
    arguments: Mapping[str, Any]
    state: CallState = CallState.RUNNING
    result: Any = None
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """For a reply: name, arguments, state, and the result or the error if there is one."""
        told: dict[str, Any] = {"name": self.name, "arguments": dict(self.arguments)}
        told["state"] = self.state.value
        if self.state is CallState.DONE:
            told["result"] = self.result
        elif self.state is CallState.FAILED:
            told["error"] = self.error
        return told


def not_running_error() -> EpisodeNotRunningError:
    """The answer for an episode that is over, or never was."""
    return EpisodeNotRunningError("this episode is not running on this server")


class ServedTools:
    """Runs calls; see the module docstring.

    Attributes:
        tools: By name, in the order in which they were given.
    """

    def __init__(self, tools: Iterable[Tool], calls: list[ToolCall]) -> None:
        """Open.

        Args:
            tools: What is served; names are unique.
            calls: Gets every call that reaches its tool, in the server's order.

        Raises:
            LocalProtocolError: Two tools have one name.
        """
        named: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in named:
                raise LocalProtocolError(f"two tools are named {tool.name!r}")
            named[tool.name] = tool
        self.tools: Mapping[str, Tool] = MappingProxyType(named)
        self._calls = calls
        self._running: set[asyncio.Future[Any]] = set()
        self._gone: Callable[[], EpisodeNotRunningError] | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are served."""
        return self._gone is None

    def tool_named(self, name: str) -> Tool:
        """A tool.

        Raises:
            EpisodeNotRunningError: They are closed.
            UnknownToolError: There is none of that name.
        """
        if self._gone is not None:
            raise self._gone()
        tool = self.tools.get(name)
        if tool is None:
            there = ", ".join(self.tools) or "none"
            raise UnknownToolError(f"no tool {name!r} here (there are: {there})")
        return tool

    async def call(self, name: str, arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Run a tool once.

        A caller that is cancelled cancels the tool.

        Args:
            name: Of the tool.
            arguments: As they came out of JSON.

        Returns:
            The result, as JSON says it.

        Raises:
            EpisodeNotRunningError: They are closed, or were before the tool's end.
            UnknownToolError: There is no such tool; nothing ran.
            ToolArgumentsError: The arguments are not the tool's; nothing ran.
            ClientVisibleError: The tool raised it, such as a `ToolError`.
            InternalError: The tool failed otherwise; the log says how.
        """
        tool = self.tool_named(name)
        checked = tool.arguments_of(arguments)
        call = ToolCall(name=name, arguments=_members_of(arguments))
        self._calls.append(call)
        try:
            found = tool.function(**checked)
            if inspect.isawaitable(found):
                found = await self._wait(found)
            call.result = msgspec.to_builtins(found, str_keys=True)
        except asyncio.CancelledError:
            call.state = CallState.CANCELLED
            raise
        except EpisodeNotRunningError:
            call.state = CallState.CANCELLED
            raise
        except ClientVisibleError as error:
            call.state, call.error = CallState.FAILED, error.message
            raise
        except Exception as error:
            _log.exception("tool failed tool=%s", name)
            told = f"tool {name!r} failed; the server's log says why"
            call.state, call.error = CallState.FAILED, told
            raise InternalError(told) from error
        call.state = CallState.DONE
        return call.result

    def close(self, gone: Callable[[], EpisodeNotRunningError] = not_running_error) -> None:
        """Serve no further call, and cancel those that run; again changes the answer alone.

        Args:
            gone: Makes the answer from now on.
        """
        self._gone = gone
        for task in list(self._running):
            task.cancel()

    async def wait_ended(self, limit_s: float) -> None:
        """Wait until no call runs any more, being closed; cancellations of the waiter come after.

        Args:
            limit_s: A tool that does not end by then is left behind, with a log line.
        """
        tasks = set(self._running)
        if not tasks:
            return
        waiter = asyncio.ensure_future(asyncio.wait(tasks, timeout=limit_s))
        try:
            await wait_through(waiter)
        finally:
            left = sum(not task.done() for task in tasks)
            if left:
                _log.error("tools did not end with their episode count=%d", left)

    async def _wait(self, found: Any) -> Any:  # noqa: ANN401 - what a tool gives
        """Wait for an async tool in a task of its own, so that closing can end it."""
        task = asyncio.ensure_future(found)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._gone is not None:
                raise self._gone() from None
            raise
        finally:
            self._running.discard(task)


def _members_of(arguments: object) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, Mapping) else {}
