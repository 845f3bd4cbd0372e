"""Run actions that Ctrl-C must not interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future


def in_thread(action: Callable[[], object]) -> Future[object]:
    """Run an action in its own thread, which Ctrl-C does not interrupt.

    A caller whose wait for the result was interrupted can wait again. (An interrupted
    `threading.Thread.join` takes the thread for ended:
    https://github.com/python/cpython/issues/90882.)
    """
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="mcnb task", daemon=True).start()
    return future


def to_the_end(action: Callable[[], object]) -> None:
    """Run an action, which must end by itself, and delay KeyboardInterrupt until then.

    Raises:
        KeyboardInterrupt: Ctrl-C or the stop button during the action; raised after the action.
        BaseException: The exception that the action raised.

    Example:
        >>> to_the_end(lambda: print("done"))
        done
    """
    task = in_thread(action)
    interrupt: KeyboardInterrupt | None = None
    while not task.done():
        try:
            task.exception()
        except KeyboardInterrupt as error:
            interrupt = error
    task.result()
    if interrupt is not None:
        raise interrupt
