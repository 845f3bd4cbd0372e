"""Interrupts: which reach a cell, which come too early or too late; and what is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import psutil
import pytest

from mcnb.worker import signals
from mcnb.worker.settings import Settings, leave_settings

CELL = "<In[1]>"
STATE = (
    "_armed",
    "_leaving",
    "_cell",
    "_cancelled",
    "_begun_at",
    "_raised",
    "_inside",
    "_asynchronous",
)


def is_cell(frame: FrameType) -> bool:
    return frame.f_code.co_filename == CELL


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the handlers of a process, between two cells; afterwards those of the tests."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGHUP)]
    for name in STATE:
        monkeypatch.setattr(signals, name, type(getattr(signals, name))())
    monkeypatch.setattr(signals, "_profile", None)
    monkeypatch.setattr(signals, "_is_learners", is_cell, raising=False)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    signals.install(is_cell)
    yield
    for number, handler in before:
        signal.signal(number, handler)


class Threads:
    """Keeps the threads that would have been started."""

    def __init__(self) -> None:
        self.started: list[tuple[Any, ...]] = []

    def Thread(self, *, args: tuple[Any, ...], **_: Any) -> Any:  # noqa: N802
        return SimpleNamespace(start=lambda: self.started.append(args))


@pytest.fixture
def pursued(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The cells, with the attempts, that a thread pursues from now on."""
    threads = Threads()
    monkeypatch.setattr(signals, "threading", threads)
    return threads.started


def ran(cell: int) -> bool:
    """Begin a cell; return whether it ran, and was not interrupted."""
    signals.begin(cell)
    try:
        with signals.armed():
            return True
    except KeyboardInterrupt:
        return False


def test_an_interrupt_before_its_cell_ends_that_cell_alone(pursued: list[Any]) -> None:
    assert ran(3)
    signals.deliver(5, 1)
    signals.deliver(4, 1)  # comes late
    assert ran(4)
    assert not ran(5)
    # The next code of the same cell, such as a pull, is another matter.
    assert ran(5)
    assert ran(6)
    assert pursued == []


def test_an_interrupt_after_its_cell_reaches_nothing(pursued: list[Any]) -> None:
    assert ran(3)
    signals.deliver(3, 1)
    signals.begin(4)
    with signals.armed():
        signals.deliver(3, 2)
        assert pursued == []
        signals.deliver(4, 2)
        assert pursued == [(4, 2)]
    assert ran(5)


def test_between_cells_ctrl_c_is_ignored() -> None:
    signal.raise_signal(signal.SIGINT)
    signals.begin(1)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), signals.armed():
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


def test_the_handler_of_a_cell_is_not_that_of_the_next() -> None:
    for handler in (signal.SIG_IGN, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)
        signals.begin(1)
        with pytest.raises(KeyboardInterrupt), signals.armed():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


CATCHES = """
try:
    interrupt()
except:
    try:
        interrupt()
    except:
        done.append("caught twice")
    done.append("went on")
"""


def test_a_second_interrupt_cannot_be_caught_as_the_first() -> None:
    done: list[str] = []
    names = {"done": done, "interrupt": lambda: signal.raise_signal(signal.SIGINT)}
    tracing = sys.gettrace()
    signals.begin(1)
    with pytest.raises(KeyboardInterrupt), signals.armed():
        exec(compile(CATCHES, CELL, "exec"), names)
    assert done == []
    assert sys.gettrace() is tracing
    # No line of the cell follows the second one.
    signals.begin(1)
    with pytest.raises(KeyboardInterrupt), signals.armed():
        exec(compile("try: interrupt()\nexcept: interrupt()", CELL, "exec"), names)
    assert sys.gettrace() is tracing
    # The count begins again with each cell: its first interrupt may be caught.
    signals.begin(2)
    with signals.armed():
        exec(compile("try: interrupt()\nexcept: pass\ndone.append('on')", CELL, "exec"), names)
    assert done == ["on"]


def test_an_interrupt_that_comes_after_the_code_of_the_cell_is_not_counted() -> None:
    names = {"interrupt": lambda: os.kill(os.getpid(), signal.SIGINT)}
    signals.begin(1)
    with signals.armed(), contextlib.suppress(KeyboardInterrupt):
        exec(compile("done = 1", CELL, "exec"), names)
        names["interrupt"]()
    assert not signals.was_raised()
    signals.begin(2)
    with signals.armed():
        exec(compile("try: interrupt()\nexcept: pass", CELL, "exec"), names)
    assert signals.was_raised()
    signals.begin(3)
    assert not signals.was_raised()


def test_what_is_raised_where_nobody_can_catch_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[tuple[Any, ...]] = []
    shown: list[Any] = []

    def timer(seconds: float, call: Callable[..., Any], words: tuple[Any, ...]) -> Any:
        return SimpleNamespace(start=lambda: again.append((call, *words)))

    monkeypatch.setattr(signals, "threading", SimpleNamespace(Timer=timer))
    monkeypatch.setattr(sys, "__unraisablehook__", shown.append)
    other: Any = SimpleNamespace(exc_value=ValueError())
    lost: Any = SimpleNamespace(exc_value=KeyboardInterrupt())
    sys.unraisablehook(other)
    sys.unraisablehook(lost)
    assert again == [(os.kill, os.getpid(), signal.SIGINT)]
    assert shown == [other]


@pytest.mark.parametrize(
    ("attempt", "arrives", "now", "expected"),
    [
        (1, [True], 3, ["kill", "child"]),
        (1, [False], 3, ["kill", "child", "raise"]),
        # A later one first waits for the signal from outside.
        (2, [True, True], 3, ["child"]),
        (2, [False, False], 3, ["kill", "child", "raise"]),
        (1, [False], 4, ["kill", "child"]),  # the cell has ended meanwhile
    ],
)
def test_how_an_interrupt_is_pursued(
    attempt: int,
    arrives: list[bool],
    now: int,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    child = SimpleNamespace(send_signal=lambda number: done.append("child"))
    gone = SimpleNamespace(send_signal=fails)
    monkeypatch.setattr(signals, "children", lambda: [gone, child])
    monkeypatch.setattr(signals, "_reached", lambda *_: arrives.pop(0))
    monkeypatch.setattr(signals, "raise_in", lambda thread: done.append("raise"))
    monkeypatch.setattr(signal, "pthread_kill", lambda thread, number: done.append("kill"))
    signals.begin(now)
    with signals.armed():
        signals._pursue(3, attempt)
    assert done == expected
    assert arrives == []


def fails(_: int) -> None:
    raise psutil.NoSuchProcess(1)


def test_an_interrupt_without_a_signal() -> None:
    ended = threading.Event()
    begun = threading.Event()

    def run() -> None:
        try:
            begun.set()
            while True:
                sum(range(100))
        except KeyboardInterrupt:
            ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(30)
    signals.raise_in(thread.ident or 0)
    assert ended.wait(30)
    thread.join()


def test_children_of_this_cell_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def child(status: str, started: float) -> SimpleNamespace:
        return SimpleNamespace(status=lambda: status, create_time=lambda: started)

    signals.begin(1)
    now = time.clock_gettime(signals._CLOCK)
    now += psutil.boot_time() if sys.platform == "linux" else 0.0
    new, old = child(psutil.STATUS_SLEEPING, now), child(psutil.STATUS_RUNNING, now - 60)
    found = [old, child(psutil.STATUS_ZOMBIE, now + 1), new]
    monkeypatch.setattr(
        psutil, "Process", lambda: SimpleNamespace(children=lambda recursive: found)
    )
    assert signals.children() == [new]
    monkeypatch.setattr(signals, "_begun_at", signals._begun_at - 90)
    assert signals.children() == [old, new]


def test_output_that_a_process_forgets(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "process.out").touch()
    signals.forget(str(tmp_path / "all" / "a" / "process"))
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["b"]
    signals.forget(str(tmp_path / "all" / "b" / "process"))
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("sent", "written", "stays"),
    # A folder that all hosts share is the cluster's as long as the settings are in it.
    [(True, True, False), (False, True, True), (False, False, False)],
)
def test_a_process_without_its_kernel_leaves(
    sent: bool, written: bool, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "profile"
    folder.mkdir()
    told = Settings(sent=sent)
    if written:
        leave_settings(told, folder)
    done: list[Any] = []
    monkeypatch.setattr(signals, "_profile", (told, folder))
    monkeypatch.setattr(signals, "_ending", threading.Lock())
    monkeypatch.setattr(signals, "GRACE_S", 0.0)
    monkeypatch.setattr(os, "kill", lambda *words: done.append((*words, folder.exists())))
    monkeypatch.setattr(os, "_exit", done.append)
    signals.leave()
    signals.leave()  # at the same time, from another thread
    assert done == [(os.getpid(), signal.SIGHUP, stays), 1]


@pytest.mark.parametrize("refused", [False, True])
def test_the_end_of_the_kernel_is_noticed(
    refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [] if refused else [b"still", b"there", b""]
    asked: list[tuple[str, int]] = []
    left = threading.Event()

    @contextlib.contextmanager
    def connect(address: tuple[str, int]) -> Iterator[SimpleNamespace]:
        asked.append(address)
        if refused:
            raise ConnectionRefusedError
        yield SimpleNamespace(recv=lambda count: said.pop(0))

    def leave() -> None:
        if not said:  # all was heard
            left.set()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(signals, "leave", leave)
    signals.leave_with_kernel(Settings(kernel="host:7"), tmp_path)
    assert left.wait(30)
    assert asked == [("host", 7)]
    # Without a connection, the process does not watch.
    left.clear()
    signals.leave_with_kernel(Settings(), tmp_path)
    assert "mcnb connection" not in [thread.name for thread in threading.enumerate()]


def test_a_hang_up_ends_the_process_after_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[tuple[Any, ...]] = []
    loop = SimpleNamespace(call_soon=lambda *words: ends.append(words))
    monkeypatch.setattr(signals, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    assert ran(1)
    assert ends == []
    with pytest.raises(SystemExit) as ended, signals.armed():
        signal.raise_signal(signal.SIGHUP)
    assert ended.value.code == 0
    assert ends == [(sys.exit, 0)]
