"""End a cell, whatever it does, and find out what is true afterwards.

    interrupt ──▶ abort ──▶ wind down ──▶ gather ──▶ intact
    (Python)      (collectives)  │            │
                                 │            ╰──▶ heal ──▶ healed
                                 ╰── a device computes on ──▶ replace the processes

Each step has a budget in seconds. Where one runs out, the next step begins; after the last one, the
processes are replaced. Nothing is said to be intact that was not seen to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from mcnb._text import name_processes
from mcnb.cluster.result import Outcome
from mcnb.cluster.workers import Pending, Processes
from mcnb.errors import ClusterError
from mcnb.messages import Unfinished
from mcnb.worker.rpc import probe
from mcnb.worker.unfinished import wind_down

TICK_S = 0.05
# How long a process must have stood still inside JAX before it is taken to wait for another.
WAITS_S = 0.5
# The same where it was interrupted; processes report four times a second.
STILL_S = 0.24
# When a cell that was interrupted is interrupted again, and when it is given up to be interrupted.
# The first time between leaves `finally` clauses some time.
ATTEMPTS_S = (0.0, 0.45, 0.6)
INTERRUPT_S = 0.75
# How long an interrupt needs to end a wait that it can end.
FREED_S = 0.25
# How long a computation that is aborted has to fail, and when it is aborted again: one that was
# still making its connections may wait in the next one then.
ABORT_S = 1.0
AGAIN_S = 0.25
# How long what was launched may run on before it is aborted, and then before the processes are
# replaced. An answer may take longer than it is asked to, on a machine that has much to do.
WIND_DOWN_S, AFTER_ABORT_S, ANSWER_S = 0.6, 0.5, 1.2
SLOW_S = 1.5
# The same for a cell that failed by itself: nothing is ended there, it is only looked, and there is
# no hurry.
LOOK_S, LATE_ANSWER_S = 0.2, 10.0
GATHER_S = 1.5
# Two presses of the stop button that follow each other sooner are one: nothing was said before.
SAME_PRESS_S = 0.3


class PressedAgainError(Exception):
    """The user wants the processes replaced at once."""


class Presses:
    """Count how often the user has asked for the cell to end.

    Args:
        wake: Called with each press; from a signal handler, or from another thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._first: float | None = None
        self.again = False

    def __bool__(self) -> bool:
        return self._first is not None

    def press(self) -> None:
        """Take note of one."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif now > self._first + SAME_PRESS_S:
            self.again = True
        self._wake()


class Stopper:
    """Ends what runs on the processes, and finds out what they can do afterwards.

    Args:
        processes: The processes.
        outcome: How the cell ended; what is done and found is written there.
        presses: How often the user has asked for the end.
        show: Called with what is being done, in words, as soon as it begins, and then again and
            again while it lasts.
    """

    def __init__(
        self,
        processes: Processes,
        outcome: Outcome,
        presses: Presses,
        show: Callable[[str], None],
    ) -> None:
        self._processes = processes
        self._outcome = outcome
        self._presses = presses
        self._show = show
        self._stage = ""

    @property
    def _ending(self) -> str:
        """What is done, in words: at the user's request, or because the cell can't go on."""
        asked = self._presses or self._outcome.time_limit is not None
        return "Stopping" if asked else "Ending the cell"

    def wait(self, pending: Pending, timeout_s: float) -> bool:
        """Wait until all have answered a call, or something else has happened.

        Raises:
            PressedAgainError: The user has pressed the stop button a second time.
        """
        if self._presses.again:
            raise PressedAgainError
        self._show(self._stage)
        return pending.wait(min(timeout_s, TICK_S))

    def begin(self, stage: str) -> None:
        """Begin a step, and say so at once."""
        self._stage = stage
        self._show(stage)

    def stop(self, pending: Pending) -> None:
        """Interrupt the processes that still run a cell, and abort what hangs in them.

        Args:
            pending: The cell.

        Raises:
            PressedAgainError: The user has pressed the stop button a second time.
        """
        stopped = {k: pending.progress(k).line for k in sorted(pending.waiting)}
        self._outcome.stopped = stopped
        self.begin(f"{self._ending}: interrupting {self._name(stopped)} …")
        began = time.monotonic()
        attempts = 0
        while pending.waiting and not self._processes.exits:
            since = time.monotonic() - began
            if since > INTERRUPT_S or (attempts and self._all_hang(pending, since)):
                break
            if attempts < len(ATTEMPTS_S) and since >= ATTEMPTS_S[attempts]:
                attempts += 1
                self._interrupt(pending, attempts)
            self.wait(pending, INTERRUPT_S - since)
        if pending.waiting and not self._processes.exits:
            self.abort(pending, attempts)

    def abort(self, pending: Pending, attempts: int = 0) -> None:
        """Abort the collectives that processes are inside; return when the processes are free.

        Args:
            pending: What they are called for.
            attempts: How often it was interrupted before.

        Raises:
            PressedAgainError: The user has pressed the stop button a second time.
        """
        name = self._name(pending.waiting)
        self.begin(f"{self._ending}: aborting the computations of {name} …")
        if self._processes.abort():
            self._outcome.cut = True
            began = aborted = time.monotonic()
            while pending.waiting and not self._processes.exits:
                now = time.monotonic()
                if now > began + ABORT_S:
                    break
                if now > aborted + AGAIN_S:
                    aborted = now
                    self._processes.abort()
                    attempts += 1
                    self._interrupt(pending, attempts)
                self.wait(pending, AGAIN_S)
        if pending.waiting and not self._processes.exits:
            self._outcome.intact = False
            self._outcome.unfreed = tuple(sorted(pending.waiting))

    def verify(self, *, ended: bool, heal: bool, salt: int) -> None:
        """Find out whether the processes can go on together, and heal them where that helps.

        Args:
            ended: Whether the cell was told to end: then what it left running is ended, too.
            heal: Whether the processes have to reconnect in any case.
            salt: A number that belongs to this cell.

        Raises:
            PressedAgainError: The user has pressed the stop button a second time.
        """
        outcome = self._outcome
        if ended:
            self.begin(f"{self._ending}: checking that no device computes any more …")
        if heal:
            self._processes.abort()  # their connections are made anew in any case
        found = self._wind_down(ended, heal)
        if (ended or heal) and not self._all_idle(found) and self._processes.abort():
            # Computations that communicate end so; others end only with their process.
            outcome.endless = frozenset(
                one.cell for one in found.values() if one.devices and one.cell
            )
            name = self._name(_compute(found) or outcome.silent)
            self.begin(f"{self._ending}: aborting the computations of {name} …")
            outcome.cut = heal = True
            found = self._wind_down_again(found, ended)
        outcome.unfinished = {k: one for k, one in sorted(found.items()) if not one.nothing}
        if self._processes.exits:
            return
        if not self._all_idle(found):
            # Where nobody has asked for an end, what is launched may go on.
            outcome.intact = not (ended or heal)
            return
        if not heal:
            heal = not self._gathers(salt)
        if heal and outcome.intact and not self._processes.exits:
            self._heal(max(one.bytes for one in found.values()))
        outcome.verified = outcome.intact

    def _all_idle(self, found: dict[int, Unfinished]) -> bool:
        return not self._outcome.silent and not _compute(found)

    def _wind_down(self, ends: bool, heals: bool) -> dict[int, Unfinished]:
        """Wait until nothing runs any more; return what does, of each process that answers."""
        budget_s = WIND_DOWN_S if ends else LOOK_S
        self._winding = self._processes.call(wind_down, ends, heals, budget_s)
        return self._wound(budget_s + (ANSWER_S if ends else LATE_ANSWER_S))

    def _wind_down_again(self, found: dict[int, Unfinished], ends: bool) -> dict[int, Unfinished]:
        if self._outcome.silent:
            # One that does not answer waits with one launch more until others are over.
            found = self._wound(time.monotonic() - self._winding.started + AFTER_ABORT_S)
        if self._outcome.silent:
            return found
        budget_s = AFTER_ABORT_S if ends else LATE_ANSWER_S
        self._winding = self._processes.call(wind_down, ends, False, budget_s)
        return self._wound(budget_s + ANSWER_S)

    def _wound(self, limit_s: float) -> dict[int, Unfinished]:
        pending = self._winding
        deadline = pending.started + limit_s
        while pending.waiting and not self._processes.exits:
            now = time.monotonic()
            # One that is slow, where the others are idle, may be no more than that.
            if now > deadline + (0 if _compute(_answers(pending)) else SLOW_S):
                break
            self.wait(pending, TICK_S)
        found = _answers(pending)
        everyone = range(self._processes.options.processes)
        self._outcome.silent = tuple(k for k in everyone if k not in found)
        return found

    def _gathers(self, salt: int) -> bool:
        """Return whether the processes gather known numbers.

        An interrupt may have come between one process's launch of a collective and another's.
        """
        pending = self._processes.call(probe, salt, GATHER_S)
        while pending.waiting and not self._processes.exits:
            if self._all_wait_in_jax(pending):
                self.abort(pending)
                return False
            if time.monotonic() > pending.started + GATHER_S + ANSWER_S:
                self._outcome.intact = False
                self._outcome.unfreed = tuple(sorted(pending.waiting))
                return False
            self.wait(pending, TICK_S)
        right = all(answer is True for answer in pending.answers.values())
        if not right and not self._processes.exits and self._processes.abort():
            self._outcome.cut = True  # the gather itself is still under way
        return right

    def _heal(self, size: int) -> None:
        self.begin("Healing the cluster: reconnecting the processes, with their variables …")
        try:
            self._outcome.healed = self._processes.heal(size, self.wait)
        except ClusterError as error:
            self._outcome.intact = False
            self._outcome.unhealed = str(error)

    def _interrupt(self, pending: Pending, attempt: int) -> None:
        for k in sorted(pending.waiting):
            progress = pending.progress(k)
            # Where JAX waits for a device, an interrupt would come out in the middle of what it
            # does afterwards; and each makes the wait look as if it had just begun.
            waits = progress.waits_s >= WAITS_S or (attempt > 1 and progress.waits_s > 0)
            if not (waits and progress.inside_jax):
                self._processes.interrupt(k, attempt)

    def _all_hang(self, pending: Pending, since_s: float) -> bool:
        """Return whether all that are left wait for a device, interrupted or not."""
        inside = all(pending.progress(k).inside_jax for k in pending.waiting)
        # One that stands still after the interrupt as it did before does not react to it.
        still_s = STILL_S if since_s > STILL_S else WAITS_S
        return self._all_wait_in_jax(pending, still_s) and (inside or since_s > FREED_S)

    def _all_wait_in_jax(self, pending: Pending, for_s: float = WAITS_S) -> bool:
        return all(pending.progress(k).waits_s >= for_s for k in pending.waiting)

    def _name(self, processes: Iterable[int]) -> str:
        return name_processes(sorted(processes), self._processes.options.processes)


def _answers(pending: Pending) -> dict[int, Unfinished]:
    """Return what processes have said of what still runs in them."""
    return {k: a for k, a in pending.answers.items() if isinstance(a, Unfinished)}


def _compute(found: dict[int, Unfinished]) -> list[int]:
    """Return the processes whose devices still compute."""
    return [k for k, one in sorted(found.items()) if one.devices]
