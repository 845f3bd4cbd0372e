"""The check of the lessons is one that can fail."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.conftest import ROOT, once

pytestmark = [once, pytest.mark.thorough("checks the checks, which takes over a minute")]

CHECK = ROOT / ".ci" / "check.py"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the checks as a module that no other test uses, without a second chance.

    Each would start everything again, and has tests of its own.
    """
    monkeypatch.syspath_prepend(str(CHECK.parent))
    for name in ("check", "second_chance"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    check = importlib.import_module("check")
    monkeypatch.setattr(sys.modules["second_chance"], "TRIES", 0)
    monkeypatch.setattr(check, "SIDE_BY_SIDE", ())
    return check


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
    check: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    passes: bool,
    cells: list[Any],
) -> None:
    lesson(tmp_path, *cells)
    assert check.lessons(check.Extent(), tmp_path) is passes, capfd.readouterr().out


def test_stored_outputs_that_no_comparison_may_pass(check: Any, tmp_path: Path) -> None:
    magic = printed("UsageError: Cell magic `%%mcjax` not found.\n", "stderr")
    lesson(tmp_path, ("print(1)", []), ("%%mcjax", magic), ("1 / 0", error("E", "e")), ("2", []))
    path = tmp_path / "01_lesson.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.cells[0].execution_count = None
    notebook.cells[3].metadata["tags"] = ["raises-exception"]
    nbformat.write(notebook, path)
    assert check.unfit(path) == [
        "01_lesson.ipynb, cell 0: has not run",
        "01_lesson.ipynb, cell 1: writes to stderr",
        "01_lesson.ipynb, cell 2: fails, without the tag raises-exception",
        "01_lesson.ipynb, cell 3: must fail, and does not",
    ]


DIVERGED = """%%mcjax
import jax, numpy as np
from jax.experimental import multihost_utils
if jax.process_index() == 0:
    multihost_utils.sync_global_devices("x")"""
VERDICT = (
    "missing: process 0 is waiting in sync_global_devices('x'), line 5; process 1 finished the "
    "cell without reaching it. "
    "Hint: this line runs only if `jax.process_index() == 0`. A collective must run on every "
    "participating process: move it out of the condition, and keep only local work such as "
    "printing inside. "
    "The cluster is intact; all variables are kept"
)


@pytest.mark.parametrize(
    ("passes", "source", "stored"),
    [
        (True, DIVERGED, error("LockstepError", VERDICT)),
        (False, DIVERGED, error("LockstepError", VERDICT.replace("line 5", "line 4"))),
        (False, DIVERGED.replace("if", "#", 1).replace("    ", ""), []),
    ],
    ids=["as it must", "at another line", "it does not fail"],
)
def test_a_cell_that_must_fail(
    check: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    passes: bool,
    source: str,
    stored: list[Any],
) -> None:
    start = "%load_ext mcnb\n%mcjax start -n 2 -d 1"
    lesson(tmp_path, (start, printed("Ready: 2 processes x 1 CPU device\n")), (source, stored))
    path = tmp_path / "01_lesson.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.cells[1].metadata["tags"] = ["raises-exception"]
    nbformat.write(notebook, path)
    assert check.lessons(check.Extent(), tmp_path) is passes, capfd.readouterr().out


LESSON = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

```{code-cell} ipython3
print("before")
```

```{code-cell} ipython3
:tags: [needs-tpu, nbval-skip]

print("a pod")
```

```{code-cell} ipython3
"after"
```
"""


# nbclient's warnings are not mcnb's.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:nbclient")
def test_what_needs_a_compiler_keeps_its_outputs_without_one(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lessons = runpy.run_path(str(CHECK.parent.parent / "tools" / "lessons.py"), run_name="lessons")
    main, find_spec = lessons["main"], importlib.util.find_spec
    has = {"libtpu": False}

    def found(name: str, package: str | None = None) -> Any:
        return has[name] or None if name in has else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    written, made = tmp_path / "12_pods.md", tmp_path / "12_pods.ipynb"
    written.write_text(LESSON)
    assert main([str(written)]) == 1
    assert "No outputs are stored of this cell, which needs libtpu" in capfd.readouterr().out
    has["libtpu"] = True
    assert main([str(written)]) == 0
    stored = made.read_text()
    assert [cell.execution_count for cell in nbformat.reads(stored, 4).cells] == [1, 2, 3]
    has["libtpu"] = False
    written.write_text(LESSON.replace("before", "changed"))
    assert main([str(written)]) == 0
    assert made.read_text() == stored.replace("before", "changed")
    copies = tmp_path / "copies"
    copies.mkdir()
    copied = nbformat.read(check.without_skipping(made, copies), 4)
    assert [cell.metadata.get("tags") for cell in copied.cells] == [None, ["needs-tpu"], None]
    assert check.as_stored([made])
    capfd.readouterr()
