"""Lost processes and their exit reasons."""

from __future__ import annotations

import queue

from mcnb.launchers.exits import ExitReporter
from mcnb.lockstep.model import ExitSource, ProcessExit


def test_the_first_loss_is_the_cause() -> None:
    reported: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    killed, followed = ProcessExit(ExitSource.LAUNCHER, -9), ProcessExit(ExitSource.FOLLOWED)
    reporter = ExitReporter({2: killed}.get, lambda k, how: reported.put((k, how)), delay_s=5.0)
    for k in (2, 0, 1):
        reporter.add(k)
    assert [reported.get(timeout=5) for _ in range(3)] == [
        (2, killed),
        (0, followed),
        (1, followed),
    ]
    reporter.close()
    reporter.add(3)
    assert reported.empty()


def test_a_loss_that_nobody_explains() -> None:
    reported: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    reporter = ExitReporter(lambda _: None, lambda k, how: reported.put((k, how)), delay_s=0.0)
    reporter.add(1)
    assert reported.get(timeout=5) == (1, ProcessExit(ExitSource.UNKNOWN))
    reporter.close()
