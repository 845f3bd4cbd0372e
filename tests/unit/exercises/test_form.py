"""The form of a question: what the kernel hears of it, and what it leaves in the notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.exercises import form
from mcnb.exercises.form import UNANSWERED, predict
from mcnb.notebook.saving import MARK, VIEW

LOCKED = "Your prediction: 64. It is locked; run the next cell"


class Widget:
    """A form, whose front end is the test."""

    made: list[Widget]

    def __init__(self, question: str, choices: list[str]) -> None:
        self.question, self.choices = question, choices
        self.heard = 0
        self.locked, self.said, self.model_id = False, "", f"model {len(Widget.made)}"
        self.closed = False
        self.send: Callable[[dict[str, Any]], None] = lambda _: None
        Widget.made.append(self)

    def on_msg(self, hear: Callable[[Any, Any, Any], None]) -> None:
        self.send = lambda content: hear(self, content, [])

    def close(self) -> None:
        self.closed = True

    def hold_sync(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Output:
    """The outputs of cells, each by the text that it has now."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.data: list[dict[str, Any]] = []

    def display(self, data: dict[str, Any], raw: bool, metadata: object, display_id: bool) -> Any:
        assert metadata == (MARK if VIEW in data else {})
        number = len(self.texts)
        self.texts.append(data["text/plain"])
        self.data.append(data)

        def update(data: dict[str, Any], raw: bool) -> None:
            self.texts[number], self.data[number] = data["text/plain"], data

        return SimpleNamespace(update=update)


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Output:
    """A notebook that somebody has open, in a front end that draws widgets."""
    output = Output()
    Widget.made = []
    events = SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None)
    monkeypatch.setattr(form, "get_ipython", lambda: SimpleNamespace(events=events))
    monkeypatch.setattr(form, "_widget_type", lambda: Widget)
    monkeypatch.setattr(form, "display", output.display)
    monkeypatch.setattr(form, "is_available", lambda: True)
    monkeypatch.setattr(form, "somebody_looks", lambda _: True)
    monkeypatch.setattr(form, "_newest", lambda: None)
    monkeypatch.setattr(form, "_open", None)
    return output


def test_a_form_has_the_question_as_text_for_a_notebook_that_is_opened_again(
    output: Output,
) -> None:
    predict("01.a")
    [data] = output.data
    assert VIEW in data
    assert data["text/plain"] == (
        "How many lines will you see?\n"
        "  1  Four: each process prints one\n"
        "  2  One: identical output is shown once\n"
        "  3  None: only the notebook kernel can print\n"
        'To answer: mcnb.predict("01.a", 1), with the number of your choice. Then run the next cell'
    )


def test_an_answer_is_locked(output: Output) -> None:
    predict("03.f")
    [widget] = Widget.made
    widget.send({"answer": "many"})
    assert (widget.locked, widget.said) == (
        False,
        "An answer to this question is a whole number, not 'many'",
    )
    widget.send({"answer": "64"})
    assert (widget.locked, widget.said) == (True, LOCKED)


def test_each_answer_is_answered(output: Output) -> None:
    """Else the form takes the kernel to be busy, or restarted."""
    predict("03.f")
    [widget] = Widget.made
    for answer, heard in (("many", 1), ("many", 2), ("64", 3)):
        widget.send({"answer": answer})
        assert widget.heard == heard
    widget.send({"chosen": "1"})
    assert widget.heard == 3


@pytest.mark.parametrize("kind", ["answer", "chosen"])
def test_an_answer_stays_when_the_next_question_is_asked(output: Output, kind: str) -> None:
    predict("03.f")
    Widget.made[0].send({kind: "64"})
    predict("01.a")
    assert output.texts[0] == "Your prediction: 64. No cell has shown the answer"
    assert [one.closed for one in Widget.made] == [True, False]


def test_a_question_without_an_answer_when_the_next_one_is_asked(output: Output) -> None:
    predict("03.f")
    Widget.made[0].send({"chosen": ""})
    predict("01.a")
    assert output.texts[0] == UNANSWERED
