"""Why a program ended, from the ends of its processes and the verdict."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from mcnb.cli.cause import Ended, find_cause
from mcnb.lockstep.model import ProcessExit, ProcessState, Verdict
from mcnb.lockstep.runner import Ending
from tests.support.verdicts import FINISHED, launch

SUM = launch("sum", "1", participants=(0, 1, 2))
WAITS = ProcessState("waits", SUM, 7, "train.py:7")
MISSING = (
    "missing: processes 0,1 are waiting in sum, train.py:7; process 2 finished the cell without "
    "reaching it"
)
BLOCK = (
    "Processes diverged: a participant is missing\n\n[0,1] are waiting in sum, train.py:7\n"
    "[2]   finished the cell without reaching it"
)
VERDICT = Verdict("missing", {0: WAITS, 1: WAITS, 2: FINISHED})


def ended(process: int, kind: str = "raised", error: str = "", line: int = 9) -> Ended:
    """Return the end of a process with its report."""
    code = 5 if kind == "exit" else 0 if kind == "done" else 1
    place = "" if kind == "done" else f"train.py:{line}"
    return Ended(process, code, Ending(kind, error, place, code))  # type: ignore[arg-type]


DIVERGED = [ended(k, "diverged", MISSING, 7) for k in (0, 1)]


@pytest.mark.parametrize(
    ("ends", "verdict", "expected"),
    [
        ([ended(0, "done"), ended(1, "done")], None, ("", 0)),
        (
            [ended(1, error="OSError: full")],
            None,
            ("process 1 raised OSError: full (train.py:9)", 1),
        ),
        (
            [ended(1, "exit", "exit code 5"), ended(0, "exit", "exit code 5")],
            None,
            ("processes 0,1 ended with exit code 5 (train.py:9)", 5),
        ),
        ([ended(2, "done"), *DIVERGED], VERDICT, (BLOCK, 1)),
        # What is raised because of a verdict says less than the verdict.
        (
            [ended(2, "done"), ended(1, error="RuntimeError: a"), ended(0, error="KeyError: 'b'")],
            VERDICT,
            (f"{BLOCK}\n\nProcess 1 raised RuntimeError: a (train.py:9)", 1),
        ),
        (
            [
                ended(2, "done"),
                ended(1, error="RuntimeError: a"),
                ended(0, error="RuntimeError: a"),
            ],
            VERDICT,
            (f"{BLOCK}\n\nProcesses 0,1 raised RuntimeError: a (train.py:9)", 1),
        ),
        (
            [ended(0, "exit", "exit code 5"), DIVERGED[1]],
            VERDICT,
            (f"{BLOCK}\n\nProcess 0 ended with exit code 5 (train.py:9)", 1),
        ),
        # The error of the process that is missing is the cause, whoever ended first.
        (
            [
                ended(1, error="RuntimeError: a"),
                ended(2, error="OSError: full", line=5),
                DIVERGED[0],
            ],
            Verdict("missing", {0: WAITS, 1: WAITS, 2: ProcessState("raised", error="OSError")}),
            (
                "process 2 raised OSError: full (train.py:5). Processes 0,1 waited at "
                "train.py:7 in sum",
                1,
            ),
        ),
        (
            [Ended(2, -signal.SIGKILL, None), *DIVERGED],
            Verdict("died", {0: WAITS, 1: WAITS, 2: ProcessState("died", exit=ProcessExit())}),
            (
                "process 2 was killed by SIGKILL (sent by a program, or by the system "
                "because memory ran out). Processes 0,1 waited at train.py:7 in sum",
                137,
            ),
        ),
        # JAX aborts the others when process 0 is gone.
        (
            [Ended(1, -signal.SIGABRT, None), Ended(0, -signal.SIGSEGV, None)],
            None,
            ("process 0 was killed by SIGSEGV (a fault in native code)", 139),
        ),
        ([ended(0, "interrupted")], None, ("interrupted", 130)),
        # Those that mcnb ends did not fail, whatever their exit code is.
        ([Ended(0, -signal.SIGKILL, None, True), ended(1, "done")], None, ("", 0)),
        (
            [Ended(0, 1, None, True), ended(1, error="OSError: full"), Ended(2, 130, None, True)],
            None,
            ("process 1 raised OSError: full (train.py:9)", 1),
        ),
        (
            [Ended(1, -signal.SIGKILL, None), Ended(2, -signal.SIGKILL, None)],
            None,
            (
                "processes 1,2 were killed by SIGKILL (sent by a program, or by the system "
                "because memory ran out)",
                137,
            ),
        ),
        # Equal but for the devices, in the words of the first process.
        (
            [
                ended(2, error="ValueError: cpu:4 is busy"),
                ended(0, error="ValueError: cpu:0 is busy"),
                ended(1, error="ValueError: it is busy"),
            ],
            None,
            ("processes 0,2 raised ValueError: cpu:0 is busy (train.py:9)", 1),
        ),
    ],
)
def test_the_cause(ends: list[Ended], verdict: Verdict | None, expected: tuple[str, int]) -> None:
    assert find_cause(ends, 3, [verdict] if verdict else []) == expected


def test_a_verdict_that_all_have_caught() -> None:
    ends = [Ended(k, 1, Ending("diverged", MISSING, "", 1, verdict="missing")) for k in (0, 1)]
    caught = f"the program caught a LockstepError and went on: {BLOCK}"
    assert find_cause(ends, 3, [VERDICT]) == (caught, 1)
    other = replace(VERDICT, states={**VERDICT.states, 0: FINISHED})
    assert find_cause(ends, 3, [replace(VERDICT, over=True), other]) == (caught, 1)


def test_a_verdict_after_one_that_was_caught() -> None:
    later = replace(WAITS, line=9, place="train.py:9")
    last = replace(VERDICT, states={**VERDICT.states, 0: later, 1: later})
    said, code = find_cause(DIVERGED, 3, [replace(VERDICT, over=True), last])
    assert code == 1
    assert said == (
        f"{BLOCK.replace('train.py:7', 'train.py:9')}\n\nBefore that, the program caught a "
        f"LockstepError and went on: {MISSING}"
    )


def test_an_error_after_a_verdict_that_was_caught() -> None:
    waiting = next(k for k, state in VERDICT.states.items() if state.doing == "waits")
    ends = [ended(waiting, error="OSError: full")]
    assert find_cause(ends, 3, [replace(VERDICT, over=True)])[0] == (
        f"process {waiting} raised OSError: full (train.py:9)"
    )
