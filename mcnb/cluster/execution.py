"""Execute a cell on all processes, and monitor the execution until the cell ends.

A cell ends when the last process has replied, or as soon as a reply is certain never to arrive:
because a process died, because a process raised and the others wait for it inside JAX, because
unchecked processes diverged and hang, or because the user or the time limit ends the cell.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from mcnb._text import grouped, label
from mcnb.cluster.conversation import Conversation, Debugger
from mcnb.cluster.history import Cell
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.cluster.stopping import WAITS_S, PressedAgainError, Presses, Stopper
from mcnb.cluster.uneven import uneven_assignments
from mcnb.cluster.workers import Pending, Processes
from mcnb.errors import CellError, ClusterError, LockstepError
from mcnb.launchers.exits import crash_line, crash_report
from mcnb.lockstep.model import Detail, Doing, Happened, Verdict
from mcnb.messages import ProcessError, Reply, Text
from mcnb.worker.rpc import run_cell, settle

TICK_S = 0.1
# The polling interval while a process waits for others.
SHORT_TICK_S = 0.02
# How long a process may take to answer where it is, and how often its answer is looked for.
ANSWER_S, LOOK_S = 2.0, 0.02
# How long no further process must have died: JAX ends the other processes when process 0 has died.
DEATHS_S = 0.3
NO_ANSWER = f"did not answer within {ANSWER_S:.0f} s: its native code may hold Python's lock"
NOTHING = "runs nothing of the cell"
Watcher = Callable[[Pending], None]


class Execution:
    """The execution of one cell on the processes.

    Args:
        processes: The processes.
        watcher: Called repeatedly while the cell runs, for a live view, but not while `debugger`
            is.
        debugger: Called when a process stops at a breakpoint; see `Cluster.run`.

    Attributes:
        asked_by_ctrl_c: Whether Ctrl-C or the stop button ended the cell.
        stage: The current step of ending the cell, in words; empty while the cell runs.
    """

    def __init__(
        self,
        processes: Processes,
        watcher: Watcher | None = None,
        debugger: Debugger | None = None,
    ) -> None:
        self._processes = processes
        self._watcher = watcher
        self._presses = Presses(processes.client.wake)
        self._conversation = debugger and Conversation(
            lambda k, text: self._asked(debugger, k, text),
            processes.referee.command,
            self._presses.press,
        )
        self._reported: set[int] = set()
        self._pending: Pending | None = None
        self._questions = itertools.count(1)
        self._late = False
        self._watched_by = 0  # the id of the thread that is calling the watcher, or 0
        self.asked_by_ctrl_c = False
        self.stage = ""

    def interrupt(self) -> None:
        """Request the end of the cell; a second request replaces the processes at once.

        To be called from another thread, from a signal handler, or by the watcher. The watcher is
        called repeatedly, so its requests count only once.
        """
        if not (self._presses and threading.get_ident() == self._watched_by):
            self._presses.press()

    def stacks(self) -> str:
        """Return where the processes are that have not finished; to be called from another thread.

        Example of what is returned:
            [0,1] In[3], line 5: train(state)
                  In[3], line 2, in train: state = step(state)
                  … 3 frames of JAX …
            [2]   did not answer within 2 s: its native code may hold Python's lock
        """
        pending, number = self._pending, next(self._questions)
        asked = [] if pending is None else sorted(pending.waiting)
        for k in asked:
            self._processes.referee.ask(k, number)
        found: dict[int, tuple[str, ...]] = {}
        until = time.monotonic() + ANSWER_S
        while pending is not None and len(found) < len(asked):
            given_up = time.monotonic() >= until
            for k in asked:
                stack = pending.stack(k)
                if k not in found and (stack.number >= number or given_up):
                    found[k] = stack.lines if stack.number >= number else (NO_ANSWER,)
            time.sleep(LOOK_S)
        groups = [
            (label(ks, self._processes.options.processes), lines or (NOTHING,))
            for lines, ks in grouped(found)
        ]
        width = max((len(name) for name, _ in groups), default=0)
        return "\n".join(
            f"{name if not number else '':<{width}} {line}"
            for name, lines in groups
            for number, line in enumerate(lines)
        )

    def run(self, cell: Cell) -> Result:
        """Run a cell, and return its result.

        Raises:
            ClusterError: The connection to the processes broke, or a process can't run the cell.
        """
        arguments = cell.source, cell.label, cell.first_line, cell.checked, cell.values
        typed = self._conversation is not None
        outcome, pending = self._see_through(cell, run_cell, *arguments, typed)
        if not cell.checked and outcome.verdict is not None:
            happened = _happened(outcome, pending)
            outcome.verdict = replace(outcome.verdict, happened=happened)
        replies = {}
        for k in cell.targets:
            answer = pending.answers[k] if k in pending.answers else self._last_reply(k)
            if not isinstance(answer, Reply):
                raise ClusterError(f"process {k} could not run the cell. {answer.summary()}")
            replies[k] = answer
        if outcome.intact and (outcome.verdict or outcome.stopped or _raised(pending)):
            launches = {k: reply.launches for k, reply in replies.items()}
            size = self._processes.options.processes
            outcome.uneven = uneven_assignments(cell.source, cell.first_line, launches, size)
        return self._result(replies, outcome)

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], targets: tuple[int, ...]
    ) -> tuple[Result, dict[int, Any]]:
        """Call one of mcnb's own functions in processes, in lockstep.

        The function receives the shell, the number of the cell, and `args`.

        Returns:
            The result of the call, and the received values by process.

        Raises:
            CellError: An argument can't be sent.
            ClusterError: The connection to the processes broke.
        """
        outcome, pending = self._see_through(Cell("", targets, ""), function, *args)
        answers = dict(sorted(pending.answers.items()))
        errors = {k: Reply(error=a) for k, a in answers.items() if isinstance(a, ProcessError)}
        return self._result(errors, outcome), answers

    def _result(self, replies: dict[int, Reply], outcome: Outcome) -> Result:
        options = self._processes.options
        return Result(replies, options.processes, outcome, options.ours)

    def _see_through(
        self, cell: Cell, function: Callable[..., Any], *args: Any
    ) -> tuple[Outcome, Pending]:
        outcome = Outcome()
        self._cell = cell
        referee = self._processes.referee
        self._processes.note_late_verdicts()
        if cell.label:
            outcome.late, self._processes.late = self._processes.late, ()
        number = referee.begin(cell.targets)
        try:
            pending = self._processes.client.call(function, number, *args, processes=cell.targets)
        except Exception as error:
            raise CellError(f"A value can't be sent: {error}") from None
        self._pending = pending
        self._stopper = Stopper(
            self._processes, outcome, self._presses, lambda stage: self._show(pending, stage)
        )

        def patience() -> float | None:
            self._report(pending)
            pending.waits = referee.waits()
            self._show(pending, "")
            if self._conversation is not None and not (self._presses or self._processes.exits):
                self._conversation.go_on(pending)
            if self._over(pending, outcome):
                return None
            return SHORT_TICK_S if pending.waits or self._converses else TICK_S

        try:
            pending.follow(patience)
            self._report(pending)
            _, outcome.races, outcome.inputs = referee.noted
            outcome.verdicts = referee.verdicts
            if outcome.verdict is None:
                outcome.verdict = referee.verdict
            if not cell.checked and outcome.verdict is not None and not outcome.cut:
                self._settle(outcome)
            self._verify(outcome, number)
        except PressedAgainError:
            outcome.intact, outcome.given_up, outcome.interrupted = False, True, True
            outcome.unfreed = tuple(sorted(pending.waiting))
            self._show(pending, "Restarting the processes …", restarts=True)
        self._processes.told = len(referee.verdicts)
        outcome.pressed_late = bool(self._presses) and not outcome.interrupted and not self._late
        outcome.interrupted |= outcome.pressed_late and not outcome.intact
        self._report(pending)
        if self._processes.exits:
            self._collect_deaths(outcome)
        return outcome, pending

    def _show(self, pending: Pending, stage: str, *, restarts: bool = False) -> None:
        self.stage = pending.stage = stage
        pending.replaceable = bool(self._presses) and not (restarts or self._presses.again)
        if self._watcher is not None:
            self._watched_by = threading.get_ident()
            try:
                self._watcher(pending)
            finally:
                self._watched_by = 0

    def raise_debugger_error(self) -> None:
        """Raise the error that the caller's debugger raised, after the cell has ended."""
        if self._conversation is not None and self._conversation.error is not None:
            raise self._conversation.error

    @property
    def _converses(self) -> bool:
        """Whether a process has stopped at a breakpoint in this cell."""
        return self._conversation is not None and self._conversation.opened

    def _asked(self, debugger: Debugger, k: int, text: str) -> str:
        """Return a command that a person types; Ctrl-C raises KeyboardInterrupt meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return debugger(k, text)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return debugger(k, text)
        finally:
            signal.signal(signal.SIGINT, before)

    def _report(self, pending: Pending) -> None:
        """Report to the referee which processes have finished the cell."""
        for k in sorted(pending.answers.keys() - self._reported):
            self._reported.add(k)
            answer = pending.answers[k]
            if not isinstance(answer, Reply):
                self._processes.referee.finish(k)
            elif answer.error is None or answer.error.name == LockstepError.__name__:
                self._processes.referee.finish(k, busy=answer.busy, caught=answer.caught)
            else:
                self._processes.referee.fail(k, answer.error.summary(), busy=answer.busy)

    @contextmanager
    def catching_ctrl_c(self) -> Iterator[None]:
        """Make Ctrl-C end the cell instead of raising KeyboardInterrupt in this process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def take_note(signum: int, frame: FrameType | None) -> None:
            del signum, frame
            self.asked_by_ctrl_c = True
            self._presses.press()

        before = signal.signal(signal.SIGINT, take_note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _over(self, pending: Pending, outcome: Outcome) -> bool:
        """Return whether the cell has ended, after stopping a cell that can't continue."""
        if self._processes.exits or not pending.waiting:
            return True
        limit = self._cell.timeout
        typing_s = self._conversation.typing_s if self._conversation else 0.0
        self._late = limit is not None and pending.clock() - typing_s > limit
        if self._presses or self._late:
            outcome.interrupted = bool(self._presses)
            outcome.time_limit = None if self._presses else limit
            outcome.verdict = self._states_now(pending)
            self._stopper.stop(pending)
            if not outcome.stopped:  # meanwhile, all have ended the cell by themselves
                outcome.interrupted, outcome.time_limit = False, None
                outcome.verdict = self._processes.referee.verdict
            return True
        diverged = not self._cell.checked and self._processes.referee.verdict is not None
        if (diverged or _raised(pending)) and pending.all_inactive(WAITS_S):
            self._stopper.stop(pending)
            return True
        return False

    def _states_now(self, pending: Pending) -> Verdict:
        """Return the verdict at an interrupt: the referee's, or `stalled` with each position."""
        referee = self._processes.referee
        if referee.verdict is not None:
            return referee.verdict
        states = referee.states()
        for k in pending.waiting:
            if states[k].doing == "runs":
                progress = pending.progress(k)
                doing: Doing = "hangs" if progress.waits_s else "runs"
                states[k] = replace(states[k], doing=doing, line=progress.line)
        source = dict(enumerate(self._cell.source.splitlines(), self._cell.first_line))
        lines = {k: source.get(state.line or 0, "").strip() for k, state in states.items()}
        known = {k: Detail(line) for k, line in lines.items() if line and not states[k].place}
        return Verdict("stalled", states, details=known)

    def _settle(self, outcome: Outcome) -> None:
        """Wait for unawaited launches that went ahead, and abort those that hang."""
        if not outcome.intact or self._processes.exits:
            return
        pending = self._processes.client.call(settle)

        def patience() -> float | None:
            self._show(pending, "")
            waits = pending.all_inactive(WAITS_S)
            # A process that waits for a GPU is never inactive, because CUDA polls.
            waits = waits or (self._late and pending.clock() > WAITS_S)
            return None if waits or self._processes.exits or self._presses else TICK_S

        pending.follow(patience)
        if self._presses and pending.waiting:
            outcome.interrupted = True
            self._stopper.stop(pending)
        elif pending.waiting:
            self._stopper.abort(pending)
        outcome.failed = not all(answer is True for answer in pending.answers.values())

    def _verify(self, outcome: Outcome, number: int) -> None:
        """Verify that the processes can compute together, and heal them if needed."""
        if not outcome.intact or self._processes.exits:
            return
        # If different launches have met, the data that each process still expects is unknown.
        heal = outcome.cut or (not self._cell.checked and outcome.verdict is not None)
        ended = bool(self._presses) or self._late
        if heal or ended or outcome.verdict is not None:
            self._stopper.verify(ended=ended, heal=heal, salt=number)

    def _collect_deaths(self, outcome: Outcome) -> None:
        died = self._processes.died()
        known = -1
        while len(died) not in (known, self._processes.options.processes):
            known = len(died)
            time.sleep(DEATHS_S)
            died = self._processes.died()
        referee = self._processes.referee
        # Processes with another exit reason than the first ended as a consequence.
        first, alike = grouped(died)[0]
        for k in sorted(alike):
            line = crash_line(self._processes.last_words(k).err, self._cell.label)
            last = referee.last_launch(k) if line is None else None
            outcome.exits[k] = replace(first, line=line, last=last)
        for k, how in outcome.exits.items():
            referee.die(k, how)
        if outcome.verdict is None:
            outcome.verdict = referee.verdict or Verdict("died", referee.states())
        outcome.intact = False

    def _last_reply(self, k: int) -> Reply:
        words = self._processes.last_words(k)
        pieces = (Text("stdout", words.said + words.out), Text("stderr", crash_report(words.err)))
        return Reply(tuple(piece for piece in pieces if piece.text))


def _happened(outcome: Outcome, pending: Pending) -> Happened:
    """Return the consequence of a divergence with the check off."""
    if outcome.exits:
        return "crashed"
    if outcome.cut or outcome.stopped:
        return "hung"
    return "failed" if outcome.failed or _raised(pending) else "returned"


def _raised(pending: Pending) -> bool:
    """Return whether a process has raised an error in the cell."""
    return any(isinstance(a, Reply) and a.error for a in pending.answers.values())
