"""Lessons in the terminal: which are found, and what is printed of each cell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from mcnb import _lessons
from mcnb._lessons import find_lesson, read_notebook
from mcnb.errors import McnbError, OptionError
from mcnb.export import parse
from mcnb.export.parse import run_lesson
from mcnb.pods.topology import MISSING

LESSON = """# A lesson

Text.

## A part
"""


class Shell:
    """Executes no cell, but keeps where it was asked to; cells with "fail" in them fail."""

    def __init__(self) -> None:
        self.execution_count = 1
        self.ran: list[tuple[str, Path]] = []

    def run_cell(self, source: str, *, store_history: bool) -> SimpleNamespace:
        self.ran.append((source, Path.cwd()))
        self.execution_count += store_history
        return SimpleNamespace(success="fail" not in source)


def cell(source: str, *tags: str) -> str:
    told = f":tags: [{', '.join(tags)}]\n\n" if tags else ""
    return f"\n```{{code-cell}} ipython3\n{told}{source}\n```\n"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell()
    monkeypatch.setattr(parse, "_shell", lambda: shell)
    monkeypatch.setattr(parse, "has_compiler", lambda: False)
    return shell


def test_all_cells_in_the_lessons_folder(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.md"
    cells = [cell("a\nb"), cell("fail", "raises-exception"), cell("tpu", "needs-tpu"), cell("c")]
    path.write_text(LESSON + "".join(cells))
    before = Path.cwd()
    assert run_lesson(path) == 0
    assert [source for source, _ in shell.ran] == ["a\nb", "fail", "c"]
    assert {folder for _, folder in shell.ran} == {tmp_path.resolve()}
    assert Path.cwd() == before
    assert capsys.readouterr() == (
        "\n# A lesson\n\n## A part\n\nIn [1]: a\n        b\n\nIn [2]: fail\n\n"
        f"A cell is left out. {MISSING}\n\nIn [3]: c\n",
        "",
    )


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (cell("fail"), ""),
        (cell("works", "raises-exception"), "This cell is meant to fail, and did not\n"),
    ],
)
def test_it_ends_at_a_cell_that_does_not_do_what_it_should(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str], first: str, said: str
) -> None:
    path = tmp_path / "mine.md"
    path.write_text(LESSON + first + cell("after"))
    assert run_lesson(path) == 1
    assert len(shell.ran) == 1
    assert capsys.readouterr().err == f"{said}\n1 cell after this one did not run\n"


def test_where_a_lesson_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    course = tmp_path / "course"
    course.mkdir()
    for name in ("02_second.md", "01_first.md", "notes.md"):
        (course / name).touch()
    monkeypatch.setattr(_lessons, "find_lessons", lambda: course)
    monkeypatch.chdir(tmp_path)
    assert find_lesson(Path("01_first.md")) == course / "01_first.md"
    Path("01_first.md").touch()
    assert find_lesson(Path("01_first.md")) == Path("01_first.md")
    for words in ("03_third.md", "../course/02_second.md"):
        with pytest.raises(OptionError) as refused:
            find_lesson(Path(words), "script")
        assert str(refused.value) == (
            f"mcnb script {words}: there is no such file. The course has: 01_first.md, 02_second.md"
        )


def test_a_file_that_is_no_notebook(tmp_path: Path) -> None:
    path = tmp_path / "broken.ipynb"
    path.write_text("{")
    with pytest.raises(McnbError) as refused:
        read_notebook(path)
    assert str(refused.value).startswith(f"{path} can't be read as a notebook: ")
    assert "\n" not in str(refused.value)
