"""The watch over a running cell: when it samples, and when it reports."""

from __future__ import annotations

import contextlib
import functools
import itertools
import platform
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcnb.lockstep.trace import Sample
from mcnb.messages import Progress, Recent
from mcnb.worker import monitor
from mcnb.worker.monitor import (
    FIRST_LOOK_S,
    PERIOD_S,
    SAMPLE_SHARE,
    SOONEST_S,
    Monitor,
    Position,
    all_threads_sleep,
    native_busy_s,
    native_ready,
)
from tests.support.timing import running_clock_by

CELL_S = 60.0


NEWEST = Recent(1, ("the newest line",))


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
            thread_time=lambda: 0.0,
            sleep=clock.sleep,
            pthread_getcpuclockid=lambda thread: 0,
        ),
    )
    monkeypatch.setattr(monitor, "RunningClock", running_clock_by(clock.monotonic))
    monkeypatch.setattr(monitor, "_task_busy_s", lambda task: 0.0)
    reports: list[float] = []
    samples: list[float] = []

    def publish(progress: Progress) -> None:
        assert progress.recent == NEWEST
        reports.append(clock.now - 1000.0)

    def note(sample: Sample) -> None:
        samples.append(sample.at - 1000.0)

    watch = Monitor(publish, lambda: NEWEST, note)
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


Look = tuple[float, int | None, bool, bool]


def reported(
    looks: list[Look],
    monkeypatch: pytest.MonkeyPatch,
    *,
    busy: float = 0.0,
    own: float = 0.0,
    asleep: bool = True,
    position: Callable[[Monitor, str], tuple[int | None, bool, bool]] | None = None,
) -> tuple[list[Progress], list[Sample]]:
    """Return the reports and samples of a cell.

    Args:
        looks: From when on, in seconds, the main thread is on which line, whether it is inside JAX,
            and whether it runs Python code of JAX.
        monkeypatch: For the clock.
        busy: How much of the time the process, and its main thread, have a core.
        own: How much of the time the monitor's own thread has a core.
        asleep: Whether no thread is ready to run.
        position: What tells where the main thread is, in place of `looks`.
    """
    clock = Clock()

    def look(own: Monitor, label: str) -> Position:
        del own
        assert label == "1"
        (*_, now) = (one for one in looks if clock.now - 1000.0 >= one[0])
        return Position(*now[1:])

    monkeypatch.setattr(
        monitor,
        "time",
        SimpleNamespace(
            monotonic=clock.monotonic,
            process_time=lambda: (busy + own) * clock.now,
            thread_time=lambda: own * clock.now,
            sleep=clock.sleep,
            pthread_getcpuclockid=lambda thread: 0,
        ),
    )
    monkeypatch.setattr(monitor, "RunningClock", running_clock_by(clock.monotonic))
    monkeypatch.setattr(monitor, "_task_busy_s", lambda task: busy * clock.now)
    monkeypatch.setattr(monitor, "all_threads_sleep", lambda: asleep)
    monkeypatch.setattr(Monitor, "_position", position or look)
    reports: list[Progress] = []
    samples: list[Sample] = []
    watch = Monitor(reports.append, Recent, samples.append)
    with watch.watching("1"):
        assert clock.over.wait(60)
    clock.left.set()
    return reports, samples


JAX: list[Look] = [
    (0.0, 2, False, False),
    (2.0, 3, True, True),
    (6.0, 4, False, False),
    (8.0, 5, True, False),
]


def test_how_long_a_process_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reports, samples = reported(JAX, monkeypatch)
    at = {round(PERIOD_S * n, 2): one for n, one in enumerate(reports, 1)}
    assert [(at[s].line, at[s].waits_s, at[s].inside_jax) for s in (1.75, 5.75, 7.75, 10.0)] == [
        (2, 0.0, False),
        (3, pytest.approx(4.0), True),
        (4, 0.0, False),
        # Since the last report before it began to wait.
        (5, pytest.approx(2.25), False),
    ]
    for sample in samples:
        since = sample.at - 1000.0
        assert sample.computes == (2.0 <= since < 6.0 or since >= 8.0)
        assert sample.line == next(line for began, line, *_ in JAX[::-1] if since >= began)


@pytest.mark.parametrize(
    ("busy", "asleep", "computes", "waits"),
    [
        (0.01, True, True, True),
        # It compiles, in threads of its own.
        (0.1, True, True, False),
        # It has no core, on a busy machine.
        (0.0, False, True, False),
        # It runs Python code of JAX.
        (0.9, True, False, False),
    ],
)
def test_a_process_with_something_to_do_does_not_wait(
    busy: float, asleep: bool, computes: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, samples = reported([(0.0, 2, True, True)], monkeypatch, busy=busy, asleep=asleep)
    assert {sample.computes for sample in samples} == {computes}
    assert {report.waits_s > 0 for report in reports} == {waits}


def test_the_cost_of_samples_is_no_work_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, they take more of a core than a process that waits may use."""
    reports, _ = reported([(0.0, 2, True, True)], monkeypatch, busy=0.01, own=0.4)
    assert {report.waits_s > 0 for report in reports} == {True}


def test_a_report_that_fails_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = itertools.count(1)

    def position(own: Monitor, label: str) -> Position:
        del own, label
        if next(calls) in (3, 90):
            raise RuntimeError("dictionary changed size during iteration")
        return Position(2, True, True)

    reports, _ = reported([], monkeypatch, position=position)
    waits = [one.waits_s for one in reports]
    assert waits[-1] > 1.0
    assert [one.getMessage() for one in caplog.records] == ["a report on a cell failed"] * 2


FUTEX = "202" if platform.machine() in ("x86_64", "AMD64") else "98"


@pytest.mark.parametrize(
    ("module", "call", "computes", "inside_jax", "doing"),
    [
        ("jax._src.array", "0", True, True, "computes"),
        ("jax._src.compiler", "0", True, True, "compiles"),  # XLA's threads do
        ("jaxlib.xla_client", "running", True, True, "computes"),
        ("jax_plugin", "0", True, True, "computes"),
        ("jaxtyping", "0", False, False, "python"),
        # Native code that the learner's own line has called.
        ("__main__", FUTEX, True, False, "computes"),
        ("__main__", "0", False, False, "python"),
        ("numpy.linalg", FUTEX, True, False, "computes"),
        # Python that waits for another thread of the learner's.
        ("threading", FUTEX, False, False, "python"),
        ("concurrent.futures._base", FUTEX, False, False, "python"),
    ],
)
def test_where_a_thread_is_blocked(
    module: str,
    call: str,
    computes: bool,
    inside_jax: bool,
    doing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = SimpleNamespace(co_filename="<In[1]>")
    frame = SimpleNamespace(f_globals={"__name__": module}, f_code=code, f_back=None, f_lineno=3)
    main = threading.get_ident()
    frames = contextlib.nullcontext({main: frame})
    position = Monitor._position
    monkeypatch.setattr(monitor, "current_frames", lambda: frames)
    monkeypatch.setattr(monitor, "frame_line", lambda frame, label: frame.f_lineno)
    monkeypatch.setattr(
        monitor, "_read", lambda task, file: f"{call} 0x1 0x2\n" if file == "syscall" else ""
    )
    reports, samples = reported(
        [(0.0, None, False, False)], monkeypatch, position=position, asleep=True
    )
    assert {(sample.computes, sample.line) for sample in samples} == {(computes, 3)}
    assert {(one.inside_jax, one.waits_s > 0) for one in reports} == {(inside_jax, computes)}
    assert {one.doing for one in reports} == {doing}


def test_a_finalizer_is_not_delayed_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read while the thread goes on, and its function returns."""
    goes_on, gone = threading.Event(), threading.Event()
    finalized_in: list[int] = []

    class Held:
        pass

    def inner(held: Held) -> None:
        weakref.finalize(held, lambda: finalized_in.append(threading.get_ident()))
        sampled.set()
        goes_on.wait(10)

    def outer() -> None:
        inner(Held())
        gone.set()

    def read(task: int, file: str) -> str:
        if file == "syscall":
            goes_on.set()
            assert gone.wait(10)
        return ""

    sampled = threading.Event()
    thread = threading.Thread(target=outer)
    thread.start()
    assert sampled.wait(10)
    monkeypatch.setattr(monitor, "_read", read)
    # As of native code, whose caller's frame is the innermost.
    monkeypatch.setattr(monitor, "_WAITING_THEMSELVES", set())
    watch = SimpleNamespace(_thread=thread.ident, _task=1)
    watch._frame_at = functools.partial(Monitor._frame_at, watch)
    Monitor._position(watch, "1")  # type: ignore[arg-type]
    thread.join(10)
    assert finalized_in == [thread.ident]


class Proc:
    """The files of proc(5) about threads, by the thread's number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, number: int, state: str, name: str = "", ran: int = 0, queued: int = 0) -> None:
        task = self.folder / str(number)
        task.mkdir()
        # A name may hold brackets.
        (task / "stat").write_text(f"{number} (a) b) {state} 1 2 3")
        (task / "comm").write_text(f"{name}\n")
        (task / "schedstat").write_text(f"{ran} {queued} 7\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proc:
    assert monitor._TASKS == "/proc/self/task"
    monkeypatch.setattr(monitor, "_TASKS", str(tmp_path))
    return Proc(tmp_path)


def test_threads_that_python_does_not_know(proc: Proc) -> None:
    own = threading.get_native_id()
    proc.add(own, "R", "python", 10**9)
    proc.add(1 << 30, "S", "tf_XLAEigen", 2 * 10**9, 10**9)
    proc.add((1 << 30) + 1, "S", "jax_worker", 10**8)
    (proc.folder / str((1 << 30) + 2)).mkdir()  # it has just ended
    assert native_busy_s() == {1 << 30: 3.0, (1 << 30) + 1: 0.1}
    assert native_busy_s("tf_", queued=False) == {1 << 30: 2.0}
    assert all_threads_sleep()
    assert not native_ready()
    proc.add((1 << 30) + 3, "D")
    assert not all_threads_sleep()
    assert not native_ready()
    proc.add((1 << 30) + 4, "R")
    assert native_ready()
