"""A pending call: when all processes without a reply are inactive."""

from __future__ import annotations

import queue
from typing import Any

from mcnb.cluster.workers import Pending
from mcnb.messages import Progress


class Result:
    """A result of ipyparallel's, with what the process has reported so far."""

    def __init__(self) -> None:
        self.data: dict[str, Progress] = {}

    def add_done_callback(self, callback: Any) -> None:
        del callback

    def report(self, waits_s: float) -> None:
        self.data["progress"] = Progress(waits_s=waits_s)


def test_processes_are_inactive_that_report_it_once_more() -> None:
    results = {0: Result(), 1: Result()}
    pending = Pending(results, queue.SimpleQueue())
    assert not pending.all_inactive(0.5)  # neither has reported anything
    results[0].report(0.6)
    assert not pending.all_inactive(0.5)
    results[1].report(0.5)
    assert not pending.all_inactive(0.5)
    results[0].report(0.85)
    assert not pending.all_inactive(0.5)
    results[1].report(0.75)
    assert pending.all_inactive(0.5)


def test_an_old_report_does_not_make_a_process_inactive() -> None:
    """Process 0 waited until process 1 came; its reply is late."""
    results = {0: Result(), 1: Result()}
    pending = Pending(results, queue.SimpleQueue())
    results[0].report(1.75)
    results[1].report(0.0)
    assert not pending.all_inactive(1.5)
    pending.waiting.remove(1)
    assert not pending.all_inactive(1.5)
    assert not pending.all_inactive(1.5)


def test_inactive_processes_of_which_one_continues_are_not_inactive() -> None:
    results = {0: Result(), 1: Result()}
    pending = Pending(results, queue.SimpleQueue())
    for k in results:
        results[k].report(0.5)
    assert not pending.all_inactive(0.5)
    results[0].report(0.0)
    assert not pending.all_inactive(0.5)
    for k in results:
        results[k].report(0.5)
    assert not pending.all_inactive(0.5)
    for k in results:
        results[k].report(0.75)
    assert pending.all_inactive(0.5)
