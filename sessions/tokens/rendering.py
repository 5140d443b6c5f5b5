"""One request's way through the chat template, with the blame put in the right place.

All renders of a request share its tools, its template kwargs and one moment in time, so their texts
can be compared. A template that fails says what went wrong but not where; `Rendering` finds the
field of the request by rendering less: without tools, then ever smaller heads of the messages.
That costs O(n log n), and only a request that is refused pays it.

Must not know tokens or families.

Spec: docs/sessions.md#prompts
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnrenderableMessageError
from sessions.tokens.templates import Template, local_now


class Rendering:
    """Renders messages with what one request gives besides them."""

    def __init__(
        self, template: Template, tools: object = None, kwargs: Mapping[str, object] | None = None
    ) -> None:
        """Check the tools and take the time.

        Args:
            template: What renders.
            tools: The request's `tools`.
            kwargs: Checked template kwargs.

        Raises:
            RequestError: The tools are no list of objects.
        """
        self._template = template
        self._tools = _tools_of(tools)
        self._kwargs = dict(kwargs or {})
        self._now = local_now()

    def text(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool,
        own_count: int = 0,
        offset: int = 0,
    ) -> str:
        """Render messages.

        Args:
            messages: In the form of `sessions.tokens.messages`.
            add_generation_prompt: Whether the text ends where the assistant begins to speak.
            own_count: How many of the first messages are ours and not the request's.
            offset: Index in the request of its first message here, for error messages.

        Raises:
            UnrenderableMessageError: The template refuses or fails; `param` is `tools` or the
                message after which it does.
        """
        try:
            return self._render(messages, self._tools, add_generation_prompt=add_generation_prompt)
        except UnrenderableMessageError as error:
            place = self._place_of_fault(
                messages, own_count, offset, add_generation_prompt=add_generation_prompt
            )
            raise UnrenderableMessageError(f"{place}: {error.message}", param=place) from error

    def _render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[object] | None,
        *,
        add_generation_prompt: bool,
    ) -> str:
        return self._template.render(
            messages,
            tools,
            add_generation_prompt=add_generation_prompt,
            kwargs=self._kwargs,
            now=self._now,
        )

    def _place_of_fault(
        self,
        messages: Sequence[Mapping[str, object]],
        own_count: int,
        offset: int,
        *,
        add_generation_prompt: bool,
    ) -> str:
        def renders(count: int, tools: Sequence[object] | None) -> bool:
            try:
                self._render(messages[:count], tools, add_generation_prompt=add_generation_prompt)
            except UnrenderableMessageError:
                return False
            return True

        if self._tools is not None and renders(len(messages), None):
            return "tools"
        good, bad = own_count, len(messages)
        while bad - good > 1:
            middle = (good + bad) // 2
            if renders(middle, self._tools):
                good = middle
            else:
                bad = middle
        return f"messages[{max(offset + good - own_count, 0)}]"


def _tools_of(tools: object) -> list[object] | None:
    if tools is None:
        return None
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise RequestError("tools must be a list", param="tools")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise RequestError(f"tools[{index}] must be an object", param=f"tools[{index}]")
    return list(tools)
