"""The debugger on the frames of an error, command by command."""

from __future__ import annotations

import gc
import io
import linecache
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcnb.errors import LockstepError
from mcnb.worker.debugging import Failure

CELL = """import helper
def f(rows):
    n = len(rows)
    return helper.divide(rows, n - 3)
f([1, 2, 3])
"""
HELPER = """import hidden
def divide(rows, by):
    return hidden.run(lambda: len(rows) / by)
"""
HIDDEN = """def run(call):
    __tracebackhide__ = True
    return call()
"""
WHERE = """\
  <In[3]>(5)<module>()
-> f([1, 2, 3])
  <In[3]>(4)f()
-> return helper.divide(rows, n - 3)
  {helper}(3)divide()
-> return hidden.run(lambda: len(rows) / by)
> {helper}(3)<lambda>()
-> return hidden.run(lambda: len(rows) / by)
"""
ENDED = (
    "The cell has ended with this error and can't go on. Look around: where, up, down, list, args, "
    "p EXPRESSION, pp EXPRESSION, or any line of Python. To leave: quit\n"
)


class Look:
    """A person who looks at the error of a cell."""

    def __init__(self, error: BaseException) -> None:
        self.failure = Failure(error)

    def __call__(self, line: str) -> str:
        out = io.StringIO()
        debugger = self.failure.debugger
        if debugger is not None:
            debugger.stdout = out
        self.ended = self.failure.execute(line, out)
        return out.getvalue()


def module(path: Path, source: str) -> types.ModuleType:
    path.write_text(source)
    made = types.ModuleType(path.stem)
    exec(compile(source, str(path), "exec"), made.__dict__)
    return made


def error_of(cell: str) -> BaseException:
    linecache.cache["<In[3]>"] = (len(cell), None, cell.splitlines(keepends=True), "<In[3]>")
    try:
        exec(compile(cell, "<In[3]>", "exec"), {"__name__": "__main__"})
    except BaseException as error:
        return error
    raise AssertionError("the cell did not fail")


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Look]:
    monkeypatch.setitem(sys.modules, "hidden", module(tmp_path / "hidden.py", HIDDEN))
    monkeypatch.setitem(sys.modules, "helper", module(tmp_path / "helper.py", HELPER))
    yield Look(error_of(CELL))
    linecache.cache.pop("<In[3]>", None)


def test_the_frames_of_the_cell_without_hidden_ones(look: Look, tmp_path: Path) -> None:
    assert look("where") == WHERE.format(helper=tmp_path / "helper.py")
    assert look("p by, rows") == "(0, [1, 2, 3])\n"
    assert look("up;; up") == (
        f"> {tmp_path / 'helper.py'}(3)divide()\n-> return hidden.run(lambda: len(rows) / by)\n"
        "> <In[3]>(4)f()\n-> return helper.divide(rows, n - 3)\n"
    )
    assert look("args") == "rows = [1, 2, 3]\n"
    assert look("p n") == "3\n"
    assert look("rows + [n]") == "[1, 2, 3, 3]\n"
    assert look("pp {'n': n}") == "{'n': 3}\n"
    assert look("whatis rows") == "<class 'list'>\n"
    assert look("list 4, 5") == (
        "  4  ->\t    return helper.divide(rows, n - 3)\n  5  \tf([1, 2, 3])\n"
    )
    assert look("up;; up") == "> <In[3]>(5)<module>()\n-> f([1, 2, 3])\n*** Oldest frame\n"
    assert look("exceptions").endswith("\nZeroDivisionError: division by zero\n")
    assert not look.ended


def test_lines_of_python_and_their_errors(look: Look) -> None:
    look("up;; up;; up")
    assert look("extra = 4") == ""
    assert look("print(extra)") == "4\n"
    assert look("p nobody") == "*** NameError: name 'nobody' is not defined\n"
    assert look("1 / 0") == "*** ZeroDivisionError: division by zero\n"
    assert look("(") in ("*** SyntaxError: '(' was never closed\n", "...   \n")


@pytest.mark.parametrize(
    "line",
    [
        *("step", "s", "next", "n", "until", "return", "continue", "c", "jump 3", "run", "b 3"),
        *("break", "tbreak 4", "commands", "clear", "interact", "debug f(3)", "condition 1"),
    ],
)
def test_what_would_resume_the_cell_or_wait_for_input(look: Look, line: str) -> None:
    assert look(line) == ENDED
    assert not look.ended


@pytest.mark.parametrize("line", ["quit", "q", "exit", "EOF"])
def test_the_end_and_another_beginning(look: Look, line: str) -> None:
    look("up")
    look(line)
    assert (look.ended, look.failure.debugger) == (True, None)
    assert look("p by") == "0\n"  # in the innermost frame again


def test_a_computation_that_others_do_not_join(look: Look) -> None:
    def launch() -> None:
        raise LockstepError("not invited", (), "not invited")

    look("up;; up;; up")
    look.failure.debugger.curframe.f_globals["launch"] = launch  # type: ignore[union-attr]
    refused = (
        "*** In the debugger a process runs alone: a computation that needs other processes can't "
        "run. This process's part of an array x: x.addressable_shards[0].data\n"
    )
    assert (look("launch()"), look("p launch()")) == (refused, refused)


def test_nothing_keeps_the_variables_afterwards() -> None:
    class Big:
        pass

    kept: list[weakref.ref[Big]] = []

    def fail() -> None:
        big = Big()
        kept.append(weakref.ref(big))
        raise ValueError

    sys.modules["fails"] = types.ModuleType("fails")
    sys.modules["fails"].fail = fail  # type: ignore[attr-defined]
    try:
        look = Look(error_of("import fails\nfails.fail()\n"))
        look("where;; up;; up;; down")
        assert kept[0]() is not None
        look.failure.close()
        del look
        gc.collect()
        assert kept[0]() is None
    finally:
        del sys.modules["fails"]
        linecache.cache.pop("<In[3]>", None)
