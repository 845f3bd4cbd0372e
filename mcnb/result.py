"""What came of a cell: every process's own answer, and all of them as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from mcnb.errors import CellError, ClusterError, LockstepError, McnbError
from mcnb.lockstep.doubts import met_nobody, other_lines
from mcnb.lockstep.launches import LaunchRecord
from mcnb.lockstep.verdicts import Verdict
from mcnb.lockstep.wording import explain, left_waiting
from mcnb.messages import STREAMS, ProcessError, Reply, Stream, Text
from mcnb.options import name_processes
from mcnb.report.fold import Block, fold_events
from mcnb.report.text import entries, label, without_escapes

if TYPE_CHECKING:
    from mcnb.pictures.picture import Picture

# What a process raises because it was interrupted, or because its computation was cut off.
_OF_BEING_STOPPED = ("KeyboardInterrupt", "JaxRuntimeError", "XlaRuntimeError")


@dataclass(frozen=True)
class Result:
    r"""The result of a cell. All that is kept by process is indexed by process index.

    Attributes:
        replies: What each process that ran the cell has to say.
        count: How many processes the cluster has.
        stopped: The processes that did not end the cell by themselves but were stopped, because
            they waited for one that raised, or by the user.
        interrupted: Whether the user ended the cell.
        died: How processes ended that ended during the cell, in words.
        time_limit: The time limit that ended the cell, in seconds; None if none did.
        aftermath: What had to be done to end the cell, in sentences; empty if nothing.
        verdict: How the processes parted, or None if they did not.

    Example:
        >>> from mcnb.messages import Reply, Text
        >>> result = Result({k: Reply((Text("stdout", "hi\n"),)) for k in range(4)}, count=4)
        >>> result.ok, result.stdout[2], result.text()
        (True, 'hi\n', '[all 4] hi\n')
    """

    replies: Mapping[int, Reply]
    count: int
    stopped: tuple[int, ...] = ()
    interrupted: bool = False
    died: Mapping[int, str] = field(default_factory=dict)
    time_limit: float | None = None
    aftermath: str = ""
    verdict: Verdict | None = None

    @property
    def ok(self) -> bool:
        """Whether every process finished the cell without an error."""
        return not (self.errors or self.died or self.stopped or self.interrupted or self.verdict)

    @property
    def stdout(self) -> dict[int, str]:
        """What each process wrote to stdout, as text."""
        return self._streams("stdout")

    @property
    def stderr(self) -> dict[int, str]:
        """What each process wrote to stderr, as text."""
        return self._streams("stderr")

    @property
    def value(self) -> dict[int, str | None]:
        """The text of the last expression's value on each process, or None."""
        return {k: reply.value for k, reply in self.replies.items()}

    @property
    def errors(self) -> dict[int, ProcessError]:
        """The error that ended the cell, for each process that has one."""
        return {k: reply.error for k, reply in self.replies.items() if reply.error is not None}

    @cached_property
    def launches(self) -> tuple[LaunchRecord, ...]:
        """What the processes launched that spans processes, in the order of time."""
        records = [record for reply in self.replies.values() for record in reply.launches]
        return tuple(sorted(records, key=lambda record: (record.announced, record.process)))

    @cached_property
    def blocks(self) -> list[Block]:
        """What the processes said, folded."""
        return fold_events({k: reply.events for k, reply in self.replies.items()})

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What looks odd about the launches, though it proves nothing: in sentences."""
        found = [other_lines(self.launches, self.count)]
        if self.verdict is not None:
            found.append(met_nobody(self.verdict, self.launches, self.count))
        return tuple(f"{note[0].upper()}{note[1:]}" for note in found if note)

    def timeline(self, *, order: bool = False) -> Picture:
        """Return a picture of what the processes did, and when.

        Args:
            order: Whether to draw only in which order they launched what spans processes, without
                any time: that is the same whenever the same is launched.

        Raises:
            PictureError: No process could say what it did.
        """
        from mcnb.pictures.picture import Picture
        from mcnb.report.times import times

        return Picture(times(self, order=order))

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
        """Return the exception that the cell's failure makes, None if it did not fail."""
        if self.died:
            message = died_sentence(self.died, self.count) + self._sentence_end()
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
            return self._took_too_long()
        if verdict is not None and not self.interrupted:
            if verdict.kind == "missing" and self._groups():
                return self._left_waiting(verdict)
            return self._parted(verdict)
        parts = self._summaries()
        if self.interrupted:
            parts.insert(0, "The cell was interrupted")
        lines = self._traceback_lines()
        if self.aftermath:
            lines += ["", self.aftermath]
        return CellError("; ".join(parts) + self._sentence_end(), lines)

    def _summaries(self) -> list[str]:
        return [
            f"{name_processes(group, self.count)} raised {error.summary()}"
            for group, error in self._groups()
        ]

    def _left_waiting(self, verdict: Verdict) -> CellError:
        """Return the error for processes that failed; those that they left waiting come after."""
        waited = left_waiting(verdict.stands, self.count)
        waited = f"{waited[0].upper()}{waited[1:]}" if waited else ""
        message = ". ".join(filter(None, ("; ".join(self._summaries()), waited, self.aftermath)))
        rest = filter(None, (waited, self.aftermath))
        return CellError(message, [*self._traceback_lines(), "", *rest])

    def _took_too_long(self) -> CellError:
        """Return the error for a cell that its time limit ended."""
        assert self.verdict is not None
        wording = explain(self.verdict, self.count, self.aftermath)
        lines = [f"{CellError.__name__}: {wording.lines[0]}", *wording.lines[1:]]
        others = self._traceback_lines()
        return CellError(wording.sentence, [*lines, "", *others] if others else lines)

    def _parted(self, verdict: Verdict) -> LockstepError:
        """Return the error for processes that parted, with what else went wrong after it."""
        consequence = ". ".join(filter(None, (*self.notes, self.aftermath)))
        wording = explain(verdict, self.count, consequence)
        message = ". ".join((wording.sentence, *self._summaries()))
        lines = [f"{LockstepError.__name__}: {wording.lines[0]}", *wording.lines[1:]]
        others = self._traceback_lines()
        return LockstepError(message, [*lines, "", *others] if others else lines)

    def raise_for_errors(self) -> None:
        """Raise what `error` returns, if anything.

        Raises:
            CellError: The cell raised on at least one process.
            ClusterError: A process died.
        """
        error = self.error()
        if error is not None:
            raise error

    def _streams(self, stream: Stream) -> dict[int, str]:
        assert stream in STREAMS
        return {
            k: "".join(e.text for e in reply.events if isinstance(e, Text) and e.stream == stream)
            for k, reply in self.replies.items()
        }

    def _sentence_end(self) -> str:
        return f". {self.aftermath}" if self.aftermath else ""

    def _groups(self) -> list[tuple[list[int], ProcessError]]:
        """Return equal errors with their processes, the root cause first."""
        groups: dict[ProcessError, list[int]] = {}
        for k, error in sorted(
            self.errors.items(), key=lambda item: (item[0] in self.stopped, item[0])
        ):
            if not self._is_consequence(k, error):
                groups.setdefault(error, []).append(k)
        return [(sorted(group), error) for error, group in groups.items()]

    def _is_consequence(self, k: int, error: ProcessError) -> bool:
        """Return whether an error only tells that its process was stopped, or was left alone."""
        if error.name == LockstepError.__name__:
            return True
        verdict = self.verdict
        cut_off = k in self.stopped or self.died or (verdict is not None and verdict.happened)
        # What a callback raises comes back as an error of the computation.
        refused = verdict is not None and LockstepError.__name__ in error.message
        return bool(cut_off or refused) and error.name in _OF_BEING_STOPPED

    def _traceback_lines(self) -> list[str]:
        lines: list[str] = []
        for group, error in self._groups():
            lines += ["", f"{label(group, self.count)} {error.heading()}", error.traceback]
        return lines[1:]


def died_sentence(died: Mapping[int, str], count: int) -> str:
    """Say which processes died, and how.

    Example:
        >>> died_sentence({1: "ended with exit code 3", 2: "ended with exit code 3"}, 4)
        'processes 1,2 ended with exit code 3'
    """
    groups: dict[str, list[int]] = {}
    for k, how in died.items():
        groups.setdefault(how, []).append(k)
    return "; ".join(
        f"{name_processes(ks, count)} {how if len(ks) == 1 else re.sub('^was ', 'were ', how)}"
        for how, ks in groups.items()
    )


def _plain_text(item: object) -> str:
    data = getattr(item, "data", {})
    return str(data.get("text/plain", f"<{', '.join(sorted(data))}>"))
