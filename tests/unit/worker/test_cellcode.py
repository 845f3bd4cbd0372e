"""Cells as source code: their names, and their lines as the notebook counts them."""

from __future__ import annotations

import contextlib
import linecache
import sys
from pathlib import Path
from typing import Any

import pytest

import mcnb
from mcnb._text import cell_label, cell_name
from mcnb.output.terminal import without_escapes
from mcnb.worker.cellcode import CellCompiler, frame_line, leading_blank_lines, syntax_error
from mcnb.worker.tracebacks import describe_error


def compiler_of(label: str, first_line: int) -> CellCompiler:
    compiler = CellCompiler()
    compiler.label, compiler.first_line = label, first_line
    return compiler


def run(source: str, first_line: int = 2, **names: Any) -> BaseException | None:
    """Run a cell with the label 3, and return its error."""
    compiler = compiler_of("3", first_line)
    name = compiler.cache(source, 0, source)
    try:
        exec(compile(compiler.ast_parse(source, name), name, "exec"), names)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize(
    ("filename", "label"),
    [
        ("<In[3]>", "3"),
        ("<In[]>", ""),
        ("<In[a b]>", "a b"),
        *((filename, None) for filename in ("", "In[3]", "<In[3]", "x<In[3]>", "<In[3]>x")),
    ],
)
def test_labels_of_cells(filename: str, label: str | None) -> None:
    assert cell_label(filename) == label
    assert label is None or cell_name(label) == filename


@pytest.mark.parametrize(
    ("source", "expected"), [("", 0), ("x", 0), ("\n\nx\n", 2), (" \n\t\nx", 2), ("\n\n", 0)]
)
def test_leading_blank_lines(source: str, expected: int) -> None:
    assert leading_blank_lines(source) == expected


def test_a_compiler_knows_cells_from_files() -> None:
    compiler = compiler_of("5", 3)
    assert compiler.cache("x = 1\n", 0, "x = 1\n") == "<In[5]>"
    assert linecache.getlines("<In[5]>") == ["\n", "\n", "x = 1\n"]
    trees: list[Any] = [compiler.ast_parse("x = 1\n", name) for name in ("<In[5]>", "file.py")]
    assert [tree.body[0].lineno for tree in trees] == [3, 1]
    assert compiler.format_code_name("<In[5]>") == ("Cell", "In[5]")
    assert compiler.format_code_name("file.py") is None


@pytest.mark.parametrize("first_line", [1, 2, 5])
def test_lines_are_those_of_the_notebook(first_line: int) -> None:
    error = run("x = 1\nx / 0\n", first_line)
    assert error is not None
    described = describe_error(error, "3")
    assert described.line == first_line + 1
    assert without_escapes(described.traceback) == (
        f"Cell In[3], line {first_line + 1}\n"
        f"      {first_line} x = 1\n"
        f"----> {first_line + 1} x / 0\n"
        "\n"
        "ZeroDivisionError: division by zero"
    )


def test_where_a_running_cell_stands() -> None:
    seen: list[tuple[int | None, int | None]] = []

    def look() -> None:
        seen.append((frame_line(sys._getframe(), "3"), frame_line(sys._getframe(), "4")))

    assert run("def f():\n    look()\nf()\n", look=look) is None
    assert seen == [(3, None)]
    assert frame_line(None, "3") is None


class Word(str):
    """Text of a type that the notebook's own process does not know."""

    __slots__ = ()


def test_what_is_sent_of_an_error_is_plain_text() -> None:
    error = run("class E(Exception):\n    __str__ = lambda self: Word('hm')\nraise E", Word=Word)
    assert error is not None
    described = describe_error(error, "3")
    assert described.message == "hm"
    assert [type(text) for text in (described.message, described.traceback)] == [str, str]


LIBRARIES = {
    "the standard library": "import json\njson.loads('{')",
    "NumPy": "import numpy as np\nnp.linalg.inv(np.zeros((2, 3)))",
    "JAX": "import jax.numpy as jnp\njnp.zeros((2, 3)) @ jnp.zeros((2, 3))",
    "mcnb": "import mcnb.options\nmcnb.options.Options(processes=0)",
}


@pytest.mark.parametrize("source", LIBRARIES.values(), ids=LIBRARIES.keys())
def test_errors_are_equal_text_without_paths_of_this_machine(source: str) -> None:
    one, other = run(source), run(source)
    assert one is not None
    assert other is not None
    described = describe_error(one, "3")
    assert described == describe_error(other, "3")
    shown = without_escapes(described.traceback)
    assert shown.startswith("Cell In[3], line 3\n      2 import ")
    for path in (sys.prefix, sys.base_prefix, Path(mcnb.__file__).parent, "site-packages", "mcnb/"):
        assert str(path) not in shown


# Python counts the lines of the code; the notebook's cell has its magic and a blank line above.
UNTERMINATED = "unterminated string literal (detected at line 4)"


@pytest.mark.parametrize(
    ("source", "line", "shown", "message"),
    [
        ("\n\nx = 1\n  y = 2", 5, "      y = 2\n     ^", "unexpected indent"),
        ("x = (", 2, "    x = (\n        ^", "'(' was never closed"),
        ("if x:\n", 2, None, "expected an indented block after 'if' statement on line 2"),
        ("\nx = 1\ny = 'a", 4, "    y = 'a\n        ^", UNTERMINATED),
        ("return 1", 2, "    return 1\n    ^", "'return' outside function"),
    ],
)
def test_a_cell_that_is_no_python(source: str, line: int, shown: str | None, message: str) -> None:
    error = syntax_error(source, "3", 2)
    assert error is not None
    assert (error.message, error.line) == (message, line)
    assert error.traceback.startswith(f"Cell In[3], line {line}\n{shown or ''}")
    assert error.traceback.endswith(f"Error: {message}\nNo process ran the cell.")


SHELL = "this is a command of a shell. A cell that begins with %%bash runs it, without a $"
RUN = ". To start the program on several processes: mcnb run toy.py -n 4 -d 2"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("$ TPU_NAME=jax-demo\n$ gcloud compute", SHELL),
        ("# in a terminal\nexport JAX_NUM_CPU_DEVICES=2\nnum_processes=4", SHELL),
        ("JAX_NUM_CPU_DEVICES=8 python toy.py 0 1", f"{SHELL}{RUN} {{process}} {{processes}}"),
        ("python toy.py", SHELL + RUN),
        ("for i in 0 1; do\n  python3 toy.py\ndone", None),
        ("x = 1\npip install rich", SHELL),
        ("kubectl apply -f example.yaml", SHELL),
        ("mcnb run -n 4 toy.py", SHELL),
        ("python = (", None),
        ("x = git -", None),
        ("cd = 1\ny = (", None),
        ("N=3 +", None),
    ],
)
def test_a_cell_that_is_for_a_shell(source: str, hint: str | None) -> None:
    error = syntax_error(source, "3", 2)
    assert error is not None
    *_, said, last = error.traceback.splitlines()
    assert last == "No process ran the cell."
    assert said == (f"SyntaxError: {error.message}" if hint is None else f"Hint: {hint}")


def test_a_cell_with_a_character_that_ends_texts() -> None:
    error = syntax_error("x = '\0'", "3", 2)
    assert error is not None
    assert error.name == "SyntaxError"
    assert error.traceback.endswith("\nNo process ran the cell.")


@pytest.mark.parametrize(
    "source", ["", "await f()", "%time x\n!ls\ny?", "%%time\nx = 1", "async with a: b", "x = 1;"]
)
def test_what_a_notebook_takes_is_no_error(source: str) -> None:
    assert syntax_error(source, "3", 2) is None


def test_cells_of_the_same_number_keep_their_sources() -> None:
    """A program that runs a notebook without a history gives all its cells one number."""
    compiler = compiler_of("number 1", 1)
    name = cell_name("number 1")
    sources = [f"x = {number}\n" for number in range(3)]
    for source in sources:
        assert compiler.cache(source, 0, source) == name
    kept = [f"{name} replaced 1", f"{name} replaced 2", name]
    assert [linecache.getlines(one) for one in kept] == [[source] for source in sources]


def test_code_that_begins_on_another_line() -> None:
    compiler = compiler_of("6", 2)
    with contextlib.suppress(KeyError), compiler.beginning_at(7):
        tree: Any = compiler.ast_parse("x", cell_name("6"))
        assert tree.body[0].lineno == 7
        raise KeyError
    assert compiler.first_line == 2
