"""Stop a cell, and verify or heal the processes afterwards.

    interrupt ──▶ abort ──▶ wind down ──▶ gather ──▶ intact
    (Python)      (collectives)  │            │
                                 │            ╰──▶ heal ──▶ healed
                                 ╰── a device computes on ──▶ replace the processes

Each step has a budget in seconds, in which delays of a busy machine do not count. When a budget
runs out, the next step starts; after the last step, the processes are replaced. The cluster is
reported intact only after verification.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mcnb._text import name_processes
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.workers import Pending, Policy, Processes
from mcnb.errors import ClusterError
from mcnb.messages import Reply, Unfinished
from mcnb.worker.rpc import probe
from mcnb.worker.unfinished import wind_down

TICK_S = 0.05
# A wait counts for at most this long. It takes longer if this process does not get a core in time,
# and then the other processes have not had that time either.
MOST_COUNTED_S = 1.5 * TICK_S
# How long a process must be inactive in JAX before it counts as waiting for another process.
WAITS_S = 0.5
# The same for an interrupted process; processes report four times a second.
STILL_S = 0.24
# The times of repeated interrupts, and the time after which the interrupts have failed. The first
# interval leaves time for `finally` clauses.
ATTEMPTS_S = (0.0, 0.45, 0.6)
INTERRUPT_S = 0.75
# How long an interrupt needs to end an interruptible wait.
FREED_S = 0.25
# How long an aborted computation has to fail, and when the abort is repeated: a computation that
# was still connecting may by then wait in its next connection.
ABORT_S = 1.0
AGAIN_S = 0.25
# How long launched computations may run before they are aborted, then before the processes are
# replaced, and how much longer a reply may take, on a busy machine.
WIND_DOWN_S, AFTER_ABORT_S, ANSWER_S = 0.6, 0.5, 1.2
SLOW_S = 1.5
# The same for a cell that failed by itself: its computations are only checked, not ended, and no
# step is urgent.
LOOK_S, LATE_ANSWER_S = 0.2, 10.0
GATHER_S = 1.5
# Presses of the stop button within this interval count as one: no message was shown in between.
SAME_PRESS_S = 0.3


class PressedAgainError(Exception):
    """Exception for a second press of the stop button, which replaces the processes at once."""


class Presses:
    """Counter of the user's requests to end the cell.

    It calls `wake` at each press, from a signal handler or from another thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._first: float | None = None
        self.again = False

    def __bool__(self) -> bool:
        return self._first is not None

    def press(self) -> None:
        """Record a press."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif now > self._first + SAME_PRESS_S:
            self.again = True
        self._wake()


@dataclass
class Stopper:
    """Stopper of a cell, which also verifies and heals the processes afterwards.

    Attributes:
        processes: The processes.
        outcome: The outcome of the cell, in which the stopper records its actions and findings.
        presses: The user's requests to end the cell; a second one raises PressedAgainError in any
            step.
        show: Called with the current step, in words, when the step starts, and repeatedly while it
            lasts.
        stage: The current step, in words.
        clock_s: How long the steps have waited so far, without the delays of a busy machine.
    """

    processes: Processes
    outcome: Outcome
    presses: Presses
    show: Callable[[str], None]
    stage: str = ""
    clock_s: float = 0.0

    @property
    def _asked(self) -> bool:
        """Whether the cell is ended at the user's request, not because it can't continue."""
        return bool(self.presses) or self.outcome.time_limit is not None

    @property
    def _ending(self) -> str:
        """The action in words."""
        return "Stopping" if self._asked else "Ending the cell"

    def follow(self, pending: Pending, policy: Policy) -> bool:
        """Wait for replies as `Pending.follow` does, until a process ends.

        Returns:
            Whether there is nothing to wait for any more; otherwise, the policy has given up.
        """
        looked = time.monotonic()

        def patience() -> float | None:
            nonlocal looked
            if self.presses.again:
                raise PressedAgainError
            self.show(self.stage)
            now = time.monotonic()
            self.clock_s += min(now - looked, MOST_COUNTED_S)
            looked = now
            timeout = None if self.processes.exits else policy()
            return None if timeout is None else min(timeout, TICK_S)

        return pending.follow(patience) or bool(self.processes.exits)

    def begin(self, stage: str) -> None:
        """Start a step, and show its description at once."""
        self.stage = stage
        self.show(stage)

    def stop(self, pending: Pending) -> None:
        """Interrupt the processes that still run a cell, and abort computations that hang."""
        stopped = {k: pending.progress(k).line for k in sorted(pending.waiting)}
        self.outcome.stopped = stopped
        self.begin(f"{self._ending}: interrupting {self._name(stopped)} …")
        began = self.clock_s
        attempts = 0

        def patience() -> float | None:
            nonlocal attempts
            since = self.clock_s - began
            if since > INTERRUPT_S or (attempts and self._all_hang(pending, since)):
                return None
            if attempts < len(ATTEMPTS_S) and since >= ATTEMPTS_S[attempts]:
                attempts += 1
                self._interrupt(pending, attempts)
            return TICK_S

        if not self.follow(pending, patience):
            self.abort(pending, attempts)
        replies = {k: a for k, a in pending.answers.items() if isinstance(a, Reply)}
        # An aborted computation may end a cell without an interrupt, but with an error.
        ended = {k for k, a in replies.items() if not (a.interrupted or a.error)}
        # What a process reported last may be older than the line at which it was interrupted.
        lines = {**stopped, **_interrupted_at(replies, stopped)}
        self.outcome.stopped = {k: line for k, line in lines.items() if k not in ended}

    def abort(self, pending: Pending, attempts: int = 0) -> None:
        """Abort the collectives of the waiting processes; return when the processes are free.

        `attempts` is how often the call was interrupted before.
        """
        name = self._name(pending.waiting)
        self.begin(f"{self._ending}: aborting the computations of {name} …")
        began = aborted = self.clock_s
        budget_s = ABORT_S if self._asked else LATE_ANSWER_S

        def patience() -> float | None:
            nonlocal aborted, attempts
            if not self.outcome.cut or self.clock_s > began + budget_s:
                return None
            if self.clock_s > aborted + AGAIN_S:
                aborted = self.clock_s
                self.processes.abort()
                attempts += 1
                self._interrupt(pending, attempts)
            return AGAIN_S

        self.outcome.cut |= self.processes.abort()
        if not self.follow(pending, patience):
            self._give_up(pending)

    def _give_up(self, pending: Pending) -> None:
        self.outcome.intact = False
        self.outcome.unfreed = tuple(sorted(pending.waiting))

    def verify(self, *, ended: bool, heal: bool, salt: int) -> None:
        """Check whether the processes can compute together, and heal them if that helps.

        Args:
            ended: Whether the cell was ended on request, so that its unfinished work is ended, too.
            heal: Whether the processes must reconnect in any case.
            salt: A number that is specific to this cell.
        """
        outcome = self.outcome
        if ended:
            self.begin(f"{self._ending}: checking that no device computes any more …")
        if heal:
            self.processes.abort()  # the connections are replaced in any case
        found = self._wind_down(ended, heal)
        if (ended or heal) and not self._all_idle(found) and self.processes.abort():
            # An abort ends computations that communicate; others end only with their process.
            outcome.endless = frozenset(
                one.cell for one in found.values() if one.devices and one.cell
            )
            name = self._name(_compute(found) or outcome.silent)
            self.begin(f"{self._ending}: aborting the computations of {name} …")
            outcome.cut = heal = True
            found = self._wind_down_again(found, ended)
        outcome.unfinished = {k: one for k, one in sorted(found.items()) if not one.nothing}
        if self.processes.exits:
            return
        if not self._all_idle(found):
            # Without a request to end the cell, launched computations may continue.
            outcome.intact = not (ended or heal)
            return
        if not heal:
            heal = not self._gathers(salt)
        if heal and outcome.intact and not self.processes.exits:
            self._heal(max(one.bytes for one in found.values()))
        outcome.verified = outcome.intact

    def _all_idle(self, found: dict[int, Unfinished]) -> bool:
        return not self.outcome.silent and not _compute(found)

    def _wind_down(self, ends: bool, heals: bool) -> dict[int, Unfinished]:
        """Wait until nothing runs; return the unfinished work of each process that replies."""
        budget_s = WIND_DOWN_S if ends else LOOK_S
        self._winding = self.processes.client.call(wind_down, ends, heals, budget_s)
        return self._wound(budget_s + (ANSWER_S if ends else LATE_ANSWER_S))

    def _wind_down_again(self, found: dict[int, Unfinished], ends: bool) -> dict[int, Unfinished]:
        if self.outcome.silent:
            # A silent process is blocked in one more launch until earlier computations end.
            found = self._wound(AFTER_ABORT_S)
        if self.outcome.silent:
            return found
        budget_s = AFTER_ABORT_S if ends else LATE_ANSWER_S
        self._winding = self.processes.client.call(wind_down, ends, False, budget_s)
        return self._wound(budget_s + ANSWER_S, again=True)

    def _wound(self, limit_s: float, *, again: bool = False) -> dict[int, Unfinished]:
        """Wait for the answers, and repeat the abort meanwhile, as `AGAIN_S` says."""
        pending = self._winding
        aborted = self.clock_s
        deadline = self.clock_s + limit_s

        def patience() -> float | None:
            nonlocal aborted
            if again and self.clock_s > aborted + AGAIN_S:
                aborted = self.clock_s
                self.processes.abort()
            # If the other processes are idle, a late process may just be slow.
            late_s = 0 if _compute(_answers(pending)) else SLOW_S
            return None if self.clock_s > deadline + late_s else TICK_S

        self.follow(pending, patience)
        found = _answers(pending)
        everyone = range(self.processes.options.processes)
        self.outcome.silent = tuple(k for k in everyone if k not in found)
        return found

    def _gathers(self, salt: int) -> bool:
        """Return whether a test gather of known numbers is correct on all processes.

        An interrupt may have arrived between two processes' launches of the same collective.
        """
        pending = self.processes.client.call(probe, salt, GATHER_S)
        began = self.clock_s

        def patience() -> float | None:
            late = self.clock_s > began + GATHER_S + ANSWER_S
            return None if late or pending.all_inactive(WAITS_S) else TICK_S

        if not self.follow(pending, patience):
            if pending.all_inactive(WAITS_S):
                self.abort(pending)
            else:
                self._give_up(pending)
            return False
        right = all(answer is True for answer in pending.answers.values())
        if not right and not self.processes.exits and self.processes.abort():
            self.outcome.cut = True  # the test gather is still running
        return right

    def _heal(self, size: int) -> None:
        self.begin("Healing the cluster: reconnecting the processes, with their variables …")
        try:
            self.outcome.healed = self.processes.heal(size, self.follow)
        except ClusterError as error:
            self.outcome.intact = False
            self.outcome.unhealed = str(error)

    def _interrupt(self, pending: Pending, attempt: int) -> None:
        for k in sorted(pending.waiting):
            progress = pending.progress(k)
            # If JAX waits for a device, an interrupt would take effect in JAX's code after the
            # wait; and each interrupt makes the wait look as if it had just started.
            waits = progress.waits_s >= WAITS_S or (attempt > 1 and progress.waits_s > 0)
            if not (waits and progress.inside_jax):
                self.processes.interrupt(k, attempt)

    def _all_hang(self, pending: Pending, since_s: float) -> bool:
        """Return whether all remaining processes wait for a device, despite any interrupt."""
        inside = all(pending.progress(k).inside_jax for k in pending.waiting)
        # A process that is as inactive after the interrupt as before does not react to it.
        still_s = STILL_S if since_s > STILL_S else WAITS_S
        return pending.all_inactive(still_s) and (inside or since_s > FREED_S)

    def _name(self, processes: Iterable[int]) -> str:
        return name_processes(sorted(processes), self.processes.options.processes)


def _interrupted_at(replies: Mapping[int, Reply], stopped: Iterable[int]) -> dict[int, int]:
    """Return the lines at which processes were interrupted, by their replies."""
    errors = {k: replies[k].error for k in stopped if k in replies}
    return {
        k: error.line
        for k, error in errors.items()
        if error and error.name == KeyboardInterrupt.__name__ and error.line is not None
    }


def _answers(pending: Pending) -> dict[int, Unfinished]:
    """Return the processes' reports of unfinished work."""
    return {k: a for k, a in pending.answers.items() if isinstance(a, Unfinished)}


def _compute(found: dict[int, Unfinished]) -> list[int]:
    """Return the processes whose devices still compute."""
    return [k for k, one in sorted(found.items()) if one.devices]
