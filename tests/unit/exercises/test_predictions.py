"""Questions of the course, their answers, and where `mcnb lab` puts them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcnb.errors import OptionError
from mcnb.exercises.predictions import MARK, Prediction, predictions, with_forms
from mcnb.output.terminal import without_escapes
from tests.conftest import ROOT

QUESTIONS = predictions()
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
CELLS = {path.name[:2]: json.loads(path.read_text())["cells"] for path in NOTEBOOKS}


def text_of(cell: dict[str, Any]) -> str:
    """Return a cell's stored outputs as `Result.text` has them."""
    found = []
    for output in cell["outputs"]:
        if output["output_type"] == "error":
            found.append("\n".join(output["traceback"]) + "\n")
        elif "data" in output:
            found.append("".join(output["data"]["text/plain"]) + "\n")
        else:
            found.append("".join(output["text"]))
    return without_escapes("".join(found))


def place_of(name: str) -> int:
    """Return the position of the cell that asks a question."""
    (place,) = [
        i
        for i, cell in enumerate(CELLS[name[:2]])
        if cell["cell_type"] == "markdown" and QUESTIONS[name].question in "".join(cell["source"])
    ]
    return place


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_answered_by_the_output_of_the_next_cell(name: str) -> None:
    asked = QUESTIONS[name]
    cells = CELLS[name[:2]]
    place = place_of(name)
    assert MARK in "".join(cells[place]["source"])
    outputs = [
        text_of(cell)
        for cell in cells[place + 1 :]
        if cell["cell_type"] == "code" and "".join(cell["source"]).startswith("%%mcjax")
    ]
    # What a question is about may need a cell before, which shows nothing.
    answers = [asked.answer_in(output) for output in outputs[:2]]
    answer = answers[0] or answers[1]
    assert answer is not None
    assert asked.accept(answer) == answer
    if not asked.number:
        shown = outputs[0] if answers[0] else outputs[1]
        right = [c for c, p in asked.choices.items() if Prediction("", {c: p}).answer_in(shown)]
        assert right == [answer], "only one of the choices may be right"
        assert len(asked.choices) >= 2
    else:
        assert not asked.choices


def test_questions_are_in_the_order_of_the_lessons() -> None:
    for lesson in CELLS:
        names = [name for name in QUESTIONS if name.startswith(f"{lesson}.")]
        assert names == [f"{lesson}.{'abcdefghijklmnop'[i]}" for i in range(len(names))]
        assert names
        places = [place_of(name) for name in names]
        assert places == sorted({*places})


def test_the_right_answer_is_not_always_at_the_same_place() -> None:
    places: dict[int, int] = {}
    for name, asked in QUESTIONS.items():
        if not asked.number:
            cells = CELLS[name[:2]][place_of(name) + 1 :]
            outputs = [text_of(cell) for cell in cells if cell["cell_type"] == "code"]
            answer = next(filter(None, map(asked.answer_in, outputs)))
            at = list(asked.choices).index(answer)
            places[at] = places.get(at, 0) + 1
    assert max(places.values()) <= 0.5 * sum(places.values())


def test_a_form_is_below_its_question() -> None:
    cells = CELLS["03"]
    found = with_forms(cells, "03")
    forms = [cell for cell in found if cell not in cells]
    assert [cell for cell in found if cell in cells] == cells
    assert [cell["source"] for cell in forms[:2]] == [
        'import mcnb\n\nmcnb.predict("03.a")',
        'mcnb.predict("03.b")',
    ]
    assert len(forms) == sum(name.startswith("03.") for name in QUESTIONS)
    for form in forms:
        above = found[found.index(form) - 1]
        name = form["id"].removeprefix("predict-").replace("-", ".")
        assert QUESTIONS[name].question in "".join(above["source"])
    ids = [cell["id"] for cell in found]
    assert len({*ids}) == len(ids)


def test_what_is_no_lesson_stays_as_it_is() -> None:
    assert with_forms(CELLS["03"], "12") == CELLS["03"]
    assert with_forms([], "03") == []


@pytest.mark.parametrize(
    ("given", "answer"),
    [("one", "one"), (2, "two"), ("2", "two"), (" 1 ", "one")],
)
def test_an_answer_is_a_choice_or_its_number(given: object, answer: str) -> None:
    assert Prediction("?", {"one": None, "two": None}).accept(given) == answer


@pytest.mark.parametrize("given", [0, 3, -1, "three", "", None, 1.0, [1]])
def test_what_is_no_choice(given: object) -> None:
    with pytest.raises(OptionError) as raised:
        Prediction("?", {"one": None, "two": None}).accept(given)
    assert str(raised.value) == f"An answer to this question is a number from 1 to 2, not {given!r}"


@pytest.mark.parametrize(("given", "answer"), [(32, "32"), ("032", "32"), (-1, "-1"), ("0", "0")])
def test_a_number(given: object, answer: str) -> None:
    assert Prediction("?", number="(.)").accept(given) == answer


@pytest.mark.parametrize("given", [1.5, "many", "", None, True])
def test_what_is_no_number(given: object) -> None:
    with pytest.raises(OptionError) as raised:
        Prediction("?", number="(.)").accept(given)
    assert str(raised.value) == f"An answer to this question is a whole number, not {given!r}"


def test_an_output_that_answers_nothing() -> None:
    assert Prediction("?", number=r"(\d+) B").answer_in("none") is None
    assert Prediction("?", {"one": "1", "never": None}).answer_in("2") is None
