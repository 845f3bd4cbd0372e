"""Seeing a cell through to its end on all processes, whatever becomes of it.

A cell ends when the last process has answered, or as soon as it is certain that one never will:
because a process died, because a process raised and the others wait for it inside JAX, or because
the user wants it to end.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from mcnb.errors import ClusterError, LockstepError
from mcnb.lockstep.verdicts import Verdict
from mcnb.messages import Reply, Text
from mcnb.options import name_processes
from mcnb.process.calls import probe, run_cell
from mcnb.process.tracebacks import crash_line, crash_report
from mcnb.processes import Pending, Processes

TICK_S = 0.1
# Where a process waits for others, what the others do is looked at sooner.
SHORT_TICK_S = 0.02
# How long a process must have stood still inside JAX before it is taken to wait for another.
WAITS_S = 0.5
# How long Python code has to answer an interrupt.
INTERRUPT_S = 0.8
# How long to wait for what follows from a death: JAX ends the others when process 0 is gone.
DEATHS_S = 0.3

Watcher = Callable[[Pending], None]


@dataclass
class Outcome:
    """How a cell ended.

    Attributes:
        replies: What each process has to say; made up from its black box where it could not.
        stopped: Processes that were made to end the cell, with the line at which they stood.
        died: The processes that ended on their own, and how.
        interrupted: Whether the user ended the cell.
        intact: Whether the processes can go on; where not, they have to be started anew.
        verdict: How the processes parted, if they did.
    """

    replies: dict[int, Reply] = field(default_factory=dict)
    stopped: dict[int, int | None] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)
    interrupted: bool = False
    intact: bool = True
    verdict: Verdict | None = None


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
        self._label = ""
        self._asked = 0
        self._reported: set[int] = set()
        self.asked_by_ctrl_c = False

    def interrupt(self) -> None:
        """Have the cell ended; from another thread or a signal handler."""
        self._asked += 1
        self._processes.wake()

    def run(self, targets: tuple[int, ...], source: str, label: str, first_line: int) -> Outcome:
        """Run a cell on some processes and return how it ended.

        Args:
            targets: The processes that run it.
            source: The cell's code.
            label: What stands in the notebook's prompt for it.
            first_line: Which line of the notebook's cell the first line of the code is.

        Raises:
            ClusterError: What connects the processes broke.
        """
        outcome = Outcome()
        self._label = label
        referee = self._processes.referee
        referee.begin(targets)
        pending = self._processes.call(run_cell, source, label, first_line, processes=targets)
        with self._catching_ctrl_c():
            while not self._over(pending, outcome):
                pending.wait(SHORT_TICK_S if referee.waits() else TICK_S)
                self._report(pending, targets)
                if self._watcher is not None:
                    self._watcher(pending)
            if outcome.interrupted and outcome.intact:
                outcome.intact = self._probe()
            if self._processes.exits and not outcome.died:
                self._collect_deaths(outcome)
        self._report(pending, targets)
        if not outcome.interrupted:
            outcome.verdict = referee.verdict
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
        if self._asked:
            outcome.interrupted = True
            outcome.verdict = self._where_they_stand()
            self._stop(pending, outcome)
            return True
        raised = any(isinstance(a, Reply) and a.error for a in pending.answers.values())
        if raised and all(pending.progress(k).waits_s >= WAITS_S for k in pending.waiting):
            self._stop(pending, outcome)
            # The computation that they waited in is still under way and can't be called off.
            outcome.intact = False
            return True
        return False

    def _where_they_stand(self) -> Verdict | None:
        """Return the verdict at the time of an interrupt: nothing is proven, as a rule."""
        referee = self._processes.referee
        if referee.verdict is not None or not referee.waits():
            return referee.verdict
        return Verdict("stalled", referee.stands())

    def _stop(self, pending: Pending, outcome: Outcome) -> None:
        """Interrupt the processes that still run the cell."""
        outcome.stopped = {k: pending.progress(k).line for k in sorted(pending.waiting)}
        for k in outcome.stopped:
            self._processes.signal(k, signal.SIGINT)
        deadline = time.monotonic() + INTERRUPT_S
        asked = self._asked
        while pending.waiting and not self._processes.exits:
            left = deadline - time.monotonic()
            if left <= 0 or self._asked > asked:  # blocked in native code, or the user can't wait
                outcome.intact = False
                return
            pending.wait(left)

    def _collect_deaths(self, outcome: Outcome) -> None:
        deadline = time.monotonic() + DEATHS_S
        while time.monotonic() < deadline:
            time.sleep(TICK_S)
        died = self._processes.died()
        # Those that ended otherwise than the first ended because of it.
        first = next(iter(died.values()))
        for k in sorted(k for k, how in died.items() if how == first):
            line = crash_line(self._processes.last_words(k).err, self._label)
            outcome.died[k] = first if line is None else f"{first} at line {line}"
        for k, how in outcome.died.items():
            self._processes.referee.die(k, how)
        outcome.intact = False

    def _last_reply(self, k: int) -> Reply:
        words = self._processes.last_words(k)
        pieces = (Text("stdout", words.said + words.out), Text("stderr", crash_report(words.err)))
        return Reply(tuple(piece for piece in pieces if piece.text))

    def _probe(self) -> bool:
        """Return whether the processes can still compute together.

        An interrupt may have come between one process's launch of a collective and another's.
        """
        pending = self._processes.call(probe)
        asked = self._asked
        while pending.waiting and not self._processes.exits and self._asked == asked:
            pending.wait(TICK_S)
            if all(pending.progress(k).waits_s >= WAITS_S for k in pending.waiting):
                break
        return not pending.waiting and all(answer is True for answer in pending.answers.values())


def aftermath(outcome: Outcome, count: int) -> str:
    """Say what had to be done to end a cell.

    Args:
        outcome: How it ended.
        count: How many processes there are.

    Example:
        >>> aftermath(Outcome(stopped={1: 3, 2: 3}, intact=False), 4)
        'Processes 1,2 (line 3) waited and were stopped. All 4 processes were started anew: their \
variables are gone'
    """
    sentences = []
    if outcome.stopped:
        lines = {line for line in outcome.stopped.values() if line is not None}
        where = ""
        if lines:
            noun = "line" if len(lines) == 1 else "lines"
            where = f" ({noun} {', '.join(str(line) for line in sorted(lines))})"
        was = "was" if len(outcome.stopped) == 1 else "were"
        what = f"{was} interrupted" if outcome.interrupted else f"waited and {was} stopped"
        name = name_processes(list(outcome.stopped), count)
        sentences.append(f"{name}{where} {what}")
    if not outcome.intact:
        everyone = name_processes(list(range(count)), count)
        was, their = ("was", "its") if count == 1 else ("were", "their")
        sentences.append(f"{everyone} {was} started anew: {their} variables are gone")
    elif outcome.interrupted or outcome.verdict is not None:
        sentences.append("The cluster is intact, with its variables")
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)
