"""Where in the learner's code a launch is made, through a library's frames."""

from __future__ import annotations

import ast
import linecache
import sys
import sysconfig
import threading
from pathlib import Path

import numpy as np
import pytest

import mcnb.lockstep.source
from mcnb.lockstep.around import around
from mcnb.lockstep.model import Condition, Detail
from mcnb.lockstep.source import Place, Places, is_script
from tests.support.learners import Program

pytestmark = pytest.mark.usefixtures("no_cells")


@pytest.mark.parametrize("first_line", [1, 2, 5])
def test_lines_of_a_cell_are_those_of_the_notebook(program: Program, first_line: int) -> None:
    source = "k = process_index()\nfor i in range(2):\n    if k == 0:\n        launch(x)\n"
    program.cell("3", source, first_line)
    line = first_line + 3
    assert {place for place, _ in program.found} == {Place(line, "", "<In[3]>", line)}
    assert around("<In[3]>", line) == Detail(
        "launch(x)",
        (Condition("k == 0", f"line {line - 1}"),),
        ("for i in range(2):",),
        "if k == 0:",
        loops_at=(f"line {line - 2}",),
        loops_from=(None,),
        skip_at=f"line {line - 1}",
    )
    assert around("<In[3]>", first_line).source == "k = process_index()"


def test_the_cell_that_runs_comes_before_what_it_calls(program: Program) -> None:
    names = program.cell("3", "def f(v):\n    launch(v)")
    helper = program.module("helper.py", "def g(v):\n    launch(v)", program.names())
    program.cell("4", "\nf(x)\ng(x)\ncall(g, x)", f=names["f"], g=helper["g"])
    assert [place for place, _ in program.found] == [
        Place(line, "", "<In[4]>", line) for line in (2, 3, 4)
    ]
    assert [called and called.co_name for _, called in program.found] == ["launch"] * 3


def test_the_innermost_line_of_a_cell_counts(program: Program) -> None:
    program.cell("3", "def f(v):\n    call(launch, v)\ncall(f, x)")
    [(place, called)] = program.found
    assert place.line == 2
    assert called is not None
    assert called.co_name == "call"


def test_code_of_an_earlier_cell_alone_has_a_place_and_no_line(program: Program) -> None:
    names = program.cell("3", "def f(v):\n    launch(v)")
    program.cell("4", "pass")
    thread = threading.Thread(target=names["f"], args=(1,))
    thread.start()
    thread.join()
    [(place, _)] = program.found
    assert place == Place(None, "<In[3]>:2", "<In[3]>", 2)


def test_the_innermost_file_of_a_script_counts(program: Program) -> None:
    helper = program.module("helper.py", "def g(v):\n    launch(v)", program.names())
    program.module("train.py", "\n\ng(1)", {"g": helper["g"]})
    [(place, called)] = program.found
    path = str(program.folder / "helper.py")
    assert place == Place(2, "helper.py:2", path, 2)
    assert called is not None
    assert called.co_name == "launch"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("launch(x)", "launch"),
        ("execute()", "execute"),
        ("decorated(x)", "decorated"),
        ("reraise_with_filtered_traceback(x)", "launch"),
        ("call(reraise_with_filtered_traceback, x)", "call"),
        ("call(lambda: execute())", "execute"),
    ],
)
def test_what_the_learner_calls(program: Program, source: str, expected: str) -> None:
    program.script(source)
    [(_, called)] = program.found
    assert called is not None
    assert called.co_name == expected


def test_without_a_learner_there_is_no_place(program: Program) -> None:
    assert program.places.find(None) == (Place(), None)
    outside = Places(lambda name: False)
    assert outside.find(sys._getframe()) == (Place(), None)


def test_a_label_of_ones_own(program: Program) -> None:
    program.places.label = lambda name, line: f"{Path(name).stem} at {line}"
    assert program.script("\nlaunch(x)").name == "train at 2"


def test_each_file_is_judged_once() -> None:
    asked: list[str] = []

    def is_learners(name: str) -> bool:
        asked.append(name)
        return name == "mine"

    places = Places(is_learners)
    assert [places.runs(name) for name in ("mine", "theirs", "mine", "theirs")] == [
        True,
        False,
        True,
        False,
    ]
    assert asked == ["mine", "theirs"]


@pytest.mark.parametrize(
    ("source", "line", "expected"),
    [
        ("if k == 0:\n    launch(x)\n  y", 2, Detail("launch(x)")),
        ("%time launch(x)", 1, Detail("%time launch(x)")),
        ("", 1, Detail()),
        ("launch(x)", 0, Detail()),
        ("launch(x)", 2, Detail()),
        ("launch(x)", -1, Detail()),
        ("launch(x)\n\n", 2, Detail()),
        (f"y = '{'a' * 200}'", 1, Detail(f"y = '{'a' * 93} …")),
        ("\tlaunch(x)  ", 1, Detail("launch(x)")),
    ],
)
def test_source_that_says_little(tmp_path: Path, source: str, line: int, expected: Detail) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    assert around(str(path), line) == expected


def test_source_that_is_missing(tmp_path: Path) -> None:
    assert around(str(tmp_path / "none.py"), 1) == Detail()
    assert around("<string>", 1) == Detail()


def test_another_cell_that_does_not_parse_changes_nothing(program: Program) -> None:
    for label, source in (("1", "k = process_index()\n"), ("2", "%%bash\nls -l\n")):
        name = f"<In[{label}]>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    program.cell("3", "if k == 0:\n    launch(x)", k=0)
    assert around("<In[3]>", 2).conditions == (Condition("k == 0", "line 1"),)


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("train.py", True),
        ("/home/me/train.py", True),
        ("/home/me/mcnb/train.py", True),
        ("/home/me/packages/train.py", True),
        (f"{sysconfig.get_paths()['stdlib']}-mine/train.py", True),
        (ast.__file__, False),
        (threading.__file__, False),
        (np.__file__, False),
        (pytest.__file__, False),
        (mcnb.__file__, False),
        (mcnb.lockstep.source.__file__, False),
        (f"{Path(mcnb.__file__).parent}-lessons/train.py", True),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("/home/me/.local/lib/python3.11/site-packages/a.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
        ("<In[3]>", False),
    ],
)
def test_scripts(filename: str, expected: bool) -> None:
    assert is_script(filename) is expected


def test_packages_may_be_installed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("vendored/IPython", "vendored/ipython-9.18.1.dist-info", "project"):
        (tmp_path / folder).mkdir(parents=True)
    files = [str(tmp_path / name) for name in ("vendored/IPython/shell.py", "project/train.py")]
    assert [is_script(file) for file in files] == [True, True]
    for folder in ("", "vendored", "project", "gone"):
        monkeypatch.syspath_prepend(folder and str(tmp_path / folder))
    assert [is_script(file) for file in files] == [False, True]


def test_tests_are_scripts() -> None:
    assert is_script(__file__)
    places = Places(is_script)
    frame = sys._getframe()
    place, called = places.find(frame)
    assert place.filename == __file__
    assert place.name == f"{Path(__file__).name}:{place.line}"
    assert called is None


def test_the_lines_on_the_stack(program: Program) -> None:
    helper = program.module("helper.py", "def g(v):\n    call(launch, v)", program.names())
    names = {"g": helper["g"], "call": program.library["call"]}
    program.module("train.py", "def f(v):\n    g(v)\n\ncall(f, 1)", names)
    [(place, _)] = program.found
    assert program.places.lines(place) == (
        *(line for line in program.places.lines(place)[:-3]),  # of this test
        "train.py:4",
        "train.py:2",
        "helper.py:2",
    )
    assert [code.co_name for code, _ in place.stack[:3]] == ["g", "f", "<module>"]


def test_the_lines_on_the_stack_of_a_cell(program: Program) -> None:
    names = program.cell("3", "def f(v):\n    launch(v)")
    helper = program.module("helper.py", "def g(v):\n    f(v)", names)
    program.cell("4", "def h(v):\n    g(v)\nh(x)", g=helper["g"])
    [(place, _)] = program.found
    assert place == Place(2, "", "<In[4]>", 2)
    # The frames above the cell, which are this test's, are not part of it.
    assert program.places.lines(place) == ("line 3", "line 2", "helper.py:2", "<In[3]>:2")
    assert program.places.lines(Place()) == ()
