"""The corpus format: what a file says, and what is no case."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.corpus import (
    Act,
    Case,
    CorpusError,
    End,
    Expected,
    Step,
    Way,
    bytes_of,
    read_corpus,
    read_family,
)

FULL = r"""# a comment

== one
what: a case
rule: ours
reply: 200 100 id=a got=a\sb body=x\r\n content-length:5
reply: 413 head eof code=too_large
end: close
size: 13
skip: before bytes
----
GET\s/\r\n

-- 100
\{3*ab}
-- half-close
-- drip-bytes \r\n
== two
what: another
rule: ours
end: drop
----
"""


def written(folder: Path, text: str, name: str = "family.http") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_reads_all_that_a_case_can_say(tmp_path: Path):
    first, second = read_family(written(tmp_path, FULL))
    assert first == Case(
        name="family.one",
        what="a case",
        rule="ours",
        steps=(
            Step(data=b"GET /\r\n", act=Act.AWAIT_INTERIM),
            Step(data=b"ababab", act=Act.HALF_CLOSE),
            Step(data=b"", act=Act.DRIP_BYTES, drip=b"\r\n"),
        ),
        replies=(
            Expected(
                status=200,
                id="a",
                got=b"a b",
                body=b"x\r\n",
                headers=(("content-length", "5"),),
                interim=True,
            ),
            Expected(status=413, code="too_large", head_only=True, is_unframed=True),
        ),
        end=End.CLOSE,
        skip=frozenset({Way.BEFORE, Way.BYTES}),
    )
    assert (second.steps, second.replies, second.end) == ((Step(data=b""),), (), End.DROP)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        ("a b", b"a b"),
        (r"\r\n\t\0\\\s", b"\r\n\t\0\\ "),
        (r"\xff\x00", b"\xff\x00"),
        (r"a\{3*b\n}c", b"ab\nb\nb\nc"),
        (r"\{0*b}", b""),
        ("{5*b}", b"{5*b}"),
    ],
)
def test_resolves_escapes(text: str, data: bytes):
    assert bytes_of(text) == data


@pytest.mark.parametrize("text", [r"\q", "\\", r"\xf", r"\{x*y}", r"\{3*", "\xe9"])
def test_refuses_an_unknown_escape(text: str):
    with pytest.raises(ValueError):  # noqa: PT011 - the kind of it does not matter
        bytes_of(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size: 13", "size: 14"),
        ("end: close", "end: perhaps"),
        ("rule: ours\nreply: 200", "reply: 200"),
        ("what: a case", "what: a case\nwhat: two"),
        ("skip: before", "skip: nothing"),
        ("id=a", "name=a"),
        ("code=too_large", ""),
        ("-- half-close", "-- jump"),
        ("----\nGET", "GET"),
        ("== one", "== One two"),
        ("# a comment", "a comment"),
        ("rule: ours", "rules: ours"),
        (r"\{3*ab}", r"\q"),
    ],
)
def test_refuses_a_file_that_is_malformed(tmp_path: Path, old: str, new: str):
    assert old in FULL
    with pytest.raises(CorpusError):
        read_family(written(tmp_path, FULL.replace(old, new, 1)))


def test_reads_the_files_of_a_folder_in_order_and_refuses_a_name_given_twice(tmp_path: Path):
    written(tmp_path, FULL, "b.http")
    written(tmp_path, FULL, "a.http")
    written(tmp_path, "nothing", "c.txt")
    assert [case.name for case in read_corpus(tmp_path)] == ["a.one", "a.two", "b.one", "b.two"]
    written(tmp_path, FULL.replace("== two", "== one"), "c.http")
    with pytest.raises(CorpusError, match=r"c\.one"):
        read_corpus(tmp_path)
