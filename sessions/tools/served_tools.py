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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from sessions.episode_errors import EpisodeNotRunningError, UnknownToolError
from sessions.errors import ClientVisibleError, InternalError, LocalProtocolError
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
        tool = self.tool_named(name)
        checked = tool.arguments_of(arguments)
        call = ToolCall(name=name, arguments=_members_of(arguments))
        self._calls.append(call)
        try:
            found = tool.function(**checked)
            if inspect.isawaitable(found):
                found = await self.run(found)
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


def _members_of(arguments: object) -> Mapping[str, Any]:
    return arguments if isinstance(arguments, Mapping) else {}
