"""The gate: a fault stays red, and a test that passes when run again is listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.conftest import ROOT, once

pytestmark = once
CI = ROOT / ".ci"
UNSTEADY = """
    seen = pathlib.Path("seen")
    seen.write_text(seen.read_text() + "." if seen.exists() else ".")
    assert len(seen.read_text()) > TIMES, "not yet"
"""
HEAD = "import pathlib, pytest\n"
FAULT = "def test_fault(): assert 1 + 1 == 3\n"
GOOD = "def test_good(): pass\n"


def unsteady(times: int) -> str:
    return f"def test_unsteady():{UNSTEADY.replace('TIMES', str(times))}"


ONCE = """
def test_fails_once_{0}():
    seen = pathlib.Path("seen{0}")
    assert seen.exists() or seen.touch()
"""
LEFT_BEHIND = """
@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind():
    yield
    assert not pathlib.Path("left").exists(), "left behind"
def test_leaves(): pathlib.Path("left").touch()
"""


def said(output: str) -> str:
    """Return what the check says of the tests."""
    return output.partition("RESULT ")[2]


def checked(folder: Path, *side_by_side: str) -> str:
    """Run the tests of a folder with a second chance; return the output."""
    code = (
        "import sys, pathlib, second_chance\n"
        "command = [sys.executable, '-m', 'pytest', '-q', '-c', '/dev/null', '--rootdir', '.']\n"
        "command += ['-p', 'pytest_reportlog.plugin', '-p', 'xdist.plugin']\n"
        f"done = second_chance.run(command, side_by_side={side_by_side!r}, cwd=pathlib.Path())\n"
        "print('RESULT', 'passed' if done.passed else 'failed')\n"
        "for one in done.unsteady: print(one.test, '-', one.error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"PYTHONPATH": str(CI), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.promise("a fault stays red")
@pytest.mark.parametrize("side_by_side", [(), ("-n", "2", "--dist", "loadfile")])
def test_a_fault_stays_red_and_an_unsteady_test_is_listed(
    tmp_path: Path, side_by_side: tuple[str, ...]
) -> None:
    (tmp_path / "test_one.py").write_text(HEAD + FAULT + GOOD)
    (tmp_path / "test_two.py").write_text(HEAD + unsteady(2) + GOOD)
    assert said(checked(tmp_path, *side_by_side)) == (
        "failed\ntest_two.py::test_unsteady - AssertionError: not yet\n"
    )


@pytest.mark.parametrize(("times", "result"), [(2, "passed"), (3, "failed")])
def test_a_test_has_two_more_chances(tmp_path: Path, times: int, result: str) -> None:
    (tmp_path / "test_two.py").write_text(HEAD + unsteady(times) + GOOD)
    listed = "test_two.py::test_unsteady - AssertionError: not yet\n"
    assert said(checked(tmp_path)) == f"{result}\n" + (listed if result == "passed" else "")


@pytest.mark.parametrize(
    ("tests", "summary"),
    [
        pytest.param("".join(ONCE.format(n) for n in range(11)), "11 failed in", id="many"),
        pytest.param(LEFT_BEHIND + GOOD, "2 passed, 1 error in", id="left behind"),
        pytest.param("import os\ndef test_ends(): os._exit(1)\n", "", id="ended early"),
        pytest.param("import nowhere\n", "1 error in", id="not collected"),
    ],
)
def test_what_has_no_second_chance(tmp_path: Path, tests: str, summary: str) -> None:
    (tmp_path / "test_one.py").write_text(HEAD + tests)
    output = checked(tmp_path)
    assert summary in output
    assert "again, alone" not in output
    assert said(output) == "failed\n"


def test_a_command_that_prints_nothing_more_is_killed(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        "import subprocess, sys, time\n"
        "print('begun', flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    )
    code = (
        "import pathlib, sys, second_chance\n"
        "print(second_chance.passed_on([sys.executable, 'hangs.py'], pathlib.Path(), None, 0.5))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CI)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = "begun\n\nkilled: nothing was printed for 0.5 s\n"
    assert done.stdout == f"{said}{(-9, said)}\n"


@pytest.mark.thorough("executes a notebook")
def test_a_lesson_is_run_again_as_a_whole(tmp_path: Path) -> None:
    """A cell that fails once makes the cells below it fail, and is listed as its lesson."""
    first = "x = __import__('pathlib').Path('seen')\nbad = not x.exists()\nx.touch()"
    cells = [
        new_code_cell(first, execution_count=1),
        new_code_cell(
            "print(bad)",
            outputs=[new_output("stream", name="stdout", text="False\n")],
            execution_count=2,
        ),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), tmp_path / "01_lesson.ipynb")
    code = (
        "import pathlib, check\n"
        "print(check.lessons(check.Extent(), pathlib.Path.cwd()))\n"
        "print(*check.unsteady)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CI), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    error = "Notebook cell execution failed, Cell 1: Cell outputs differ"
    assert done.stdout.splitlines()[-2:] == [
        "True",
        f"Unsteady(test='01_lesson.ipynb', error='{error}')",
    ]
