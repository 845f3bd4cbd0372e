"""Where in the learner's code a launch is made, through a library's frames, and what is around."""

from __future__ import annotations

import ast
import itertools
import linecache
import sys
import sysconfig
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

import mcnb.lockstep.places
from mcnb.lockstep.places import Place, Places, is_script
from mcnb.lockstep.surroundings import around
from mcnb.lockstep.verdicts import Detail
from mcnb.process.cellcode import CellCompiler, cell_label

LIBRARY = """
def launch(x=None, *more):
    execute()
    return x

def execute():
    look()

def decorated(x):
    return reraise_with_filtered_traceback(x)

def reraise_with_filtered_traceback(x):
    return launch(x)

def call(function, *args):
    return function(*args)
"""

Found = tuple[Place, CodeType | None]


@pytest.fixture(autouse=True)
def _no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cells of one test from the next."""
    monkeypatch.setattr(linecache, "cache", {})


class Program:
    """A learner's program, with a library that looks where it is called from.

    Args:
        folder: Where its files are.
        places: What finds the learner's lines.
    """

    def __init__(self, folder: Path, places: Places) -> None:
        self.folder = folder
        self.places = places
        self.found: list[Found] = []
        (folder / "site-packages").mkdir()
        self.library = self.module("site-packages/library.py", LIBRARY, {"look": self.look})

    def look(self) -> None:
        self.found.append(self.places.find(sys._getframe(1)))

    def module(self, name: str, source: str, names: Mapping[str, Any] | None = None) -> Any:
        """Run a file, and return its names."""
        path = self.folder / name
        path.write_text(source)
        namespace = dict(names or {})
        exec(compile(source, str(path), "exec"), namespace)
        return namespace

    def names(self) -> dict[str, Any]:
        return {**self.library, "process_index": lambda: 0, "x": 1}

    def script(self, source: str) -> Place:
        """Run a script that launches once or more at one place, and return the place."""
        self.module("train.py", source, self.names())
        [place] = {place for place, _ in self.found}
        return place

    def cell(self, label: str, source: str, first_line: int = 1, **names: Any) -> dict[str, Any]:
        """Run a cell, and return its names."""
        compiler = CellCompiler()
        compiler.label, compiler.first_line = label, first_line
        name = compiler.cache(source)
        namespace = {**self.names(), **names}
        self.places.cell = name
        exec(compiler(compiler.ast_parse(source, name), name, "exec"), namespace)
        return namespace


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, Places(lambda name: cell_label(name) is not None or is_script(name)))


# A program that launches at the line that says `launch`; the condition and the loop around it.
AROUND = {
    "nothing": ("launch(x)", "", ""),
    "if": ("if k == 0:\n    launch(x)", "k == 0", ""),
    "if on one line": ("if k == 0: launch(x)", "k == 0", ""),
    "if with an own condition": ("if x:\n    launch(x)", "", ""),
    "if not": ("if not k:\n    launch(x)", "not k", ""),
    "if is spelled as Python spells it": ("if (k==0)and  x:\n    launch(x)", "k == 0 and x", ""),
    "else": ("if k == 1:\n    pass\nelse:\n    launch(x)", "not (k == 1)", ""),
    "else on one line": ("if k == 1: pass\nelse: launch(x)", "not (k == 1)", ""),
    "elif": ("if k == 1:\n    pass\nelif k == 0:\n    launch(x)", "k == 0", ""),
    "elif with an own condition": (
        "if k == 1:\n    pass\nelif x:\n    launch(x)",
        "not (k == 1)",
        "",
    ),
    "else of an elif": (
        "if x == 5:\n    pass\nelif k == 1:\n    pass\nelse:\n    launch(x)",
        "not (k == 1)",
        "",
    ),
    "first of two statements": ("if k == 0:\n    launch(x)\n    y = 1", "k == 0", ""),
    "last of two statements": ("if k == 0:\n    y = 1\n    launch(x)", "k == 0", ""),
    "before an if": ("launch(x)\nif k == 0:\n    pass", "", ""),
    "after an if": ("if k == 0:\n    pass\nlaunch(x)", "", ""),
    "after an if with else": ("if k:\n    pass\nelse:\n    pass\nlaunch(x)", "", ""),
    "an own condition inside": ("if k == 0:\n    if x:\n        launch(x)", "k == 0", ""),
    "an own condition outside": ("if x:\n    if k == 0:\n        launch(x)", "k == 0", ""),
    "the inner of two": ("if k < 2:\n    if k == 0:\n        launch(x)", "k == 0", ""),
    "inside else, inside if": (
        "if k < 2:\n    if k == 1:\n        pass\n    else:\n        launch(x)",
        "not (k == 1)",
        "",
    ),
    "conditional expression": ("z = launch(x) if k == 0 else None", "k == 0", ""),
    "for": ("for i in range(2):\n    launch(x)", "", "for i in range(2):"),
    "for on one line": (
        "for i in range(2): y = i; launch(x)",
        "",
        "for i in range(2): y = i; launch(x)",
    ),
    "for over own data": ("for i in range(k + 1):\n    launch(x)", "", "for i in range(k + 1):"),
    "after a for": ("for i in range(2):\n    pass\nlaunch(x)", "", ""),
    "the inner of two loops": (
        "for i in range(2):\n    for j in range(2):\n        launch(x)",
        "",
        "for j in range(2):",
    ),
    "after the inner of two loops": (
        "for i in range(2):\n    for j in range(2):\n        pass\n    launch(x)",
        "",
        "for i in range(2):",
    ),
    "for over several lines": (
        "for i in range(\n    2,\n):\n    y = i\n    launch(x)",
        "",
        "for i in range(",
    ),
    "if in a for": (
        "for i in range(2):\n    if k == i:\n        launch(x)",
        "k == i",
        "for i in range(2):",
    ),
    "for in an if": (
        "if k == 0:\n    for i in range(2):\n        launch(x)",
        "k == 0",
        "for i in range(2):",
    ),
    "else in a while": (
        "n = 2\nwhile n > 0:\n    n -= 1\n    if k == 1:\n        pass\n    else:\n"
        "        launch(x)",
        "not (k == 1)",
        "while n > 0:",
    ),
    "while": ("n = 0\nwhile n < 2:\n    n += 1\n    launch(x)", "", "while n < 2:"),
    "while on the process": (
        "n = 0\nwhile n < 2 - k:\n    n += 1\n    launch(x)",
        "n < 2 - k",
        "while n < 2 - k:",
    ),
    "try": ("if k == 0:\n    try:\n        launch(x)\n    finally:\n        pass", "k == 0", ""),
    "except": (
        "if k == 0:\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        launch(x)",
        "k == 0",
        "",
    ),
    "else of a try": (
        "for i in range(2):\n    try:\n        pass\n    except ValueError:\n        pass\n"
        "    else:\n        launch(x)",
        "",
        "for i in range(2):",
    ),
    "finally": (
        "if k == 0:\n    try:\n        pass\n    finally:\n        launch(x)",
        "k == 0",
        "",
    ),
    "if in a finally": (
        "try:\n    pass\nfinally:\n    if k == 0:\n        launch(x)",
        "k == 0",
        "",
    ),
    "with": (
        "import contextlib\nif k == 0:\n    with contextlib.suppress(KeyError):\n        launch(x)",
        "k == 0",
        "",
    ),
    "the context of a with": (
        "import contextlib\nif k == 0:\n    with contextlib.nullcontext(launch(x)):\n        pass",
        "k == 0",
        "",
    ),
    "match": ("if k == 0:\n    match x:\n        case 1:\n            launch(x)", "k == 0", ""),
    "a function called in an if": ("def f():\n    launch(x)\nif k == 0:\n    f()", "", ""),
    "a function made in an if": (
        "if k == 0:\n    def f():\n        launch(x)\nf()",
        "k == 0",
        "",
    ),
    "an if in a function": (
        "def f(v):\n    if k == 0:\n        return launch(v)\nf(x)",
        "k == 0",
        "",
    ),
    "an if in a function in a function": (
        "def f():\n    def g(v):\n        if k == 0:\n            launch(v)\n    g(x)\nf()",
        "k == 0",
        "",
    ),
    "a method": (
        "class A:\n    def f(self):\n        for i in range(2):\n            launch(x)\nA().f()",
        "",
        "for i in range(2):",
    ),
    "the body of a class": ("if k == 0:\n    class A:\n        y = launch(x)", "k == 0", ""),
    "comprehension": (
        "if k == 0:\n    y = [launch(i) for i in range(2)]",
        "k == 0",
        "for i in range(2)",
    ),
    "comprehension with a condition": (
        "y = [launch(i) for i in range(2) if k == 0]",
        "k == 0",
        "for i in range(2)",
    ),
    "what a comprehension goes over": ("y = [i for i in [launch(x)] if k == 0]", "", ""),
    "comprehension over lines": (
        "if k == 0:\n    y = {\n        i: launch(x)\n        for i in range(2)\n    }",
        "k == 0",
        "for i in range(2)",
    ),
    "generator expression": (
        "if k == 0:\n    y = sum(launch(i) for i in range(2))",
        "k == 0",
        "for i in range(2)",
    ),
    "the test of an if": ("if k == 0 and launch(x):\n    pass", "k == 0", ""),
    "the test of an if, first": ("if launch(x) and k == 0:\n    pass", "", ""),
    "the test of an elif": ("if x == 5:\n    pass\nelif launch(x) == k:\n    pass", "", ""),
    "the test of a while": ("n = 1\nwhile launch(n) < k:\n    n += 1", "", "while launch(n) < k:"),
    "a decorator in an if": (
        "if k == 0:\n    @launch\n    def f():\n        pass",
        "k == 0",
        "",
    ),
    "the else of a conditional expression": ("z = None if k else launch(x)", "not k", ""),
    "the else of a conditional expression on its own line": (
        "z = (\n    int(2)\n    if k\n    else\n    launch(x)\n)",
        "not k",
        "",
    ),
    "what a for goes over": ("for b in [launch(x)]:\n    pass", "", ""),
    "the else of a for": ("for b in [1]:\n    pass\nelse:\n    launch(x)", "", ""),
    "the else of a while": (
        "n = k\nwhile n > 0:\n    n -= 1\nelse:\n    launch(x)",
        "",
        "",
    ),
    "and": ("k == 0 and launch(x)", "k == 0", ""),
    "or": ("k or launch(x)", "not (k)", ""),
    "assert": ("assert k or launch(x)", "not (k)", ""),
    "case": (
        "match k:\n    case 0:\n        launch(x)\n    case _:\n        pass",
        "match k: case 0",
        "",
    ),
    "the guard of a case": (
        "match x:\n    case 1 if k == 0:\n        launch(x)",
        "k == 0",
        "",
    ),
    "generator": (
        "def f():\n    for i in range(2):\n        yield launch(i)\nlist(f())",
        "",
        "for i in range(2):",
    ),
    "lambda": ("if k == 0:\n    f = lambda v: launch(v)\n    f(x)", "k == 0", ""),
    "lambda that the library calls": ("if k == 0:\n    call(lambda: launch(x))", "k == 0", ""),
    "second on its line": ("if k == 0:\n    y = 1; launch(x); y = 2", "k == 0", ""),
    "call over lines": (
        "if k == 0:\n    y = [\n        launch(\n            x,\n            1,\n        ),\n    ]",
        "k == 0",
        "",
    ),
    "decorator": (
        "for i in range(2):\n    @staticmethod\n    @launch\n    def f():\n        pass",
        "",
        "for i in range(2):",
    ),
    "default of a parameter": ("if k == 0:\n    def f(v=launch(x)): pass", "k == 0", ""),
    "f-string": ('if k == 0:\n    y = f"{launch(x)}"', "k == 0", ""),
    "coroutine": (
        "async def f():\n    if k == 0:\n        launch(x)\ntry:\n    f().send(None)\n"
        "except StopIteration:\n    pass",
        "k == 0",
        "",
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_the_line_and_what_is_around_it(program: Program, name: str) -> None:
    body, condition, loop = AROUND[name]
    source = f"k = process_index()\n{body}\n"
    [(line, text)] = [
        (number, text) for number, text in enumerate(source.splitlines(), 1) if "launch" in text
    ]
    path = str(program.folder / "train.py")
    assert program.script(source) == Place(line, f"train.py:{line}", path, line)
    assert {called and called.co_name for _, called in program.found} == {"launch"}
    assert replace(around(path, line), skip="") == Detail(text.strip(), condition, loop)


@pytest.mark.parametrize(
    ("before", "test", "asks"),
    [
        ("", "process_index() == 0", True),
        ("", "jax.process_index() == 0", True),
        ("", "info.process_id == 0", True),
        ("", "host_id == 0", True),
        ("", "trainer.is_primary", True),
        ("", "process_index_of_others == 0", False),
        ("", "rank == 0", False),
        ("rank = process_index()", "rank == 0", True),
        ("rank = process_index() % 2", "not rank", True),
        ("rank = other = process_index()", "rank == other", True),
        ("rank, count = process_index(), 4", "rank == 0", True),
        ("rank, count = process_index(), 4", "count == 4", False),
        ("[rank] = [process_index()]\nmine = 1", "mine", False),
        ("rank = process_index()\nfirst = rank == 0", "first", True),
        ("rank = process_index()\nfirst = rank == 0\nsays = first and loud", "says", True),
        ("rank = process_index\nmine = rank()", "mine == 0", True),
        ("rank: int = process_index()", "rank == 0", True),
        ("rank: int", "rank == 0", False),
        ("rank = 1\nrank += process_index()", "rank == 0", True),
        ("print(rank := process_index())", "rank == 0", True),
        ("mine = first\nfirst = not rank\nrank = process_index()", "mine", True),
        ("def f():\n    rank = process_index()", "rank == 0", True),
        ("rank = 0", "rank == 0", False),
        ("'process_index'", "rank == 'process_index'", False),
    ],
)
def test_what_asks_for_the_process(tmp_path: Path, before: str, test: str, asks: bool) -> None:
    source = f"{before}\nif {test}:\n    launch(x)\n"
    path = tmp_path / "train.py"
    path.write_text(source)
    condition = around(str(path), len(source.splitlines())).condition
    assert condition == (test if asks else "")


def test_a_name_for_the_process_may_come_from_another_cell(program: Program) -> None:
    program.cell("1", "rank = process_index()")
    program.cell("2", "if rank == 0:\n    launch(x)", rank=0)
    assert around("<In[2]>", 2) == Detail("launch(x)", "rank == 0")


def test_cells_may_all_have_one_number(program: Program) -> None:
    compiler = CellCompiler()
    compiler.label = "0"
    for source in ("rank = process_index()", "print()", "if rank == 0:\n    launch(x)"):
        compiler.cache(source)
    assert around("<In[0]>", 2) == Detail("launch(x)", "rank == 0")


@pytest.mark.parametrize("order", list(itertools.permutations("123")))
def test_a_name_may_go_through_several_cells(program: Program, order: tuple[str, ...]) -> None:
    cells = {"1": "rank = process_index()", "2": "first = rank == 0", "3": "says = first"}
    for label in order:
        program.cell(label, cells[label], rank=0, first=True)
    program.cell("4", "if says:\n    launch(x)", says=True)
    assert around("<In[4]>", 2).condition == "says"


def test_odd_source_is_read_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("pattern = '\\d'\nif process_index() == 0:\n    launch(x)")
    assert around(str(path), 3).condition == "process_index() == 0"


@pytest.mark.parametrize(
    ("body", "skip"),
    [
        ("launch(x)", ""),
        ("y = 1\n    launch(x)", ""),
        ("if done: break\n    launch(x)", "if done: break"),
        ("if done:\n        y = 1\n        continue\n    launch(x)", "continue"),
        ("launch(x)\n    if done: break", "if done: break"),
        ("if not done:\n        launch(x)", "if not done:"),
        ("if not done:\n        y = 1\n    launch(x)", ""),
        ("for j in y:\n        break\n    launch(x)", ""),
        ("def f(): return 1\n    launch(x)", ""),
    ],
)
def test_what_in_a_loop_may_skip_the_line(tmp_path: Path, body: str, skip: str) -> None:
    source = f"for i in y:\n    {body}"
    path = tmp_path / "train.py"
    path.write_text(source)
    [line] = [i for i, text in enumerate(source.splitlines(), 1) if "launch" in text]
    assert around(str(path), line).skip == skip


def test_a_name_from_another_script_says_nothing(program: Program) -> None:
    program.module("other.py", "rank = process_index()", program.names())
    linecache.getlines(str(program.folder / "other.py"))
    program.script("rank = 0\nif rank == 0:\n    launch(x)")
    assert around(str(program.folder / "train.py"), 3).condition == ""


@pytest.mark.parametrize("first_line", [1, 2, 5])
def test_lines_of_a_cell_are_those_of_the_notebook(program: Program, first_line: int) -> None:
    source = "k = process_index()\nfor i in range(2):\n    if k == 0:\n        launch(x)\n"
    program.cell("3", source, first_line)
    line = first_line + 3
    assert {place for place, _ in program.found} == {Place(line, "", "<In[3]>", line)}
    assert around("<In[3]>", line) == Detail(
        "launch(x)", "k == 0", "for i in range(2):", "if k == 0:"
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
        (f"y = '{'a' * 200}'", 1, Detail(f"y = '{'a' * 95}")),
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
    assert around("<In[3]>", 2).condition == "k == 0"


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
        (mcnb.lockstep.places.__file__, False),
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


def test_tests_are_scripts() -> None:
    assert is_script(__file__)
    places = Places(is_script)
    frame = sys._getframe()
    place, called = places.find(frame)
    assert place.filename == __file__
    assert place.name == f"{Path(__file__).name}:{place.line}"
    assert called is None
