"""Lost processes and their exit reasons."""

from __future__ import annotations

import queue
import threading

from mcnb.launchers.exits import ExitReporter
from mcnb.lockstep.model import ExitSource, ProcessExit

HANG_S = 120.0


def test_the_first_loss_is_the_cause() -> None:
    reported: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    killed, followed = ProcessExit(ExitSource.LAUNCHER, -9), ProcessExit(ExitSource.FOLLOWED)
    reporter = ExitReporter({2: killed}.get, lambda k, how: reported.put((k, how)), delay_s=HANG_S)
    for k in (2, 0, 1):
        reporter.add(k)
    assert [reported.get(timeout=HANG_S) for _ in range(3)] == [
        (2, killed),
        (0, followed),
        (1, followed),
    ]
    reporter.close()
    reporter.add(3)
    assert reported.empty()


def test_the_cause_is_the_loss_with_a_reason() -> None:
    """Processes that end at nearly the same time may be found lost in another order."""
    reported: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    known: dict[int, ProcessExit] = {}
    killed, followed = ProcessExit(ExitSource.LAUNCHER, -9), ProcessExit(ExitSource.FOLLOWED)
    reporter = ExitReporter(known.get, lambda k, how: reported.put((k, how)), delay_s=HANG_S)
    for k in (0, 2, 1):
        reporter.add(k)
    known[2] = killed
    assert [reported.get(timeout=HANG_S) for _ in range(3)] == [
        (2, killed),
        (0, followed),
        (1, followed),
    ]
    reporter.close()


def test_a_loss_that_nobody_explains() -> None:
    reported: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    reporter = ExitReporter(lambda _: None, lambda k, how: reported.put((k, how)), delay_s=0.0)
    reporter.add(1)
    assert reported.get(timeout=HANG_S) == (1, ProcessExit(ExitSource.UNKNOWN))
    reporter.close()


def test_of_two_losses_with_reasons_the_first_is_the_cause() -> None:
    reported: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    known: dict[int, ProcessExit] = {}
    killed = {2: ProcessExit(ExitSource.LAUNCHER, -9), 0: ProcessExit(ExitSource.LAUNCHER, -15)}
    both_lost = threading.Event()

    def exit_of(k: int) -> ProcessExit | None:
        # Both reasons become known at once, when the reporter asks for that of the second loss.
        if k == 0:
            both_lost.set()
        return known.get(k)

    reporter = ExitReporter(exit_of, lambda k, how: reported.put((k, how)), delay_s=HANG_S)
    for k in (2, 0):
        reporter.add(k)
    assert both_lost.wait(HANG_S)
    known.update(killed)
    assert [reported.get(timeout=HANG_S) for _ in range(2)] == [(2, killed[2]), (0, killed[0])]
    reporter.close()
