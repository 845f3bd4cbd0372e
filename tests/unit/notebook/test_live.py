"""The progress of a running cell: when it is shown, what it says, and to whom."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.lockstep.model import Launch, ProcessState
from mcnb.lockstep.server import Waits
from mcnb.messages import Progress, Recent, Reply, Text
from mcnb.notebook import live
from mcnb.notebook.live import (
    FIRST_OUTPUT_S,
    FIRST_S,
    OUTPUT_PERIOD_S,
    PERIOD_S,
    LiveView,
    place_of,
    progress_lines,
    request_of,
    somebody_looks,
    waiting_text,
)
from mcnb.notebook.places import InNotebook, InTerminal, Place, View

SUM = Launch("sum", "1", (0, 1, 2))
MAX = Launch("max", "2", (0, 1, 2))


class Pending:
    """A cell that runs on some processes."""

    stage = ""
    replaceable = False

    def __init__(
        self, progress: dict[int, Progress], waits: dict[int, Waits] | None = None
    ) -> None:
        self.waiting = set(progress)
        self.answers: dict[int, Any] = {}
        self.waits = waits or {}
        self.progress = progress.__getitem__
        self.started = 100.0


class Screen:
    """A place in which a view is shown, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.shown = ""
        self.view: View | None = None
        self.left: list[str] = []
        self.times = 0

    def monotonic(self) -> float:
        return self.now

    def strftime(self, form: str) -> str:
        return time.strftime(form, time.gmtime(self.now))

    def draw(self, view: View) -> None:
        self.view = view
        self.show(view.text)

    def show(self, text: str) -> None:
        self.shown = text
        self.times += 1

    def leave(self, text: str) -> None:
        self.shown = ""
        self.left.append(text)

    def remove(self) -> None:
        self.shown = ""

    def simpler(self) -> Place | None:
        return None


class Broken(Screen):
    """A place whose front end, or whose package, does not do as it should."""

    def __init__(self, instead: Place | None) -> None:
        super().__init__()
        self._instead = instead

    def show(self, text: str) -> None:
        self.times += 1
        raise TypeError("traitlets has changed")

    def remove(self) -> None:
        self.show("")

    def leave(self, text: str) -> None:
        self.show(text)

    def simpler(self) -> Place | None:
        return self._instead


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen = Screen()
    monkeypatch.setattr(live, "time", screen)
    return screen


def test_progress_is_shown_after_a_second_and_then_now_and_again(screen: Screen) -> None:
    view = LiveView(4, screen)
    pending: Any = Pending({1: Progress(line=3)})
    seen = []
    for after in (0.0, FIRST_S - 0.1, 0.2, PERIOD_S - 0.1, 0.2, 0.2, PERIOD_S):
        screen.now += after
        view(pending)
        seen.append(screen.times)
    assert seen == [0, 0, 1, 1, 2, 2, 3]
    assert screen.shown == "Process 1 has been running for 2 s\n[1] line 3"
    view.remove()
    assert screen.shown == ""


def test_a_view_of_a_longer_cell_says_when_it_was_drawn(screen: Screen) -> None:
    view = LiveView(4, screen)
    pending: Any = Pending({1: Progress(line=3)})
    for after, said in ((9.4, "9 s"), (1.0, "10 s (at 00:01:50)"), (0.7, "11 s (at 00:01:51)")):
        screen.now += after
        view(pending)
        assert screen.shown == f"Process 1 has been running for {said}\n[1] line 3"


def test_a_view_below_what_was_typed(screen: Screen) -> None:
    view = LiveView(4, screen)
    pending: Any = Pending({1: Progress(line=3)})
    view.end_with("> line\n")
    screen.now += 30  # until something is typed
    view.begin_again()
    view(pending)
    assert screen.times == 0
    for after, said in ((FIRST_S, "31 s"), (PERIOD_S, "32 s")):
        screen.now += after
        view(pending)
        assert screen.shown == f"Process 1 has been running for {said} (at 00:02:11)\n[1] line 3"
    view.end_with("> another line\n")
    assert (screen.shown, screen.left) == ("", ["> line\n", "> another line\n"])


def test_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(4, None)
    view.show("running")
    view.remove()
    assert capsys.readouterr().out == ""
    view.end_with("> line\n")
    assert capsys.readouterr().out == "> line\n"


def test_a_place_that_fails_is_left_for_a_simpler_one(screen: Screen) -> None:
    broken = Broken(screen)
    view = LiveView(4, broken)
    pending: Any = Pending({1: Progress(line=3)})
    for _ in range(3):
        screen.now += FIRST_S
        view(pending)
    assert (broken.times, screen.times) == (1, 3)
    assert screen.shown == "Process 1 has been running for 3 s\n[1] line 3"
    view.remove()
    assert (broken.times, screen.shown) == (1, "")


def test_a_place_that_fails_for_good_ends_no_cell(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    for end in (LiveView.remove, lambda view: view.end_with("> line\n")):
        broken = Broken(Broken(None))
        view = LiveView(4, broken)
        pending: Any = Pending({1: Progress(line=3)})
        for _ in range(3):
            screen.now += FIRST_S
            view(pending)
        view.show("The processes are being restarted")
        end(view)
        assert broken.times == 1
    assert capsys.readouterr().out == "> line\n"


def test_nothing_is_shown_of_a_cell_that_has_ended(screen: Screen) -> None:
    view = LiveView(4, screen)
    screen.now += 2 * FIRST_S
    ended: Any = Pending({})
    view(ended)
    assert screen.times == 0


def test_new_output_is_shown_soon(screen: Screen) -> None:
    view = LiveView(2, screen)
    said = {k: Progress(Recent(1, ("step 0",)), 3) for k in range(2)}
    pending: Any = Pending(said)
    screen.now += FIRST_OUTPUT_S - 0.1
    view(pending)
    assert screen.times == 0
    screen.now += 0.1
    view(pending)
    shown = "[all 2] step 0\nBoth processes have been running for {} s\n[all 2] line 3"
    assert (screen.times, screen.shown) == (1, shown.format(0))
    screen.now += OUTPUT_PERIOD_S
    view(pending)
    assert screen.times == 1  # nothing is new
    said[0] = Progress(Recent(2, ("step 0", "step 20")), 3)
    view(pending)
    assert screen.shown == (
        "[all 2] step 0\n[0]     step 20\nBoth processes have been running for 1 s\n[all 2] line 3"
    )
    # A process that has finished has said everything.
    pending.waiting.remove(1)
    pending.answers[1] = Reply((Text("stdout", "step 0\nstep 20\ndone\n"),))
    screen.now += OUTPUT_PERIOD_S
    view(pending)
    assert screen.shown == (
        "[all 2] step 0\n        step 20\n[1]     done\n"
        "Process 0 has been running for 1 s\n[0] line 3"
    )


def test_a_cell_that_is_being_ended_is_drawn_again_and_again(screen: Screen) -> None:
    """The view stays the same, and a page without news for 5 s takes the kernel to be gone."""
    view = LiveView(2, screen)
    pending: Any = Pending({})
    pending.stage = "Healing the cluster: reconnecting the processes, with their variables …"
    looks, drawn = 50, []
    for _ in range(10):
        before = screen.times
        for _ in range(looks):
            screen.now += 1 / looks
            view(pending)
        drawn.append(screen.times - before)
    assert screen.shown == pending.stage
    assert all(1 <= times <= 5 for times in drawn)


def test_where_each_process_is() -> None:
    pending: Any = Pending(
        {
            0: Progress(line=12),
            3: Progress(line=12),
            10: Progress(waits_s=3.2, inside_jax=True),
            11: Progress(),
            12: Progress(line=4, waits_s=1.0),  # such as for a lock
        }
    )
    assert progress_lines(pending, 161.2, 16) == [
        "Processes 0,3,10-12 have been running for 61 s",
        "[0,3] line 12",
        "[10]  waiting for 3 s inside JAX",
        "[12]  waiting for 1 s in native code, line 4",
    ]


def test_a_view_names_who_waits_in_native_code(screen: Screen) -> None:
    pending: Any = Pending({0: Progress(waits_s=3.0), 1: Progress(line=2)})
    view = LiveView(2, screen)
    screen.now += FIRST_S
    view(pending)
    assert screen.view is not None
    assert screen.view.native == (0,)
    pending.waits = {1: waits(SUM)}
    screen.now += PERIOD_S
    view(pending)
    assert screen.view.native == ()


def waits(launch: Launch, **state: Any) -> Waits:
    return Waits(ProcessState("waits", launch, **state), since=108.0)


@pytest.mark.parametrize(
    ("own", "others", "said"),
    [
        (waits(SUM, line=4), {}, "waiting for 4 s in sum, line 4, until processes 1,2 reach it"),
        (
            waits(SUM, line=4, place="helper.py:9"),
            {1: waits(SUM)},
            "waiting for 4 s in sum, helper.py:9, until process 2 reaches it",
        ),
        (
            waits(SUM),
            {1: waits(MAX), 2: waits(SUM)},
            "waiting for 4 s in sum, until process 1 reaches it",
        ),
        (waits(SUM), {1: waits(SUM), 2: waits(SUM)}, "waiting for 4 s in sum"),
    ],
)
def test_for_whom_a_process_waits(own: Waits, others: dict[int, Waits], said: str) -> None:
    assert waiting_text(own, {0: own, **others}, 112.4) == said


def kernel(**content: Any) -> Any:
    """Return a shell whose cell came in a message with this content."""
    messages = {"shell": {"content": content}}
    return SimpleNamespace(kernel=SimpleNamespace(get_parent=messages.__getitem__))


def test_where_a_cell_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(place_of(kernel(allow_stdin=True)), InNotebook)
    assert place_of(kernel(allow_stdin=False)) is None
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(place_of(SimpleNamespace()), InTerminal)
    monkeypatch.setenv("TERM", "dumb")
    assert place_of(SimpleNamespace()) is None


def test_which_cell_runs() -> None:
    message = {"header": {"msg_id": "one"}, "content": {"code": "%mcjax start"}}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent={"shell": message}.__getitem__))
    assert request_of(shell) == ("one", "%mcjax start")
    assert request_of(SimpleNamespace()) == ("", "")


def test_who_can_answer_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert somebody_looks(kernel(allow_stdin=True))
    assert not somebody_looks(kernel(allow_stdin=False))
    assert not somebody_looks(kernel())
    older = SimpleNamespace(get_parent=lambda: {"content": {"allow_stdin": True}})
    assert somebody_looks(SimpleNamespace(kernel=older))
    for terminal in (True, False):
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda t=terminal: t))
        assert somebody_looks(SimpleNamespace()) == terminal
