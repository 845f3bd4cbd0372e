"""Public bugs of other people's programs, as their users met them: `tests/corpus`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.test_run import run, told

pytestmark = pytest.mark.thorough("twenty programs, each in new processes", once=True)

CORPUS = Path(__file__).parents[1] / "corpus"
_SECTION = re.compile(
    r"^## (?P<name>\w+)\n\n\[.+\]\(https://.+\).*\n\n```text\n(?P<last>[^`]+(?:`[^`]+)*?)\n```\n"
    r"(?:\nThe line: `(?P<line>.+)`\n|\nInstead of the line: .+\.\n)?",
    re.MULTILINE,
)
SECTIONS = {one["name"]: one for one in _SECTION.finditer((CORPUS / "README.md").read_text())}
PROGRAMS = {path.stem: path for path in sorted(CORPUS.glob("*.py"))}
# What the sentences have in place of what no two runs have in common.
_ANY = {"<number>": r"-?[\d.]+(?:e-?\d+)?", "<processes>": r"process(?:es)? [\d,]+"}


def test_the_corpus_is_all_there() -> None:
    assert sorted(SECTIONS) == sorted(PROGRAMS)
    assert len(PROGRAMS) >= 16
    assert len([one for one in SECTIONS.values() if one["line"]]) >= 14


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_said_last(tmp_path: Path, name: str) -> None:
    section, source = SECTIONS[name], PROGRAMS[name].read_text()
    code, out, err = run(tmp_path, source, "train.py", "-n", "3", "-d", "1")
    last = (f"mcnb run: {told(err)}" if err else out[-1]).replace("train.py", f"{name}.py")
    last = re.sub(r"^\[\d\] stopped", "[0] stopped", last)
    expected = re.escape(section["last"])
    for word, pattern in _ANY.items():
        expected = expected.replace(re.escape(word), pattern)
    assert re.fullmatch(expected, last), last
    right = section["last"].startswith("[0] ") or "mcnb had all processes" in section["last"]
    assert code == (0 if right else 1)


@pytest.mark.parametrize("name", [name for name, one in SECTIONS.items() if one["line"]])
def test_the_line_that_made_them_differ_is_named(name: str) -> None:
    section, lines = SECTIONS[name], PROGRAMS[name].read_text().splitlines()
    [number] = [i for i, line in enumerate(lines, 1) if line.strip() == section["line"]]
    places = {int(line) for line in re.findall(rf"{name}\.py:(\d+)", section["last"])}
    # By its number, or by its text; a condition also by the line that runs only if it holds.
    quoted = f"`{section['line']}`" in section["last"]
    condition = section["line"].removeprefix("if ").removesuffix(":")
    near = number + 1 in places and f"`{condition}`" in section["last"]
    assert number in places or quoted or near
