"""From a lesson's cells to a plain program: each construct, in exact text; and the command line."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.lib.pretty import pretty

from mcnb.cli.main import main
from mcnb.errors import McnbError
from mcnb.export.needs import names_of
from mcnb.export.source import display_last, indent
from mcnb.export.write import Program, export


def lesson(*sources: str, fails: int | None = None, tagged: int | None = None) -> list[Program]:
    """Return the programs of a lesson; text that begins with "md:" is Markdown."""
    cells = []
    for number, source in enumerate(sources):
        text = source.startswith("md:")
        tags = ["raises-exception"] if number == fails else []
        tags += ["no-script"] if number == tagged else []
        cells.append(
            SimpleNamespace(
                cell_type="markdown" if text else "code",
                source=source.removeprefix("md:"),
                metadata={"tags": tags},
            )
        )
    return export(cells, "mine.md", "mine.py")


def body(program: Program) -> str:
    """Return a program's cells."""
    text = program.text
    return text[text.index("# %%") : text.index("\n# %% The end")].rstrip()


X = "%%mcjax\nx = 1"
FIRST = "01_hello_controllers"
CELLS = {
    "code stays as it is": (
        [f"{X}  # one\nprint(x)"],
        "# %%\nx = 1  # one\nprint(x)",
    ),
    "the last expression is shown": (
        [X, "%%mcjax\nx\nx,\\\n-x # both"],
        "# %%\nx = 1\n\n# %%\nx\ndisplay((x,\\\n-x)) # both",
    ),
    "in brackets, with other letters before it": (
        ["%%mcjax\né = 1; (é\n + 1)"],
        "# %%\né = 1; display((é\n + 1))",
    ),
    "a semicolon hides it": ([f"{X}\nx;  # hidden"], "# %%\nx = 1\nx;  # hidden"),
    "what returns nothing is not shown": (
        ["%%mcjax\ndef f(): print(1)\nf()"],
        "# %%\ndef f(): print(1)\nf()",
    ),
    "one process, and some": (
        [X, "%%mcjax -p 1\nx", "%%mcjax -p 0,2-3 --unchecked --timeout 5\ntext = '''a\n  b'''"],
        "# %%\nx = 1\n\n# %%\nif jax.process_index() == 1:\n    display(x)\n\n"
        "# %%\nif jax.process_index() in (0, 2, 3):\n    text = '''a\n  b'''",
    ),
    "all of them by name": (["%%mcjax -p 0-3\nx = 1"], "# %%\nx = 1"),
    "a star is allowed in a condition": (
        ["%%mcjax -p 0\nfrom math import *\npi", "%%mcjax\ncos(0)"],
        "# %%\nif jax.process_index() == 0:\n    from math import *\n    display(pi)\n\n"
        "# %%\ndisplay(cos(0))",
    ),
    "options that make no sense": (
        [X, "%%mcjax -p 9\nx"],
        "# %%\nx = 1\n\n"
        "# %%\n# Left out, as its options make no sense:\n#     %%mcjax -p 9\n#     x",
    ),
    "lines of IPython": (
        ["%%mcjax\n%matplotlib inline\n!ls\nx = 3\nx?\n%timeit x\nx % 2"],
        "# %%\n# %matplotlib inline\n# !ls\nx = 3\n# x?\n# %timeit x\ndisplay(x % 2)",
    ),
    "what IPython times": (
        ["%%mcjax\n%%time\nx = 1", "%%mcjax\ny = %time x + 1\n%time\n%time x + y"],
        "# %%\nx = 1\n\n# %%\ny = x + 1\n# %time\ndisplay(x + y)",
    ),
    "a cell that is timed, with a statement before it": (
        ["%%mcjax -p 1\n\n%%time x = 1\nx"],
        "# %%\nif jax.process_index() == 1:\n    x = 1\n    display(x)",
    ),
    "what a line of IPython sets is not there": (
        ["%%mcjax\nfiles = !ls\nn = 1", "%%mcjax\nlen(files)"],
        "# %%\n# files = !ls\nn = 1\n\n"
        "# %%\n# Left out, as it needs files, which nothing before it sets:\n#     len(files)",
    ),
    "a magic of a whole cell": (
        [X, "%%mcjax\n%%bash\nls"],
        "# %%\nx = 1\n\n# %%\n# Left out, as it is not plain Python:\n#     %%bash\n#     ls",
    ),
    "await": (
        [X, "%%mcjax\nawait f(x)"],
        "# %%\nx = 1\n\n"
        "# %%\n# Left out, as only a notebook can await outside a function:\n#     await f(x)",
    ),
    "mcnb's pictures": (
        ["%%mcjax\nimport os, mcnb\nmcnb.show(os)\nfor x in 1, 2:\n    mcnb.show(\n        x)"],
        "# %%\nimport os\n# mcnb.show(os)\nfor x in 1, 2:\n"
        "    pass\n    # mcnb.show(\n    #     x)",
    ),
    "what stands before a picture is not shown": (
        ["%%mcjax\nfrom mcnb import show\n1 + 1\nshow(1)"],
        "# %%\n# from mcnb import show\n1 + 1\n# show(1)",
    ),
    "nothing but pictures": (
        [X, "%%mcjax\nimport mcnb\nmcnb.show(x)"],
        "# %%\nx = 1\n\n"
        "# %%\n# Left out, as it only draws pictures:\n#     import mcnb\n#     mcnb.show(x)",
    ),
    "mcnb's results": (
        ["%%mcjax\nimport mcnb\nx = 1", "%%mcjax\np = mcnb.picture(x)", "%%mcjax\nprint(p)"],
        "# %%\n# import mcnb\nx = 1\n\n# %%\n# Left out, as it needs mcnb:\n"
        "#     p = mcnb.picture(x)\n\n"
        "# %%\n# Left out, as it needs p, which nothing before it sets:\n#     print(p)",
    ),
    "cells of the notebook": (
        ["%load_ext mcnb\n%mcjax start", X, 'mcnb.check("1")', "%mcjax timeline", "%mcjax stop"],
        '# %%\nx = 1\n\n# %%\n# Left out, as it runs in the notebook:\n#     mcnb.check("1")\n\n'
        "# %%\n# Left out, as it runs in the notebook:\n#     %mcjax timeline",
    ),
    "a function that needs what is left out": (
        [X, "%%mcjax\nawait (y := f())", "%%mcjax\ndef g(): return y", "%%mcjax\ng()"],
        "# %%\nx = 1\n\n# %%\n# Left out, as only a notebook can await outside a function:\n"
        "#     await (y := f())\n\n"
        "# %%\n# Left out, as it needs y, which nothing before it sets:\n"
        "#     def g(): return y\n\n"
        "# %%\n# Left out, as it needs g, which nothing before it sets:\n#     g()",
    ),
    "text": (
        ["md:# Title\n\n## A\n\nNothing.\n\n## B\n\nBoth.\n\n**Predict:** *which* `x*y*z`?", X],
        "# %% B\n# Predict: which `x*y*z`?\nx = 1",
    ),
    "a variable of the notebook": (
        [
            "import mcnb\nn = 3\nmcnb.current_cluster().push({'m': n, 'unused': 1})",
            "%%mcjax\nm + 1",
        ],
        "# %%\n# Process 0 does what the notebook did, and tells the others.\n"
        "if jax.process_index() == 0:\n    # import mcnb\n    n = 3\n"
        "    # mcnb.current_cluster().push({'m': n, 'unused': 1})\n"
        "m = from_process_0(lambda: n)\n\n# %%\ndisplay(m + 1)",
    ),
    "one that would take a name of the processes": (
        ["x = 3\nmcnb.current_cluster().push({'m': x})", X, "%%mcjax\nm"],
        "# %%\n# Left out, as it runs in the notebook:\n#     x = 3\n"
        "#     mcnb.current_cluster().push({'m': x})\n\n# %%\nx = 1\n\n"
        "# %%\n# Left out, as it needs m, which nothing before it sets:\n#     m",
    ),
}


@pytest.mark.parametrize(("sources", "expected"), CELLS.values(), ids=CELLS)
def test_cells(sources: list[str], expected: str) -> None:
    (program,) = lesson(*sources)
    assert body(program) == expected
    compile(program.text, "mine.py", "exec")


def test_of_a_cell_that_fails_what_others_need_is_left() -> None:
    fails = "%%mcjax\nn = 2\nm = n + 1\nold = 3\nif n:\n    x = 5\nf(m)"
    (program,) = lesson(X, fails, "%%mcjax\nm", "%%mcjax\nx", fails=1)
    assert body(program) == (
        "# %%\nx = 1\n\n"
        "# %%\n# As it is meant to fail, only what later cells need is left:\n"
        "n = 2\nm = n + 1\n# old = 3\n# if n:\n#     x = 5\n# f(m)\n\n"
        "# %%\ndisplay(m)\n\n"
        # Nobody can tell whether the cell that failed came to it.
        "# %%\n# Left out, as it needs x, which nothing before it sets:\n#     x"
    )
    assert program.left_out == {
        1: "it is meant to fail",
        3: "it needs x, which nothing before it sets",
    }


def test_what_a_kept_function_reads_is_kept() -> None:
    fails = "%%mcjax\nw = 3\ndef g(): return w\ng() / 0"
    (program,) = lesson(fails, "%%mcjax\ng()", fails=0)
    assert "\nw = 3\ndef g(): return w\n# g() / 0\n" in program.text
    assert program.text.count("\ndisplay(g())\n") == 1


def test_more_processes_than_a_line_holds() -> None:
    (program,) = lesson("%mcjax start -n 64", X)
    assert "for i in $(seq 0 63); do python mine.py" in program.text


def test_a_cell_with_the_tag() -> None:
    (program,) = lesson(X, "%%mcjax\nprint(x)", tagged=1)
    assert body(program).endswith("# Left out, as it has the tag no-script:\n#     print(x)")


def test_a_cell_that_is_left_out_hides_an_older_definition() -> None:
    (program,) = lesson(
        "%%mcjax\nx = 1", "%%mcjax\nx = 2", "%%mcjax\nprint(x)", "%%mcjax\nx = 3",
        "%%mcjax\nprint(x)", tagged=1,
    )  # fmt: skip
    assert body(program) == (
        "# %%\nx = 1\n\n# %%\n# Left out, as it has the tag no-script:\n#     x = 2\n\n"
        "# %%\n# Left out, as it needs x, which nothing before it sets:\n#     print(x)\n\n"
        "# %%\nx = 3\n\n# %%\nprint(x)"
    )


def test_each_start_begins_a_program() -> None:
    disk = "import tempfile\ndisk = tempfile.TemporaryDirectory()\n"
    push = "mcnb.current_cluster().push({'folder': disk.name})"
    first, second, third = lesson(
        "%mcjax start -n 2 -d 3", disk + push, "%%mcjax\nfolder", "%mcjax restart --replay", X,
        "%mcjax stop\n%mcjax start -n 3", push, "%%mcjax\nfolder", "%mcjax restart", X,
    )  # fmt: skip
    sizes = [(p.name, p.options.processes, p.options.devices_per_process) for p in (first, second)]
    assert sizes == [("mine.py", 2, 3), ("mine_2.py", 3, 2)]
    assert "\n    disk = lasting_folder(0, new=True)\n" in first.text
    assert "\n    disk = lasting_folder(0)\n" in second.text
    assert "disk" not in third.text
    removes = 'shutil.rmtree(pathlib.Path(__file__).resolve().with_name("mine_files")'
    assert [removes in program.text for program in (first, second, third)] == [False, False, True]
    order = "Part 2 of 3, which run in this order: mine.py, mine_2.py, mine_3.py. In a shell"
    assert order in " ".join(second.text.split())
    (alone,) = lesson(disk + push, "%%mcjax\nfolder")
    assert "    disk = tempfile.TemporaryDirectory()\n" in alone.text


def test_the_head() -> None:
    (program,) = lesson(
        "%mcjax start -n 2 -d 1 --env JAX_ENABLE_X64=1",
        "%%mcjax\nfrom __future__ import annotations\ndisplay = 2\ndisplay",
        "md:# A title",
    )
    head = program.text
    assert head.startswith('"""A title\n\nFor 2 processes x 1 CPU device, without mcnb. In a shell')
    assert "for i in 0 1; do python mine.py localhost:10000 $i 2 & done; wait\n" in head
    assert head.index("from __future__ import annotations\n") < head.index("import os\n")
    assert head.index('os.environ["JAX_ENABLE_X64"] = "1"\n') < head.index("\nimport jax\n")
    assert 'jax.config.update("jax_num_cpu_devices", 1)\n' in head
    assert "def show_value(*values):" in head
    assert (
        body(program)
        == "# %%\n# from __future__ import annotations\ndisplay = 2\nshow_value(display)"
    )
    compile(head, "mine.py", "exec")


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        (["1 + 1"], "mine.md: no cell that a plain program can run begins with %%mcjax"),
        (
            ["%mcjax start -n 0", X],
            "Cell 1 of the lesson: -n 0: the number of processes is a whole number from 1 to 512. "
            "For example: -n 4",
        ),
    ],
)
def test_no_program(sources: list[str], sentence: str) -> None:
    with pytest.raises(McnbError) as refused:
        lesson(*sources)
    assert str(refused.value) == sentence


def test_names() -> None:
    names = names_of(
        "import a.b as c, d.e\nx += 1\nclass C(Base):\n    y = z\n    w = y\n"
        "v = [i + j for i in k for j in i if m]\nmatch n:\n    case {'o': p, **q}: pass\n"
        "try: pass\nexcept E as r: r\nf = lambda s=t: s + late\n(walrus := 1)\n"
        "async def g(u: int, *a: A, **b: B) -> U:\n    global made\n    made = later\n"
    )
    assert names.needs == {"x", "Base", "z", "k", "m", "n", "E", "t", "int", "A", "B", "U"}
    assert names.later == {"late", "later"}
    assert names.defines == {*"cdxCvpqrfg", "walrus", "made"}


LINES = st.sampled_from(
    ["x = 1", "", "# note", "if x:\n    x = 2", 's = """a\n  b\n"""', "t = f'''{\nx}\n  c'''",
     "l = [\n  1,\n]", "u = 'a\\\n b'", "def f():\n    '''d\n    e'''\n    return x"]
)  # fmt: skip


@given(st.lists(LINES, min_size=1, max_size=6).map("\n".join))
def test_what_is_indented_means_the_same(code: str) -> None:
    code = f"x = 0\n{code}"
    (condition,) = ast.parse(f"if True:\n{indent(code)}").body
    assert isinstance(condition, ast.If)
    assert [*map(ast.dump, condition.body)] == [*map(ast.dump, ast.parse(code).body)]


# Without what pprint, but not IPython, takes for a place where a long text may be broken.
TEXTS = st.text(st.characters(exclude_categories=("Zs", "Zl", "Zp", "Cc", "Cs")), max_size=9)
VALUES = st.one_of(st.integers(), st.floats(allow_nan=False), TEXTS, st.booleans())
FLAT = st.one_of(
    VALUES,
    st.lists(VALUES, max_size=30),
    st.lists(VALUES, max_size=30).map(tuple),
    st.dictionaries(TEXTS, VALUES, max_size=20),
    st.sets(st.one_of(st.integers(), TEXTS), max_size=30),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=30),
)


@given(FLAT)
def test_a_value_is_shown_as_a_notebook_shows_it(value: object) -> None:
    text = lesson(X, "%%mcjax\nx")[0].text
    function = text[text.index("def display(") : text.index("# %%")]
    names: dict[str, object] = {}
    exec(f"import pprint\n{function}", names)
    names["x"] = value
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(display_last("x", "display"), names)
    assert out.getvalue() == f"{pretty(value)}\n"


SOURCES = st.sampled_from(sorted({source for sources, _ in CELLS.values() for source in sources}))


@given(st.lists(SOURCES, min_size=1, max_size=6), st.integers(0, 5))
def test_whatever_the_cells_are_the_programs_are_python(sources: list[str], fails: int) -> None:
    with contextlib.suppress(McnbError):  # nothing in it can run
        for program in lesson(*sources, fails=fails):
            compile(program.text, program.name, "exec", dont_inherit=True)
            assert "import mcnb\n" not in re.sub(r"#.*", "", program.text)
            assert program.text.count("\n# %%") == len(program.cells) + 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "",
            ": the lesson is missing. For example: mcnb script 01_hello_controllers.md -o hello.py",
        ),
        (
            "a.md b.py",
            " a.md b.py: it writes one lesson at a time. Its file follows -o: mcnb script a.md -o "
            "b.py",
        ),
        ("-x", " -x: unknown option. Options: -o FILE.py, --help"),
        ("a.md -o", " -o: a file is missing. Say: -o hello.py"),
        ("toy.py", " toy.py: it is not a notebook. Expected a file that ends in .md or .ipynb"),
        (
            f"{FIRST}.md -o taken.py",
            " -o taken.py: taken.py already exists and was not written by mcnb script. Choose "
            "another "
            "name, or remove it",
        ),
        (
            f"{FIRST} -o no/x.py",
            " -o no/x.py: no/x.py is in a folder that does not exist. Name a file: -o hello.py",
        ),
        (f"{FIRST} -o .", " -o .: . is a folder. Name a file: -o hello.py"),
        (
            "09_data_and_checkpoints",
            " 09_data_and_checkpoints.md: it starts its processes 3 times, and is exported as "
            "that many programs. Name an output file: mcnb script 09_data_and_checkpoints.md -o "
            "09_data_and_checkpoints.py",
        ),
    ],
)
def test_nonsense_gets_a_sentence(
    words: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.py").touch()
    Path("taken.py").write_text("print(1)\n")
    assert main(["script", *words.split()]) == 2
    assert capsys.readouterr() == ("", f"mcnb script{sentence}\n")
    assert Path("taken.py").read_text() == "print(1)\n"


def test_an_unknown_lesson_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "11_none.md"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "mcnb script 11_none.md: there is no such file. The course has: 01_hello"
    )


def test_a_file_is_written_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["script", "09_data_and_checkpoints.ipynb", "-o", "nine.py"]) == 0
        assert capsys.readouterr().out == (
            "Wrote nine.py, for 4 processes x 2 CPU devices; 2 cells are left out "
            "(comments in the file say why)\n"
            "Wrote nine_2.py, for 2 processes x 2 CPU devices\n"
            "Wrote nine_3.py, for 4 processes x 2 CPU devices\n"
        )
    assert main(["script", "01_hello_controllers", "-o", "-"]) == 0
    out = capsys.readouterr().out
    assert out.startswith('"""01 · Hello, controllers\n')
    assert "for i in 0 1 2 3; do python 01_hello_controllers.py localhost" in out
    compile(out, "out.py", "exec")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: mcnb script LESSON [-o FILE.py]\n")
