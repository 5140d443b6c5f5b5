r"""Markdown pages as data, for tests that compare them with the code.

Anchors follow GitHub's rule for headings: text without markup, lower-case, everything but letters,
digits, hyphens, underscores and spaces dropped, spaces to hyphens, a counter for repeated ones.
Fenced code is no text: it has neither headings nor links.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#* *$", re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]*`")
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_LINK_TEXT: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CELLS: Final = re.compile(r"(?<!\\)\|")


def project_files(root: Path = ROOT) -> list[Path]:
    """Files that are in the repository or would be with the next commit, sorted.

    Raises:
        subprocess.CalledProcessError: The folder is no git checkout.
    """
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {root / name for name in names.split("\0") if name}
    return sorted(path for path in found if path.is_file())


def anchors_of(page: str) -> set[str]:
    """The anchors of all headings of a page, without `#`."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", page)):
        text = _LINK_TEXT.sub(r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        name, count = slug, 0
        while name in found:
            count += 1
            name = f"{slug}-{count}"
        found.add(name)
    return found


def links_of(page: str) -> list[str]:
    """Targets of all links of a page, in order."""
    return _LINK.findall(_CODE.sub("", _FENCE.sub("", page)))


def fault_of(target: str, page: Path) -> str:
    """Why a link does not lead anywhere; "" if it does, or leads out of the project.

    Args:
        target: As in the page.
        page: The file that it stands in.
    """
    if re.match(r"[a-z]+:", target):
        return ""
    name, _, anchor = target.partition("#")
    path = page.parent / name if name else page
    if not path.exists():
        return f"no file {name}"
    if anchor and anchor not in anchors_of(path.read_text()):
        return f"no heading {anchor} in {path.name}"
    return ""


def section_of(page: str, anchor: str) -> str:
    """The text below a heading, up to the next heading of the same or a higher level.

    Raises:
        KeyError: There is no such heading.
    """
    blanked = _FENCE.sub(lambda match: " " * len(match[0]), page)
    headings = [(m.start(), m.end(), m[0]) for m in _HEADING.finditer(blanked)]
    for number, (_, end, line) in enumerate(headings):
        if anchor in anchors_of(line):
            level = len(line) - len(line.lstrip("#"))
            rest = headings[number + 1 :]
            stops = [s for s, _, other in rest if len(other) - len(other.lstrip("#")) <= level]
            return page[end : stops[0] if stops else len(page)]
    raise KeyError(anchor)


def rows_of(text: str) -> Iterator[list[str]]:
    """Cells of every table row, without heads and rules; `\\|` is a bar in a cell."""
    lines = _FENCE.sub("", text).splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("|") and not line.startswith("|--") and not following.startswith("|--"):
            yield [cell.strip().replace("\\|", "|") for cell in _CELLS.split(line)[1:-1]]
