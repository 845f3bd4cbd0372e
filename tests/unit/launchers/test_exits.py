"""Lost processes, their exit reasons, and the lines that they leave."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from mcnb.launchers.exits import (
    CONTROLLER,
    FORKSERVER,
    ExitReporter,
    crash_line,
    crash_report,
    last_lines,
    lines_of,
    output_lines,
    output_path,
    process_index,
    process_name,
)
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


@pytest.mark.parametrize("name", [CONTROLLER, FORKSERVER, "process", "process 1 of 2"])
def test_only_processes_have_an_index(name: str) -> None:
    assert process_index(name) is None
    assert [process_index(process_name(k)) for k in (0, 12)] == [0, 12]


def numbered(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last + 1))


def test_the_last_lines_of_a_process(tmp_path: Path) -> None:
    output = output_path(tmp_path, process_name(3))
    assert output == str(tmp_path / "process-3")
    assert last_lines(output) == ""
    Path(f"{output}.err").write_text(f"{numbered(1, 9)}\n")
    assert last_lines(output) == f" Its last lines:\n{numbered(2, 9).strip()}"
    assert last_lines("") == ""


def test_lines_lose_the_time_and_the_thread_of_a_log() -> None:
    log = "W1126 03:39:55.123456   12345 a.cc:1] Slow\nE1126 03:39:55.1 7 b.cc:22] Lost\nW12 done"
    assert lines_of(log) == " Its last lines:\na.cc:1] Slow\nb.cc:22] Lost\nW12 done"
    assert lines_of(" \n") == ""


def test_long_output_of_a_launcher_keeps_its_begin_and_its_end() -> None:
    assert output_lines(numbered(1, 20)) == f" Its output:\n{numbered(1, 20).strip()}"
    assert output_lines(numbered(1, 21)) == (
        f" Its output:\n{numbered(1, 10)}…\n{numbered(12, 21).strip()}"
    )
    assert output_lines("\n") == ""


SIGTERM = "I1126 03:39:55.123456   12 preemption_notifier.cc:89] SIGTERM caught at 2026-11-26\n"
FRAMES = (
    '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in f\n'
    '  File "<In[3]>", line 2 in inner\n'
    '  File "<In[3]>", line 4 in <module>\n'
    '  File "/x/shell.py", line 1 in run\n'
)
FATAL = "Fatal Python error: Aborted\n"


@pytest.mark.parametrize(
    ("err", "report"),
    [
        ("oh\n", "oh\n"),
        (f"oh\n{SIGTERM}no\n", "oh\nno\n"),
        # The frames end at the cell's outermost line, which called the others.
        (
            f"oh\n{FATAL}\nCurrent thread 0x7f (most recent call first):\n{FRAMES}",
            f"oh\n{FATAL}"
            '  File "ctypes/__init__.py", line 519 in f\n'
            '  File "<In[3]>", line 2 in inner\n'
            '  File "<In[3]>", line 4 in <module>\n',
        ),
        # Frames of no cell are those of mcnb and its libraries.
        (f'{FATAL}\nThread 0x7f:\n  File "/x/shell.py", line 1 in run\n', FATAL),
    ],
)
def test_what_is_told_of_a_crash(err: str, report: str) -> None:
    assert crash_report(err) == report


def test_the_line_of_a_crash_is_that_of_the_cell() -> None:
    assert crash_line(f"{FATAL}{FRAMES}", "3") == 2  # the innermost one
    assert crash_line(f"{FATAL}{FRAMES}", "4") is None
    assert crash_line('  File "<In[12]>", line 7 in f', "1.") is None
