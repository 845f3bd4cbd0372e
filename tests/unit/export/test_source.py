"""Cells as plain Python: what is shown, what becomes a comment, and what can't be run at all."""

from __future__ import annotations

import pytest

from tests.unit.export.test_parse import X, body, lesson

# The code of a cell, then of the program's cell; None where it stays as it is.
CODE: dict[str, tuple[str, str | None]] = {
    "mcnb shares its line with others": (
        "import mcnb; x = 1\nif x: y = 2; mcnb.show(x)  # drawn",
        "pass; x = 1\nif x: y = 2; pass  # drawn",
    ),
    "a picture has a line to itself": ("x = 1\nmcnb.show(x);", "x = 1\n# mcnb.show(x);"),
    "a picture in each branch": (
        "try:\n    x = 1\nexcept OSError:\n    mcnb.show(1)\nelse:\n    mcnb.show(2)\n"
        "finally:\n    mcnb.show(3)\n    x = 2",
        "try:\n    x = 1\nexcept OSError:\n    pass\n    # mcnb.show(1)\nelse:\n    pass\n"
        "    # mcnb.show(2)\nfinally:\n    # mcnb.show(3)\n    x = 2",
    ),
    "a picture of a part of mcnb": ("x = 1\nmcnb.a[0].b(x).c()", "x = 1\n# mcnb.a[0].b(x).c()"),
    "a module whose name begins alike": ("from mcnbase import x\nimport mcnb_x", None),
    "a magic within a loop": (
        "for i in 1, 2:\n    %timeit i\n    print(i)",
        "for i in 1, 2:\n    # %timeit i\n    print(i)",
    ),
    "what shows itself": ("x = 1\ndisplay(x)", None),
    "what has no value": ("exec('x = 1')", None),
    "a function with a decorator may return something": (
        "def d(f): return len\n@d\ndef f(): print(1)\nf('a')",
        "def d(f): return len\n@d\ndef f(): print(1)\ndisplay(f('a'))",
    ),
    "a generator is a value": ("def g():\n    yield 1\ng()", "def g():\n    yield 1\ndisplay(g())"),
    "some elements and others": ("x = 1, 2\n*x, 3", "x = 1, 2\ndisplay((*x, 3))"),
    "a note alone": ("# a note", None),
    "the future alone": (
        "from __future__ import annotations",
        "# from __future__ import annotations",
    ),
}


@pytest.mark.parametrize(("code", "expected"), CODE.values(), ids=CODE)
def test_code(code: str, expected: str | None) -> None:
    (program,) = lesson("%%mcjax\nimport mcnb\nz = 0", f"%%mcjax\n{code}")
    assert body(program) == f"# %%\n# import mcnb\nz = 0\n\n# %%\n{expected or code}"
    compile(program.text, "mine.py", "exec")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("async with f(): pass", "only a notebook can await outside a function"),
        ("async for y in f(): pass", "only a notebook can await outside a function"),
        ("[y async for y in f()]", "only a notebook can await outside a function"),
        ("return 1", "it is not plain Python"),
    ],
)
def test_code_that_no_program_can_run(code: str, why: str) -> None:
    (program,) = lesson(X, f"%%mcjax\n{code}")
    assert body(program) == f"# %%\nx = 1\n\n# %%\n# Left out, as {why}:\n#     {code}"
    assert program.left_out == {1: why}


def test_what_returns_nothing_is_known_in_later_cells() -> None:
    (program,) = lesson("%%mcjax\ndef f(): print(1)", "%%mcjax\ndef g(): pass", "%%mcjax\nf()")
    assert body(program).endswith("\n\n# %%\nf()")


def test_what_mcnb_is_called_is_known_in_later_cells() -> None:
    (program,) = lesson(
        "%%mcjax\nfrom mcnb import show as draw\nx = 1", "%%mcjax\nimport mcnb\ny = 2",
        "%%mcjax\nz = 3\ndraw(x)",
    )  # fmt: skip
    assert body(program).endswith("\n\n# %%\nz = 3\n# draw(x)")


def test_what_a_magic_may_have_set_is_not_known() -> None:
    (program,) = lesson(X, "%%mcjax\n%%capture\nx = 2", "%%mcjax\nprint(x)")
    assert program.left_out == {
        1: "it is not plain Python",
        2: "it needs x, which nothing before it sets",
    }


# Starts and stops, and cells; then the processes and the number of cells of each program.
STARTS = {
    "a start where processes run changes nothing": (
        ["%mcjax start -n 2", X, "%mcjax start -n 3", X],
        [(2, 2)],
    ),
    "a first cell starts them": ([X, "%mcjax start -n 3", X], [(4, 2)]),
    "a start that has no cells": (["%mcjax start -n 2", "%mcjax restart", X], [(2, 1)]),
    "a start that is stopped before a cell": (
        ["%mcjax start -n 2", "%mcjax stop", "%mcjax start -n 3", X],
        [(3, 1)],
    ),
    "a restart keeps their number": (
        ["%mcjax start -n 2", X, "%mcjax restart", X, X],
        [(2, 1), (2, 2)],
    ),
    "cells for which the magic is implied": (
        ["%mcjax start -n 2", "x = 1", "%mcjax auto on", "x = 1", "%%here\nx = 1", X],
        [(2, 2)],
    ),
    "cells for which it is no longer": (
        ["%mcjax auto on", "x = 1", "%mcjax start -n 2\n%mcjax auto off", "x = 1"],
        [(4, 1)],
    ),
    "a replay goes on": (["%mcjax start -n 2", X, "%mcjax restart --replay", X], [(2, 2)]),
}


@pytest.mark.parametrize(("sources", "expected"), STARTS.values(), ids=STARTS)
def test_starts(sources: list[str], expected: list[tuple[int, int]]) -> None:
    programs = lesson(*sources)
    assert [(p.options.processes, body(p).count("\nx = 1")) for p in programs] == expected


def test_a_start_that_is_meant_to_fail_starts_nothing() -> None:
    (program,) = lesson("%mcjax start -n 0", X, fails=0)
    assert program.options.processes == 4


def test_the_processes_of_a_cell_are_those_of_its_part() -> None:
    some, every = "%%mcjax -p 5\nx = 1", "%%mcjax -p 0-7\nx = 1"
    _, second = lesson("%mcjax start -n 2", X, "%mcjax stop", "%mcjax start -n 8", some, every)
    assert body(second) == "# %%\nif jax.process_index() == 5:\n    x = 1\n\n# %%\nx = 1"
