"""Chat templates: Jinja text that turns messages into the text of a prompt.

The environment follows the rules that Hugging Face gives to template authors: block tags take their
line with them, loops have `break` and `continue`, `tojson` keeps key order and writes text as it
is, `raise_exception` refuses, `strftime_now` tells the time, `generation` marks are passed over.
It is sandboxed, because a template comes with a model that somebody downloaded. A template is
either one of ours (`read_shipped_template`) or the model's own, found beside its tokenizer
(`read_native_template`).

Must not know families, tokens or sessions.

Spec: docs/sessions.md#chat-templates
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final, NoReturn, Protocol

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sessions.errors.turns import UnrenderableMessageError
from sessions.errors.unseen import SettingsError

# What a template may raise while it renders: its own refusals, and Python's for the expressions in
# it (`none + "x"`, `range(10**9)`).
_RENDER_ERRORS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_CONFIG_FILE: Final = "tokenizer_config.json"
# Names that a template finds in its context whatever the request says.
RESERVED_NAMES: Final = frozenset(
    {"messages", "tools", "add_generation_prompt", "raise_exception", "strftime_now"}
)


class Template(Protocol):
    """Anything that renders messages; `ChatTemplate` is the one that serves."""

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[object] | None,
        *,
        add_generation_prompt: bool,
        kwargs: Mapping[str, object],
        now: datetime,
    ) -> str:
        """See `ChatTemplate.render`."""
        ...


class _GenerationMark(Extension):
    """`{% generation %}` marks what the model wrote, for training masks: it renders its inside."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One compiled template; see the module docstring."""

    def __init__(
        self, source: str, *, name: str, constants: Mapping[str, str] | None = None
    ) -> None:
        """Compile a template.

        Args:
            source: Jinja text.
            name: For error messages.
            constants: Names that are always set, such as `bos_token`.

        Raises:
            SettingsError: The text is no template.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationMark, LoopControlExtension],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        self._constants = dict(constants or {})
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise SettingsError(f"chat template {name} cannot be compiled: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[object] | None,
        *,
        add_generation_prompt: bool,
        kwargs: Mapping[str, object],
        now: datetime,
    ) -> str:
        """Render messages.

        Args:
            messages: In the form of `sessions.tokens.messages`.
            tools: As the client sent them; None and an empty list are the same.
            add_generation_prompt: Whether the text ends where the assistant begins to speak.
            kwargs: Further names for the template; none of `RESERVED_NAMES`.
            now: What `strftime_now` shows.

        Returns:
            The text of the prompt.

        Raises:
            UnrenderableMessageError: The template refuses or fails.
        """
        context = {
            **self._constants,
            **kwargs,
            "messages": messages,
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": now.strftime,
        }
        try:
            return self._template.render(context)
        except _RENDER_ERRORS as error:
            raise UnrenderableMessageError(
                f"the chat template cannot render these messages: {error}", param="messages"
            ) from error


def local_now() -> datetime:
    """The time that templates show: this machine's, with its zone."""
    return datetime.now(UTC).astimezone()


def read_shipped_template(name: str, texts: Mapping[str, str] | None = None) -> ChatTemplate:
    """Read one of the templates that ship with the package.

    Args:
        name: Its file name without `.jinja`.
        texts: Its constants.
    """
    source = files("sessions.tokens").joinpath("chat", f"{name}.jinja").read_text("utf-8")
    return ChatTemplate(source, name=name, constants=texts)


def read_native_template(folder: Path) -> ChatTemplate:
    """Read a model's own template.

    Args:
        folder: Where its tokenizer is; `chat_template.jinja` there wins over the template in
            `tokenizer_config.json`, of several named ones `default` is taken.

    Returns:
        The template, with the special tokens of `tokenizer_config.json` as its constants.

    Raises:
        SettingsError: There is none, or a file is damaged.
    """
    source = native_text_of(folder)
    if source is None:
        raise SettingsError(f"no chat template in {folder}")
    config = _read_config(folder / _CONFIG_FILE)
    tokens = {key: _token_text(value) for key, value in config.items() if key.endswith("_token")}
    constants = {key: text for key, text in tokens.items() if text is not None}
    return ChatTemplate(source, name=str(folder), constants=constants)


def native_text_of(folder: Path) -> str | None:
    """The text of a model's own template, found as in `read_native_template`; None without one.

    Raises:
        SettingsError: A file is damaged.
    """
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    source = _read_config(folder / _CONFIG_FILE).get("chat_template")
    if isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _read_config(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise SettingsError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"{path} holds no object")
    return found


def _token_text(value: object) -> str | None:
    """A special token is written as text or as an object with the text in `content`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates may give it by place
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - templates may give it by place
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(message)
