"""Logs: one stream on stderr for gunicorn, uvicorn and ourselves.

`log_config` is a configuration for `logging.config.dictConfig`: one handler on the root logger,
and every other logger writes through it. A line names the process that wrote it by its role, so
the lines of a whole group can be read as one story. Access lines are off until gunicorn's
`--access-logfile` asks for them; `--error-logfile FILE` moves the stream to a file, which SIGUSR1
opens again.

Spec: docs/operations.md#logs
"""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Final

_STREAM: Final = "-"  # gunicorn's word for the standard stream
_UNNAMED: Final = "arbiter"  # until a process is named, only the arbiter writes
_FORKED: Final = "worker"  # a fork that does not know its role yet
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


class _RoleRecord(logging.LogRecord):
    """A record that knows the role of its process."""

    role: str


def name_process(role: str) -> None:
    """Make every line of this process name it; a later fork counts as unnamed.

    Args:
        role: `arbiter`, `router` or `shard 3`.
    """
    pid = os.getpid()

    def make_record(*args: object, **kwargs: object) -> logging.LogRecord:
        record = _RoleRecord(*args, **kwargs)  # type: ignore[arg-type]
        record.role = role if record.process == pid else _FORKED
        return record

    logging.setLogRecordFactory(make_record)


class TextFormatter(logging.Formatter):
    """`2026-11-30T03:00:00.123Z INFO sessile shard 2 [71] sessions.shard: message`.

    Control characters in a message are escaped, so a line is a line whatever it quotes; only a
    traceback follows on lines of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without a line end."""
        line = (
            f"{_time_of(record)} {record.levelname} sessile {_role_of(record)} "
            f"[{record.process}] {record.name}: {record.getMessage().translate(_CONTROLS)}"
        )
        trace = _trace_of(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, role, pid, logger, message, and trace if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The object of a record, without a line end."""
        found: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname,
            "role": _role_of(record),
            "pid": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = _trace_of(self, record)
        if trace:
            found["trace"] = trace
        return json.dumps(found)


def log_config(
    form: str, *, level: str = "INFO", error_log: str = _STREAM, access_log: str | None = None
) -> dict[str, object]:
    """The configuration of all loggers of a process.

    Args:
        form: `text` or `json` (SESSIONS_LOG_FORMAT).
        level: Of the root logger and so of all that have none of their own.
        error_log: A path, or `-` for stderr.
        access_log: A path, `-` for the stream of all others, None for no access lines.

    Returns:
        For `logging.config.dictConfig`, and so for gunicorn's `logconfig_dict`.
    """
    handlers = {"stream": _handler(error_log)}
    access = {"propagate": False, "handlers": ["stream"] if access_log == _STREAM else []}
    if access_log not in (None, _STREAM):
        handlers["access"] = _handler(str(access_log))
        access["handlers"] = ["access"]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": TextFormatter if form == "text" else JsonFormatter}},
        "handlers": handlers,
        "root": {"level": level, "handlers": ["stream"]},
        "loggers": {
            # gunicorn opens files again only where a logger with a name holds them
            "gunicorn": {"propagate": False, "handlers": ["stream"]},
            # gunicorn gave these two handlers of their own; a mention takes them away
            "gunicorn.error": {"propagate": True, "handlers": []},
            "gunicorn.access": access,
            # uvicorn asks hasHandlers() whether to do the work, so silence must mean no handler
            "uvicorn.access": {"level": "INFO", **access},
            "httpx": {"level": "WARNING"},  # it writes a line for every call of an application
        },
    }


def _handler(target: str) -> dict[str, object]:
    if target == _STREAM:
        return {
            "class": "logging.StreamHandler",
            "stream": "ext://sys.stderr",
            "formatter": "line",
        }
    return {"class": "logging.FileHandler", "filename": target, "formatter": "line"}


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _role_of(record: logging.LogRecord) -> str:
    return record.role if isinstance(record, _RoleRecord) else _UNNAMED


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
