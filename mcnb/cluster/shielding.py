"""Run actions that Ctrl-C must not interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Task:
    """An action that runs in its own thread, which Ctrl-C does not interrupt.

    A caller whose `wait` was interrupted can wait again. (An interrupted `threading.Thread.join`
    takes the thread for ended: https://github.com/python/cpython/issues/90882.)

    Args:
        action: The function to run.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        thread = threading.Thread(target=self._run, args=(action,), name="mcnb task", daemon=True)
        thread.start()

    def _run(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()

    @property
    def done(self) -> bool:
        """Whether the action has ended."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Wait until the action has ended."""
        self._ended.wait()

    def raise_failure(self) -> None:
        """Raise the exception that the action raised, if any."""
        if self._failure is not None:
            raise self._failure


def to_the_end(action: Callable[[], object]) -> None:
    """Run an action to its end, and delay KeyboardInterrupt until then.

    Args:
        action: The function to run, which must end by itself.

    Raises:
        KeyboardInterrupt: Ctrl-C or the stop button during the action; raised after the action.
        BaseException: The exception that the action raised.

    Example:
        >>> to_the_end(lambda: print("done"))
        done
    """
    task = Task(action)
    interrupt: KeyboardInterrupt | None = None
    while not task.done:
        try:
            task.wait()
        except KeyboardInterrupt as error:
            interrupt = error
    task.raise_failure()
    if interrupt is not None:
        raise interrupt
