"""The first page of the course, marked with what a learner has solved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.cli.lab import copy_lessons
from mcnb.cli.progress import Progress, is_sealed, marked, progress_in, sealed
from mcnb.exercises import exercises
from tests.conftest import ROOT

NOTEBOOKS = ROOT / "notebooks"
PAGE = (NOTEBOOKS / "README.md").read_text()
LESSONS = sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb"))
SOLVED = "\x1b[32m✓\x1b[0m Exercise {} is solved on all 4 processes.\nNext: ...\n"
ROWS = "| [01 One](01_one.ipynb) | to count |\n| [02 Two](02_two.ipynb) | to add |\n"


def stored(*outputs: str) -> str:
    """Return a notebook with a text and a cell for each output, as Jupyter stores them."""
    cells = [
        {
            "cell_type": "code",
            "source": "a cell",
            "outputs": [{"output_type": "stream", "text": said.splitlines(keepends=True)}],
        }
        for said in outputs
    ]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "text"}, *cells]})


def test_an_exercise_is_solved_if_an_output_of_its_lesson_says_so(tmp_path: Path) -> None:
    outputs = (SOLVED.format("01.1"), "Exercise 01.2 is not solved yet.\n", SOLVED.format("02.1"))
    (tmp_path / "01_one.ipynb").write_text(stored(*outputs))
    (tmp_path / "02_two-Copy1.ipynb").write_text(stored(SOLVED.format("02.1")))
    assert progress_in(tmp_path, ROWS) == {"01_one": Progress(1, 3), "02_two": Progress(0, 4)}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"cells": [3]}', '{"cells": [{"cell_type": "code"}]}', "\udcff"]
)
def test_in_what_is_not_a_notebook_nothing_is_solved(text: str, tmp_path: Path) -> None:
    (tmp_path / "01_one.ipynb").write_bytes(text.encode(errors="surrogateescape"))
    (tmp_path / "02_two.ipynb").mkdir()
    assert progress_in(tmp_path, ROWS) == {"01_one": Progress(0, 3), "02_two": Progress(0, 4)}


def test_every_lesson_has_a_row_and_exercises(tmp_path: Path) -> None:
    counts = {name: one.exercises for name, one in progress_in(tmp_path, PAGE).items()}
    names = [name[:2] for name in exercises()]
    assert counts == {lesson: names.count(lesson[:2]) for lesson in LESSONS}


def test_the_page_leads_on() -> None:
    solved = dict.fromkeys(LESSONS, Progress(3, 3))
    page = marked(PAGE, {**solved, "02_meshes": Progress(1, 4), "05_lockstep": Progress(0, 4)})
    assert "To go on, click on lesson 02." in page
    assert "| [01 Hello, controllers](01_hello_controllers.ipynb) ✓ | start processes" in page
    assert "| [02 Meshes](02_meshes.ipynb), 1 of 4 solved | make local" in page
    assert "| [05 Lockstep](05_lockstep.ipynb) | name the ways" in page
    assert page.count(" ✓ |") == len(LESSONS) - 2
    done = marked(PAGE, solved)
    assert "You have solved all exercises." in done
    assert done.count(" ✓ |") == len(LESSONS)
    assert marked(PAGE, dict.fromkeys(LESSONS, Progress(0, 3))) == PAGE
    assert "To begin, click on lesson 01." in PAGE


@given(st.text(), st.text(min_size=1))
def test_a_change_breaks_the_seal(page: str, more: str) -> None:
    assert is_sealed(sealed(page))
    assert not is_sealed(page)
    assert not is_sealed(more + sealed(page))
    assert not is_sealed(sealed(page) + more)


def test_the_copied_page_is_kept_up_to_date(tmp_path: Path) -> None:
    copy_lessons(NOTEBOOKS, tmp_path)
    page, lesson = tmp_path / "README.md", tmp_path / "03_shardings.ipynb"
    assert page.read_text() == sealed(PAGE)
    lesson.write_text(stored(SOLVED.format("03.2")))
    for _ in range(2):
        assert copy_lessons(NOTEBOOKS, tmp_path) == 1  # the lesson
        assert "[03 Shardings](03_shardings.ipynb), 1 of 4 solved |" in page.read_text()
    lesson.write_text(stored(*(SOLVED.format(f"03.{i}") for i in range(1, 5))))
    copy_lessons(NOTEBOOKS, tmp_path)
    assert "[03 Shardings](03_shardings.ipynb) ✓ |" in page.read_text()
    # A page of another version.
    page.write_text(sealed("The course as it was"))
    assert copy_lessons(NOTEBOOKS, tmp_path) == 1
    assert "[03 Shardings](03_shardings.ipynb) ✓ |" in page.read_text()
    assert {path.name for path in tmp_path.iterdir()} >= {"README.md", "toy.py"}
    assert not list(tmp_path.glob("tmp*"))


def test_a_changed_page_is_the_users(tmp_path: Path) -> None:
    copy_lessons(NOTEBOOKS, tmp_path)
    page, lesson = tmp_path / "README.md", tmp_path / "03_shardings.ipynb"
    page.write_text(mine := page.read_text() + "\nMy notes.\n")
    lesson.write_text(stored(SOLVED.format("03.2")))
    assert copy_lessons(NOTEBOOKS, tmp_path) == 2
    assert page.read_text() == mine
    page.rename(tmp_path / "mine.md")
    page.symlink_to("mine.md")
    (tmp_path / "mine.md").write_text(own := sealed("my page"))
    assert copy_lessons(NOTEBOOKS, tmp_path) == 2
    assert (tmp_path / "mine.md").read_text() == own


def test_marks_that_can_not_be_written_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_lessons(NOTEBOOKS, tmp_path)
    before = (tmp_path / "README.md").read_text()
    (tmp_path / "03_shardings.ipynb").write_text(stored(SOLVED.format("03.2")))

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert copy_lessons(NOTEBOOKS, tmp_path) == 1
    assert (tmp_path / "README.md").read_text() == before
