"""Predictions of the course: asked, locked, and compared with the next cell, as text and as a form.

The windows are left as files in build/screenshots, to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcnb.exercises import form
from mcnb.exercises.form import NO_ANSWER, UNANSWERED
from mcnb.exercises.predictions import predictions
from tests.conftest import Notebook, once
from tests.support.jupyterlab import IDLE, Lab, opened_lab

BYTES = """\
How many does each device hold with an empty spec?
To answer: mcnb.predict("03.f", 100), with your number. Then run the next cell
"""
LINES = """\
How many lines will you see?
  1  Four: each process prints one
  2  One: identical output is shown once
  3  None: only the notebook kernel can print
To answer: mcnb.predict("01.a", 1), with the number of your choice. Then run the next cell
"""
SHOWS_BYTES = '%%mcjax\nprint("of 128 B on each")'
SHOWN_BYTES = "[all 4] of 128 B on each\n"
RIGHT = "\x1b[32m✓\x1b[0m Your prediction is right: "


@pytest.fixture
def asking(notebook: Notebook) -> Iterator[Notebook]:
    notebook.run("import mcnb")
    yield notebook
    assert form._open is None, "the test leaves a question"


def test_a_prediction_is_locked_and_compared(asking: Notebook) -> None:
    assert asking.run('mcnb.predict("03.f")').stdout == BYTES
    locked = "Your prediction: 64. It is locked; run the next cell\n"
    assert asking.run('mcnb.predict("03.f", 64)').stdout == locked
    assert asking.run('mcnb.predict("03.f", 128)').stdout == locked
    assert asking.run('mcnb.predict("03.f")').stdout == locked
    # Neither a cell of the notebook kernel nor one that shows something else answers the question.
    assert asking.run("1").stdout.endswith("1\n")
    assert asking.run("%%mcjax\nprint('hello')").stdout == "[all 4] hello\n"
    assert asking.run(SHOWS_BYTES).stdout == (
        f"{SHOWN_BYTES}Your prediction: 64\nThe cell shows:  128\n"
    )
    assert asking.run(SHOWS_BYTES).stdout == SHOWN_BYTES


def test_a_prediction_that_is_right(asking: Notebook) -> None:
    assert asking.run('mcnb.predict("01.a")').stdout == LINES
    asking.run('mcnb.predict("01.a", 2)')
    assert asking.run('%%mcjax\nprint("there are 4")').stdout == (
        f"[all 4] there are 4\n{RIGHT}One: identical output is shown once\n"
    )
    # The same cell may have another output, if it was changed.
    asking.run('mcnb.predict("01.a", 2)')
    changed = '%%mcjax\nimport jax\nprint("there are", jax.process_index())'
    assert asking.run(changed).stdout.endswith(
        "Your prediction: One: identical output is shown once\n"
        "The cell shows:  Four: each process prints one\n"
    )


def test_an_error_answers_a_question(asking: Notebook) -> None:
    asking.run('mcnb.predict("04.i", "An error, on every process")')
    result = asking.run('%%mcjax\nraise ValueError("no")')
    assert result.error_in_exec is not None
    assert result.stdout.endswith(f"{RIGHT}An error, on every process\n")


def test_a_verdict_answers_a_question(asking: Notebook) -> None:
    asking.run('mcnb.predict("01.e", 1)')
    cell = """%%mcjax
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
x = jax.device_put(np.ones(8), NamedSharding(jax.make_mesh((8,), ("a",)), P("a")))
if jax.process_index() == 0:
    print(jnp.sum(x))
"""
    assert asking.run(cell).stdout.endswith(
        "Your prediction: Process 0 prints the sum\n"
        "The cell shows:  The cell fails, and says which process waits for which others\n"
    )


def test_a_cell_that_runs_before_there_is_an_answer(asking: Notebook) -> None:
    asking.run('mcnb.predict("03.f")')
    assert asking.run(SHOWS_BYTES).stdout == (
        f"{SHOWN_BYTES}The cell has run, without your prediction. It shows: 128\n"
    )


def test_a_question_that_comes_before_the_last_one_was_answered(asking: Notebook) -> None:
    asking.run('mcnb.predict("03.f")')
    assert asking.run('mcnb.predict("01.a")').stdout == f"{UNANSWERED}\n{LINES}"
    asking.run('%%mcjax\nprint("there are 4")')


def test_a_locked_answer_stays_when_the_next_question_is_asked(asking: Notebook) -> None:
    asking.run('mcnb.predict("03.f", 64)')
    kept = "Your prediction: 64. No cell has shown the answer\n"
    assert asking.run('mcnb.predict("01.a")').stdout == f"{kept}{LINES}"
    asking.run('%%mcjax\nprint("there are 4")')


def test_what_can_not_be_predicted(asking: Notebook) -> None:
    assert asking.error('mcnb.predict("99.a")') == (
        f"OptionError: There is no question '99.a'. Questions: {', '.join(predictions())}"
    )
    assert asking.error('mcnb.predict("01.a", 4)') == (
        "OptionError: An answer to this question is a number from 1 to 3, not 4"
    )
    assert asking.error('mcnb.predict("03.f", "many")') == (
        "OptionError: An answer to this question is a whole number, not 'many'"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.thorough("needs a browser")
@once
def test_forms_in_jupyterlab(theme: str, tmp_path: Path) -> None:
    """One is answered by the mouse, one by the keyboard; each runs the cell below it."""
    with opened_lab(tmp_path, theme, Lab) as opened:
        page = opened.page
        opened.write(
            "form.ipynb",
            "%load_ext mcnb\n%mcjax start -n 4 -d 1",
            'import mcnb\n\nmcnb.predict("01.a")',
            '%%mcjax\nimport jax\nprint("there are", jax.process_count(), "processes")',
            'mcnb.predict("03.f")',
            SHOWS_BYTES,
            'mcnb.predict("03.e")',
            '%%mcjax\nprint("each part lies on 2 devices")',
        )
        opened.open("form.ipynb")
        page.click(".jp-CodeCell >> nth=0 >> .jp-InputArea-editor")
        page.keyboard.press("Shift+Enter")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".mcnb-form >> text=How many lines will you see?")
        page.click(".mcnb-form >> text=One: identical output is shown once")
        opened.keep(f"form_{theme}")
        page.click(".mcnb-form >> text=Lock it, and run the next cell")
        page.wait_for_selector("text=Your prediction is right: One: identical output is shown once")
        page.wait_for_selector(".jp-CodeCell >> nth=2 >> text=[all 4] there are 4 processes")
        assert page.query_selector(".mcnb-form") is None
        # The cell that ran is the current one.
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".mcnb-form >> text=How many does each device hold")
        page.focus(".mcnb-form input")
        page.keyboard.type("64")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=/Your prediction: 64\\s+The cell shows: +128/")
        page.wait_for_selector(".jp-CodeCell >> nth=4 >> text=[all 4] of 128 B on each")
        # What was chosen counts without the button, too.
        page.keyboard.press("Escape")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+Enter")
        page.click(".mcnb-form >> text=Two, on each of two processes")
        page.click(".jp-CodeCell >> nth=6 >> .jp-InputArea-editor")
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector("text=Your prediction is right: Two, on each of two processes")
        page.wait_for_selector(IDLE)
        opened.keep(f"form_{theme}_compared")


@pytest.mark.thorough("needs a browser")
@once
def test_a_form_whose_kernel_was_restarted(tmp_path: Path) -> None:
    with opened_lab(tmp_path, "light", Lab) as opened:
        page = opened.page
        opened.write("form.ipynb", 'import mcnb\n\nmcnb.predict("01.a")')
        opened.open("form.ipynb")
        opened.choose("Run", "Run All Cells")
        page.click(".mcnb-form >> text=One: identical output is shown once")
        opened.choose("Kernel", "Restart Kernel…")
        page.click(".jp-mod-accept")
        page.wait_for_selector(IDLE)
        page.click(".mcnb-form button")
        page.wait_for_selector(f".mcnb-form >> text={NO_ANSWER}")
        opened.keep("form_without_an_answer")
