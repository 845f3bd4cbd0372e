"""Define the result and outcome of a cell, and describe errors and the cluster's state in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from mcnb._text import label, name_processes, plural
from mcnb.errors import CellError, ClusterError, LockstepError, McnbError
from mcnb.lockstep.messages import exit_text, explain, left_waiting, met_nobody, other_lines
from mcnb.lockstep.model import LaunchRecord, ProcessExit, Verdict
from mcnb.messages import STREAMS, Healed, ProcessError, Reply, Stream, Text, Unfinished
from mcnb.output.fold import Block, fold_events
from mcnb.output.text import entries, without_escapes

if TYPE_CHECKING:
    from mcnb.pictures.picture import Picture

NOT_OURS = (
    "The processes can't communicate any more. Restart them with the tool that started them; then: "
    "%mcjax connect"
)
# Errors that a process raises because it was interrupted, or because its computation was aborted.
_OF_BEING_STOPPED = ("KeyboardInterrupt", "JaxRuntimeError", "XlaRuntimeError")


@dataclass
class Outcome:
    """The outcome of a cell's execution.

    Attributes:
        replies: The reply of each process; reconstructed from its output files if it sent none.
        stopped: The processes that were stopped, with the line at which each was then.
        died: The processes that ended on their own, with their exit reasons.
        interrupted: Whether the user ended the cell.
        intact: Whether the processes can continue; if not, they must be restarted.
        verdict: How the processes diverged, if they did.
        time_limit: The time limit that ended the cell, in seconds.
        cut: Whether computations had to be aborted.
        healed: The restored variables, by process, if the processes had to reconnect.
        unfreed: The processes that could not be interrupted.
        unhealed: Why the processes could not be healed.
        failed: Whether an unawaited computation failed.
        unfinished: The work that still runs, by process, for processes with such work.
        silent: The processes that did not report their unfinished work.
        given_up: Whether the user chose not to wait for the cell to end.
        verified: Whether the devices were seen to be idle, and a test gather to be correct.
        pressed_late: Whether the user's request to end the cell came just after the cell's end.
        endless: The labels of cells whose computations did not end and were aborted.
    """

    replies: dict[int, Reply] = field(default_factory=dict)
    stopped: dict[int, int | None] = field(default_factory=dict)
    died: dict[int, ProcessExit] = field(default_factory=dict)
    interrupted: bool = False
    intact: bool = True
    verdict: Verdict | None = None
    time_limit: float | None = None
    cut: bool = False
    healed: dict[int, Healed] = field(default_factory=dict)
    unfreed: tuple[int, ...] = ()
    unhealed: str = ""
    failed: bool = False
    unfinished: dict[int, Unfinished] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    given_up: bool = False
    verified: bool = False
    pressed_late: bool = False
    endless: frozenset[str] = frozenset()


def aftermath(outcome: Outcome, count: int, *, ours: bool = True) -> str:
    """Describe how a cell was ended, and the state of the cluster afterwards.

    Args:
        outcome: The outcome of the cell.
        count: The number of processes.
        ours: Whether mcnb started the processes, and so can restart them.

    Example:
        >>> aftermath(Outcome(stopped={1: 3, 2: 3}, intact=False), 4)
        'Processes 1,2 (line 3) waited and were stopped. All 4 processes were restarted: their \
variables are lost. To re-run the cells that defined them: %mcjax restart --replay'
    """
    sentences = []
    if outcome.stopped:
        asked = outcome.interrupted or outcome.time_limit is not None
        was = "was" if len(outcome.stopped) == 1 else "were"
        what = f"{was} interrupted" if asked else f"waited and {was} stopped"
        if outcome.time_limit is not None:
            what += f" at the time limit of {outcome.time_limit:g} s"
        name = name_processes(list(outcome.stopped), count)
        sentences.append(f"{name}{_lines(list(outcome.stopped.values()))} {what}")
    elif outcome.pressed_late:
        sentences.append("the cell had ended before it could be interrupted")
    if not outcome.intact:
        sentences += _reasons(outcome, count)
        everyone = name_processes(list(range(count)), count)
        was, their = ("was", "its") if count == 1 else ("were", "their")
        if ours:
            sentences.append(f"{everyone} {was} restarted: {their} variables are lost")
            sentences.append("To re-run the cells that defined them: %mcjax restart --replay")
        else:
            sentences.append(NOT_OURS)
    else:
        # Unfinished work is reported only if the cell was to end; otherwise it is legitimate.
        ended = outcome.interrupted or outcome.pressed_late or outcome.time_limit is not None
        left = leftovers(outcome.unfinished, count) if ended else []
        if outcome.healed:
            sentences += healing(outcome.healed, count)
        elif outcome.verified and not left and (ended or outcome.verdict is not None):
            sentences.append("The cluster is intact; all variables are kept")
        elif ended or outcome.verdict is not None:
            sentences.append("All variables are kept")
            left = left or _computing_on(outcome.unfinished, count)
        sentences += left
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)


def _reasons(outcome: Outcome, count: int) -> list[str]:
    """Describe why the processes can't continue."""
    if outcome.given_up:
        return ["you pressed stop a second time"]
    if outcome.unfreed:
        name = name_processes(list(outcome.unfreed), count)
        where = _lines([outcome.stopped.get(k) for k in outcome.unfreed])
        return [f"native code on {name}{where} did not react to the interrupt"]
    if outcome.unhealed:
        return [outcome.unhealed]
    said = _computing(outcome.unfinished, count)
    if said:
        said.append(
            "a computation that does not communicate can't be aborted"
            if outcome.cut
            else "it can't be aborted"
        )
    if outcome.silent:
        name = name_processes(list(outcome.silent), count)
        said.append(f"{name} did not report whether a device still computes")
    return said


def _computing_on(unfinished: Mapping[int, Unfinished], count: int) -> list[str]:
    return [f"{sentence}. %mcjax restart ends it" for sentence in _computing(unfinished, count)]


def _computing(unfinished: Mapping[int, Unfinished], count: int) -> list[str]:
    said = []
    computing = {k: (u.devices, u.arrays, u.newest) for k, u in unfinished.items() if u.devices}
    for (devices, arrays, newest), ks in _grouped(computing):
        still = "still computes" if len(ks) == 1 else "still compute"
        where = f"device{'s' * (len(devices) > 1)} {', '.join(map(str, devices))}"
        values = f", for {', '.join(arrays)}" if arrays else ""
        launch = f"; the newest launch is {newest}" if newest else ""
        said.append(f"{name_processes(ks, count)} {still} on {where}{values}{launch}")
    return said


def leftovers(unfinished: Mapping[int, Unfinished], count: int) -> list[str]:
    """Describe the work that still runs after a cell, and how to end that work.

    Args:
        unfinished: The unfinished work, by process.
        count: The number of processes.

    Example:
        >>> for sentence in leftovers({0: Unfinished(threads=(3,)), 1: Unfinished(native=True)}, 4):
        ...     print(sentence)
        process 0 still runs a thread of the cell (line 3). %mcjax restart ends it
        process 1 still uses the processor in native code, for an unknown computation. %mcjax \
restart ends it
    """
    said = _computing_on(unfinished, count)
    for lines, ks in _grouped({k: u.threads for k, u in unfinished.items() if u.threads}):
        still = "still runs" if len(ks) == 1 else "still run"
        what, it = ("a thread", "it") if len(lines) == 1 else (f"{len(lines)} threads", "them")
        name = name_processes(ks, count)
        said.append(f"{name} {still} {what} of the cell{_lines(lines)}. %mcjax restart ends {it}")
    native = [k for k, one in unfinished.items() if one.native and not one.devices]
    native = [k for k in native if not unfinished[k].threads]
    if native:
        uses = "uses" if len(native) == 1 else "use"
        said.append(
            f"{name_processes(native, count)} still {uses} the processor in native code, for an "
            "unknown computation. %mcjax restart ends it"
        )
    for names, ks in _grouped({k: u.children for k, u in unfinished.items() if u.children}):
        has = "has" if len(ks) == 1 else "have"
        what = f"child process{'es' * (len(names) > 1)}"
        name = name_processes(ks, count)
        it = "it" if len(names) == 1 else "them"
        said.append(f"{name} still {has} the {what} {', '.join(names)}. %mcjax restart ends {it}")
    return said


_Same = TypeVar("_Same")


def _grouped(by_process: Mapping[int, _Same]) -> list[tuple[_Same, list[int]]]:
    """Group processes by equal values."""
    groups: dict[_Same, list[int]] = {}
    for k, value in by_process.items():
        groups.setdefault(value, []).append(k)
    return list(groups.items())


def _lines(lines: Sequence[int | None]) -> str:
    known = sorted({line for line in lines if line is not None})
    if not known:
        return ""
    return f" ({'line' if len(known) == 1 else 'lines'} {', '.join(map(str, known))})"


def healing(healed: Mapping[int, Healed], count: int) -> list[str]:
    """Describe the effect of healing the cluster.

    Args:
        healed: The restored variables, by process.
        count: The number of processes.

    Example:
        >>> for sentence in healing({0: Healed(2, lost=("y",)), 1: Healed(2, lost=("y",))}, 2):
        ...     print(sentence)
        The cluster was healed: the same processes reconnected, and their variables are kept \
(2 arrays)
        Without a value, because the computation was aborted: y
    """
    arrays = max(one.arrays for one in healed.values())
    same, their = ("process", "its") if count == 1 else ("processes", "their")
    sentences = [
        f"The cluster was healed: the same {same} reconnected, and {their} variables are kept "
        f"({plural(arrays, 'array', 'arrays')})"
    ]
    for words, chosen in (
        (
            "Without a value, because the computation was aborted",
            {k: h.lost for k, h in healed.items()},
        ),
        ("Not restored", {k: h.stale for k, h in healed.items()}),
    ):
        by_names: dict[tuple[str, ...], list[int]] = {}
        for k, names in chosen.items():
            if names:
                by_names.setdefault(names, []).append(k)
        for names, ks in by_names.items():
            where = "" if len(ks) == count else f", on {name_processes(ks, count)}"
            sentences.append(f"{words}{where}: {', '.join(names)}")
    return sentences


@dataclass(frozen=True)
class Result:
    r"""The result of a cell, with mappings by process index.

    Attributes:
        replies: The reply of each process that ran the cell.
        count: The number of processes of the cluster.
        stopped: The processes that did not end the cell by themselves but were stopped, by the user
            or because they waited for a process that raised.
        interrupted: Whether the user ended the cell.
        exits: The exit reasons of the processes that ended during the cell.
        time_limit: The time limit that ended the cell, in seconds; None if none did.
        aftermath: How the cell was ended, in sentences; empty if the cell ended by itself.
        verdict: How the processes diverged, or None if they did not.

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
    exits: Mapping[int, ProcessExit] = field(default_factory=dict)
    time_limit: float | None = None
    aftermath: str = ""
    verdict: Verdict | None = None

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

    @cached_property
    def launches(self) -> tuple[LaunchRecord, ...]:
        """The launches that span processes, in chronological order."""
        records = [record for reply in self.replies.values() for record in reply.launches]
        return tuple(sorted(records, key=lambda record: (record.announced, record.process)))

    @cached_property
    def blocks(self) -> list[Block]:
        """The processes' folded output."""
        return fold_events({k: reply.events for k, reply in self.replies.items()})

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences about suspicious launches that are no proof of a divergence."""
        found = [other_lines(self.launches, self.count)]
        if self.verdict is not None:
            found.append(met_nobody(self.verdict, self.launches, self.count))
        return tuple(f"{note[0].upper()}{note[1:]}" for note in found if note)

    def __mcnb_picture__(
        self, args: Sequence[Any], options: dict[str, Any], keywords: Mapping[str, Any]
    ) -> list[Picture] | None:
        """Return the result's pictures for `mcnb.show`; None for unsupported arguments."""
        if args or not set(keywords) <= {"order"}:
            return None
        return [self.timeline(**keywords)]

    def timeline(self, *, order: bool = False) -> Picture:
        """Return a picture of the processes' activity over time.

        Args:
            order: Whether to draw only the order of the launches that span processes, without any
                times. The same launches then always give the same picture.

        Raises:
            PictureError: No process reported its activity.
        """
        from mcnb.cluster.pictures import times
        from mcnb.pictures.picture import Picture

        ended = dict.fromkeys(self.stopped, "") | self.died
        scene = times(self.replies, self.launches, ended, self.count, order=order)
        return Picture(scene)

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
        """Return the error for failed processes, followed by the processes left waiting."""
        waited = left_waiting(verdict.stands, self.count)
        waited = f"{waited[0].upper()}{waited[1:]}" if waited else ""
        message = ". ".join(filter(None, ("; ".join(self._summaries()), waited, self.aftermath)))
        rest = filter(None, (waited, self.aftermath))
        return CellError(message, [*self._traceback_lines(), "", *rest])

    def _took_too_long(self) -> CellError:
        """Return the error for a cell that exceeded its time limit."""
        assert self.verdict is not None
        wording = explain(self.verdict, self.count, self.aftermath)
        lines = [f"{CellError.__name__}: {wording.lines[0]}", *wording.lines[1:]]
        others = self._traceback_lines()
        return CellError(wording.sentence, [*lines, "", *others] if others else lines)

    def _parted(self, verdict: Verdict) -> LockstepError:
        """Return the error for processes that diverged, followed by other errors."""
        consequence = ". ".join(filter(None, (*self.notes, self.aftermath)))
        wording = explain(verdict, self.count, consequence)
        message = ". ".join((wording.sentence, *self._summaries()))
        lines = [f"{LockstepError.__name__}: {wording.lines[0]}", *wording.lines[1:]]
        others = self._traceback_lines()
        return LockstepError(message, [*lines, "", *others] if others else lines, verdict.kind)

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
        assert stream in STREAMS
        return {
            k: "".join(e.text for e in reply.events if isinstance(e, Text) and e.stream == stream)
            for k, reply in self.replies.items()
        }

    def _sentence_end(self) -> str:
        return f". {self.aftermath}" if self.aftermath else ""

    def _groups(self) -> list[tuple[list[int], ProcessError]]:
        """Group processes by equal errors, with the root cause first."""
        groups: dict[ProcessError, list[int]] = {}
        for k, error in sorted(
            self.errors.items(), key=lambda item: (item[0] in self.stopped, item[0])
        ):
            if not self._is_consequence(k, error):
                groups.setdefault(error, []).append(k)
        return [(sorted(group), error) for error, group in groups.items()]

    def _is_consequence(self, k: int, error: ProcessError) -> bool:
        """Return whether an error only results from a stopped process or a missing participant."""
        if error.name == LockstepError.__name__:
            return True
        verdict = self.verdict
        cut_off = k in self.stopped or self.exits or (verdict is not None and verdict.happened)
        # JAX reports an exception in a callback as an error of the computation.
        refused = verdict is not None and LockstepError.__name__ in error.message
        return bool(cut_off or refused) and error.name in _OF_BEING_STOPPED

    def _traceback_lines(self) -> list[str]:
        lines: list[str] = []
        for group, error in self._groups():
            lines += ["", f"{label(group, self.count)} {error.heading()}", error.traceback]
        return lines[1:]


def died_sentence(died: Mapping[int, ProcessExit], count: int) -> str:
    """Describe which processes died, and their exit reasons.

    Example:
        >>> from mcnb.lockstep.model import ExitSource
        >>> how = ProcessExit(ExitSource.OBSERVED, status=3)
        >>> died_sentence({1: how, 2: how}, 4)
        'processes 1,2 ended with exit code 3'
    """
    return "; ".join(
        f"{name_processes(ks, count)} {exit_text(how, plural=len(ks) > 1)}"
        for how, ks in _grouped(died)
    )


def _plain_text(item: object) -> str:
    data = getattr(item, "data", {})
    return str(data.get("text/plain", f"<{', '.join(sorted(data))}>"))


def answers_of(
    outcome: Outcome, answers: Mapping[int, Any], count: int, *, ours: bool
) -> dict[int, Any]:
    """Return the processes' replies to a call of one of mcnb's own functions.

    Args:
        outcome: The outcome of the call.
        answers: The replies, by process.
        count: The number of processes.
        ours: Whether mcnb started the processes, and so can restart them.

    Raises:
        CellError: A process raised an error, or was stopped.
    """
    errors = {k: a for k, a in sorted(answers.items()) if isinstance(a, ProcessError)}
    if errors or outcome.stopped:
        outcome.replies = {k: Reply(error=error) for k, error in errors.items()}
        result_of(outcome, count, ours=ours).raise_for_errors()
    return dict(sorted(answers.items()))


def result_of(outcome: Outcome, count: int, *, ours: bool) -> Result:
    """Return the result of a cell.

    Args:
        outcome: The outcome of the cell.
        count: The number of processes.
        ours: Whether mcnb started the processes, and so can restart them.
    """
    return Result(
        replies=dict(sorted(outcome.replies.items())),
        count=count,
        stopped=tuple(outcome.stopped),
        exits=outcome.died,
        interrupted=outcome.interrupted,
        time_limit=outcome.time_limit,
        aftermath=aftermath(outcome, count, ours=ours),
        verdict=outcome.verdict,
    )
