"""Seeing a cell through to its end on all processes, whatever becomes of it.

A cell ends when the last process has answered, or as soon as it is certain that one never will:
because a process died, because a process raised and the others wait for it inside JAX, because
unchecked processes parted and hang, or because the user wants it to end.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from mcnb.cells import Cell
from mcnb.errors import ClusterError, LockstepError
from mcnb.lockstep.verdicts import Doing, Happened, Verdict
from mcnb.messages import Reply, Text
from mcnb.outcome import Outcome
from mcnb.pending import Pending
from mcnb.process.calls import probe, run_cell, settle
from mcnb.process.tracebacks import crash_line, crash_report
from mcnb.processes import Processes

TICK_S = 0.1
# Where a process waits for others, what the others do is looked at sooner.
SHORT_TICK_S = 0.02
# How long a process must have stood still inside JAX before it is taken to wait for another.
WAITS_S = 0.5
# How long Python code has to answer an interrupt.
INTERRUPT_S = 0.8
# How long to wait for what follows from a death: JAX ends the others when process 0 is gone.
DEATHS_S = 0.3
# How long a computation that is cut off has to fail.
CUT_S = 1.5
AGAIN_S = 0.25

Watcher = Callable[[Pending], None]


class Conductor:
    """Sees one cell through.

    Args:
        processes: The processes.
        watcher: Called again and again while the cell runs, for a live view.

    Attributes:
        asked_by_ctrl_c: Whether it was Ctrl-C or the stop button that had the cell ended.
    """

    def __init__(self, processes: Processes, watcher: Watcher | None = None) -> None:
        self._processes = processes
        self._watcher = watcher
        self._asked = 0
        self._reported: set[int] = set()
        self.asked_by_ctrl_c = False

    def interrupt(self) -> None:
        """Have the cell ended; from another thread or a signal handler."""
        self._asked += 1
        self._processes.wake()

    def run(self, cell: Cell) -> Outcome:
        """Run a cell and return how it ended.

        Raises:
            ClusterError: What connects the processes broke.
        """
        outcome = Outcome()
        self._cell = cell
        referee, targets = self._processes.referee, cell.targets
        arguments = cell.source, cell.label, cell.first_line, cell.checked
        number = referee.begin(targets)
        pending = self._processes.call(run_cell, number, *arguments, processes=targets)
        with self._catching_ctrl_c():
            while not self._over(pending, outcome):
                pending.wait(SHORT_TICK_S if pending.waits else TICK_S)
                self._report(pending, targets)
                pending.waits = referee.waits()
                if self._watcher is not None:
                    self._watcher(pending)
            self._report(pending, targets)
            if outcome.verdict is None:
                outcome.verdict = referee.verdict
            if not cell.checked and outcome.verdict is not None and not outcome.cut:
                self._settle(outcome)
            self._mend(outcome)
            if self._processes.exits and not outcome.died:
                self._collect_deaths(outcome)
        if not cell.checked and outcome.verdict is not None:
            happened = _happened(outcome, pending)
            outcome.verdict = replace(outcome.verdict, happened=happened)
        for k, answer in sorted(pending.answers.items()):
            if not isinstance(answer, Reply):
                raise ClusterError(f"process {k} could not run the cell. {answer.summary()}")
            outcome.replies[k] = answer
        for k in pending.waiting:
            outcome.replies[k] = self._last_reply(k)
        return outcome

    def _report(self, pending: Pending, targets: tuple[int, ...]) -> None:
        """Tell the referee who is done with the cell."""
        for k in targets:
            answer = pending.answers.get(k)
            if k in self._reported or not isinstance(answer, Reply):
                continue
            self._reported.add(k)
            if answer.error is None or answer.error.name == LockstepError.__name__:
                self._processes.referee.finish(k, busy=answer.busy)
            else:
                self._processes.referee.fail(k, answer.error.summary(), busy=answer.busy)

    @contextmanager
    def _catching_ctrl_c(self) -> Iterator[None]:
        """Take note of Ctrl-C instead of being torn out of what is under way."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def take_note(signum: int, frame: FrameType | None) -> None:
            del signum, frame
            self.asked_by_ctrl_c = True
            self.interrupt()

        before = signal.signal(signal.SIGINT, take_note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _over(self, pending: Pending, outcome: Outcome) -> bool:
        """Return whether the cell is over, having ended it where it can't go on."""
        if self._processes.exits or not pending.waiting:
            return True
        limit = self._cell.timeout
        late = limit is not None and time.monotonic() - pending.started > limit
        if self._asked or late:
            outcome.interrupted = bool(self._asked)
            outcome.time_limit = None if self._asked else limit
            outcome.verdict = self._where_they_stand(pending)
            self._stop(pending, outcome)
            return True
        raised = any(isinstance(a, Reply) and a.error for a in pending.answers.values())
        parted = not self._cell.checked and self._processes.referee.verdict is not None
        hang = all(pending.progress(k).waits_s >= WAITS_S for k in pending.waiting)
        if (raised or parted) and hang:
            self._stop(pending, outcome)
            return True
        return False

    def _where_they_stand(self, pending: Pending) -> Verdict:
        """Return the verdict at the time of an interrupt: nothing is proven, as a rule."""
        referee = self._processes.referee
        if referee.verdict is not None:
            return referee.verdict
        stands = referee.stands()
        for k in pending.waiting:
            if stands[k].doing == "runs":
                progress = pending.progress(k)
                doing: Doing = "hangs" if progress.waits_s else "runs"
                stands[k] = replace(stands[k], doing=doing, line=progress.line)
        return Verdict("stalled", stands)

    def _stop(self, pending: Pending, outcome: Outcome) -> None:
        """Interrupt the processes that still run the cell, and cut off what hangs in them."""
        outcome.stopped = {k: pending.progress(k).line for k in sorted(pending.waiting)}
        for k in outcome.stopped:
            # In native code it would wait there, to come out in the middle of something else.
            if pending.progress(k).waits_s < WAITS_S:
                self._processes.interrupt(k)
        asked = self._asked
        deadline = time.monotonic() + INTERRUPT_S
        while pending.waiting and not self._processes.exits:
            left = deadline - time.monotonic()
            hang = all(pending.progress(k).waits_s >= WAITS_S for k in pending.waiting)
            if left <= 0 or hang or self._asked > asked:
                break
            pending.wait(min(left, TICK_S))
        if pending.waiting and not self._processes.exits:
            self._cut(pending, outcome)

    def _cut(self, pending: Pending, outcome: Outcome) -> None:
        """Cut off the computations that processes hang in; return when they are free."""
        asked = self._asked
        if self._processes.abort():
            outcome.cut = True
            deadline = time.monotonic() + CUT_S
            while pending.waiting and not self._processes.exits and self._asked == asked:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                # Again: one that was still making its connections may wait in the next one now.
                if not pending.wait(min(left, AGAIN_S)):
                    self._processes.abort()
        if pending.waiting:
            outcome.intact = False
            outcome.unfreed = tuple(sorted(pending.waiting))

    def _settle(self, outcome: Outcome) -> None:
        """See what becomes of launches that went ahead and that nobody waited for."""
        if not outcome.intact or self._processes.exits:
            return
        pending = self._processes.call(settle)
        self._wait_while_it_goes_on(pending)
        if pending.waiting:
            self._cut(pending, outcome)
        outcome.failed = not all(answer is True for answer in pending.answers.values())

    def _wait_while_it_goes_on(self, pending: Pending) -> None:
        """Wait for a call in which processes may hang: until they all do, or the user asks."""
        asked = self._asked
        while pending.waiting and not self._processes.exits and self._asked == asked:
            pending.wait(TICK_S)
            if all(pending.progress(k).waits_s >= WAITS_S for k in pending.waiting):
                break

    def _mend(self, outcome: Outcome) -> None:
        """See to it that the processes can compute together, or find that they can't."""
        if not outcome.intact or self._processes.exits:
            return
        # Where launches that differ have met, it is not known what each still expects.
        heal = outcome.cut or (not self._cell.checked and outcome.verdict is not None)
        if not heal and (outcome.interrupted or outcome.time_limit is not None):
            heal = not self._probe(outcome)
        if heal and outcome.intact:
            try:
                outcome.healed = self._processes.heal()
            except ClusterError as error:
                outcome.intact = False
                outcome.unhealed = str(error)

    def _collect_deaths(self, outcome: Outcome) -> None:
        deadline = time.monotonic() + DEATHS_S
        while time.monotonic() < deadline:
            time.sleep(TICK_S)
        died = self._processes.died()
        # Those that ended otherwise than the first ended because of it.
        first = next(iter(died.values()))
        for k in sorted(k for k, how in died.items() if how == first):
            line = crash_line(self._processes.last_words(k).err, self._cell.label)
            outcome.died[k] = first if line is None else f"{first} at line {line}"
        referee = self._processes.referee
        for k, how in outcome.died.items():
            referee.die(k, how)
        if outcome.verdict is None:
            outcome.verdict = referee.verdict or Verdict("died", referee.stands())
        outcome.intact = False

    def _last_reply(self, k: int) -> Reply:
        words = self._processes.last_words(k)
        pieces = (Text("stdout", words.said + words.out), Text("stderr", crash_report(words.err)))
        return Reply(tuple(piece for piece in pieces if piece.text))

    def _probe(self, outcome: Outcome) -> bool:
        """Return whether the processes can still compute together.

        An interrupt may have come between one process's launch of a collective and another's.
        """
        pending = self._processes.call(probe)
        self._wait_while_it_goes_on(pending)
        if pending.waiting:
            self._cut(pending, outcome)
            return False
        return all(answer is True for answer in pending.answers.values())


def _happened(outcome: Outcome, pending: Pending) -> Happened:
    """Return what became of processes that parted unchecked."""
    if outcome.died:
        return "crashed"
    if outcome.cut or outcome.stopped:
        return "hung"
    raised = any(isinstance(a, Reply) and a.error is not None for a in pending.answers.values())
    failed = raised or outcome.failed
    return "failed" if failed else "returned"
