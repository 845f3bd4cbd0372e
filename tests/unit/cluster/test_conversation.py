"""Who is asked for the next command, what is shown before it, and which process receives it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.cluster import conversation
from mcnb.cluster.conversation import INTRODUCTION, PATIENCE_S, SEVERAL, Conversation
from mcnb.lockstep.model import Launch, ProcessState
from mcnb.lockstep.server import Waits
from mcnb.messages import Pause, Recent

SUM = Launch("jit(sum)", "1", (0, 1, 2))
NO_LINES = Recent()


class Cell:
    """Three processes in a cell, whose debuggers answer at once, and a person who types."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self.lines = list(lines)
        self.asked: list[tuple[int, str]] = []
        self.sent: list[tuple[int, int, str]] = []
        self.stops = 0
        self.waiting = {0, 1, 2}
        self.waits: dict[int, Waits] = {}
        self.pauses: dict[int, Pause] = {}
        self.conversation = Conversation(self.ask, self.send, self.stop)

    def ask(self, k: int, text: str) -> str:
        self.asked.append((k, text))
        line = self.lines.pop(0)
        if isinstance(line, str):
            return line
        raise line

    def send(self, k: int, number: int, line: str) -> None:
        self.sent.append((k, number, line))

    def stop(self) -> None:
        self.stops += 1

    def pause(self, k: int) -> Pause:
        return self.pauses.get(k, Pause())

    def halts(self, k: int, text: str = "> line\n", recent: Recent = NO_LINES) -> None:
        self.pauses[k] = Pause(self.pause(k).number + 1, text, recent)

    def go_on(self) -> None:
        either: Any = self
        self.conversation.go_on(either)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass on the clock."""
    now = 0.0

    def pass_s(amount: float) -> None:
        nonlocal now
        now += amount

    monkeypatch.setattr(conversation, "time", SimpleNamespace(monotonic=lambda: now))
    return pass_s


def test_nobody_is_asked_while_no_process_has_stopped() -> None:
    cell = Cell()
    cell.go_on()
    assert (cell.asked, cell.conversation.opened) == ([], False)


def test_a_process_that_has_stopped_gets_the_next_command() -> None:
    cell = Cell("p x", "next")
    cell.halts(1)
    cell.go_on()
    assert cell.conversation.opened
    cell.go_on()  # it has not stopped again
    cell.halts(1, "3\n")
    cell.go_on()
    assert cell.asked == [(1, f"{INTRODUCTION}> line\n"), (1, "3\n")]
    assert cell.sent == [(1, 1, "p x"), (1, 2, "next")]


def test_one_that_has_finished_is_not_asked_for() -> None:
    cell = Cell()
    cell.halts(1)
    cell.waiting = {0, 2}
    cell.go_on()
    assert cell.asked == []


def test_what_the_cell_printed_meanwhile_comes_first() -> None:
    cell = Cell("next", "next", "next")
    cell.halts(0, recent=Recent(2, ("a", "b")))
    cell.go_on()
    cell.halts(0, recent=Recent(3, ("a", "b", "c")))
    cell.go_on()
    cell.halts(0, recent=Recent(20, tuple("klmnopqrst")))
    cell.go_on()
    shown = [text for _, text in cell.asked]
    assert shown == [
        f"{INTRODUCTION}a\nb\n> line\n",
        "c\n> line\n",
        "… 7 lines …\nk\nl\nm\nn\no\np\nq\nr\ns\nt\n> line\n",
    ]


def test_the_lowest_of_several_is_first_and_keeps_the_commands(
    passes: Callable[[float], None],
) -> None:
    cell = Cell("p 1", "p 2", "c", "p 3")
    cell.halts(2)
    cell.halts(1)
    cell.go_on()
    passes(PATIENCE_S / 2)
    cell.go_on()  # it is about to answer, so the other one has to wait
    cell.halts(1, "1\n")
    cell.go_on()
    cell.halts(1, "2\n")
    cell.go_on()
    cell.go_on()
    assert cell.asked == [
        (1, f"{INTRODUCTION}{SEVERAL}> line\n"),
        (1, "1\n"),
        (1, "2\n"),
        (2, "> line\n"),
    ]
    assert cell.sent == [(1, 1, "p 1"), (1, 2, "p 2"), (1, 3, "c"), (2, 1, "p 3")]


def test_another_one_is_asked_for_while_the_first_computes(passes: Callable[[float], None]) -> None:
    cell = Cell("next", "c")
    cell.halts(0)
    cell.halts(1)
    cell.go_on()
    passes(PATIENCE_S)
    cell.go_on()
    assert cell.asked[1:] == [(1, "> line\n")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (4, "process 0 is waiting for others in jit(sum), line 4\n"),
        (None, "process 0 is waiting for others in jit(sum)\n"),
    ],
)
def test_another_one_is_asked_for_at_once_while_the_first_waits(
    line: int | None, said: str, passes: Callable[[float], None]
) -> None:
    cell = Cell("next", "c")
    cell.halts(0)
    cell.halts(1)
    cell.go_on()
    cell.waits[0] = Waits(ProcessState("waits", SUM, line), 0.0)
    cell.go_on()
    assert cell.asked[1:] == [(1, f"{said}> line\n")]


def test_a_person_goes_to_another_process() -> None:
    cell = Cell("process 2", "process 1", "process two", "p x")
    cell.halts(0, "at 0\n")
    cell.halts(2, "at 2\n")
    cell.go_on()
    assert cell.asked == [
        (0, f"{INTRODUCTION}{SEVERAL}at 0\n"),
        (2, "at 2\n"),
        (2, "*** process 1 has not stopped. Stopped: 0, 2\n"),
        (2, "*** process two has not stopped. Stopped: 0, 2\n"),
    ]
    assert cell.sent == [(2, 1, "p x")]


def test_one_that_stops_while_the_person_thinks_counts() -> None:
    cell = Cell("process 1", "c all")

    def ask(k: int, text: str) -> str:
        if not cell.asked:
            cell.halts(1, "at 1\n")
        return cell.ask(k, text)

    cell.conversation = Conversation(ask, cell.send, cell.stop)
    cell.halts(0)
    cell.go_on()
    assert cell.asked[1] == (1, "at 1\n")
    assert cell.sent == [(0, 1, "continue"), (1, 1, "continue")]


@pytest.mark.parametrize("line", ["continue all", "c all", "cont  all"])
def test_all_go_on(line: str) -> None:
    cell = Cell(line)
    for k in range(3):
        cell.halts(k)
    cell.go_on()
    assert cell.sent == [(k, 1, "continue") for k in range(3)]
    assert cell.stops == 0


@pytest.mark.parametrize("line", ["q", "quit", " exit ", EOFError, KeyboardInterrupt])
def test_the_cell_is_ended(line: str | type[BaseException]) -> None:
    cell = Cell(line)
    cell.halts(1)
    cell.go_on()
    assert (cell.sent, cell.stops, cell.conversation.error) == ([], 1, None)


def test_an_error_of_who_is_asked_ends_the_cell() -> None:
    cell = Cell(ZeroDivisionError)
    cell.halts(1)
    cell.go_on()
    assert (cell.sent, cell.stops) == ([], 1)
    assert isinstance(cell.conversation.error, ZeroDivisionError)


def test_an_empty_line_and_words_that_only_begin_alike_are_the_debuggers() -> None:
    lines = ["", "q = 3", "process", "c = all", "quit now"]
    cell = Cell(*lines)
    for _ in lines:
        cell.halts(1)
        cell.go_on()
    assert [line for *_, line in cell.sent] == lines
    assert cell.stops == 0


def test_the_time_in_which_the_person_thinks(passes: Callable[[float], None]) -> None:
    cell = Cell()

    def ask(k: int, text: str) -> str:
        passes(7.0)
        return "c"

    cell.conversation = Conversation(ask, cell.send, cell.stop)
    for _ in range(2):
        cell.halts(0)
        cell.go_on()
    assert cell.conversation.typing_s == 14.0
