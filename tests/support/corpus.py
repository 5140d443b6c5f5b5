r"""Cases of raw HTTP as text files: exact bytes to send, and what must come back.

A file `<family>.http` holds cases. `== name` begins one, lines `key: value` describe it, `----`
ends the description, and what follows is sent. Line ends of the file are not sent: only what is
written. A description has

* `what`: the case in words;
* `rule`: the section of a standard, or a rule of ours;
* `reply`: once per final reply, in order: the status, then words. `id=` the value of `x-id`, `got=`
  the body that the application must have read, `body=` the reply's body, `code=` the code in our
  error shape, `name:value` a header, `head` the request was a HEAD, `eof` the end of the connection
  is that of the body, `100` an interim reply came first;
* `end`: `keep` the connection serves another request, `close` the last reply says `close` and the
  connection ends, `drop` it ends without a word, `open` the server waits for more;
* `size`: if given, how many bytes all that is sent must have (to prove that an edge is one);
* `skip`: if given, the ways of sending that make no sense for the case.

In what is sent, `\r \n \t \0 \\ \xHH` are bytes, `\s` is a space, `\{1000*text}` repeats. A line
that begins with `-- ` is an act between bytes: `-- 100` waits for an interim reply, `-- reply` for
a final one, `-- half-close` ends the sending side, `-- pause` waits a moment, `-- drip text` sends
the text again and again until the server answers or ends, `-- drip-bytes text` does so by bytes.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<hex>[0-9a-f]{2})|\{(?P<count>[0-9]+)\*(?P<text>[^{}]+)\}|(?P<letter>.)|$)"
)
_LETTERS: Final = {"r": b"\r", "n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\", "s": b" "}
_KEYS: Final = frozenset({"what", "rule", "reply", "end", "size", "skip"})
_NAME: Final = re.compile(r"[a-z0-9_]+")


class CorpusError(ValueError):
    """A corpus file that says what cannot be; the message names file and case."""


class Way(enum.Enum):
    """How a case is sent."""

    WHOLE = "whole"
    BYTES = "bytes"
    SPLITS = "splits"
    BEHIND = "behind"
    BEFORE = "before"


class Act(enum.Enum):
    """What the client does after it sent a step's bytes."""

    NOTHING = ""
    AWAIT_INTERIM = "100"
    AWAIT_REPLY = "reply"
    HALF_CLOSE = "half-close"
    DRIP = "drip"
    DRIP_BYTES = "drip-bytes"
    PAUSE = "pause"


class End(enum.Enum):
    """What becomes of the connection."""

    KEEP = "keep"
    CLOSE = "close"
    DROP = "drop"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Bytes, then an act; `drip` is what the drips send."""

    data: bytes
    act: Act = Act.NOTHING
    drip: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One final reply; None leaves a field open.

    Attributes:
        got: The request body that the application must have read.
        headers: (lower-case name, value) that must be there once.
        head_only: The request was a HEAD.
        is_unframed: Whether the body goes on to the end of the connection.
        interim: Whether a 100 came first.
    """

    status: int
    id: str | None = None
    got: bytes | None = None
    body: bytes | None = None
    code: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    head_only: bool = False
    is_unframed: bool = False
    interim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case; `name` is `family.name`."""

    name: str
    what: str
    rule: str
    steps: tuple[Step, ...]
    replies: tuple[Expected, ...]
    end: End
    skip: frozenset[Way] = field(default_factory=frozenset)

    @property
    def size_bytes(self) -> int:
        """How many bytes are sent, drips not counted."""
        return sum(len(step.data) for step in self.steps)


def read_corpus(folder: Path) -> list[Case]:
    """All cases of a folder, in the order of files and lines.

    Raises:
        CorpusError: A file is malformed or a name is given twice.
    """
    cases = [case for path in sorted(folder.glob("*.http")) for case in read_family(path)]
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise CorpusError(f"given twice: {sorted(twice)}")
    return cases


def read_family(path: Path) -> list[Case]:
    """The cases of one file.

    Raises:
        CorpusError: It is malformed.
    """
    cases = []
    for name, lines in _blocks(path.read_text("ascii")):
        full_name = f"{path.stem}.{name}"
        try:
            cases.append(_case_of(full_name, lines))
        except (ValueError, KeyError) as error:
            raise CorpusError(f"{full_name}: {error}") from error
    return cases


def bytes_of(text: str) -> bytes:
    """Resolve the escapes of one line.

    Raises:
        ValueError: One is unknown.
    """
    out, at = [], 0
    for found in _ESCAPE.finditer(text):
        out.append(text[at : found.start()].encode("ascii"))
        at = found.end()
        if found["hex"]:
            out.append(bytes.fromhex(found["hex"]))
        elif found["count"]:
            out.append(bytes_of(found["text"]) * int(found["count"]))
        elif found["letter"] in _LETTERS:
            out.append(_LETTERS[found["letter"]])
        else:
            raise ValueError(f"unknown escape {found[0]!r}")
    return b"".join([*out, text[at:].encode("ascii")])


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("== "):
            if name:
                yield name, lines
            name, lines = line[3:], []
        elif name:
            lines.append(line)
        elif line and not line.startswith("#"):
            raise CorpusError(f"before the first case: {line!r}")
    if name:
        yield name, lines


def _case_of(name: str, lines: list[str]) -> Case:
    if not _NAME.fullmatch(name.partition(".")[2]):
        raise ValueError("a name has a-z, 0-9 and _ only")
    split = lines.index("----")
    told: dict[str, list[str]] = {}
    for line in lines[:split]:
        key, colon, value = line.partition(": ")
        if not colon or key not in _KEYS:
            raise ValueError(f"not a description: {line!r}")
        told.setdefault(key, []).append(value)
    case = Case(
        name=name,
        what=_only(told, "what"),
        rule=_only(told, "rule"),
        steps=tuple(_steps(lines[split + 1 :])) or (Step(data=b""),),
        replies=tuple(_expected(text) for text in told.get("reply", [])),
        end=End(_only(told, "end")),
        skip=frozenset(Way(word) for word in " ".join(told.get("skip", [])).split()),
    )
    if "size" in told and int(_only(told, "size")) != case.size_bytes:
        raise ValueError(f"sends {case.size_bytes} bytes")
    return case


def _only(told: dict[str, list[str]], key: str) -> str:
    (value,) = told[key]
    return value


def _expected(text: str) -> Expected:
    status, *words = text.split(" ")
    found: dict[str, str | bytes] = {}
    headers = []
    for word in words:
        key, equals, value = word.partition("=")
        name, colon, content = word.partition(":")
        if equals and key in {"id", "code"}:
            found[key] = value
        elif equals and key in {"got", "body"}:
            found[key] = bytes_of(value)
        elif colon and not equals:
            headers.append((name, bytes_of(content).decode()))
        elif word not in {"head", "eof", "100"}:
            raise ValueError(f"unknown word {word!r} of a reply")
    if int(status) >= 400 and not (found or headers):
        raise ValueError(f"a {status} must be known by more than its status")
    return Expected(
        status=int(status),
        headers=tuple(headers),
        head_only="head" in words,
        is_unframed="eof" in words,
        interim="100" in words,
        **found,  # type: ignore[arg-type]
    )


def _steps(lines: list[str]) -> Iterator[Step]:
    data = b""
    for line in lines:
        if not line.startswith("-- "):
            data += bytes_of(line)
            continue
        word, _, text = line[3:].partition(" ")
        yield Step(data=data, act=Act(word), drip=bytes_of(text))
        data = b""
    if data:
        yield Step(data=data)
