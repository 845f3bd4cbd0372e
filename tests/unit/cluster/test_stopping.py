"""The steps of a stop: how long they last, on an idle machine and on a busy one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcnb.cluster import stopping
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.stopping import (
    ABORT_S,
    FREED_S,
    INTERRUPT_S,
    SAME_PRESS_S,
    TICK_S,
    PressedAgainError,
    Presses,
    Stopper,
)
from mcnb.errors import ClusterError
from mcnb.messages import Healed, ProcessError, Progress, Reply, Unfinished


class Machine:
    """A process that runs a cell, on a machine where waits take longer than they should.

    Args:
        slowed: How many times longer a wait takes.
        replies_s: When the process replies, in seconds.
        aborts: Whether its collectives can be aborted.
        does: What it has reported; if it waits inside of JAX, it is inactive.
    """

    def __init__(
        self,
        slowed: float,
        replies_s: float,
        aborts: bool = False,
        does: Progress = Progress(line=1),  # noqa: B008  (it is immutable)
    ) -> None:
        self.slowed = slowed
        self.replies_s = replies_s
        self.now = 0.0
        self.aborts = aborts
        self.does = does
        self.interrupts: list[float] = []
        self.aborted: list[float] = []
        self.waiting = {0}
        self.answers: dict[int, Any] = {}
        self.exits: dict[str, object] = {}
        self.options: Any = type("Options", (), {"processes": 1})

    def monotonic(self) -> float:
        return self.now

    def progress(self, k: int) -> Progress:
        del k
        return self.does

    def all_inactive(self, for_s: float) -> bool:
        return self.does.waits_s >= for_s

    def follow(self, policy: Any) -> bool:
        while self.now < self.replies_s:
            timeout = policy()
            if timeout is None:
                return False
            self.now += self.slowed * timeout
        return True

    def interrupt(self, k: int, attempt: int) -> None:
        del k, attempt
        self.interrupts.append(self.now)

    def abort(self) -> bool:
        self.aborted.append(self.now)
        return self.aborts


class Computing:
    """Two processes after a cell: devices compute on, until they are aborted.

    Args:
        replies: What the processes reply to each call, in order; a process without a reply is
            silent until the abort.

    Attributes:
        called: The names of the functions that were called.
        aborts: How often computations were aborted, or were to be.
        healed: The sizes that heals were told, in bytes.
    """

    abortable = True
    unhealed = ""

    def __init__(self, *replies: dict[int, Any]) -> None:
        self.replies = list(replies)
        self.answers: dict[int, Any] = {}
        self.called: list[str] = []
        self.aborts = 0
        self.healed: list[int] = []
        self.exits: dict[str, object] = {}
        self.options: Any = type("Options", (), {"processes": 2})
        self.client = self

    def call(self, function: Callable[..., object], *args: object) -> Computing:
        del args
        self.called.append(function.__name__)
        self.answers = self.replies.pop(0)
        return self

    def follow(self, policy: Any) -> bool:
        del policy
        return True

    def all_inactive(self, for_s: float) -> bool:
        del for_s
        return False

    def abort(self) -> bool:
        self.aborts += 1
        if not self.abortable:
            return False
        # What kept a silent process from its reply has ended.
        self.answers = dict.fromkeys(range(2), Unfinished()) | self.answers
        return True

    def heal(self, size: int, follow: Any) -> dict[int, Healed]:
        del follow
        self.healed.append(size)
        if self.unhealed:
            raise ClusterError(self.unhealed)
        return {0: Healed(), 1: Healed()} if size else {}


def stopped(machine: Machine, monkeypatch: pytest.MonkeyPatch, *, asked: bool = True) -> Outcome:
    monkeypatch.setattr(stopping, "time", machine)
    outcome = Outcome()
    either: Any = machine
    presses = Presses(lambda: None)
    if asked:
        presses.press()
    Stopper(either, outcome, presses, lambda stage: None).stop(either)
    return outcome


def test_presses_with_no_message_between_them_count_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(1, replies_s=60)
    monkeypatch.setattr(stopping, "time", machine)
    woken: list[float] = []
    presses = Presses(lambda: woken.append(machine.now))
    seen = []
    times = (10.0, 10.0 + SAME_PRESS_S, 10.01 + SAME_PRESS_S)
    for machine.now in times:
        presses.press()
        seen.append(presses.again)
    assert seen == [False, False, True]
    assert woken == [*times]  # whoever waits is woken by each press


def test_a_process_that_does_not_react_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1, replies_s=60)
    assert stopped(machine, monkeypatch).unfreed == (0,)
    assert INTERRUPT_S <= machine.now < INTERRUPT_S + 2 * TICK_S
    assert machine.interrupts == pytest.approx(stopping.ATTEMPTS_S, abs=2 * TICK_S)


def test_a_process_of_a_busy_machine_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(10, replies_s=5 * INTERRUPT_S)
    assert stopped(machine, monkeypatch).intact
    assert machine.interrupts == [0.0, pytest.approx(3.0, abs=0.5)]


def test_a_busy_machine_does_not_keep_a_stop_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(10, replies_s=600)
    assert stopped(machine, monkeypatch).unfreed == (0,)
    assert machine.now < 10 * INTERRUPT_S


@pytest.mark.parametrize("asked", [True, False])
def test_an_abort_is_urgent_if_the_user_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """Of a cell that can't continue, a process may be late to report that it was aborted."""
    machine = Machine(1, replies_s=5, aborts=True)
    assert stopped(machine, monkeypatch, asked=asked).intact != asked


@pytest.mark.parametrize(
    ("replies", "named"),
    [
        ({0: Unfinished(), 1: Unfinished(devices=(0,), bytes=8, cell="In[3]")}, "process 1"),
        ({0: Unfinished(bytes=8)}, "process 1"),
        (
            {k: Unfinished(devices=(1,), bytes=8, cell="In[3]") for k in (0, 1)},
            "both processes",
        ),
    ],
)
def test_computations_that_do_not_end_are_aborted(
    replies: dict[int, Unfinished], named: str
) -> None:
    idle = {k: Unfinished(bytes=8) for k in (0, 1)}
    computing = Computing(replies, idle, {0: True, 1: True})
    either: Any = computing
    outcome = Outcome()
    stages: list[str] = []
    presses = Presses(lambda: None)
    presses.press()
    Stopper(either, outcome, presses, stages.append).verify(ended=True, heal=False, salt=1)
    assert computing.aborts == 1
    assert stages == [
        "Stopping: checking that no device computes any more …",
        f"Stopping: aborting the computations of {named} …",
        "Healing the cluster: reconnecting the processes, with their variables …",
    ]
    assert outcome == Outcome(
        cut=True,
        verified=True,
        healed={0: Healed(), 1: Healed()},
        endless=frozenset(one.cell for one in replies.values() if one.devices),
    )


def test_a_process_that_waits_in_native_code_has_a_moment_to_be_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(1, replies_s=60, aborts=True, does=Progress(line=4, waits_s=9.0))
    outcome = stopped(machine, monkeypatch)
    assert machine.interrupts[0] == 0.0
    assert FREED_S < machine.aborted[0] <= FREED_S + 2 * TICK_S
    assert (outcome.stopped, outcome.cut) == ({0: 4}, True)


def test_code_of_jax_that_waits_is_aborted_and_not_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    does = Progress(line=4, waits_s=9.0, inside_jax=True)
    machine = Machine(1, replies_s=60, aborts=True, does=does)
    stopped(machine, monkeypatch)
    assert machine.aborted[0] <= 2 * TICK_S
    assert machine.interrupts == []


def test_code_of_jax_that_runs_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1, replies_s=0.2, does=Progress(line=4, inside_jax=True))
    stopped(machine, monkeypatch)
    assert machine.interrupts == [0.0]


def test_an_abort_is_repeated_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1, replies_s=60, aborts=True)
    assert stopped(machine, monkeypatch).unfreed == (0,)
    assert len(machine.aborted) >= 3
    assert machine.aborted[-1] <= machine.aborted[0] + ABORT_S
    assert len(machine.interrupts) == len(stopping.ATTEMPTS_S) + len(machine.aborted) - 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Reply(error=ProcessError("KeyboardInterrupt", "", 7, ""), interrupted=True), {0: 7}),
        (Reply(error=ProcessError("KeyboardInterrupt", "", None, ""), interrupted=True), {0: 1}),
        (Reply(error=ProcessError("ValueError", "", 7, "")), {0: 1}),  # a clause that cleans up
        (Reply(interrupted=True), {0: 1}),  # it has caught the interrupt
        (Reply(), {}),  # it ended by itself, before the interrupt came
        (True, {0: 1}),
    ],
)
def test_the_line_of_an_interrupt_is_newer_than_a_report(
    answer: object, told: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1, replies_s=0.2)
    machine.answers[0] = answer
    assert stopped(machine, monkeypatch).stopped == told


def test_a_process_that_ends_meanwhile_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1, replies_s=60)
    machine.exits["process 0"] = object()
    outcome = stopped(machine, monkeypatch)
    assert (outcome.stopped, outcome.intact, machine.aborted) == ({0: 1}, True, [])


def test_a_second_press_ends_a_stop_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1, replies_s=60)
    monkeypatch.setattr(stopping, "time", machine)
    either: Any = machine
    outcome, presses = Outcome(), Presses(lambda: None)
    presses.press()
    machine.now = 1.0
    presses.press()
    with pytest.raises(PressedAgainError):
        Stopper(either, outcome, presses, lambda stage: None).stop(either)
    assert machine.now == 1.0


IDLE = {k: Unfinished(bytes=8 * (k + 1)) for k in (0, 1)}
BUSY = {0: Unfinished(bytes=8), 1: Unfinished(devices=(0,), bytes=16, cell="3")}
RIGHT, WRONG = {0: True, 1: True}, {0: True, 1: False}
BOTH = {0: Healed(), 1: Healed()}


def verified(computing: Computing, *, ended: bool = False, heal: bool = False) -> Outcome:
    either: Any = computing
    outcome = Outcome()
    Stopper(either, outcome, Presses(lambda: None), lambda stage: None).verify(
        ended=ended, heal=heal, salt=1
    )
    return outcome


def test_idle_processes_that_gather_right_numbers_are_intact() -> None:
    computing = Computing(IDLE, RIGHT)
    assert verified(computing) == Outcome(verified=True)
    assert (computing.called, computing.aborts) == (["wind_down", "probe"], 0)


def test_processes_that_gather_a_wrong_number_are_healed() -> None:
    computing = Computing(IDLE, WRONG)
    assert verified(computing) == Outcome(verified=True, cut=True, healed=BOTH)
    assert computing.healed == [16]  # what the process with the most arrays has to copy


def test_processes_that_must_reconnect_are_healed_without_a_test() -> None:
    computing = Computing(IDLE)
    assert verified(computing, heal=True) == Outcome(verified=True, healed=BOTH)
    assert (computing.called, computing.aborts) == (["wind_down"], 1)


def test_launched_computations_continue_where_nobody_ended_the_cell() -> None:
    computing = Computing(BUSY)
    assert verified(computing) == Outcome(unfinished={1: BUSY[1]})
    assert computing.aborts == 0


def test_computations_are_aborted_before_a_heal() -> None:
    computing = Computing(BUSY, IDLE)
    assert verified(computing, heal=True) == Outcome(
        verified=True, cut=True, healed=BOTH, endless=frozenset({"3"})
    )


@pytest.mark.parametrize(("ended", "heal"), [(True, False), (False, True)])
@pytest.mark.parametrize("abortable", [True, False])
def test_processes_whose_computations_do_not_end_are_replaced(
    ended: bool, heal: bool, abortable: bool
) -> None:
    computing = Computing(BUSY, BUSY)
    computing.abortable = abortable
    outcome = verified(computing, ended=ended, heal=heal)
    assert (outcome.intact, outcome.verified, computing.healed) == (False, False, [])
    assert (outcome.unfinished, outcome.cut) == ({1: BUSY[1]}, abortable)
    assert outcome.endless == (frozenset({"3"}) if abortable else frozenset())


def test_only_cells_that_still_compute_are_endless() -> None:
    busy = {0: Unfinished(cell="2", bytes=8), 1: BUSY[1]}
    assert verified(Computing(busy, IDLE), ended=True).endless == frozenset({"3"})


def test_why_processes_could_not_be_healed_is_kept() -> None:
    computing = Computing(IDLE)
    computing.unhealed = "the processes could not be healed: a process ended"
    assert verified(computing, heal=True) == Outcome(intact=False, unhealed=computing.unhealed)


def test_processes_of_which_one_died_are_not_healed() -> None:
    computing = Computing(IDLE)
    computing.exits["process 1"] = object()
    assert verified(computing, heal=True) == Outcome()
    assert computing.healed == []
