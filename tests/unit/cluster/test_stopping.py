"""The steps of a stop: how long they last, on an idle machine and on a busy one."""

from __future__ import annotations

from typing import Any

import pytest

from mcnb.cluster import stopping
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.stopping import INTERRUPT_S, SAME_PRESS_S, TICK_S, Presses, Stopper
from mcnb.messages import Healed, Progress, Unfinished


class Machine:
    """A process that runs a cell, on a machine where waits take longer than they should.

    Args:
        slowed: How many times longer a wait takes.
        replies_s: When the process replies, in seconds.
        aborts: Whether its collectives can be aborted.
    """

    def __init__(self, slowed: float, replies_s: float, aborts: bool = False) -> None:
        self.slowed = slowed
        self.replies_s = replies_s
        self.now = 0.0
        self.aborts = aborts
        self.interrupts: list[float] = []
        self.waiting = {0}
        self.exits: dict[str, object] = {}
        self.options: Any = type("Options", (), {"processes": 1})

    def monotonic(self) -> float:
        return self.now

    def progress(self, k: int) -> Progress:
        del k
        return Progress(line=1)

    def all_inactive(self, for_s: float) -> bool:
        del for_s
        return False

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
        return self.aborts


class Computing:
    """Two processes after a cell: devices compute on, until they are aborted.

    Args:
        replies: What the processes reply to each call, in order; a process without a reply is
            silent until the abort.
    """

    def __init__(self, *replies: dict[int, Any]) -> None:
        self.replies = list(replies)
        self.answers: dict[int, Any] = {}
        self.aborts = 0
        self.exits: dict[str, object] = {}
        self.options: Any = type("Options", (), {"processes": 2})
        self.client = self

    def call(self, function: object, *args: object) -> Computing:
        del function, args
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
        # What kept a silent process from its reply has ended.
        self.answers = dict.fromkeys(range(2), Unfinished()) | self.answers
        return True

    def heal(self, size: int, follow: Any) -> dict[int, Healed]:
        del follow
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
    presses = Presses(lambda: None)
    seen = []
    for machine.now in (10.0, 10.0 + SAME_PRESS_S, 10.01 + SAME_PRESS_S):
        presses.press()
        seen.append(presses.again)
    assert seen == [False, False, True]


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
