"""The reader of pages: what it takes for headings, links and rows."""

from pathlib import Path

import pytest

from tests.support.pages import anchors_of, fault_of, links_of, project_files, rows_of, section_of

PAGE = """# The page

Text with [a link](other.md#a-part), `[no link](code.md)` and ![an image](image.png).

```sh
# no heading
[no link](fenced.md)
```

## `SESSIONS_X`: what, and why?

| a | b |
|---|---|
| 1 | `x \\| y` |

### Below

Deep.

## Again
## Again
"""


def test_headings_become_anchors_by_the_rule_of_github():
    assert anchors_of(PAGE) == {
        "the-page",
        "sessions_x-what-and-why",
        "below",
        "again",
        "again-1",
    }


def test_links_are_those_outside_of_code():
    assert links_of(PAGE) == ["other.md#a-part"]


def test_rows_have_no_head_and_keep_a_bar_in_a_cell():
    assert list(rows_of(PAGE)) == [["1", "`x | y`"]]


def test_a_section_ends_at_the_next_heading_of_its_level():
    section = section_of(PAGE, "sessions_x-what-and-why")
    assert "Deep." in section
    assert "Again" not in section
    with pytest.raises(KeyError):
        section_of(PAGE, "no-heading")


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("page.md", ""),
        ("page.md#below", ""),
        ("#below", ""),
        ("http://example.org/x#y", ""),
        ("none.md", "no file none.md"),
        ("page.md#none", "no heading none in page.md"),
        ("#no-heading", "no heading no-heading in page.md"),
    ],
)
def test_a_link_is_at_fault_when_its_file_or_heading_is_missing(
    tmp_path: Path, target: str, fault: str
):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert fault_of(target, page) == fault


def test_project_files_are_those_of_the_repository():
    names = {path.name for path in project_files()}
    assert {"pyproject.toml", "settings.py", "test_pages.py"} <= names
    assert not any("__pycache__" in path.parts for path in project_files())
