"""Every idea of the documents that the course grew from has its place in a lesson."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT
from tests.support.markdown import LINK, anchors

NOTEBOOKS = ROOT / "notebooks"
SOURCES = ROOT / "docs" / "course" / "sources.md"
NOT_YET = re.compile(r"lesson (\d+), not written yet")

# Rows of each document: its headings, its blocks of code, and what else has a row. Headings and
# blocks were counted in the documents themselves, by hand: a title and an introduction are one
# heading, a block is a fenced one, a cell, an indented example or one whose fence is missing.
# Blocks that show output only aren't counted, nor is a table of contents. What else has a row
# is an idea in a paragraph, a command in a line of text, an output or a second part of a block.
COUNTED = {
    "Introduction to multi-controller JAX (aka multi-process/multi-host JAX)": (9, 9, 30),
    "Using JAX in multi-host and multi-process environments": (5, 2, 16),
    "Jax-multihost": (24, 35, 25),
    "Distributed arrays and automatic parallelization": (10, 59, 3),
}


class Row(NamedTuple):
    """One row of a table, and the document whose table it is in."""

    document: str
    cells: tuple[str, ...]


def rows() -> list[Row]:
    """Reads all tables, without their heads."""
    found: list[Row] = []
    document = ""
    for line in SOURCES.read_text().splitlines():
        if heading := re.match(r"## \[([^\]]+)\]", line):
            document = heading[1]
        elif line.startswith("|") and not re.match(r"\|( -+ \||.* it is today \|$)", line):
            cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
            found.append(Row(document, tuple(cell.strip() for cell in cells)))
    return found


ROWS = rows()
NAMES = [f"{row.document.split()[0]}-{row.cells[0]}" for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_row_says_where_a_lesson_does_it(row: Row) -> None:
    assert len(row.cells) == 3, row
    assert all(row.cells), row
    where = row.cells[2]
    if later := NOT_YET.fullmatch(where):
        assert not list(NOTEBOOKS.glob(f"{int(later[1]):02d}_*.md")), f"it is there now: {row}"
        return
    links = LINK.findall(where)
    assert links, f"nothing does this: {row}"  # what is gone has a link to what replaced it
    for text, target in links:
        name, _, anchor = target.partition("#")
        path = (SOURCES.parent / name).resolve()
        assert path.is_file(), target
        assert path.is_relative_to(NOTEBOOKS) or path == ROOT / "README.md", target
        if path.suffix == ".md":
            assert anchor in anchors(path), target
            called = "README" if path.parent == ROOT else path.name[:2]
            assert text == f"{called}, {anchors(path)[anchor]}"


@pytest.mark.parametrize("document", COUNTED)
def test_no_row_is_lost(document: str) -> None:
    assert len([row for row in ROWS if row.document == document]) >= sum(COUNTED[document])


def test_all_rows_are_of_a_known_document() -> None:
    assert {row.document for row in ROWS} == COUNTED.keys()


def test_an_excerpt_is_short_and_no_path_is_of_this_machine() -> None:
    assert all(len(code) <= 60 for row in ROWS for code in re.findall("`([^`]+)`", row.cells[0]))
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", SOURCES.read_text())


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# 4 \u00d7 2: a, `b`\n## Why?\n```\n# no heading\n```\n## Why?\n")
    assert list(anchors(page)) == ["4--2-a-b", "why", "why-1"]
