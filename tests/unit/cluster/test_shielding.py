"""Ctrl-C at every instruction: an action that must not be interrupted runs as a whole, or not."""

from __future__ import annotations

import _weakrefset
import gc
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from mcnb.cluster import workers
from mcnb.cluster.shielding import delayed_ctrl_c, in_thread, to_the_end
from mcnb.cluster.workers import start_processes
from mcnb.errors import ClusterError
from mcnb.options import Options


def interrupted_at(instruction: int, action: Callable[[], object]) -> BaseException | None:
    """Run an action with Ctrl-C before one of its instructions; return the exception, if any.

    Args:
        instruction: The number of the instruction, among all that this thread executes.
        action: What to run.

    Raises:
        IndexError: The action has fewer instructions.
    """
    left = instruction
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        del arg
        if frame.f_code.co_filename == _weakrefset.__file__:
            return None  # a callback, whose exceptions Python prints and drops
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == -1:
                signal.raise_signal(signal.SIGINT)
        return trace

    # Python prints and drops the exceptions of callbacks of the garbage collector, too.
    gc.disable()
    sys.settrace(trace)
    try:
        action()
        error = None
    except BaseException as raised:
        error = raised
    finally:
        sys.settrace(before)
        gc.enable()
    if left >= 0:
        raise IndexError
    return error


def at_every_instruction(action: Callable[[], object]) -> Iterator[BaseException | None]:
    """Run an action again and again, interrupted at one instruction after the other."""
    for instruction in itertools.count():
        try:
            yield interrupted_at(instruction, action)
        except IndexError:
            return


@pytest.mark.parametrize("raises", [False, True])
def test_an_action_ends_or_has_not_begun(raises: bool) -> None:
    steps: list[str] = []

    def action() -> None:
        steps.append("begun")
        steps.append("ended")
        if raises:
            raise OSError("mine")

    handler = signal.getsignal(signal.SIGINT)
    seen = set()
    for error in at_every_instruction(lambda: to_the_end(action)):
        assert steps in ([], ["begun", "ended"])
        assert isinstance(
            error, (OSError, KeyboardInterrupt) if raises and steps else KeyboardInterrupt
        )
        assert signal.getsignal(signal.SIGINT) is handler
        seen.add(bool(steps))
        steps.clear()
    assert seen == {False, True}


def test_the_exception_of_the_action_says_what_was_not_done() -> None:
    def action() -> None:
        signal.raise_signal(signal.SIGINT)
        raise OSError("mine")

    with pytest.raises(OSError, match="mine"):
        to_the_end(action)


def test_a_handler_that_raises_nothing_is_called_after_the_action() -> None:
    order: list[str] = []

    def action() -> None:
        signal.raise_signal(signal.SIGINT)
        order.append("action")

    before = signal.signal(signal.SIGINT, lambda *_: order.append("handler"))
    try:
        to_the_end(action)
    finally:
        signal.signal(signal.SIGINT, before)
    assert order == ["action", "handler"]


def test_in_another_thread_an_action_runs_as_it_is() -> None:
    done: list[str] = []
    thread = threading.Thread(target=lambda: to_the_end(lambda: done.append("action")))
    thread.start()
    thread.join()
    assert done == ["action"]


class Starting:
    """Processes whose start succeeds, fails, or waits for a close after Ctrl-C was pressed.

    A start that succeeds or fails has ended before anybody waits for it; see `at_once`.
    """

    all: ClassVar[list[Starting]] = []
    how: ClassVar[str]

    def __init__(self, options: Options) -> None:
        del options
        self.launcher = SimpleNamespace(alive=True)
        self.state = "made"
        self.all.append(self)
        self._closed = threading.Event()

    def start(self) -> None:
        if self.how == "waits":
            os.kill(os.getpid(), signal.SIGINT)
            self._closed.wait()
        if self.how != "succeeds":
            raise ClusterError("no such host")

    def close(self) -> None:
        assert self.state == "made"
        self.state = "closed"
        self._closed.set()


@pytest.mark.parametrize(
    ("how", "end"), [("succeeds", "accepted"), ("fails", "closed"), ("waits", "closed")]
)
def test_processes_are_accepted_or_closed(
    monkeypatch: pytest.MonkeyPatch, how: str, end: str
) -> None:
    monkeypatch.setattr(workers, "Processes", Starting)
    monkeypatch.setattr(Starting, "all", [])
    monkeypatch.setattr(Starting, "how", how, raising=False)

    def accept(processes: Any) -> None:
        processes.state = "accepted"

    def at_once(action: Callable[[], object]) -> Future[Any]:
        task = in_thread(action)
        # A start that Ctrl-C finds still running is closed, and how soon a thread runs isn't known.
        if how != "waits":
            wait([task])
        return task

    monkeypatch.setattr(workers, "in_thread", at_once)
    seen = set()
    for error in at_every_instruction(lambda: start_processes(Options(processes=2), accept)):
        assert isinstance(error, (KeyboardInterrupt, ClusterError))
        states = [one.state for one in Starting.all]
        Starting.all.clear()
        assert states in ([], [end])
        seen.add(tuple(states))
    assert seen == {(), (end,)}


def test_a_wait_does_something_meanwhile() -> None:
    release = threading.Event()
    calls: list[None] = []

    def meanwhile() -> None:
        calls.append(None)
        if len(calls) == 3:
            release.set()

    with delayed_ctrl_c() as ctrl_c:
        assert ctrl_c.wait_for(in_thread(release.wait), meanwhile, every_s=0.01)
    assert len(calls) >= 3
