"""Lines of the one log stream."""

import io
import json
import logging
import logging.config
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sessions.chassis.logs import JsonFormatter, TextFormatter, log_config, name_process
from tests.support.stand_ins import status_of

_MOMENT = 1796007600.123  # 2026-11-30T03:00:00.123Z


def _record(message: str, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    record = logging.getLogRecordFactory()(
        "sessions.shard", level, __file__, 1, message, args, None
    )
    record.created = _MOMENT
    record.process = 71
    return record


def _logged(tmp_path: Path, act: Callable[[], None], **options: str | None) -> str:
    """What a child writes to its stderr under `log_config`; its logging is its own."""
    out = tmp_path / "stderr"

    def child() -> None:
        sys.stderr = out.open("w", buffering=1)
        config = log_config(**{"form": "text", **options})  # type: ignore[arg-type]
        logging.config.dictConfig(config)
        act()
        os._exit(0)

    assert status_of(child) == 0
    return out.read_text()


def test_a_text_line_has_time_level_role_pid_and_logger():
    line = TextFormatter().format(_record("%s ready pid=%d", "shard 2", 71))
    assert line == (
        "2026-11-30T03:00:00.123Z INFO sessile arbiter [71] sessions.shard: shard 2 ready pid=71"
    )


def test_control_characters_in_a_message_cannot_begin_a_line():
    line = TextFormatter().format(_record("id %s", "a\r\nCRITICAL b\x1b[2J\x7f"))
    assert line.endswith("id a\\r\\nCRITICAL b\\x1b[2J\\x7f")
    assert line.isprintable()


def test_a_json_line_is_one_object_with_the_same_facts():
    line = JsonFormatter().format(_record('say "%s"', "hi\n"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-30T03:00:00.123Z",
        "level": "INFO",
        "role": "arbiter",
        "pid": 71,
        "logger": "sessions.shard",
        "message": 'say "hi\n"',
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_traceback_comes_with_its_line(formatter: logging.Formatter):
    record = _record("failed")
    try:
        int("why")
    except ValueError:
        record.exc_info = sys.exc_info()
    record.stack_info = "Stack (most recent call last): here"
    text = formatter.format(record)
    trace = json.loads(text)["trace"] if text.startswith("{") else text.partition("\n")[2]
    assert trace.startswith("Traceback (most recent call last):")
    assert "ValueError: invalid literal" in trace
    assert trace.endswith("here")


def test_a_named_process_says_its_role_and_its_fork_does_not(tmp_path: Path):
    def act() -> None:
        logger = logging.getLogger("sessions.x")
        name_process("router")
        logger.info("one")
        status_of(lambda: logger.info("two"))

    first, second = _logged(tmp_path, act).splitlines()
    assert re.search(r" sessile router \[\d+\] sessions.x: one$", first)
    assert re.search(r" sessile worker \[\d+\] sessions.x: two$", second)


def test_gunicorn_and_uvicorn_write_through_the_one_stream(tmp_path: Path):
    def act() -> None:
        own = logging.StreamHandler(io.StringIO())
        logging.getLogger("gunicorn.error").addHandler(own)
        logging.getLogger("gunicorn.error").propagate = False
        logging.config.dictConfig(log_config("json"))
        for name in ("gunicorn.error", "uvicorn.error", "sessions.shard", "some.app"):
            logging.getLogger(name).info("from %s", name)

    found = [json.loads(line)["message"] for line in _logged(tmp_path, act).splitlines()]
    assert found == [
        "from gunicorn.error",
        "from uvicorn.error",
        "from sessions.shard",
        "from some.app",
    ]


def test_access_lines_are_off_so_that_uvicorn_does_not_make_them(tmp_path: Path):
    def act() -> None:
        for name in ("uvicorn.access", "gunicorn.access"):
            logger = logging.getLogger(name)
            assert not logger.hasHandlers()
            logger.info("GET /")

    assert _logged(tmp_path, act) == ""


def test_access_lines_share_the_stream_when_asked_for(tmp_path: Path):
    def act() -> None:
        assert logging.getLogger("uvicorn.access").hasHandlers()
        logging.getLogger("uvicorn.access").info("GET /")

    assert "uvicorn.access: GET /" in _logged(tmp_path, act, access_log="-")


def test_access_lines_go_to_a_file_of_their_own_when_one_is_named(tmp_path: Path):
    path = tmp_path / "access"

    def act() -> None:
        logging.getLogger("uvicorn.access").info("GET /")
        logging.getLogger("sessions.x").info("other")

    assert "GET /" not in _logged(tmp_path, act, access_log=str(path))
    assert "uvicorn.access: GET /" in path.read_text()
    assert "other" not in path.read_text()


def test_the_stream_can_be_a_file(tmp_path: Path):
    path = tmp_path / "log"

    def act() -> None:
        logging.getLogger("sessions.x").info("here")

    assert _logged(tmp_path, act, error_log=str(path)) == ""
    assert path.read_text().endswith("sessions.x: here\n")


def test_a_level_holds_for_all_and_engine_calls_are_quiet_at_info(tmp_path: Path):
    def act() -> None:
        logging.getLogger("sessions.x").debug("fine detail")
        logging.getLogger("httpx").info("HTTP Request")

    assert "fine detail" in _logged(tmp_path, act, level="DEBUG")
    assert _logged(tmp_path, act) == ""
