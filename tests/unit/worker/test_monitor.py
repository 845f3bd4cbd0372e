"""The watch over a running cell: when it samples, and when it reports."""

from __future__ import annotations

import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest

from mcnb.lockstep.trace import Sample
from mcnb.messages import Progress
from mcnb.worker import monitor
from mcnb.worker.monitor import FIRST_LOOK_S, PERIOD_S, SAMPLE_SHARE, SOONEST_S, Monitor

CELL_S = 60.0


class Clock:
    """A clock that only sleeping moves, and that ends the cell after `CELL_S`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.over = threading.Event()
        self.left = threading.Event()

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= 1000.0 + CELL_S:
            self.over.set()
            self.left.wait(10)


def test_a_report_follows_the_last_one_after_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(
        monitor,
        "time",
        SimpleNamespace(
            monotonic=clock.monotonic,
            process_time=clock.process_time,
            sleep=clock.sleep,
            pthread_getcpuclockid=lambda thread: 0,
        ),
    )
    monkeypatch.setattr(monitor, "_task_busy_s", lambda task: 0.0)
    reports: list[float] = []
    samples: list[float] = []

    def publish(progress: Progress) -> None:
        assert progress.newest_line == "the newest line"
        reports.append(clock.now - 1000.0)

    def note(sample: Sample) -> None:
        samples.append(sample.at - 1000.0)

    watch = Monitor(publish, lambda: "the newest line", note)
    with watch.watching("In[1]"):
        assert clock.over.wait(60)
    clock.left.set()
    # Samples become rarer, which does not delay a report.
    expected = [PERIOD_S * n for n in range(1, round(CELL_S / PERIOD_S))]
    assert reports[: len(expected)] == pytest.approx(expected, abs=1e-6)
    pauses = [later - sooner for sooner, later in pairwise(samples)]
    assert samples[0] == pytest.approx(FIRST_LOOK_S)
    assert pauses[0] == pytest.approx(SOONEST_S)
    for began, pause in zip(samples, pauses, strict=False):
        assert pause <= max(SOONEST_S, SAMPLE_SHARE * began) + 1e-6
