"""What had to be done to end a cell, in whole sentences."""

from __future__ import annotations

import pytest

from mcnb.cluster.outcome import Outcome, aftermath, healing
from mcnb.lockstep.model import ProcessExit, Verdict
from mcnb.messages import Healed, Unfinished

AGAIN = "To restore them, re-run the cells that succeeded: %mcjax restart --replay"

DIVERGED = Verdict("missing", {})
INTACT = "The cluster is intact; all variables are kept"
HEALED = (
    "The cluster was healed: the same processes reconnected, and their variables are kept "
    "(2 arrays)"
)


@pytest.mark.parametrize(
    ("outcome", "count", "expected"),
    [
        (Outcome(), 4, ""),
        (Outcome(exits={1: ProcessExit()}), 4, ""),
        (Outcome(verdict=DIVERGED, verified=True), 4, INTACT),
        (Outcome(interrupted=True, verified=True), 4, INTACT),
        (Outcome(stopped={1: 3}), 4, "Process 1 (line 3) was waiting, so mcnb interrupted it"),
        (Outcome(stopped={1: None}), 4, "Process 1 was waiting, so mcnb interrupted it"),
        (
            Outcome(stopped={3: 5, 1: 5}),
            4,
            "Processes 1,3 (line 5) were waiting, so mcnb interrupted them",
        ),
        (
            Outcome(stopped={0: 11, 1: 3, 2: None}),
            4,
            "Processes 0-2 (lines 3, 11) were waiting, so mcnb interrupted them",
        ),
        (
            Outcome(stopped={0: None, 1: None}),
            2,
            "Both processes were waiting, so mcnb interrupted them",
        ),
        (
            Outcome(stopped=dict.fromkeys(range(4), 3), verdict=DIVERGED, verified=True),
            4,
            f"All 4 processes (line 3) were waiting, so mcnb interrupted them. {INTACT}",
        ),
        (
            Outcome(stopped={0: 7}, interrupted=True, verified=True),
            1,
            f"Process 0 (line 7) was interrupted. {INTACT}",
        ),
        (
            Outcome(stopped={0: 7, 1: 7}, interrupted=True, verified=True),
            2,
            f"Both processes (line 7) were interrupted. {INTACT}",
        ),
        (
            Outcome(stopped={0: 7, 1: 8}, time_limit=10.0, verdict=DIVERGED, verified=True),
            2,
            f"Both processes (lines 7, 8) were interrupted at the time limit of 10 s. {INTACT}",
        ),
        (
            Outcome(stopped={1: None}, time_limit=0.5, verdict=DIVERGED, verified=True),
            12,
            f"Process 1 was interrupted at the time limit of 0.5 s. {INTACT}",
        ),
        (
            Outcome(intact=False),
            1,
            f"Process 0 is being restarted: its variables are lost. {AGAIN}",
        ),
        (
            Outcome(intact=False, interrupted=True, verdict=DIVERGED),
            2,
            f"Both processes are being restarted: their variables are lost. {AGAIN}",
        ),
        (
            Outcome(exits={1: ProcessExit()}, intact=False),
            12,
            f"All 12 processes are being restarted: their variables are lost. {AGAIN}",
        ),
        (
            Outcome(stopped={0: 1, 2: 1}, time_limit=3.0, intact=False, verdict=DIVERGED),
            4,
            "Processes 0,2 (line 1) were interrupted at the time limit of 3 s. "
            f"All 4 processes are being restarted: their variables are lost. {AGAIN}",
        ),
        (
            Outcome(cut=True, verdict=DIVERGED, healed={0: Healed(2), 1: Healed(2)}),
            2,
            HEALED,
        ),
        (
            Outcome(
                stopped={0: 4},
                interrupted=True,
                cut=True,
                healed={0: Healed(2, lost=("y",)), 1: Healed(2)},
            ),
            2,
            f"Process 0 (line 4) was interrupted. {HEALED}. "
            "Without a value, because the computation was aborted, on process 0: y",
        ),
        (
            Outcome(cut=True, intact=False, verdict=DIVERGED, healed={0: Healed(2)}),
            2,
            f"Both processes are being restarted: their variables are lost. {AGAIN}",
        ),
    ],
)
def test_aftermath(outcome: Outcome, count: int, expected: str) -> None:
    assert aftermath(outcome, count) == expected


COMPUTES = Unfinished(devices=(0, 1), newest="fori_loop (In[3], line 2)", arrays=("y",), bytes=8)
KEPT, RENEWED = "All variables are kept", f"are being restarted: their variables are lost. {AGAIN}"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        # What was not seen is not said.
        (Outcome(interrupted=True), KEPT),
        (Outcome(verdict=DIVERGED), KEPT),
        (
            Outcome(
                interrupted=True, intact=False, cut=True, unfinished={0: COMPUTES, 1: COMPUTES}
            ),
            "Processes 0,1 still compute on devices 0, 1, for y; the newest launch is fori_loop "
            "(In[3], line 2). A computation that does not communicate can't be aborted. All 4 "
            f"processes {RENEWED}",
        ),
        (
            Outcome(
                interrupted=True,
                intact=False,
                cut=True,
                unfinished={0: Unfinished(devices=(0,), gpu=True)},
            ),
            "Process 0 still computes on device 0. A computation on GPUs can't be aborted. All 4 "
            f"processes {RENEWED}",
        ),
        (
            Outcome(verdict=DIVERGED, unfinished={2: Unfinished(devices=(0,))}),
            f"{KEPT}. Process 2 still computes on device 0. To end it: %mcjax restart (variables "
            "are lost)",
        ),
        (
            Outcome(interrupted=True, intact=False, unfinished={2: Unfinished(devices=(0,))}),
            f"Process 2 still computes on device 0. It can't be aborted. All 4 processes {RENEWED}",
        ),
        (
            Outcome(stopped={1: 3}, time_limit=2.0, intact=False, unfreed=(1,), verdict=DIVERGED),
            "Process 1 (line 3) was interrupted at the time limit of 2 s. Native code on process 1 "
            f"(line 3) did not react to the interrupt. All 4 processes {RENEWED}",
        ),
        (
            Outcome(interrupted=True, intact=False, silent=(3,)),
            f"Process 3 did not report whether a device still computes. All 4 processes {RENEWED}",
        ),
        (
            Outcome(interrupted=True, intact=False, given_up=True, unfreed=(0,)),
            f"You pressed stop a second time. All 4 processes {RENEWED}",
        ),
        (
            Outcome(
                interrupted=True,
                verified=True,
                unfinished={
                    0: Unfinished(threads=(3,)),
                    1: Unfinished(threads=(3, None)),
                    2: Unfinished(native=True),
                    3: Unfinished(children=("sh", "sleep")),
                },
            ),
            f"{KEPT}. Process 0 still runs a thread of the cell (line 3). To end it: %mcjax "
            "restart (variables are lost). "
            "Process 1 still runs 2 threads of the cell (line 3). To end them: %mcjax restart "
            "(variables are lost). "
            "Process 2 is still running native code, such as a compilation, of this cell or of an "
            "earlier one; cells can run meanwhile. To end it: "
            "%mcjax restart (variables are lost). Process 3 still has the child processes sh, "
            "sleep. To end them: %mcjax restart (variables are lost)",
        ),
        # Threads are the cell's own affair where nobody wanted it ended.
        (Outcome(verified=True, unfinished={0: Unfinished(threads=(3,))}), ""),
        (
            Outcome(pressed_late=True, verified=True),
            "The cell had ended before it could be interrupted. The cluster is intact; all "
            "variables are kept",
        ),
    ],
)
def test_what_was_seen_after_a_stop(outcome: Outcome, expected: str) -> None:
    assert aftermath(outcome, 4) == expected


LOST = "Without a value, because the computation was aborted"


@pytest.mark.parametrize(
    ("healed", "expected"),
    [
        ([Healed(2), Healed(2)], []),
        ([Healed(2, lost=("y",)), Healed(2, lost=("y",))], [f"{LOST}: y"]),
        ([Healed(2), Healed(2, lost=("y",))], [f"{LOST}, on process 1: y"]),
        (
            [Healed(2, lost=("y",)), Healed(2), Healed(2, lost=("y",)), Healed(2, lost=("y",))],
            [f"{LOST}, on processes 0,2,3: y"],
        ),
        (
            [Healed(2, lost=("y",)), Healed(2, lost=("z",))],
            [f"{LOST}, on process 0: y", f"{LOST}, on process 1: z"],
        ),
        (
            [Healed(2, stale=("m: create it again", "f: compile it again"))] * 4,
            ["Not restored: m: create it again, f: compile it again"],
        ),
        (
            [Healed(2), Healed(2, stale=("m: create it again",)), Healed(2)],
            ["Not restored, on process 1: m: create it again"],
        ),
        (
            [
                Healed(2, lost=("y",), stale=("m: create it again",)),
                Healed(2, lost=("y",)),
                Healed(2),
            ],
            [f"{LOST}, on processes 0,1: y", "Not restored, on process 0: m: create it again"],
        ),
    ],
)
def test_what_healing_left_out(healed: list[Healed], expected: list[str]) -> None:
    assert healing(dict(enumerate(healed)), len(healed)) == [HEALED, *expected]


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [((0, 0), "0 arrays"), ((1, 1), "1 array"), ((1, 3), "3 arrays"), ((3, 1), "3 arrays")],
)
def test_the_most_arrays_that_a_process_has_are_told(
    arrays: tuple[int, ...], expected: str
) -> None:
    healed = {k: Healed(number) for k, number in enumerate(arrays)}
    assert healing(healed, 2) == [HEALED.replace("2 arrays", expected)]


def test_every_sentence_begins_with_a_capital() -> None:
    outcome = Outcome(
        stopped={2: 3}, verdict=DIVERGED, healed={k: Healed(2, stale=("m",)) for k in range(4)}
    )
    assert aftermath(outcome, 4) == (
        f"Process 2 (line 3) was waiting, so mcnb interrupted it. {HEALED}. Not restored: m"
    )


def test_processes_that_mcnb_did_not_start_are_not_said_to_be_restarted() -> None:
    assert aftermath(Outcome(interrupted=True, intact=False, silent=(1,)), 2, ours=False) == (
        "Process 1 did not report whether a device still computes. The processes can't "
        "communicate any more. Restart them with the tool that started them; then: %mcjax connect"
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (
            Outcome(verdict=DIVERGED, intact=False, unhealed="the heal took too long"),
            f"The heal took too long. All 4 processes {RENEWED}",
        ),
        (
            Outcome(
                interrupted=True,
                intact=False,
                unfinished={0: Unfinished(devices=(0,))},
                silent=(2, 3),
            ),
            "Process 0 still computes on device 0. It can't be aborted. Processes 2,3 did not "
            f"report whether a device still computes. All 4 processes {RENEWED}",
        ),
        (
            Outcome(
                time_limit=2.0,
                verdict=DIVERGED,
                verified=True,
                unfinished={0: Unfinished(threads=(3,))},
            ),
            f"{KEPT}. Process 0 still runs a thread of the cell (line 3). To end it: %mcjax "
            "restart (variables are lost)",
        ),
        (
            Outcome(
                interrupted=True,
                cut=True,
                healed={k: Healed(2) for k in range(4)},
                unfinished={1: Unfinished(children=("sleep",))},
            ),
            f"{HEALED}. Process 1 still has the child process sleep. To end it: %mcjax restart "
            "(variables are lost)",
        ),
        (
            Outcome(
                interrupted=True,
                verified=True,
                unfinished={
                    0: Unfinished(threads=(3, 5), native=True, children=("sh", "cat")),
                    1: Unfinished(threads=(3, 5), children=("sh", "cat")),
                    2: Unfinished(native=True),
                    3: Unfinished(native=True),
                },
            ),
            f"{KEPT}. Processes 0,1 still run 2 threads of the cell (lines 3, 5). To end them: "
            "%mcjax restart (variables are lost). Processes 2,3 are still running native code, "
            "such as a compilation, of this cell or of an earlier one; cells can run meanwhile. To "
            "end it: %mcjax restart (variables are lost). "
            "Processes 0,1 still have the child processes sh, cat. To end them: %mcjax restart "
            "(variables are lost)",
        ),
    ],
)
def test_what_is_said_of_processes_that_could_not_be_kept_or_freed(
    outcome: Outcome, expected: str
) -> None:
    assert aftermath(outcome, 4) == expected


def test_healing_a_single_process_is_told_in_the_singular() -> None:
    assert healing({0: Healed(1)}, 1) == [
        "The cluster was healed: the same process reconnected, and its variables are kept (1 array)"
    ]
