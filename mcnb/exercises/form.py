"""Ask a learner for a prediction, lock it, and compare it with what the next cell shows.

The form is a widget of the package anywidget, where somebody can answer it; elsewhere, the question
is text, and `mcnb.predict("01.a", 2)` answers it.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from mcnb.cluster import cluster as clusters
from mcnb.cluster.result import Result
from mcnb.errors import OptionError
from mcnb.exercises.checker import TICK
from mcnb.exercises.predictions import Prediction, predictions
from mcnb.notebook.live import somebody_looks
from mcnb.notebook.panel import data_of, is_available
from mcnb.notebook.saving import MARK

UNANSWERED = "This question was not answered. To answer it, run this cell again"
# What a form says of an answer that was sent, and of which nothing was heard for seconds.
NO_ANSWER = "No answer from the notebook kernel: it is busy, or was restarted. Run this cell again"


@functools.cache
def _widget_type() -> Any:
    import anywidget
    import traitlets

    here = Path(__file__).parent

    class McnbForm(anywidget.AnyWidget):
        _esm = (here / "form.js").read_text()
        _css = (here / "form.css").read_text()
        question = traitlets.Unicode().tag(sync=True)
        choices = traitlets.List(traitlets.Unicode()).tag(sync=True)
        locked = traitlets.Bool().tag(sync=True)
        said = traitlets.Unicode().tag(sync=True)
        heard = traitlets.Int().tag(sync=True)
        no_answer = traitlets.Unicode(NO_ANSWER).tag(sync=True)

    return McnbForm


class _Form:
    """A question that was asked, in the output of its cell.

    Args:
        name: The question's name.
        asked: The question.
        shell: The notebook's shell, which runs the next cell.

    Attributes:
        locked: The learner's answer; empty while there is none.
    """

    def __init__(self, name: str, asked: Prediction, shell: Any) -> None:
        self.name = name
        self.locked = self._chosen = ""
        self._asked = asked
        self._shell = shell
        self._before = _newest()
        self._handle: Any = None
        self._widget: Any = None
        shell.events.register("post_run_cell", self._compare)

    @property
    def answer(self) -> str:
        """The learner's answer, locked or only chosen; empty if there is none."""
        return self.locked or self._chosen

    def show(self) -> None:
        """Show the question, or its answer if there is one, in the output of the running cell."""
        self._close()
        text = locked_text(self.locked) if self.locked else question_text(self.name, self._asked)
        data, metadata = {"text/plain": text}, {}
        if not self.locked and somebody_looks(self._shell) and is_available():
            asked = self._asked
            self._widget = _widget_type()(question=asked.asks, choices=[*asked.choices])
            self._widget.on_msg(lambda _widget, content, _: self._hear(content))
            data, metadata = data_of(self._widget, text), dict(MARK)
        self._handle = display(data, raw=True, metadata=metadata, display_id=True)

    def _hear(self, content: dict[str, Any]) -> None:
        if self.locked or self._widget is None:
            return
        if "chosen" in content:  # it counts, should the next cell be run without the button
            with contextlib.suppress(OptionError):
                self._chosen = self._asked.accept(content["chosen"])
            return
        try:
            self.locked = self._asked.accept(content.get("answer", ""))
        except OptionError as error:
            self._reply(str(error))
            return
        self._reply(locked_text(self.locked))

    def _reply(self, text: str) -> None:
        """Say something below the form, in answer to what was sent."""
        # The same text may be said twice, and values that are the same are not sent.
        with self._widget.hold_sync():
            self._widget.locked, self._widget.said = bool(self.locked), text
            self._widget.heard += 1

    def _compare(self, _: Any) -> None:
        """Compare the answer with the output of a cell that has ended, if it shows one."""
        before, self._before = self._before, _newest()
        if self._before is None or self._before is before:
            return
        shown = self._asked.answer_in(self._before.text())
        if shown is not None:
            self.end(outcome_text(self.answer, shown))

    def end(self, text: str) -> None:
        """Leave a text in place of the form."""
        global _open
        self._shell.events.unregister("post_run_cell", self._compare)
        _open = None
        self._handle.update({"text/plain": text}, raw=True)
        self._close()

    def _close(self) -> None:
        if self._widget is not None:
            self._widget.close()
            self._widget = None


# The question that waits for its answer or for the next cell.
_open: _Form | None = None


def _newest() -> Result | None:
    return None if clusters.current is None else clusters.current.last


def predict(name: str, answer: object = None) -> None:
    """Ask a question of the course, before the cell that shows the answer runs.

    The answer is locked, and compared with what the next cells on the processes show. In a notebook
    that somebody has open, the question is a form where widgets are drawn.

    Args:
        name: Lesson and letter of the question, such as `"01.a"`.
        answer: The number of the choice, from 1, or the number that is asked for; None to show the
            question.

    Raises:
        OptionError: There is no such question, or the answer is none of those that are possible.
    """
    global _open
    asked = predictions().get(name)
    if asked is None:
        raise OptionError(f"There is no question {name!r}. Questions: {', '.join(predictions())}")
    locked = "" if answer is None else asked.accept(answer)
    shell = get_ipython()
    if shell is None:
        print(question_text(name, asked))
        return
    if _open is not None and _open.name != name:
        _open.end(unshown_text(_open.answer))
    if _open is None:
        _open = _Form(name, asked, shell)
    _open.locked = _open.locked or locked
    _open.show()


def question_text(name: str, asked: Prediction) -> str:
    """Return a question as text, with how to answer it.

    Example:
        >>> print(question_text("00.a", Prediction("which?", {"this": None, "that": None})))
        Which?
          1  this
          2  that
        To answer: mcnb.predict("00.a", 1), with the number of your choice. Then run the next cell
    """
    choices = [f"  {i}  {choice}" for i, choice in enumerate(asked.choices, 1)]
    example, what = ("1", "the number of your choice") if choices else ("100", "your number")
    how = f'To answer: mcnb.predict("{name}", {example}), with {what}. Then run the next cell'
    return "\n".join([asked.asks, *choices, how])


def locked_text(answer: str) -> str:
    """Return what is said of an answer until the next cell has run.

    Example:
        >>> locked_text("32")
        'Your prediction: 32. It is locked; run the next cell'
    """
    return f"Your prediction: {answer}. It is locked; run the next cell"


def unshown_text(answer: str) -> str:
    """Return what is said of a question when the next one is asked before a cell has answered it.

    Args:
        answer: The learner's answer; empty if there is none.

    Example:
        >>> unshown_text("32")
        'Your prediction: 32. No cell has shown the answer'
    """
    return f"Your prediction: {answer}. No cell has shown the answer" if answer else UNANSWERED


def outcome_text(answer: str, shown: str) -> str:
    """Return how an answer compares with what a cell shows.

    Args:
        answer: The learner's answer; empty if there is none.
        shown: The answer that the cell shows.

    Example:
        >>> print(outcome_text("64", "32"))
        Your prediction: 64
        The cell shows:  32
    """
    if answer == shown:
        return f"{TICK} Your prediction is right: {answer}"
    if not answer:
        return f"The cell has run, without your prediction. It shows: {shown}"
    return f"Your prediction: {answer}\nThe cell shows:  {shown}"
