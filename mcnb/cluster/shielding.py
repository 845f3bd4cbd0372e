"""Run actions that Ctrl-C must not interrupt."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def in_thread(action: Callable[[], T]) -> Future[T]:
    """Run an action in its own thread, which Ctrl-C does not interrupt.

    Wait for it in a `with delayed_ctrl_c()` statement.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="mcnb task", daemon=True).start()
    return future


class CtrlC:
    """Ctrl-C in a `with delayed_ctrl_c()` statement.

    Attributes:
        pressed: Whether Ctrl-C has been pressed.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._happened: queue.SimpleQueue[None] = queue.SimpleQueue()

    def press(self) -> None:
        """Note that Ctrl-C was pressed; for signal handlers, which may call this at any time."""
        self.pressed = True
        self._happened.put(None)

    def wait_for(
        self, task: Future[T], meanwhile: Callable[[], object] | None = None, every_s: float = 1.0
    ) -> bool:
        """Wait until a task has ended, or Ctrl-C is pressed; return whether the task has ended.

        Args:
            task: The task.
            meanwhile: Called again and again until then, in this thread.
            every_s: After how many seconds each time.
        """
        task.add_done_callback(lambda _: self._happened.put(None))
        while not (task.done() or self.pressed):
            try:
                self._happened.get(timeout=None if meanwhile is None else every_s)
            except queue.Empty:
                if meanwhile is not None:
                    meanwhile()
        return task.done()


@contextmanager
def delayed_ctrl_c() -> Iterator[CtrlC]:
    """Delay Ctrl-C until the end of the `with` statement.

    A signal handler does it, rather than a wait that is repeated after KeyboardInterrupt: that can
    be raised at any instruction, between the start of a thread and the wait for it, or inside of
    the standard library, where it leaves locks acquired.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, and the statement raised no exception of its own.

    Example:
        >>> with delayed_ctrl_c() as ctrl_c:
        ...     task = in_thread(lambda: 6 * 7)
        ...     if ctrl_c.wait_for(task):
        ...         print(task.result())
        42
    """
    ctrl_c = CtrlC()
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        # Python handles signals in the main thread only; this one may be another library's.
        yield ctrl_c
        return
    signal.signal(signal.SIGINT, lambda *_: ctrl_c.press())
    try:
        yield ctrl_c
    finally:
        signal.signal(signal.SIGINT, handler)
    if ctrl_c.pressed:
        signal.raise_signal(signal.SIGINT)


def to_the_end(action: Callable[[], object]) -> None:
    """Run an action, which must end by itself, and delay Ctrl-C until then.

    If Ctrl-C arrives before the action, the action does not begin.

    Raises:
        KeyboardInterrupt: Ctrl-C or the stop button during the action; raised after the action.
        BaseException: The exception that the action raised.

    Example:
        >>> to_the_end(lambda: print("done"))
        done
    """
    with delayed_ctrl_c():
        # In a thread, because a notebook kernel's main thread has a running event loop.
        in_thread(action).result()
