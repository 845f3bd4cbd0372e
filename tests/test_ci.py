"""The check of the lessons is one that can fail."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

CHECK = Path(__file__).parent.parent / ".ci" / "check.py"


def lesson(folder: Path, *cells: tuple[str, list[Any]]) -> None:
    notebook = new_notebook(
        cells=[
            new_code_cell(source, outputs=outputs, execution_count=number)
            for number, (source, outputs) in enumerate(cells, start=1)
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(notebook, folder / "01_lesson.ipynb")


def printed(text: str, stream: str = "stdout") -> list[Any]:
    return [new_output("stream", name=stream, text=text)]


def error(name: str, value: str) -> list[Any]:
    return [new_output("error", ename=name, evalue=value, traceback=[])]


@pytest.mark.parametrize(
    ("passes", "cells"),
    [
        (True, [("print(1)", printed("1\n"))]),
        (False, [("print(1)", printed("2\n"))]),
        (False, [("1 / 0", error("ZeroDivisionError", "division by zero"))]),
        (
            False,
            [
                (
                    "%%mcjax\nprint(1)",
                    printed("UsageError: Cell magic `%%mcjax` not found.\n", "stderr"),
                )
            ],
        ),
        (
            False,
            [
                (
                    "%load_ext mcnb\n%mcjax start -n 1 -d 1",
                    printed("Ready: 1 process x 1 CPU device\n"),
                ),
                (
                    "%%mcjax\n1 / 0",
                    error(
                        "CellError",
                        "process 0 raised ZeroDivisionError: division by zero (line 2)",
                    ),
                ),
            ],
        ),
    ],
    ids=["good", "other output", "failing cell", "magic missing", "failing mcjax cell"],
)
def test_the_check_of_lessons(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], passes: bool, cells: list[Any]
) -> None:
    lesson(tmp_path, *cells)
    lessons = runpy.run_path(str(CHECK), run_name="check")["lessons"]
    assert lessons(tmp_path) is passes, capfd.readouterr().out


def test_no_lessons_is_a_failure(tmp_path: Path) -> None:
    assert runpy.run_path(str(CHECK), run_name="check")["lessons"](tmp_path) is False
