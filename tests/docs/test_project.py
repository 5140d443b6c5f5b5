"""What holds for every file of the project: references, names, sizes, and who tests it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.pages import ROOT, fault_of, links_of, project_files

FILES: Final = project_files()
PAGES: Final = [path for path in FILES if path.suffix == ".md"]
FILE_LINES: Final = 400
FUNCTION_LINES: Final = 60
SPEC: Final = re.compile(r"(?:\A|\n)Spec: docs/[a-z-]+\.md(#[\w-]+)?\Z")
REFERENCE: Final = re.compile(r"docs/[a-z-]+\.md(?:#[\w-]+)?")
# An address that packages come from, and where somebody's files lie; neither matches itself.
FOREIGN: Final = re.compile(
    r"(?:index-url|find-links|registry)\s*[=:]\s*\S*://"
    r"|(?<![\w./~<-])/(?:home|root|Users|workspace)/\w"
)
UNTESTED: Final = {
    "sessions/__main__.py": "two lines; tests/cli runs it as a process",
    "sessions/client/async_client.py": "tests/client/test_clients.py holds both to one suite",
    "sessions/client/sync_client.py": "tests/client/test_clients.py holds both to one suite",
}


def modules_of(*folders: str) -> Iterator[Path]:
    """Modules that are not tests; a package's own file holds one line."""
    for path in FILES:
        is_module = path.suffix == ".py" and path.name not in ("__init__.py", "conftest.py")
        if is_module and name_of(path).startswith(folders) and not path.name.startswith("test_"):
            yield path


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(path: Path):
    faults = {target: fault_of(target, path) for target in links_of(text_of(path))}
    assert {target: fault for target, fault in faults.items() if fault} == {}


def test_every_page_can_be_reached_from_the_readme():
    linked = {target.partition("#")[0] for target in links_of(text_of(ROOT / "README.md"))}
    assert {name_of(path) for path in PAGES} <= linked | {"README.md"}


def test_every_page_and_heading_that_a_file_names_is_there():
    missing = [
        f"{name_of(path)}: {target}: {fault}"
        for path in FILES
        if path.suffix != ".md" and path.parent != ROOT / "tests" / "docs"
        for target in REFERENCE.findall(text_of(path))
        if (fault := fault_of(target, ROOT / "README.md"))
    ]
    assert missing == []


def test_every_module_ends_its_docstring_with_its_page():
    without = [
        name_of(path)
        for path in modules_of("sessions/", "examples/", "benchmarks/", "tests/support/")
        if not SPEC.search(ast.get_docstring(ast.parse(text_of(path))) or "")
    ]
    assert without == []


def test_no_file_names_a_registry_or_a_place_on_one_machine():
    found = [
        f"{name_of(path)}:{number}: {match[0]}"
        for path in FILES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        for match in FOREIGN.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "index-url = " + "https://packages.example/simple",
        "registry: " + "https://packages.example/x",
        'open("/ho' + 'me/me/file")',
        "see /works" + "pace/notes.md",
    ],
)
def test_a_registry_or_a_place_would_be_found(text: str):
    assert FOREIGN.search(text)


@pytest.mark.parametrize("text", ["root/x", "a/work/b", "examples/work/b", "https://x.org/home/x"])
def test_a_path_inside_of_the_project_is_no_place_on_a_machine(text: str):
    assert not FOREIGN.search(text)


def has_test_module(name: str) -> bool:
    path = ROOT / name.replace("sessions/", "tests/", 1)
    return path.with_name(f"test_{path.name}").exists()


def test_every_module_has_a_test_module():
    untested = {name_of(p) for p in modules_of("sessions/") if not has_test_module(name_of(p))}
    assert sorted(untested - set(UNTESTED)) == []
    assert set(UNTESTED) <= untested, "an exception that is none any more"


def test_no_file_and_no_function_is_too_long():
    too_long = []
    for path in modules_of("sessions/"):
        text = text_of(path)
        if len(text.splitlines()) > FILE_LINES:
            too_long.append(name_of(path))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    too_long.append(f"{name_of(path)}: {node.name} has {lines} lines")
    assert too_long == []
