"""What Ctrl-C must not leave half done."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Task:
    """Something that is done in a thread of its own, where Ctrl-C does not reach it.

    Who waits for it may be interrupted, and wait again. (Not so with `threading.Thread.join`, which
    takes the thread for ended then: https://github.com/python/cpython/issues/90882.)

    Args:
        action: What to do.
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
        """Whether it has come to its end."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Return when it has come to its end."""
        self._ended.wait()

    def raise_failure(self) -> None:
        """Raise what it raised, if it did."""
        if self._failure is not None:
            raise self._failure


def to_the_end(action: Callable[[], object]) -> None:
    """Do something that a Ctrl-C or a stop button does not cut short.

    Args:
        action: What to do; it must come to an end by itself.

    Raises:
        KeyboardInterrupt: It came meanwhile; it is raised when all is done.
        BaseException: What the action raised.

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
