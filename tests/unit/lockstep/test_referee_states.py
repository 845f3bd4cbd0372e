"""What the referee knows of each process: in a new cell, after a verdict, and at its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcnb.lockstep.model import (
    Doing,
    ExitSource,
    LastLaunch,
    Launch,
    Meeting,
    ProcessExit,
    ProcessState,
)
from mcnb.lockstep.referee import Compare, Go, Referee, Ruling, Stop
from tests.unit.lockstep.test_referee import launch

F, G = launch("f", 0, 1), launch("g", 0, 1)
ALL, OTHER, LAST = (launch(name, 0, 1, 2) for name in ("all", "other", "last"))
RUNS = ProcessState("runs")
FULL = "OSError: disk full"


def stop_of(rulings: list[Ruling]) -> Stop:
    [stop] = rulings
    assert isinstance(stop, Stop)
    return stop


def meet(referee: Referee, what: Launch, *lines: str) -> None:
    """Let the participants make a launch, each from its line."""
    for k, line in zip(what.participants, lines, strict=True):
        referee.announce(k, 0, what, 1, stack=(line,))


def test_launches_are_counted_anew_in_each_cell() -> None:
    referee = Referee(2)
    for _ in range(2):
        referee.begin([0, 1])
        meet(referee, F, "a:1", "a:1")
        meet(referee, F, "a:2", "a:3")
        lines = {0: "a:2", 1: "a:3"}
        stacks = {0: ("a:2",), 1: ("a:3",)}
        assert referee.meetings == [Meeting(F, 2, lines, lines, stacks)]
        referee.announce(0, 0, F, 4, stack=("a:1",))
        stop = stop_of(referee.end(1, "finished"))
        assert {k: (one.launches, one.visits) for k, one in stop.verdict.states.items()} == {
            0: (2, 1),
            1: (2, 1),
        }
        referee.end(0, "raised", error="LockstepError")


def test_the_last_launch_of_a_process_is_known_at_its_end() -> None:
    referee = Referee(3)
    assert referee.last_launch(0) is None
    meet(referee, F, "line 1", "line 1")
    referee.announce(0, 0, F, line=1, stack=("line 1",))
    assert referee.last_launch(0) == LastLaunch("f", "line 1", made=False, times=2)
    referee.withdraw(0, 0)
    referee.announce(0, 0, F, line=1, stack=("line 1", "model.py:4"))
    assert referee.last_launch(0) == LastLaunch("f", "line 1", made=False)
    referee.withdraw(0, 0)
    referee.announce(0, 0, ALL, line=2)
    referee.announce(1, 0, ALL, line=3, place="train.py:3")
    made, waits = LastLaunch("f", "line 1", made=True), LastLaunch("all", "line 2", made=False)
    assert referee.last_launch(0) == waits
    referee.withdraw(0, 0)
    assert referee.last_launch(0) == made
    referee.announce(0, 0, ALL, line=2)
    killed = ProcessExit(ExitSource.OBSERVED, status=-9)
    referee.end(0, "died", how=killed)
    assert referee.states()[0].exit == replace(killed, last=waits)
    assert referee.last_launch(0) == waits
    referee.end(1, "died", how=replace(killed, line=7))
    assert referee.states()[1].exit == replace(killed, line=7)
    referee.end(2, "died", how=killed)
    assert referee.states()[2].exit == killed


def test_the_last_launch_of_a_cell_is_none_of_the_next() -> None:
    referee = Referee(2)
    meet(referee, F, "1", "1")
    referee.begin([0, 1])
    assert referee.last_launch(0) is None


def test_only_launches_with_the_same_participants_are_counted() -> None:
    referee = Referee(3)
    meet(referee, F, "1", "1")
    meet(referee, ALL, "1", "1", "1")
    meet(referee, ALL, "1", "1", "1")
    assert referee.states()[0] == replace(RUNS, launches=3)
    referee.announce(0, 0, G, line=4)
    assert referee.states()[0] == ProcessState("waits", G, 4, launches=1)


def test_nobody_waits_in_a_new_cell_for_what_was_refused_in_the_last() -> None:
    referee = Referee(2)
    referee.announce(0, 0, F, line=4)
    referee.announce(1, 0, G, line=5)
    assert [referee.diverged(k) for k in range(2)] == [True, True]
    for k in range(2):
        referee.end(k, "raised", error="LockstepError")
    assert [referee.diverged(k) for k in range(2)] == [False, False]
    referee.begin([0, 1])
    assert referee.states() == {0: RUNS, 1: RUNS}


def test_a_thread_of_a_process_that_is_not_invited_may_still_come() -> None:
    referee = Referee(2)
    referee.end(1, "finished", busy=True)
    referee.begin([0])
    assert referee.announce(0, 0, F) == []
    stop = stop_of(referee.quiet(1))
    assert (stop.waiters, stop.verdict.kind) == (((0, 0),), "not invited")


def test_a_thread_of_the_last_cell_is_told_when_its_partner_is_not_invited() -> None:
    referee = Referee(2)
    assert referee.announce(0, 7, F, alone=False) == []
    stop = stop_of(referee.begin([0]))
    assert (stop.waiters, stop.verdict.kind) == (((0, 7),), "not invited")


def test_a_thread_that_does_not_wait_has_nothing_to_withdraw() -> None:
    referee = Referee(2)
    referee.end(1, "finished")
    referee.withdraw(1, 0)
    assert stop_of(referee.announce(0, 0, F)).verdict.kind == "missing"


@pytest.mark.parametrize(("end", "kind"), [("left", "missing"), ("died", "died")])
def test_nobody_meets_a_process_that_is_gone(end: Doing, kind: str) -> None:
    referee = Referee(2)
    assert referee.announce(1, 0, F) == []
    assert referee.end(1, end) == []
    stop = stop_of(referee.announce(0, 0, F))
    assert (stop.waiters, stop.verdict.kind) == (((0, 0),), kind)


def test_a_process_that_left_does_not_die_as_well() -> None:
    referee = Referee(2)
    referee.end(1, "left")
    assert referee.end(1, "died", how=ProcessExit(status=1)) == []
    assert referee.states()[1] == ProcessState("left")


def test_a_verdict_follows_the_processes_that_it_involves() -> None:
    referee = Referee(4)
    referee.announce(0, 0, ALL, line=4)
    stop = stop_of(referee.end(1, "finished"))
    waits, finished = ProcessState("waits", ALL, 4), ProcessState("finished")
    assert stop.verdict.states == {0: waits, 1: finished, 2: RUNS}
    referee.end(2, "raised", error=FULL)
    referee.end(3, "raised", error=FULL)
    assert referee.verdict is not None
    assert referee.verdict.states == {0: waits, 1: finished, 2: ProcessState("raised", error=FULL)}


def test_visits_are_those_of_the_first_line_that_waits_and_before_the_verdict() -> None:
    referee = Referee(4)
    both = launch("both", 2, 3)
    meet(referee, launch("four", 0, 1, 2, 3), "1", "1", "1", "1")
    referee.announce(0, 0, ALL, stack=("1",))
    referee.end(1, "finished")
    meet(referee, both, "1", "1")  # by those who have no verdict yet
    [stop] = referee.announce(2, 0, launch("g", 1, 2, 3), stack=("9",))
    assert isinstance(stop, Stop)
    assert {k: state.visits for k, state in stop.verdict.states.items()} == {0: 1, 1: 1, 2: 1, 3: 2}


def test_times_are_those_of_the_line_from_wherever_it_is_called() -> None:
    referee = Referee(2)
    for each in (("a", "h"), ("b", "h"), ("b", "h"), ("a", "other"), ("h",)):
        for k in range(2):
            referee.announce(k, 0, launch("both", 0, 1), stack=each)
    referee.announce(0, 0, launch("both", 0, 1), stack=("b", "h"))
    [stop] = referee.end(1, "finished")
    assert isinstance(stop, Stop)
    told = {k: (state.visits, state.times) for k, state in stop.verdict.states.items()}
    assert told == {0: (2, 4), 1: (2, 4)}


def test_times_are_those_of_the_own_line_of_each_that_waits_also_if_it_comes_late() -> None:
    referee = Referee(3)
    for _ in range(2):
        meet(referee, ALL, "a:1", "a:1", "a:1")
    referee.announce(0, 0, OTHER, 2, stack=("a:2",))
    stop = stop_of(referee.announce(1, 0, ALL, 1, stack=("a:1",)))
    assert [one.times for one in stop.verdict.states.values()] == [0, 2, 0]
    stop = stop_of(referee.announce(2, 0, ALL, 1, stack=("a:1",)))
    assert [one.times for one in stop.verdict.states.values()] == [0, 2, 2]
    referee.end(2, "raised", error="LockstepError")
    assert referee.verdict is not None
    assert [one.times for one in referee.verdict.states.values()] == [0, 2, 2]


def test_launches_of_what_has_ended_are_those_with_the_participants_of_what_waits() -> None:
    referee = Referee(3)
    meet(referee, ALL, "a:1", "a:1", "a:1")
    meet(referee, F, "a:2", "a:2")
    referee.announce(0, 0, OTHER, 3, stack=("a:3",))
    referee.announce(2, 0, OTHER, 3, stack=("a:3",))
    stop = stop_of(referee.end(1, "left"))
    assert [one.launches for one in stop.verdict.states.values()] == [1, 1, 1]


@pytest.mark.parametrize("lowered", ["", "a"])
def test_processes_meet_at_a_barrier_of_one_name(lowered: str) -> None:
    one, other = (replace(F, label=repr(name), lowered=lowered) for name in ("saved", "loaded"))
    referee = Referee(2)
    assert referee.announce(0, 0, one) == []
    [ruling] = referee.announce(1, 0, one)
    assert ruling == Go(((0, 0), (1, 0)))
    referee.announce(0, 0, one)
    stop = stop_of(referee.announce(1, 0, replace(other, program="another, and the same")))
    assert (stop.verdict.kind, stop.verdict.only_names) == ("mismatch", bool(lowered))
    for k in range(2):
        assert referee.diverged(k)
    [ruling] = [*referee.announce(0, 0, other), *referee.announce(1, 0, other)]
    assert ruling == Go(((0, 0), (1, 0)))


def test_names_of_a_barrier_differ_also_while_a_process_has_not_arrived() -> None:
    named = [replace(ALL, label=repr(name)) for name in "abc"]
    referee = Referee(3)
    referee.announce(0, 0, named[0])
    for k in (1, 2):
        assert stop_of(referee.announce(k, 0, named[k])).verdict.only_names
    for k in range(2):
        assert referee.announce(k, 0, ALL) == []
    assert referee.announce(2, 0, ALL) == [Go(((0, 0), (1, 0), (2, 0)))]


def test_times_of_a_line_that_is_not_known_are_not_told() -> None:
    referee = Referee(2)
    meet(referee, launch("both", 0, 1), "1", "1")
    referee.announce(0, 0, launch("both", 0, 1))
    [stop] = referee.end(1, "finished")
    assert isinstance(stop, Stop)
    assert {state.times for state in stop.verdict.states.values()} == {0}


def test_the_state_of_who_received_a_verdict_is_where_it_waited() -> None:
    referee = Referee(3)
    referee.announce(0, 0, ALL, line=4)
    referee.announce(1, 0, OTHER, line=5)
    referee.end(0, "raised", error="LockstepError")
    referee.end(1, "died", how=ProcessExit(status=1))
    assert referee.states() == {
        0: ProcessState("waits", ALL, 4),
        1: ProcessState("died", OTHER, 5, exit=ProcessExit(status=1)),
        2: RUNS,
    }


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("finished", ProcessState("waits", F, 4)),
        ("raised", ProcessState("raised", F, 4, error=FULL)),
    ],
)
def test_the_state_of_a_process_whose_thread_still_waits(end: Doing, state: ProcessState) -> None:
    referee = Referee(2)
    referee.announce(0, 7, F, 4, alone=False)
    referee.end(0, end, busy=True, error=FULL)
    assert referee.states()[0] == state


def test_a_thread_that_waits_elsewhere_is_not_missing() -> None:
    referee = Referee(2)
    referee.end(1, "finished", busy=True)
    assert referee.announce(1, 7, G, line=2) == []
    stop = stop_of(referee.announce(0, 0, F, line=4))
    assert stop.verdict.kind == "mismatch"
    assert stop.verdict.states == {0: ProcessState("waits", F, 4), 1: ProcessState("waits", G, 2)}


def test_a_death_explains_more_than_an_end() -> None:
    referee = Referee(3)
    referee.end(1, "finished")
    referee.end(2, "died")
    assert stop_of(referee.announce(0, 0, ALL)).verdict.kind == "died"


def test_a_launch_of_some_does_not_end_a_divergence_of_all() -> None:
    referee = Referee(3)
    referee.announce(0, 0, ALL)
    referee.announce(1, 0, OTHER)
    assert referee.announce(0, 0, F) == []
    assert referee.announce(1, 0, F) == [Go(((0, 0), (1, 0)))]
    assert [verdict.over for verdict in referee.verdicts] == [False]
    assert stop_of(referee.announce(2, 0, ALL)).waiters == ((2, 0),)
    meet(referee, F, "1", "1")
    assert [verdict.over for verdict in referee.verdicts] == [False]
    meet(referee, LAST, "1", "1", "1")
    assert [verdict.over for verdict in referee.verdicts] == [True]


def test_who_has_a_verdict_of_its_own_owes_no_other() -> None:
    referee = Referee(4)
    for _ in range(2):  # process 0 is slow, and has announced none of them
        referee.announce(1, 0, ALL)
        referee.announce(2, 0, OTHER)
    referee.end(3, "finished")
    assert stop_of(referee.announce(0, 0, launch("g", 0, 3))).waiters == ((0, 0),)
    for k in (1, 2):
        assert referee.announce(k, 0, LAST) == []
    assert referee.announce(0, 0, LAST) == [Go(((0, 0), (1, 0), (2, 0)))]


def test_digests_are_compared_among_those_who_made_them() -> None:
    referee = Referee(3)
    referee.announce(0, 4, ALL, digests={"0": "a"})
    referee.announce(1, 5, ALL)
    waiters = ((0, 4), (1, 5), (2, 6))
    digests = {0: {"0": "a"}, 1: {}, 2: {"0": "b"}}
    assert referee.announce(2, 6, ALL, digests={"0": "b"}) == [Compare(waiters, digests)]


def test_who_waits_at_a_launch() -> None:
    referee = Referee(3)
    referee.announce(0, 3, ALL)
    referee.announce(0, 4, ALL, alone=False)
    referee.announce(1, 5, ALL)
    assert referee.waiting_at(0, 4) == (ALL, {0: 3, 1: 5})
    assert referee.waiting_at(1, 6) is None
    referee.withdraw(0, 3)
    assert referee.waiting_at(1, 5) == (ALL, {0: 4, 1: 5})


def test_the_cause_is_looked_for_among_the_launches_of_one_name() -> None:
    referee = Referee(3)
    meet(referee, ALL, "1", "1", "1")
    meet(referee, OTHER, "7", "2", "2")
    meet(referee, ALL, "2", "3", "3")
    referee.announce(0, 0, LAST, stack=("3",))
    referee.end(1, "finished")
    assert referee.verdict is not None
    assert referee.verdict.parted is not None
    assert (referee.verdict.parted.launch, referee.verdict.parted.number) == (ALL, 2)


def test_a_process_that_waits_elsewhere_during_a_divergence_receives_it_later() -> None:
    referee = Referee(4)
    every, odd, last = (launch(name, 0, 1, 2, 3) for name in ("every", "odd", "last"))
    pair = launch("pair", 2, 3)
    assert referee.announce(2, 0, pair, 1) == []
    referee.announce(0, 0, every, 2)
    assert stop_of(referee.announce(1, 0, odd, 3)).waiters == ((0, 0), (1, 0))
    assert referee.announce(3, 0, pair, 1) == [Go(((2, 0), (3, 0)))]
    # The first two have caught the verdict, and are one step ahead of the others.
    for k in (0, 1):
        assert referee.announce(k, 0, every, 5) == []
    for k in (2, 3):
        assert stop_of(referee.announce(k, 0, every, 2)).waiters == ((k, 0),)
    assert [referee.announce(k, 0, every, 5) for k in (2, 3)] == [
        [],
        [Go(tuple((k, 0) for k in range(4)))],
    ]
    assert [len(referee.announce(k, 0, last, 6)) for k in range(4)] == [0, 0, 0, 1]
