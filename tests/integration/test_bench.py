"""The benchmark of starts works; what it measures is for people to judge."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

BENCH = ROOT / "tools" / "bench_start.py"


def table(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCH), *arguments], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.thorough("a benchmark")
def test_it_measures_each_side() -> None:
    text = table("2", "--rounds", "1", "--cells", "3", "--side", "mcnb", "--side", "loop")
    floor, _, title, heads, *rows = text.splitlines()
    assert re.fullmatch(
        r"floor: one import of jax [\d.]+ s, one process initialized [\d.]+ s", floor
    )
    assert title == "2 processes x 2 devices, medians of 1"
    assert heads.split() == ["mcnb", "shell", "loop"]
    figures = {row[:26].strip(): row[26:].split() for row in rows}
    assert list(figures) == [
        "from nothing",
        "start, warm",
        "restart",
        "empty cell",
        "cell that prints a line",
        "pull of 10 MB",
        "a process's own memory",
    ]
    assert [figure[1] for figure in figures.values()] == ["s", "s", "s", "ms", "ms", "ms", "MB"]
    assert all(float(figure[0]) > 0 for figure in figures.values())
    assert figures["from nothing"][3] == "s"
    assert figures["restart"][2:] == ["-"]
