"""What is around the line of a launch: conditions, loops, what may skip it."""

from __future__ import annotations

import itertools
import linecache
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import pytest

from mcnb.lockstep.around import Spot, along, around, span_at
from mcnb.lockstep.model import Condition, Detail, Origin
from mcnb.lockstep.source import Place
from mcnb.worker.cellcode import CellCompiler
from tests.support.learners import Program

pytestmark = pytest.mark.usefixtures("no_cells")

# A program that launches at the line that says `launch`; the condition and the loop around it.
AROUND = {
    "nothing": ("launch(x)", "", ""),
    "if": ("if k == 0:\n    launch(x)", "k == 0", ""),
    "if on one line": ("if k == 0: launch(x)", "k == 0", ""),
    "if with an own condition": ("if x:\n    launch(x)", "", ""),
    "if not": ("if not k:\n    launch(x)", "not k", ""),
    "if is spelled as Python spells it": ("if (k==0)and  x:\n    launch(x)", "k == 0 and x", ""),
    "else": ("if k == 1:\n    pass\nelse:\n    launch(x)", "not (k == 1)", ""),
    "else of an inequality": ("if k != 0:\n    pass\nelse:\n    launch(x)", "k == 0", ""),
    "else of not in": ("if k not in (0, 1):\n    pass\nelse:\n    launch(x)", "k in (0, 1)", ""),
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
    "the check_launches of a case": (
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
    found = around(path, line)
    assert found.source == text.strip()
    assert [one.words for one in found.conditions][:1] == ([condition] if condition else [])
    assert found.loops[:1] == ((loop,) if loop else ())


ONE_LINE = [
    # Each call of `launch` on one line, with the condition around it, innermost first.
    ("y = launch(1) if k == 0 else launch(2)", ["not (k == 0)"]),
    ("y = launch(1) if k == 1 else launch(2)", ["k == 1"]),
    ("k == 0 and launch(1) or launch(2)", ["not (k == 0 and launch(1))"]),
    ("k == 1 and launch(1) or launch(2)", ["k == 1"]),
    ("y = launch(1) + (launch(2) if k == 1 else launch(3))", [None, "k == 1"]),
    ("y = {'é': launch(1) if k == 0 else launch(2)}", ["not (k == 0)"]),
    ("y = [launch(i) if k == i else launch(2) for i in range(2)]", ["not (k == i)", "k == i"]),
    ("f = lambda: launch(1) if k == 0 else launch(2); f()", ["not (k == 0)"]),
    ("launch(1); y = launch(2) if k == 1 else 0; launch(3)", [None, "k == 1", None]),
    ("y = 1 if k == launch(1) else launch(2)", [None]),
    ("print(\n    launch(1)\n    if k == 0\n    else launch(2)\n)", ["not (k == 0)"]),
]


@pytest.mark.parametrize(("source", "expected"), ONE_LINE)
def test_one_of_several_calls_on_a_line(
    tmp_path: Path, source: str, expected: list[str | None]
) -> None:
    path = str(tmp_path / "train.py")
    Path(path).write_text(f"k = process_index()\n{source}\n")
    found: list[str | None] = []

    def launch(value: int) -> int:
        frame: FrameType | None = sys._getframe(1)
        spots = []
        while frame is not None and frame.f_code.co_filename == path:
            span = span_at(frame.f_code, frame.f_lasti)
            spots.append(Spot(path, frame.f_lineno, frame, span=span))
            frame = frame.f_back
        conditions = along(spots, lambda *_: "").conditions
        found.append(conditions[0].words if conditions else None)
        return value

    names = {"launch": launch, "process_index": lambda: 1}
    exec(compile(Path(path).read_text(), path, "exec"), names)
    assert found == expected


def test_without_columns_the_line_decides() -> None:
    code = compile("f(x) if k else g(x)", "train.py", "exec")
    code = code.replace(co_linetable=compile("f(x)", "train.py", "exec").co_linetable[:0])
    assert {span_at(code, at) for at in range(-1, 40)} == {None}


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
        ("def f():\n    global rank\n    rank = process_index()", "rank == 0", True),
        ("def f():\n    rank = process_index()", "rank == 0", False),
        ("rank = 0", "rank == 0", False),
        ("'process_index'", "rank == 'process_index'", False),
    ],
)
def test_what_asks_for_the_process(tmp_path: Path, before: str, test: str, asks: bool) -> None:
    source = f"{before}\nif {test}:\n    launch(x)\n"
    path = tmp_path / "train.py"
    path.write_text(source)
    found = around(str(path), len(source.splitlines()))
    assert [one.words for one in found.conditions] == ([test] if asks else [])


def test_a_name_for_the_process_may_come_from_another_cell(program: Program) -> None:
    program.cell("1", "rank = process_index()")
    program.cell("2", "if rank == 0:\n    launch(x)", rank=0)
    assert around("<In[2]>", 2) == Detail("launch(x)", (Condition("rank == 0", "line 1"),))


def test_cells_may_all_have_one_number(program: Program) -> None:
    compiler = CellCompiler()
    compiler.label = "0"
    for source in ("rank = process_index()", "print()", "if rank == 0:\n    launch(x)"):
        compiler.cache(source)
    assert around("<In[0]>", 2) == Detail("launch(x)", (Condition("rank == 0", "line 1"),))


@pytest.mark.parametrize("order", list(itertools.permutations("123")))
def test_a_name_may_go_through_several_cells(program: Program, order: tuple[str, ...]) -> None:
    cells = {"1": "rank = process_index()", "2": "first = rank == 0", "3": "says = first"}
    for label in order:
        program.cell(label, cells[label], rank=0, first=True)
    program.cell("4", "if says:\n    launch(x)", says=True)
    assert [one.words for one in around("<In[4]>", 2).conditions] == ["says"]


def test_odd_source_is_read_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("pattern = '\\d'\nif process_index() == 0:\n    launch(x)")
    assert [one.words for one in around(str(path), 3).conditions] == ["process_index() == 0"]


@pytest.mark.parametrize(
    ("body", "skip", "at"),
    [
        ("launch(x)\n    if done: continue", "", 0),
        ("launch(x)", "", 0),
        ("y = 1\n    launch(x)", "", 0),
        ("if done: break\n    launch(x)", "if done: break", 2),
        ("if done:\n        y = 1\n        continue\n    launch(x)", "if done:", 2),
        ("launch(x)\n    if done: break", "if done: break", 3),
        (
            "if a:\n        if (b and\n            c):\n            break\n    launch(x)",
            "if (b and",
            3,
        ),
        ("try:\n        launch(x)\n    except E:\n        break", "except E:", 4),
        ("try:\n        y = f(i)\n    except E:\n        continue\n    launch(x)", "except E:", 4),
        ("try:\n        f(i)\n    except E:\n        y = 1\n    launch(x)", "", 0),
        ("if not done:\n        launch(x)", "if not done:", 2),
        ("if not done:\n        y = 1\n    launch(x)", "", 0),
        ("for j in y:\n        break\n    launch(x)", "", 0),
        ("def f(): return 1\n    launch(x)", "", 0),
    ],
)
def test_what_in_a_loop_may_skip_the_line(tmp_path: Path, body: str, skip: str, at: int) -> None:
    source = f"for i in y:\n    {body}"
    path = tmp_path / "train.py"
    path.write_text(source)
    [line] = [i for i, text in enumerate(source.splitlines(), 1) if "launch" in text]
    found = around(str(path), line)
    assert (found.skip, found.skip_at) == (skip, f"line {at}" if at else "")
    assert found.skip_ends == ("break" in body and bool(skip))


@pytest.mark.parametrize(
    ("before", "words", "part", "leaves"),
    [
        ("if k: return", "not k", "", "return"),
        ("if k and y: sys.exit()", "not (k and y)", "k", "exit"),
        ("if k: z = 1\n    else: return", "k", "", "return"),
        ("if k: raise E", None, "", ""),
        ("if y: return", None, "", ""),
        ("if k:\n       ", "k", "", ""),
        ("if y and k == 0:\n       ", "y and k == 0", "k == 0", ""),
        ("if not (y or k or z):\n       ", "not (y or k or z)", "k", ""),
        ("if y and k == 0 and f(k):\n       ", "y and k == 0 and f(k)", "k == 0 and f(k)", ""),
        ("if k and k > 1:\n       ", "k and k > 1", "", ""),
        ("y and k and", "y and k", "k", ""),
        ("k and", "k", "", ""),
        ("y or k or", "not (y or k)", "k", ""),
    ],
)
def test_what_of_a_condition_depends_on_the_process(
    tmp_path: Path, before: str, words: str | None, part: str, leaves: str
) -> None:
    between = "\n    " if before.endswith((")", "return", "E")) else " "
    source = f"def f(k=process_index()):\n    k = process_index()\n    {before}{between}launch(x)"
    path = tmp_path / "train.py"
    path.write_text(source)
    found = around(str(path), len(source.splitlines())).conditions
    assert [(one.words, one.part, one.leaves) for one in found] == (
        [] if words is None else [(words, part, leaves)]
    )


@pytest.mark.parametrize("between", [0, 1, 2])
def test_what_is_farther_from_the_launch_has_its_place(tmp_path: Path, between: int) -> None:
    filling = "        y = 1\n" * between
    path = tmp_path / "train.py"
    path.write_text(f"for i in y:\n    if process_index() == 0:\n{filling}        launch(x)\n")
    found = around(str(path), 3 + between)
    assert found.conditions == (Condition("process_index() == 0", "line 2", near=between == 0),)
    assert (found.loops, found.loops_at) == (("for i in y:",), ("line 1",))
    assert around(str(path), 2).loops_at == ("",)


def test_a_name_from_another_script_says_nothing(program: Program) -> None:
    program.module("other.py", "rank = process_index()", program.names())
    linecache.getlines(str(program.folder / "other.py"))
    program.script("rank = 0\nif rank == 0:\n    launch(x)")
    assert around(str(program.folder / "train.py"), 3).conditions == ()


def test_a_loop_of_two_frames_is_one(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("for i in y:\n    a = [launch(j) for j in i]\n")
    spot = Spot(str(path), 2)
    assert along([spot, spot], lambda *_: "").loops == ("for j in i", "for i in y:")


@pytest.mark.parametrize(
    ("first", "quoted"),
    [
        ("for i in range(2):  # twice", "for i in range(2):"),
        ("for i in '# 2':", "for i in '# 2':"),
        ("for i in ['a#',  # in two lines", "for i in ['a#',"),
    ],
)
def test_a_comment_is_not_quoted(program: Program, first: str, quoted: str) -> None:
    more = "" if first.endswith(":") or ":  #" in first else "\n    'b']:"
    program.cell("1", f"{first}{more}\n    if x == 2: continue  # a reason\n    launch(x)")
    line = 3 + bool(more)
    detail = around("<In[1]>", line)
    assert (detail.loops, detail.skip) == ((quoted,), "if x == 2: continue")


def test_a_condition_in_what_the_line_of_a_cell_calls(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("def save(k):\n    if process_index() == 0:\n        launch(k)\nsave(1)\n")
    spots = [Spot(str(path), 3), Spot(str(path), 4)]
    for own, line, within in ((0, "", False), (1, "3", True), (None, "3", False)):
        [found] = along(spots, lambda _, line: str(line), own).conditions
        assert (found.line, found.within) == (line, within)


@pytest.mark.parametrize(
    ("source", "origins"),
    [
        ("n = range(3 + k)\nfor i in n:\n    launch(x)", [("n", 2, "n = range(3 + k)")]),
        ("n = 3 + k\nfor i in range(n):\n    launch(x)", [("range(n)", 2, "n = 3 + k")]),
        ("n = 3 + k\nwhile n:\n    launch(x)\n    n -= 1", [("n", 2, "n = 3 + k")]),
        (
            "n = 3 + k\nfor i in range(9):\n    if i > n:\n        break\n    launch(x)",
            [("i > n", 2, "n = 3 + k")],
        ),
        (
            "n = [1]\nif k == 1:  # more of it\n    n.append(2)\n"
            "for j in range(2):\n    for i in n:\n        launch(x)",
            [("n", 3, "if k == 1:"), None],
        ),
        ("n = 3 + k\n[launch(x) for i in range(n)]", [("range(n)", 2, "n = 3 + k")]),
        ("for i in range(3 + k):\n    launch(x)", [None]),  # the loop itself says it
        ("for i in range(9):\n    if i > 3 + k:\n        break\n    launch(x)", [None]),
        ("n = 3\nfor i in range(n):\n    launch(x)", [None]),
        ("launch(x)", []),
    ],
)
def test_where_the_number_of_rounds_begins_to_differ(
    tmp_path: Path, source: str, origins: list[tuple[str, int, str] | None]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"k = process_index()\n{source}\n")
    line = next(i for i, text in enumerate(file.read_text().split("\n"), 1) if "launch" in text)
    linecache.checkcache(str(file))
    detail = around(str(file), line)
    assert detail.loops_from == tuple(
        one and Origin(one[0], f"line {one[1]}", one[2]) for one in origins
    )
    assert len(detail.loops) == len(origins)
    assert Detail.from_data(asdict(detail)) == detail


def test_who_has_run_a_while_loop_ran_it_less_often(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("n = 3 + process_index()\nwhile n:\n    launch(x)\n    n -= 1\n")
    [condition] = around(str(file), 3).conditions
    assert (condition.words, condition.loops) == ("n", 1)
