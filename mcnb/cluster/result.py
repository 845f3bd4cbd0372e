"""Define the result of a cell: outputs, errors and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mcnb._text import grouped, label, name_processes
from mcnb.cluster.outcome import Outcome, aftermath, died_sentence
from mcnb.errors import CellError, ClusterError, LockstepError, McnbError, PictureError
from mcnb.lockstep.differences import launched_alone
from mcnb.lockstep.independent import Tally, different_programs, tallies_of
from mcnb.lockstep.messages import (
    caught_before,
    exit_text,
    explain,
    in_two_orders,
    left_waiting,
    other_lines,
    unequal_inputs,
)
from mcnb.lockstep.model import LaunchRecord, ProcessExit, Verdict
from mcnb.lockstep.sameness import with_common_programs
from mcnb.messages import ProcessError, Reply, Stream, Text
from mcnb.output.chance import comparable
from mcnb.output.fold import Block, fold_events
from mcnb.output.terminal import without_escapes
from mcnb.output.text import entries
from mcnb.output.tracebacks import fold_tracebacks, processes_of, traceback_text

if TYPE_CHECKING:
    from mcnb.pictures.picture import Picture

# Errors that a process raises because it was interrupted, or because its computation was aborted.
_OF_BEING_STOPPED = ("KeyboardInterrupt", "JaxRuntimeError", "XlaRuntimeError")
# The longest sentence of errors, in characters, that tells the text of each.
MOST_SUMMARIES = 2000


@dataclass(frozen=True)
class Result:
    r"""The result of a cell, with mappings by process index.

    Attributes:
        replies: The reply of each process that ran the cell.
        count: The number of processes of the cluster.
        outcome: How the cell ended, and what was done to the cluster.
        ours: Whether mcnb started the processes, and so can restart them.

    Example:
        >>> from mcnb.messages import Reply, Text
        >>> result = Result({k: Reply((Text("stdout", "hi\n"),)) for k in range(4)}, count=4)
        >>> result.ok, result.stdout[2], result.text()
        (True, 'hi\n', '[all 4] hi\n')
    """

    replies: Mapping[int, Reply]
    count: int
    outcome: Outcome = field(default_factory=Outcome)
    ours: bool = True

    @property
    def stopped(self) -> tuple[int, ...]:
        """The processes that did not end the cell by themselves but were stopped.

        The user or the time limit ended the cell, or they waited for a process that raised.
        """
        return tuple(self.outcome.stopped)

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the cell."""
        return self.outcome.interrupted

    @property
    def time_limit(self) -> float | None:
        """The time limit that ended the cell, in seconds; None if none did."""
        return self.outcome.time_limit

    @property
    def exits(self) -> Mapping[int, ProcessExit]:
        """The exit reasons of the processes that ended during the cell."""
        return self.outcome.exits

    @property
    def verdict(self) -> Verdict | None:
        """How the processes diverged, or None if they did not."""
        return self.outcome.verdict

    @cached_property
    def aftermath(self) -> str:
        """How the cell was ended, in sentences; empty if the cell ended by itself."""
        return aftermath(self.outcome, self.count, ours=self.ours)

    @property
    def ok(self) -> bool:
        """Whether every process finished the cell without an error."""
        return not (self.errors or self.exits or self.stopped or self.interrupted or self.verdict)

    @property
    def died(self) -> dict[int, str]:
        """The exit reason of each process that ended during the cell, in words."""
        return {k: exit_text(how) for k, how in self.exits.items()}

    @property
    def stdout(self) -> dict[int, str]:
        """The text that each process wrote to stdout."""
        return self._streams("stdout")

    @property
    def stderr(self) -> dict[int, str]:
        """The text that each process wrote to stderr."""
        return self._streams("stderr")

    @property
    def value(self) -> dict[int, str | None]:
        """The text of the last expression's value on each process, or None."""
        return {k: reply.value for k, reply in self.replies.items()}

    @property
    def errors(self) -> dict[int, ProcessError]:
        """The error that ended the cell, for each process that raised one."""
        return {k: reply.error for k, reply in self.replies.items() if reply.error is not None}

    @property
    def blamed(self) -> int | None:
        """The first process whose error caused the failure, as far as known; None without errors.

        Errors that are only a consequence, such as that of a process left waiting, come last.
        """
        groups = self._groups()
        return groups[0][0][0] if groups else min(self.errors, default=None)

    @cached_property
    def launches(self) -> tuple[LaunchRecord, ...]:
        """The launches that span processes, in chronological order."""
        records = [record for reply in self.replies.values() for record in reply.launches]
        records.sort(key=lambda record: (record.announced, record.process))
        return with_common_programs(records)

    @cached_property
    def blocks(self) -> list[Block]:
        """The processes' folded output."""
        return fold_events({k: reply.events for k, reply in self.replies.items()})

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences about suspicious launches that are no proof of a divergence."""
        told = self.verdict is not None and self.verdict.parted is not None
        found = [] if told else [other_lines(self.launches, self.count)]
        if self.verdict is not None:
            found.append(caught_before(self.outcome.verdicts, self.count))
        elif self.ok:
            found.append(in_two_orders(self.outcome.races, self.count))
            found.append(different_programs(self._tallies(), self.count))
        missing = self.verdict is not None and self.verdict.kind == "missing"
        found.append(unequal_inputs(self.outcome.inputs, self.count, diverged=missing))
        found += [
            "since the cell before, the processes have diverged, in a thread that went on: "
            f"{explain(verdict, self.count).sentence}"
            for verdict in self.outcome.late
        ]
        return tuple(f"{note[0].upper()}{note[1:]}" for note in found if note)

    def _tallies(self) -> dict[int, list[Tally]]:
        return {k: tallies_of(reply.launches) for k, reply in self.replies.items()}

    def __mcnb_picture__(
        self, args: Sequence[Any], options: dict[str, Any], keywords: Mapping[str, Any]
    ) -> list[Picture] | None:
        """Return the result's pictures for `mcnb.show`; None for unsupported arguments."""
        if args or not set(keywords) <= {"order", "steps"}:
            return None
        return [self.timeline(**keywords)]

    def timeline(
        self, *, order: bool = False, steps: int | tuple[int | None, int | None] | None = None
    ) -> Picture:
        """Return a picture of the processes' activity over time.

        A step is a round of the cell's loop. It ends with the launch that spans processes and was
        made most often in the cell. Of a cell with many launches, the picture shows how long each
        step took, and which process was late.

        Args:
            order: Whether to draw only the order of the launches that span processes, without any
                times. The same launches then always give the same picture.
            steps: Steps to draw: the number of one, from 1, or of the first and the last; None
                instead of a number for the first or the last of the cell. By default, the whole
                cell is drawn.

        Raises:
            PictureError: No process reported its activity, or the cell has no such steps.
        """
        from mcnb.pictures.picture import Picture
        from mcnb.pictures.scenes.loop import MOST_MARKED, loop_scene, steps_title
        from mcnb.pictures.scenes.time import order_scene, time_scene
        from mcnb.pictures.steps import between, steps_of
        from mcnb.pictures.timeline import timeline

        traces, died = {k: reply.trace for k, reply in self.replies.items()}, self.died
        absent = {
            k: died.get(k, "gave no answer" if k in traces else "not given this cell")
            for k in range(self.count)
            if traces.get(k) is None
        }
        if len(absent) == self.count:
            ran = self.stopped or self.exits
            why = "no process could say what it did in the cell" if ran else "the cell did not run"
            raise PictureError(f"There is nothing to draw: {why}")
        time = timeline(traces, self.launches)
        found = steps_of(time)
        draw = order_scene if order else time_scene
        if steps is not None:
            first, last = (steps, steps) if isinstance(steps, int) else steps
            first, last = 1 if first is None else first, len(found) if last is None else last
            scene = draw(between(time, first, last), absent)
            return Picture(replace(scene, title=steps_title(found, first, last, order=order)))
        if len(found) > MOST_MARKED and not order:
            return Picture(loop_scene(time, absent, found))
        return Picture(draw(time, absent))

    def text(self) -> str:
        """Return the folded output and errors as plain text."""
        shown = "".join(
            entry.text + ("" if entry.item is None else _plain_text(entry.item) + "\n")
            for entry in entries(self.blocks, self.count)
        )
        error = self.error()
        if error is None:
            return shown + "".join(f"Note: {note}\n" for note in self.notes)
        return shown + without_escapes("\n".join(error.lines)) + "\n"

    def error(self) -> McnbError | None:
        """Return the exception for a failed cell; None if the cell did not fail."""
        if self.exits:
            message = died_sentence(self.exits, self.count) + self._sentence_end()
            lines = [f"{ClusterError.__name__}: {message}"]
            if self.verdict is not None and self.verdict.kind != "died":
                wording = explain(self.verdict, self.count)
                message = f"{message}. {wording.sentence}"
                lines += ["", *wording.lines]
            return ClusterError(message, [*lines, *self._traceback_lines()])
        if self.ok:
            return None
        verdict = self.verdict
        if self.time_limit is not None:
            assert verdict is not None
            wording = explain(verdict, self.count, self.aftermath)
            return CellError(wording.sentence, self._error_lines(CellError, wording.lines))
        if verdict is not None and not self.interrupted:
            if verdict.kind == "missing" and self._missing_raised(verdict):
                return self._left_waiting(verdict)
            return self._diverged(verdict)
        parts = self.summaries()
        if self.interrupted:
            parts.insert(0, "The cell was interrupted")
        lines = self._traceback_lines()
        if self.aftermath:
            lines += ["", self.aftermath]
        return CellError("; ".join(parts) + self._sentence_end(), lines)

    def _missing_raised(self, verdict: Verdict) -> bool:
        """Return whether a participant is missing because it raised an error of its own."""
        raised = {k for group, _ in self._groups() for k in group}
        return any(state.doing == "raised" for k, state in verdict.states.items() if k in raised)

    def summaries(self, most: int = MOST_SUMMARIES) -> list[str]:
        """Return a sentence for each kind of error, the root cause first.

        Errors that only result from others are left out.

        Args:
            most: The longest total length, in characters, at which each text is told.
        """
        groups = self._groups()
        said = [
            f"{name_processes(group, self.count)} raised {error.summary()}"
            for group, error in groups
        ]
        if sum(map(len, said)) <= most:
            return said
        kinds: dict[str, list[tuple[list[int], ProcessError]]] = {}
        for group, error in groups:
            kinds.setdefault(error.heading(), []).append((group, error))
        told = []
        for heading, alike in kinds.items():
            who = name_processes(sorted(k for group, _ in alike for k in group), self.count)
            first, error = next((one for one in alike if one[1].begins()), alike[0])
            texts = len({comparable(one.message) for _, one in alike})
            told.append(
                f"{who} raised {error.summary()}"
                if texts == 1
                else f"{who} raised {heading}, with {texts} different texts, for example on "
                f"{name_processes(first, self.count)}: {error.begins()}"
            )
        return told

    def _left_waiting(self, verdict: Verdict) -> CellError:
        """Return the error for failed processes, followed by the processes left waiting."""
        waited = left_waiting(verdict.states, self.count)
        rest = [*filter(None, (waited[:1].upper() + waited[1:], self.aftermath))]
        message = ". ".join(["; ".join(self.summaries()), *rest])
        return CellError(message, [*self._traceback_lines(), "", *rest])

    def _diverged(self, verdict: Verdict) -> LockstepError:
        """Return the error for processes that diverged, followed by other errors."""
        alone = launched_alone(verdict, self.launches)
        wording = explain(verdict, self.count, self.aftermath, self.notes, alone)
        message = ". ".join((wording.sentence, *self.summaries()))
        return LockstepError(message, self._error_lines(LockstepError, wording.lines), verdict.kind)

    def raise_for_errors(self) -> None:
        """Raise the exception that `error` returns, if any.

        Raises:
            CellError: The cell raised on at least one process.
            ClusterError: A process died.
        """
        error = self.error()
        if error is not None:
            raise error

    def _streams(self, stream: Stream) -> dict[int, str]:
        return {
            k: "".join(e.text for e in reply.events if isinstance(e, Text) and e.stream == stream)
            for k, reply in self.replies.items()
        }

    def _sentence_end(self) -> str:
        return f". {self.aftermath}" if self.aftermath else ""

    @property
    def causes(self) -> dict[int, ProcessError]:
        """The errors that result from no other process's, by process, the root cause first."""
        errors, stopped = self.errors, self.outcome.stopped
        first = sorted(errors, key=lambda k: (k in stopped, k))
        return {k: errors[k] for k in first if not self._is_consequence(k, errors[k])}

    def _groups(self) -> list[tuple[list[int], ProcessError]]:
        """Group processes by equal errors, with the root cause first."""
        causes = self.causes
        alike = {
            k: (e.heading(), comparable(e.message), comparable(e.traceback))
            for k, e in causes.items()
        }
        return [(sorted(group), causes[group[0]]) for _, group in grouped(alike)]

    def _is_consequence(self, k: int, error: ProcessError) -> bool:
        """Return whether an error only results from a stopped process or a missing participant."""
        if error.name == LockstepError.__name__:
            return True
        verdict = self.verdict
        cut_off = k in self.stopped or self.exits or (verdict is not None and verdict.happened)
        if verdict is not None and k in verdict.states:
            # Its main thread waited for one that received the verdict.
            cut_off = cut_off or verdict.states[k].doing == "waits"
        # JAX reports an exception in a callback as an error of the computation.
        refused = verdict is not None and LockstepError.__name__ in error.message
        return bool(cut_off or refused) and error.name in _OF_BEING_STOPPED

    def _error_lines(self, kind: type[McnbError], lines: Sequence[str]) -> list[str]:
        """Return the lines of an error, followed by the other errors' tracebacks."""
        own = [f"{kind.__name__}: {lines[0]}", *lines[1:]]
        others = self._traceback_lines()
        return [*own, "", *others] if others else own

    def _traceback_lines(self) -> list[str]:
        by_heading: dict[str, list[tuple[list[int], str]]] = {}
        for group, error in self._groups():
            by_heading.setdefault(error.heading(), []).append((group, error.traceback))
        lines: list[str] = []
        for heading, groups in by_heading.items():
            for blocks in fold_tracebacks(groups):
                name = label(processes_of(blocks), self.count)
                lines += ["", f"{name} {heading}", traceback_text(blocks, self.count)]
        return lines[1:]


def _plain_text(item: object) -> str:
    data = getattr(item, "data", {})
    return str(data.get("text/plain", f"<{', '.join(sorted(data))}>"))
