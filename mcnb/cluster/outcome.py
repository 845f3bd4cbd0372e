"""Define how a cell ended and what was done to the cluster, in facts and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcnb._text import grouped, name_processes, plural
from mcnb.lockstep.messages import exit_text
from mcnb.lockstep.model import ProcessExit, Race, UnequalInput, Verdict
from mcnb.messages import Healed, Unfinished

NOT_OURS = (
    "The processes can't communicate any more. Restart them with the tool that started them; then: "
    "%mcjax connect"
)

_TO_END = "{}. To end {}: %mcjax restart (variables are lost)"


@dataclass
class Outcome:
    """The outcome of a cell's execution.

    Attributes:
        stopped: The processes that were stopped, with the line at which each was then.
        exits: The processes that ended on their own, with their exit reasons.
        interrupted: Whether the user ended the cell.
        intact: Whether the processes can continue; if not, they must be restarted.
        verdict: How the processes diverged, if they did.
        verdicts: How the processes diverged, each time that they did; see `Referee.verdicts`.
        late: How they diverged after the cell before, in threads of it that went on.
        races: Launches that processes made in different orders; see `Referee.races`.
        inputs: Unequal values that processes passed to launches; see `Inputs.unequal`.
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
        uneven: Which variables are not in the same step on all processes; see
            `uneven_assignments`.
    """

    stopped: dict[int, int | None] = field(default_factory=dict)
    exits: dict[int, ProcessExit] = field(default_factory=dict)
    interrupted: bool = False
    intact: bool = True
    verdict: Verdict | None = None
    verdicts: tuple[Verdict, ...] = ()
    late: tuple[Verdict, ...] = ()
    races: tuple[Race, ...] = ()
    inputs: tuple[UnequalInput, ...] = ()
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
    uneven: str = ""


def aftermath(outcome: Outcome, count: int, *, ours: bool = True) -> str:
    """Describe how a cell was ended, and the state of the cluster of `count` processes.

    `ours` says whether mcnb started the processes, and so can restart them.

    Example:
        >>> aftermath(Outcome(stopped={1: 3, 2: 3}, intact=False), 4)
        'Processes 1,2 (line 3) were waiting, so mcnb interrupted them. All 4 processes are being \
restarted: their variables are lost. To restore them, re-run the cells that succeeded: %mcjax \
restart --replay'
    """
    sentences = []
    if outcome.stopped:
        asked = outcome.interrupted or outcome.time_limit is not None
        was, it = ("was", "it") if len(outcome.stopped) == 1 else ("were", "them")
        what = f"{was} interrupted" if asked else f"{was} waiting, so mcnb interrupted {it}"
        if outcome.time_limit is not None:
            what += f" at the time limit of {outcome.time_limit:g} s"
        name = name_processes(list(outcome.stopped), count)
        sentences.append(f"{name}{_lines(list(outcome.stopped.values()))} {what}")
    elif outcome.pressed_late:
        sentences.append("the cell had ended before it could be interrupted")
    if not outcome.intact:
        sentences += _reasons(outcome, count)
        everyone = name_processes(list(range(count)), count)
        is_, their = ("is", "its") if count == 1 else ("are", "their")
        if ours:
            # At this moment, the restart begins.
            sentences.append(f"{everyone} {is_} being restarted: {their} variables are lost")
            sentences.append(
                "To restore them, re-run the cells that succeeded: %mcjax restart --replay"
            )
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
        if outcome.uneven:
            sentences.append(outcome.uneven)
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
        if any(one.gpu for one in outcome.unfinished.values()):
            said.append("a computation on GPUs can't be aborted")
        elif outcome.cut:
            said.append("a computation that does not communicate can't be aborted")
        else:
            said.append("it can't be aborted")
    if outcome.silent:
        name = name_processes(list(outcome.silent), count)
        said.append(f"{name} did not report whether a device still computes")
    return said


def _computing_on(unfinished: Mapping[int, Unfinished], count: int) -> list[str]:
    return [_TO_END.format(sentence, "it") for sentence in _computing(unfinished, count)]


def _computing(unfinished: Mapping[int, Unfinished], count: int) -> list[str]:
    said = []
    computing = {k: (u.devices, u.arrays, u.newest) for k, u in unfinished.items() if u.devices}
    for (devices, arrays, newest), ks in grouped(computing):
        still = "still computes" if len(ks) == 1 else "still compute"
        where = f"device{'s' * (len(devices) > 1)} {', '.join(map(str, devices))}"
        values = f", for {', '.join(arrays)}" if arrays else ""
        launch = f"; the newest launch is {newest}" if newest else ""
        said.append(f"{name_processes(ks, count)} {still} on {where}{values}{launch}")
    return said


def leftovers(unfinished: Mapping[int, Unfinished], count: int) -> list[str]:
    """Describe the work that still runs after a cell, by process, and how to end that work.

    Example:
        >>> for sentence in leftovers({0: Unfinished(threads=(3,)), 1: Unfinished(native=True)}, 4):
        ...     print(sentence)
        process 0 still runs a thread of the cell (line 3). To end it: %mcjax restart (variables \
are lost)
        process 1 is still running native code, such as a compilation, of this cell or of an \
earlier one; cells can run meanwhile. To end it: %mcjax restart (variables are lost)
    """
    said = _computing_on(unfinished, count)
    for lines, ks in grouped({k: u.threads for k, u in unfinished.items() if u.threads}):
        run = "runs" if len(ks) == 1 else "run"
        what, it = ("a thread", "it") if len(lines) == 1 else (f"{len(lines)} threads", "them")
        still = f"{name_processes(ks, count)} still {run} {what} of the cell{_lines(lines)}"
        said.append(_TO_END.format(still, it))
    native = [k for k, u in unfinished.items() if u.native and not (u.devices or u.threads)]
    if native:
        are = "is" if len(native) == 1 else "are"
        still = f"{name_processes(native, count)} {are} still running native code"
        what = "such as a compilation, of this cell or of an earlier one; cells can run meanwhile"
        said.append(_TO_END.format(f"{still}, {what}", "it"))
    for names, ks in grouped({k: u.children for k, u in unfinished.items() if u.children}):
        has = "has" if len(ks) == 1 else "have"
        what, it = ("process", "it") if len(names) == 1 else ("processes", "them")
        still = f"{name_processes(ks, count)} still {has} the child {what} {', '.join(names)}"
        said.append(_TO_END.format(still, it))
    return said


def _lines(lines: Sequence[int | None]) -> str:
    known = sorted({line for line in lines if line is not None})
    if not known:
        return ""
    return f" ({'line' if len(known) == 1 else 'lines'} {', '.join(map(str, known))})"


def healing(healed: Mapping[int, Healed], count: int) -> list[str]:
    """Describe the effect of healing the cluster, from the restored variables by process.

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
    lost = {k: one.lost for k, one in healed.items() if one.lost}
    stale = {k: one.stale for k, one in healed.items() if one.stale}
    aborted = "Without a value, because the computation was aborted"
    for words, chosen in ((aborted, lost), ("Not restored", stale)):
        for names, ks in grouped(chosen):
            where = "" if len(ks) == count else f", on {name_processes(ks, count)}"
            sentences.append(f"{words}{where}: {', '.join(names)}")
    return sentences


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
        for how, ks in grouped(died)
    )
