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
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final

import msgspec

from sessions.errors.client_visible import ClientVisibleError, InternalError
from sessions.errors.episodes import EpisodeNotRunningError, UnknownToolError
from sessions.errors.unseen import LocalProtocolError
from sessions.tools.contained import run_contained
from sessions.tools.open_work import OpenWork
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


class ServedTools(OpenWork):
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
        super().__init__()
        named: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in named:
                raise LocalProtocolError(f"two tools are named {tool.name!r}")
            named[tool.name] = tool
        self.tools: Mapping[str, Tool] = MappingProxyType(named)
        self._calls = calls

    def tool_named(self, name: str) -> Tool:
        """A tool.

        Raises:
            EpisodeNotRunningError: They are closed.
            UnknownToolError: There is none of that name.
        """
        self.check_open()
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
        call, rest = self.begin(name, arguments)
        if rest is not None:
            await rest
        return call.result

    def begin(
        self, name: str, arguments: object
    ) -> tuple[ToolCall, Coroutine[Any, Any, None] | None]:
        """Begin what `call` does; a plain tool has run when this returns.

        Args:
            name: Of the tool.
            arguments: As they came out of JSON.

        Returns:
            The call, and what must be awaited before it has a result; None if it has.

        Raises:
            Exception: As `call` does.
        """
        tool = self.tool_named(name)
        checked = tool.arguments_of(arguments)
        call = ToolCall(name=name, arguments=_members_of(arguments))
        self._calls.append(call)
        with _Recording(call):
            found = run_contained(tool.function, **checked)
            if inspect.isawaitable(found):
                return call, self._finish(call, found)
            _end(call, found)
        return call, None

    async def _finish(self, call: ToolCall, found: Awaitable[Any]) -> None:
        with _Recording(call):
            _end(call, await self.run(found))


class _Recording:
    """Writes down how a call failed, if it does in the block; a fault of ours tells no more."""

    __slots__ = ("_call",)

    def __init__(self, call: ToolCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        call = self._call
        if isinstance(error, asyncio.CancelledError | EpisodeNotRunningError):
            call.state = CallState.CANCELLED
        elif isinstance(error, ClientVisibleError):
            call.state, call.error = CallState.FAILED, error.message
        elif isinstance(error, Exception):
            _log.error("tool failed tool=%s", call.name, exc_info=error)
            told = f"tool {call.name!r} failed; the server's log says why"
            call.state, call.error = CallState.FAILED, told
            raise InternalError(told) from error


def _end(call: ToolCall, found: object) -> None:
    # There and back, so that whoever tells it can: of a lone surrogate nobody could.
    call.result = msgspec.json.decode(msgspec.json.encode(found))
    call.state = CallState.DONE


def _members_of(arguments: object) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, Mapping) else {}
