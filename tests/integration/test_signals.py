"""Interrupts reach the cell that they are meant for, whatever it does with them."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.thorough("interrupts every kind of code")

# Only ends what hangs, on however busy a machine.
HANG_S = 240
# Runs as a process of a cluster does: cells in the main thread, orders to interrupt in another one.
PROCESS = """
import signal, sys, threading, time
from mcnb.worker import signals

LATE_S = 0.1
signals.install(lambda frame: frame.f_code.co_filename == "<cell>")

def run(number, source, orders=(), names=None):
    names = {} if names is None else names
    over = []
    def order():
        while "begun" in source and "begun" not in names:
            time.sleep(0.001)
        for after, attempt in orders:
            while signals._raised < attempt - 1 and not over:  # the one before is on its way
                time.sleep(0.001)
            time.sleep(after)
            signals.deliver(number, attempt)
    thread = threading.Thread(target=order)
    thread.start()
    signals.begin(number)
    try:
        with signals.armed():
            exec(compile(source, "<cell>", "exec"), names)
        how = "ended"
    except KeyboardInterrupt:
        how = "interrupted"
    over.append(True)
    thread.join()
    time.sleep(LATE_S)  # what comes now comes too late, and must not reach this
    for _ in range(1000):
        pass
    return how
"""


def process(body: str) -> list[str]:
    """Run code in a process of its own; return the lines that it prints."""
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROCESS + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


ONCE, TWICE = "[(0.2, 1)]", "[(0.2, 1), (0.3, 2)]"


@pytest.mark.parametrize(
    ("source", "orders"),
    [
        ("while True: pass", ONCE),
        ("import time\ntime.sleep(60)", ONCE),
        ("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", ONCE),
        ("import ctypes\nctypes.CDLL(None).sleep(60)", ONCE),
        ("import os\nos.system('sleep 60')\nwhile True: pass", ONCE),
        ("import os\nwhile True: os.system('sleep 60')", TWICE),
        ("import subprocess\nsubprocess.run(['sleep', '60'])", ONCE),
        (
            "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
            ONCE,
        ),
        ("import time\nwhile True:\n    try: time.sleep(60)\n    except: pass", TWICE),
        ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", TWICE),
        (
            "import time\ndef wait():\n    try: time.sleep(60)\n    except: pass\n"
            "while True: wait()",
            TWICE,
        ),
    ],
)
def test_what_is_interrupted(source: str, orders: str) -> None:
    # And twice: what the first leaves behind must not touch the second.
    assert process(f"""
        for number in (1, 2):
            print(run(number, {source!r}, {orders}), sys.gettrace(), signals.children())
        print(run(3, "1"))
    """) == ["interrupted None []", "interrupted None []", "ended"]


@pytest.mark.promise("finally clauses")
def test_a_finally_clause_is_not_interrupted_by_the_first(tmp_path: object) -> None:
    source = (
        "import time\ntry:\n    begun = True\n    time.sleep(60)\n"
        "finally:\n    time.sleep(0.2)\n    cleaned = True"
    )
    assert process(f"""
        names = {{}}
        print(run(1, {source!r}, {ONCE}, names), names["cleaned"])
    """) == ["interrupted True"]


def test_an_interrupt_for_a_cell_that_has_not_begun() -> None:
    assert process("""
        signals.deliver(2, 1)
        print(run(1, "1"), run(2, "while True: pass"), run(2, "1"), run(3, "1"))
    """) == ["ended interrupted ended ended"]


@pytest.mark.promise("late interrupts")
def test_an_interrupt_for_a_cell_that_is_over() -> None:
    assert process("""
        print(run(5, "1"))
        signals.deliver(5, 1)
        signals.deliver(4, 1)
        print(run(6, "import time; time.sleep(0.3)", [(0.1, 1)][:0]))
        signals.begin(7)
        signals.deliver(6, 1)
        time.sleep(0.2)
        print("untouched")
    """) == ["ended", "ended", "untouched"]


def test_signals_between_cells_are_ignored() -> None:
    assert process("""
        import os
        os.kill(os.getpid(), signal.SIGINT)
        print(run(1, "import os, signal; os.kill(os.getpid(), signal.SIGINT)"))
        os.kill(os.getpid(), signal.SIGINT)
        print("goes on")
    """) == ["interrupted", "goes on"]


def test_a_cell_that_ends_at_that_moment() -> None:
    """Whether it is interrupted is a race; that nothing else is, is not."""
    assert process("""
        LATE_S = 0.002
        seen = set()
        for number in range(1, 200):
            seen.add(run(number, "sum(range(1000))", [(number % 7 * 1e-5, 1)]))
        print(seen <= {"ended", "interrupted"}, run(500, "1"))
    """) == ["True ended"]
