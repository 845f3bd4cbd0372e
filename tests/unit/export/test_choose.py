"""What a program keeps of a lesson: where a name comes from, and what must not come with it."""

from __future__ import annotations

import pytest

from tests.unit.export.test_parse import X, body, lesson

PUSH = "mcnb.current_cluster().push({'m': n})"
QUEUED = "queue().push({'m': n})"
COMMENT = f"# {PUSH}"
TOLD = "# Process 0 does what the notebook did, and tells the others.\n"
ON_0 = "if jax.process_index() == 0:\n"
SENT = "m = from_process_0(lambda: n)\n\n# %%\ndisplay(m)"


def left_out(why: str, *lines: str) -> str:
    return "\n".join((f"# %%\n# Left out, as {why}:", *(f"#     {line}" for line in lines)))


IN_NOTEBOOK = "it runs in the notebook"
NO_M = left_out("it needs m, which nothing before it sets", "m")
PUSHED = {
    "a name that is set twice has its newest value": (
        ["n = 1", "n = n + 1", "n = 3 * n", PUSH],
        f"# %%\n{TOLD}{ON_0}    n = 1\n{ON_0}    n = n + 1\n{ON_0}    n = 3 * n\n{SENT}",
    ),
    "an older value that nothing reads": (
        ["n = 1", "n = 2", PUSH],
        f"# %%\n{TOLD}{ON_0}    n = 2\n{SENT}",
    ),
    "by a function that reads another name": (
        ["k = 1", "def f(): return k", f"n = f()\n{PUSH}"],
        f"# %%\n{TOLD}{ON_0}    k = 1\n{ON_0}    def f(): return k\n"
        f"{ON_0}    n = f()\n    {COMMENT}\n{SENT}",
    ),
    "by the function's own name": (
        ["n = 1", "from mcnb import current_cluster\ncurrent_cluster().push({'m': n})"],
        f"# %%\n{TOLD}{ON_0}    n = 1\n{SENT}",
    ),
    "by the magic": (
        ["k = 1", "m = k + 1\n%mcjax push m"],
        f"# %%\n{TOLD}{ON_0}    k = 1\n{ON_0}    m = k + 1\n    # %mcjax push m\n"
        "m = from_process_0(lambda: m)\n\n# %%\ndisplay(m)",
    ),
    "by the magic, of a name that the processes set, too": (
        ["m = 1", "%mcjax push m", "%%mcjax\nm = 2"],
        f"{left_out(IN_NOTEBOOK, 'm = 1')}\n\n{left_out(IN_NOTEBOOK, '%mcjax push m')}\n\n"
        "# %%\nm = 2\n\n# %%\ndisplay(m)",
    ),
    "a module that both import": (
        ["import math", f"n = math.pi\n{PUSH}", "%%mcjax\nimport math"],
        f"# %%\n{TOLD}{ON_0}    import math\n{ON_0}    n = math.pi\n    {COMMENT}\n"
        "m = from_process_0(lambda: n)\n\n# %%\nimport math\n\n# %%\ndisplay(m)",
    ),
    "what only a notebook can await": (
        ["import asyncio\nn = await asyncio.sleep(0)", PUSH],
        f"{left_out(IN_NOTEBOOK, 'import asyncio', 'n = await asyncio.sleep(0)')}\n\n"
        f"{left_out(IN_NOTEBOOK, PUSH)}\n\n{NO_M}",
    ),
    "what mcnb returns": (
        ["n = mcnb.results()", PUSH],
        f"{left_out(IN_NOTEBOOK, 'n = mcnb.results()')}\n\n{left_out(IN_NOTEBOOK, PUSH)}\n\n{NO_M}",
    ),
    "what would take a name of the processes on the way": (
        ["n = 1", f"x = n\nn = x\n{PUSH}", X],
        f"{left_out(IN_NOTEBOOK, 'n = 1')}\n\n{left_out(IN_NOTEBOOK, 'x = n', 'n = x', PUSH)}\n\n"
        f"# %%\nx = 1\n\n{NO_M}",
    ),
    "what is pushed to a list": (
        ["n = 1", QUEUED],
        f"{left_out(IN_NOTEBOOK, 'n = 1')}\n\n{left_out(IN_NOTEBOOK, QUEUED)}\n\n{NO_M}",
    ),
}


@pytest.mark.parametrize(("sources", "expected"), PUSHED.values(), ids=PUSHED)
def test_a_variable_of_the_notebook(sources: list[str], expected: str) -> None:
    (program,) = lesson("%mcjax start", "%%mcjax\nfirst = 1", *sources, "%%mcjax\nm")
    text = body(program)
    if TOLD in text:  # before it are the comments for what the notebook alone did
        text = f"# %%\nfirst = 1\n\n{text[text.rindex('# %%', 0, text.index(TOLD)) :]}"
    assert text == f"# %%\nfirst = 1\n\n{expected}"


def test_temporary_folders_are_numbered_over_all_parts() -> None:
    imports = "import tempfile\nfrom tempfile import TemporaryDirectory\n"
    two = f"{imports}a = TemporaryDirectory(); b = tempfile.TemporaryDirectory()"
    push = "mcnb.current_cluster().push({'x': [a.name, b.name, c.name]})"
    first, second = lesson(
        two, f"c = TemporaryDirectory()\n{push}", "%%mcjax\nx",
        "%mcjax restart", "d = TemporaryDirectory()\nmcnb.current_cluster().push({'y': d.name})",
        push, "%%mcjax\nx, y",
    )  # fmt: skip
    for line in (
        "a = lasting_folder(0, new=True); b = lasting_folder(1, new=True)",
        "c = lasting_folder(2, new=True)",
    ):
        assert f"    {line}\n" in first.text
        assert f"    {line.replace(', new=True', '')}\n" in second.text
    # Only the part that makes a folder empties it.
    assert "    d = lasting_folder(3, new=True)\n" in second.text


FAILING = {
    "whatever defines a name is left": (
        ["%%mcjax\nimport math\nfrom os import path\na: int = 1\nclass C: pass\n"
         "async def f(): pass\n@C\ndef g(): pass\n1 / 0",
         "%%mcjax\nprint(math, path, a, C, f, g)"],
        "# %%\n# As it is meant to fail, only what later cells need is left:\n"
        "import math\nfrom os import path\na: int = 1\nclass C: pass\n"
        "async def f(): pass\n@C\ndef g(): pass\n# 1 / 0\n\n# %%\n"
        "print(math, path, a, C, f, g)",
    ),
    "a function that nobody needs goes with its decorator": (
        ["%%mcjax\ny = 1\n@wraps(y)\ndef g(): pass\n1 / 0", "%%mcjax\nprint(y)"],
        "# %%\n# As it is meant to fail, only what later cells need is left:\n"
        "y = 1\n# @wraps(y)\n# def g(): pass\n# 1 / 0\n\n# %%\nprint(y)",
    ),
    "a name that was set again before it failed": (
        ["%%mcjax\ny = 1\ny = 2\n1 / 0", "%%mcjax\nprint(y)"],
        "# %%\n# As it is meant to fail, only what later cells need is left:\n"
        "# y = 1\ny = 2\n# 1 / 0\n\n# %%\nprint(y)",
    ),
    "a new name of its last statement": (
        ["%%mcjax\ny = 1", "%%mcjax\nprint(y)"],
        "# %%\n# As it is meant to fail, only what later cells need is left:\n"
        "y = 1\n\n# %%\nprint(y)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "expected"), FAILING.values(), ids=FAILING)
def test_of_a_cell_that_fails(sources: list[str], expected: str) -> None:
    (program,) = lesson(*sources, fails=0)
    assert body(program) == expected


def test_nobody_knows_whether_a_statement_that_failed_set_a_name_again() -> None:
    (program,) = lesson(X, "%%mcjax\nx = 1 / 0", "%%mcjax\nprint(x)", fails=1)
    assert body(program) == (
        f"# %%\nx = 1\n\n{left_out('it is meant to fail', 'x = 1 / 0')}\n\n"
        f"{left_out('it needs x, which nothing before it sets', 'print(x)')}"
    )


def test_a_function_finds_what_was_set_when_it_was_made() -> None:
    """Although a later cell, which is left out, sets the name again."""
    make = "%%mcjax\nw = 1\ndef g(): return w"
    (program,) = lesson(make, "%%mcjax\nw = 2", tagged=1)
    assert body(program) == (
        f"# %%\nw = 1\ndef g(): return w\n\n{left_out('it has the tag no-script', 'w = 2')}"
    )
    (program,) = lesson(f"{make}\n1 / 0", "%%mcjax\nw = 2", "%%mcjax\ng()", fails=0, tagged=1)
    assert "\nw = 1\ndef g(): return w\n# 1 / 0\n" in program.text


def test_new_processes_have_none_of_the_old_names() -> None:
    push = "x = 3\nmcnb.current_cluster().push({'m': x})"
    _, second = lesson(X, "%mcjax restart", push, "%%mcjax\nm")
    assert "\nm = from_process_0(lambda: x)\n" in second.text


def test_names_of_each_module_are_known() -> None:
    (program,) = lesson("%%mcjax\nprint(__file__, __name__, len)")
    assert body(program) == "# %%\nprint(__file__, __name__, len)"
