"""The panel of a running cell, and front ends that draw it or not."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcnb.exercises import form
from mcnb.notebook import panel, places
from mcnb.notebook.live import LiveView
from mcnb.notebook.panel import BUTTONS, INSTEAD, MOST_QUESTIONS, NOBODY_LATE, InPanel
from mcnb.notebook.places import View
from mcnb.notebook.saving import MARK, VIEW
from mcnb.notebook.strips import WORDS

SHOWN = View(
    ("[all 4] step 0",),
    ("All 4 processes have been running for 2 s", "[0-3] line 4"),
    {0: "pxj", 1: "pxj", 2: "ppp", 3: "pxw"},
    0.25,
    {2: 0.5},
)


class Widget:
    """A widget, whose front end is the test."""

    made: list[Widget]

    def __init__(self, view: Any, buttons: Any, asks: bool) -> None:
        self.view, self.buttons, self.asks = view, buttons, asks
        self.answer, self.model_id = "", f"model {len(Widget.made)}"
        self.closed, self.comm = False, None
        self.say: Callable[[str], None] = lambda _: None
        Widget.made.append(self)

    def on_msg(self, hear: Callable[[Any, Any, Any], None]) -> None:
        self.say = lambda kind: hear(self, {"kind": kind}, [])

    def close(self) -> None:
        self.closed = True

    def hold_sync(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.fixture(autouse=True)
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is displayed and cleared in the output of a cell."""
    shown: list[Any] = []

    class Handle:
        def update(self, data: Any, raw: bool, metadata: Any = None) -> None:
            assert (VIEW in data) == (metadata == MARK)
            shown.append(("update", data))

    def display(data: Any, raw: bool, metadata: Any = None, display_id: bool = False) -> Handle:
        assert (VIEW in data) == (metadata == MARK)
        shown.append(("display", data))
        return Handle()

    Widget.made = []
    monkeypatch.setattr(panel, "_front_end", panel._FrontEnd())
    monkeypatch.setattr(panel, "_widget_type", lambda: Widget)
    monkeypatch.setattr(panel, "display", display)
    monkeypatch.setattr(places, "display", display)
    monkeypatch.setattr(places, "clear_output", lambda: shown.append("clear"))
    return shown


def in_another_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def model(data: Any) -> str:
    return str(data[VIEW]["model_id"])


def in_panel() -> InPanel:
    return InPanel(4, lambda: pressed.append("stop"), lambda: "[all 4] In[1], line 1: f()")


pressed: list[str] = []


@pytest.fixture
def drawn() -> None:
    """A front end that draws widgets, and answers when the cell has ended."""
    in_panel().show("Starting 4 processes …")
    Widget.made[0].say("here")


def test_a_front_end_that_draws_no_widgets(outputs: list[Any]) -> None:
    for _ in range(2 * MOST_QUESTIONS):
        place = in_panel()
        place.draw(SHOWN)
        place.draw(SHOWN)
        place.remove()
    texts = [one[1]["text/plain"] for one in outputs if one != "clear"]
    assert texts.count(SHOWN.text) == 4 * MOST_QUESTIONS
    assert texts.count("") == len(Widget.made) == MOST_QUESTIONS
    assert all(one.asks and not one.closed for one in Widget.made)


def test_a_front_end_that_answers_in_the_middle_of_a_cell(outputs: list[Any]) -> None:
    place = in_panel()
    place.draw(SHOWN)
    Widget.made[0].say("here")
    place.draw(SHOWN)
    place.draw(SHOWN)
    assert [(how, data["text/plain"]) for how, data in outputs] == [
        ("display", SHOWN.text),
        ("display", ""),
        ("update", ""),
        ("update", INSTEAD),
    ]
    assert [one.asks for one in Widget.made] == [False, False]


def test_a_widget_that_can_not_be_made_leaves_its_place_to_text(
    drawn: None, outputs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise TypeError("traitlets has changed")

    outputs.clear()
    place = in_panel()
    view = LiveView(4, place)
    view.show("The processes are being restarted …")
    monkeypatch.setattr(panel, "_widget_type", fails)
    with pytest.raises(TypeError):
        place.draw(SHOWN)
    view._in_place(lambda place: place.draw(SHOWN))
    view.remove()
    assert outputs == [
        ("display", {"text/plain": "The processes are being restarted …"}),
        ("update", {"text/plain": SHOWN.text}),
        "clear",
    ]


@pytest.mark.parametrize("error", ["ImportError", "TypeError"])
def test_a_package_that_does_not_import_is_not_used(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "anywidget.py").write_text(f"raise {error}('no traitlets')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "anywidget", raising=False)
    panel.is_available.cache_clear()
    try:
        assert not panel.is_available()
    finally:
        panel.is_available.cache_clear()


def test_buttons_are_drawn_where_they_work(drawn: None) -> None:
    """Where a message is handled by the main thread, it waits until the cell has ended."""
    in_panel().draw(SHOWN)
    assert Widget.made[1].buttons == {}
    in_another_thread(lambda: Widget.made[0].say("here"))
    Widget.made[0].say("here")
    in_panel().draw(SHOWN)
    assert Widget.made[2].buttons == BUTTONS


def test_a_panel_takes_its_place_and_leaves_it(drawn: None, outputs: list[Any]) -> None:
    outputs.clear()
    place = in_panel()
    place.show("The processes are being restarted …")
    place.draw(SHOWN)
    place.draw(View((), ("All 4 processes have been running for 3 s",)))
    [_, widget] = Widget.made
    assert widget.view["progress"] == ["All 4 processes have been running for 3 s"]
    place.remove()
    [first, (update, data), last] = outputs
    assert first == ("display", {"text/plain": "The processes are being restarted …"})
    assert (update, model(data), data["text/plain"]) == ("update", "model 1", INSTEAD)
    assert last == "clear"


def test_a_panel_below_other_output_leaves_that(drawn: None, outputs: list[Any]) -> None:
    outputs.clear()
    place = InPanel(4, lambda: None, lambda: "", below=True)
    place.draw(SHOWN)
    place.remove()
    assert [how for how, _ in outputs] == ["display", "update"]
    assert outputs[-1] == ("update", {"text/plain": ""})
    outputs.clear()
    place = InPanel(4, lambda: None, lambda: "", below=True)
    place.draw(SHOWN)
    place.simpler().remove()
    assert outputs[-1] == ("update", {"text/plain": ""})


def test_what_stays_for_a_page_that_was_opened_while_the_cell_ran(drawn: None) -> None:
    """It asks for the panel when the cell has ended: until the next one ends, it is there."""
    place = in_panel()
    place.draw(SHOWN)
    [_, first] = Widget.made
    first.say("late")
    place.remove()
    assert (first.view["progress"], first.view["rows"]) == ([*panel.ENDED.progress], [])
    assert (first.answer, first.buttons) == ("", {})
    place.draw(SHOWN)
    second = Widget.made[2]
    assert [first.closed, second.closed] == [False, False]
    place.remove()
    assert [first.closed, second.closed] == [True, False]


def test_a_prompt_of_a_debugger_takes_the_place_of_a_panel(drawn: None, outputs: list[Any]) -> None:
    place = in_panel()
    place.draw(SHOWN)
    place.leave("process 2 (pdb) \n")
    assert outputs[-1] == ("update", {"text/plain": "process 2 (pdb) "})
    place.draw(SHOWN)  # the cell goes on: a new panel below
    assert outputs[-1][0] == "display"
    assert (Widget.made[2].view["rows"], Widget.made[2].closed) == (
        [("[0]", "pxj"), ("[1]", "pxj"), ("[2]", "ppp"), ("[3]", "pxw")],
        False,
    )


def test_what_a_panel_holds(drawn: None) -> None:
    in_panel().draw(SHOWN)
    held = dict(Widget.made[1].view)
    assert isinstance(held.pop("number"), int)
    assert held == {
        "lines": ["[all 4] step 0"],
        "progress": ["All 4 processes have been running for 2 s", "[0-3] line 4"],
        "rows": [("[0]", "pxj"), ("[1]", "pxj"), ("[2]", "ppp"), ("[3]", "pxw")],
        "period_s": 0.25,
        "longest": 240,
        "running": True,
    }


def test_each_draw_is_a_message(drawn: None) -> None:
    """Equal values are not sent, and a page without news says that the kernel is gone."""
    place = in_panel()
    numbers = []
    for _ in range(3):
        place.draw(SHOWN)
        numbers.append(Widget.made[1].view["number"])
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


def test_many_processes_share_strips(drawn: None) -> None:
    rows = {k: "pj" if k % 2 else "pp" for k in range(1000)}
    InPanel(1000, lambda: None, lambda: "").draw(View((), (), rows, 0.25))
    names = [name for name, _ in Widget.made[1].view["rows"]]
    assert len(names) == 2
    assert names[0].startswith("[0,2,4,")
    rows = {k: format(k, "010b").replace("0", "p").replace("1", "j") for k in range(1000)}
    InPanel(1000, lambda: None, lambda: "").draw(View((), (), rows, 0.25))
    assert len(Widget.made[2].view["rows"]) == panel.MOST_STRIPS


def test_answers_to_buttons(drawn: None) -> None:
    place = in_panel()
    place.draw(SHOWN)
    [_, widget] = Widget.made
    widget.say("late")
    assert widget.answer == "Others have waited for process 2 for 0.5 s"
    widget.say("stacks")
    assert widget.answer == "[all 4] In[1], line 1: f()"
    widget.say("stop")
    assert pressed == ["stop"]
    widget.say("what else")
    assert pressed == ["stop"]
    place.draw(View((), ()))
    widget.say("late")
    assert widget.answer == NOBODY_LATE
    place.draw(View((), (), native=(3,)))
    widget.say("late")
    unknown = "waiting in native code; mcnb can't tell for which process, if for any"
    assert widget.answer == f"Process 3 is {unknown}"
    place.draw(View((), (), late_s={2: 0.5}, native=(0, 1, 2, 3)))
    widget.say("late")
    assert widget.answer == (
        f"Others have waited for process 2 for 0.5 s\nAll 4 processes are {unknown}"
    )


@pytest.mark.parametrize("script", [Path(panel.__file__), Path(form.__file__)])
def test_what_a_reader_is_told_of_is_never_hidden(script: Path) -> None:
    """A screen reader announces only what changes in an element that was there before."""
    roles = r'class: "(mcnb-[a-z-]+)", role: "(?:status|alert)"'
    announced = re.findall(roles, script.with_suffix(".js").read_text())
    rules = re.findall(r"([^{}]+)[{]([^{}]*)[}]", script.with_suffix(".css").read_text())
    hidden = " ".join(selectors for selectors, rule in rules if "display: none" in rule)
    assert announced
    assert not [name for name in announced if f".{name}" in hidden]
    assert "pre" not in hidden.split()


def test_each_letter_of_a_strip_has_a_color() -> None:
    style = (Path(panel.__file__).parent / "panel.css").read_text()
    colored = re.findall(r"^[.]mcnb-(.) [{] fill: ([^;]+); background: ([^;]+); [}]$", style, re.M)
    assert [letter for letter, *_ in colored] == [*WORDS]
    assert all(fill == background for _, fill, background in colored)
    assert len({fill for _, fill, _ in colored}) == len(WORDS)


def test_a_panel_that_stands_by_itself(drawn: None, outputs: list[Any]) -> None:
    """The panel below a running cell is another view of its widget."""
    outputs.clear()
    panel.stand()
    [_, standing] = Widget.made
    assert (standing.view["progress"], standing.view["running"]) == ([panel.NONE_RUNS], False)
    in_another_thread(lambda: standing.say("here"))
    assert standing.buttons == {}  # there is nothing to stop
    place = in_panel()
    place.draw(SHOWN)
    assert [model(data) for _, data in outputs] == ["model 1", "model 1"]
    assert [data["text/plain"] for _, data in outputs] == [panel.STANDING, INSTEAD]
    assert (len(Widget.made), standing.buttons) == (2, BUTTONS)
    assert (standing.view["lines"], standing.view["running"]) == (["[all 4] step 0"], True)
    pressed.clear()
    standing.say("stop")
    standing.say("late")
    assert (pressed, standing.answer) == (["stop"], "Others have waited for process 2 for 0.5 s")
    place.remove()
    assert (standing.closed, standing.buttons, standing.answer) == (False, {}, "")
    assert (standing.view["progress"], standing.view["running"]) == ([panel.NONE_RUNS], False)
    assert standing.view["rows"][2] == ("[2]", "ppp")  # of the cell that has ended
    standing.say("stop")
    assert pressed == ["stop"]


def test_an_answer_that_comes_after_the_cell_is_not_shown(drawn: None) -> None:
    """To say where processes are takes up to 2 s."""

    def stacks() -> str:
        place.remove()
        return "[all 4] In[1], line 1: f()"

    panel.stand()
    place = InPanel(4, lambda: None, stacks)
    place.draw(SHOWN)
    [_, standing] = Widget.made
    standing.say("stacks")
    assert standing.answer == ""
    standing.answer = "of the last cell"
    in_panel().draw(SHOWN)
    assert standing.answer == ""


def test_the_newest_panel_that_stands_by_itself(drawn: None) -> None:
    panel.stand()
    panel.stand()
    assert [one.closed for one in Widget.made] == [False, True, False]
    in_panel().draw(SHOWN)
    assert Widget.made[2].view["lines"] == ["[all 4] step 0"]
