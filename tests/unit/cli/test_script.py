"""`mcnb script`: its command line, and the files that it writes or leaves alone."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from mcnb.cli.script import main
from mcnb.errors import OptionError

CELL = "```{code-cell} ipython3\n%%mcjax\nprint(1)\n```\n"
AGAIN = "```{code-cell} ipython3\n%mcjax stop\n%mcjax start -n 2\n```\n"
HEAD = "---\nkernelspec:\n  display_name: Python 3\n  name: python3\n---\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a lesson of one program, and one of two."""
    (tmp_path / "one.md").write_text(HEAD + CELL)
    (tmp_path / "two.md").write_text(HEAD + CELL + AGAIN + CELL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words", ["-o mine.py", "-o=mine.py", "-omine.py", "--output mine.py", "--output=mine.py"]
)
@pytest.mark.parametrize("lesson", ["one.md", "one"])
def test_the_file_is_named(
    words: str, lesson: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([lesson, *words.split()]) == 0
    written = (folder / "mine.py").read_text()
    assert capsys.readouterr().out == "Wrote mine.py, for 4 processes x 2 CPU devices\n"
    assert main([*words.split(), lesson]) == 0  # it overwrites its own
    assert (folder / "mine.py").read_text() == written


def test_without_a_file_the_program_goes_to_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["one.md"]) == 0
    program = capsys.readouterr().out
    assert main(["one.md", "-o", "one.py"]) == 0
    assert program == (folder / "one.py").read_text()
    capsys.readouterr()
    assert main(["one.md", "-o", "-"]) == 0
    assert capsys.readouterr().out == program


def test_a_name_stands_for_the_notebook_that_the_learner_works_in(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = nbformat.v4.new_code_cell("%%mcjax\nprint('mine')")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "one.ipynb")
    programs = {}
    for name in ("one", "one.ipynb", "one.md"):
        assert main([name]) == 0
        programs[name] = capsys.readouterr().out
    assert programs["one"] == programs["one.ipynb"] != programs["one.md"]
    assert "print('mine')" in programs["one"]


def test_several_programs_are_written_in_order(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["two.md", "-o", "mine.py"]) == 0
    assert capsys.readouterr().out == (
        "Wrote mine.py, for 4 processes x 2 CPU devices\n"
        "Wrote mine_2.py, for 2 processes x 2 CPU devices\n"
    )


THEIRS = "already exists and was not written by mcnb script. Choose another name, or remove it"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "two.md",
            "mcnb script two.md: it starts its processes 2 times, and is exported as that many "
            "programs. "
            "Name an output file: mcnb script two.md -o two.py",
        ),
        ("one.md -o theirs.py", f"mcnb script -o theirs.py: theirs.py {THEIRS}"),
        ("two.md -o their.py", f"mcnb script -o their_2.py: their_2.py {THEIRS}"),
        ("one.md -o", "mcnb script -o: a file is missing. Say: -o hello.py"),
        ("one.md -x", "mcnb script -x: unknown option. Options: -o FILE.py, --help"),
        (
            "-o mine.py",
            "mcnb script: the lesson is missing. For example: mcnb script 01_hello_controllers.md "
            "-o hello.py",
        ),
        (
            "one.md mine.py",
            "mcnb script one.md mine.py: it writes one lesson at a time. Its file follows -o: "
            "mcnb script one.md -o mine.py",
        ),
        (
            "theirs.py",
            "mcnb script theirs.py: it is not a notebook. Expected a file that ends in .md or "
            ".ipynb",
        ),
        (
            "one.md -o folder",
            "mcnb script -o folder: folder is a folder. Name a file: -o hello.py",
        ),
        (
            "one.md -o gone/mine.py",
            "mcnb script -o gone/mine.py: gone/mine.py is in a folder that does not exist. Name a "
            "file: -o hello.py",
        ),
    ],
)
def test_what_is_refused_writes_nothing(line: str, said: str, folder: Path) -> None:
    for name in ("theirs.py", "their_2.py"):
        (folder / name).write_text("print('theirs')\n")
    (folder / "folder").mkdir()
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(OptionError) as caught:
        main(line.split())
    assert str(caught.value) == said
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (folder / "theirs.py").read_text() == "print('theirs')\n"
