"""Verdicts as errors: which comes first, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace

from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.errors import CellError, ClusterError, LockstepError
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import ProcessState, Verdict
from mcnb.messages import ProcessError, Reply
from tests.support.verdicts import FINISHED, MAX, WAS_KILLED, at, states

RESTARTED = (
    "Both processes are being restarted: their variables are lost. To restore them, re-run "
    "the cells that succeeded: %mcjax restart --replay"
)
ANEW = f"Process 0 was waiting, so mcnb interrupted it. {RESTARTED}"

MINE = ProcessError("ValueError", "mine", 2, "traceback")


def test_processes_that_parted_are_a_lockstep_error() -> None:
    verdict = Verdict("missing", states(at(), FINISHED))
    outcome = Outcome(stopped={0: None}, verdict=verdict, intact=False)
    error = Result({}, 2, outcome).error()
    assert type(error) is LockstepError
    assert error.kind == verdict.kind
    assert str(error) == (
        f"missing: process 0 is waiting in sum, line 4; process 1 finished the cell without "
        f"reaching it. {ANEW}"
    )
    assert error.lines == [
        "LockstepError: Processes diverged: a participant is missing",
        "",
        "[0] is waiting in sum, line 4",
        "[1] finished the cell without reaching it",
        "",
        ANEW,
    ]


def test_the_error_that_left_others_waiting_is_the_headline() -> None:
    verdict = Verdict("missing", states(at(), ProcessState("raised", error="ValueError: mine")))
    outcome = Outcome(stopped={0: None}, verdict=verdict, intact=False)
    error = Result({1: Reply((), MINE)}, 2, outcome).error()
    assert type(error) is CellError
    assert str(error) == (
        "process 1 raised ValueError: mine (line 2). Process 0 waited at line 4 in sum. " + ANEW
    )
    waited = "Process 0 waited at line 4 in sum"
    assert error.lines == ["[1] ValueError in line 2", "traceback", "", waited, ANEW]


def test_an_error_after_a_mismatch_is_not_the_headline() -> None:
    verdict = Verdict("mismatch", states(at(), at(4, MAX)))
    error = Result({1: Reply((), MINE)}, 2, Outcome(verdict=verdict, verified=True)).error()
    assert type(error) is LockstepError
    assert error.kind == verdict.kind
    assert str(error) == (
        f"{explain(verdict, 2).sentence}. The cluster is intact; all variables are kept. process 1 "
        "raised ValueError: mine (line 2)"
    )
    assert error.lines[0] == "LockstepError: Processes diverged: their launches do not match"
    assert error.lines[-3:] == ["", "[1] ValueError in line 2", "traceback"]


SLOW = (
    "no process waited for a launch of another one. If the code only needs more time, use a larger "
    "--timeout. Otherwise, look for a loop that does not end, or for a wait for something outside "
    "the cell, such as a file or a thread"
)


def test_a_cell_that_took_too_long_is_no_lockstep_error() -> None:
    verdict = Verdict(
        "stalled", states(ProcessState("hangs", line=3), ProcessState("runs", line=5))
    )
    outcome = Outcome(stopped={0: 3, 1: 5}, time_limit=2.0, verdict=verdict, verified=True)
    error = Result({}, 2, outcome).error()
    assert type(error) is CellError
    assert str(error) == (
        f"stalled: process 0 waited inside JAX at line 3; process 1 was at line 5. Hint: {SLOW}. "
        "Both processes "
        "(lines 3, 5) were interrupted at the time limit of 2 s. The cluster is intact; all "
        "variables are kept"
    )
    assert error.lines[0] == "CellError: The cell did not finish within its time limit"


def test_a_death_comes_before_what_parted() -> None:
    verdict = Verdict("mismatch", states(at(), at(4, MAX)), happened="crashed")
    outcome = Outcome(exits={1: WAS_KILLED}, verdict=verdict, intact=False)
    result = Result({}, 2, outcome)
    error = result.error()
    assert type(error) is ClusterError
    assert str(error) == (f"process 1 was killed. {RESTARTED}. {explain(verdict, 2).sentence}")
    assert error.lines == [
        f"ClusterError: process 1 was killed. {RESTARTED}",
        "",
        *explain(verdict, 2).lines,
    ]
    verdict = Verdict("died", states(at(), ProcessState("died", exit=WAS_KILLED)))
    assert str(Result({}, 2, replace(outcome, verdict=verdict)).error()) == (
        f"process 1 was killed. {RESTARTED}"
    )
