"""How a cell ended, and in words what had to be done to end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mcnb.lockstep.rescue import Healed
from mcnb.lockstep.verdicts import Verdict
from mcnb.messages import Reply, Unfinished
from mcnb.options import name_processes, plural

NOT_OURS = (
    "The processes can't go on together. Who started them has to start them anew; then: %mcjax "
    "connect"
)


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
        time_limit: The time limit that ended the cell, in seconds.
        cut: Whether computations had to be cut off.
        healed: What was restored when the processes had to join anew, by process.
        unfreed: Processes that could not be got out of what they were in.
        unhealed: Why the processes could not be healed.
        failed: Whether a computation failed that nobody waited for.
        unfinished: What still runs in processes, of those in which something does.
        silent: Processes that did not answer what still runs in them.
        given_up: Whether the user did not want to wait until the cell was ended.
        verified: Whether it was seen that nothing computes, and that the processes gather right
            numbers.
        pressed_late: Whether the user wanted the cell ended when it had just ended by itself.
        endless: The labels of cells whose computations did not end, and were aborted.
    """

    replies: dict[int, Reply] = field(default_factory=dict)
    stopped: dict[int, int | None] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)
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
    """Say what had to be done to end a cell.

    Args:
        outcome: How it ended.
        count: How many processes there are.
        ours: Whether the processes can be started anew; otherwise somebody else has to.

    Example:
        >>> aftermath(Outcome(stopped={1: 3, 2: 3}, intact=False), 4)
        'Processes 1,2 (line 3) waited and were stopped. All 4 processes were started anew: their \
variables are gone. To run the cells again that made them: %mcjax restart --replay'
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
            sentences.append(f"{everyone} {was} started anew: {their} variables are gone")
            sentences.append("To run the cells again that made them: %mcjax restart --replay")
        else:
            sentences.append(NOT_OURS)
    else:
        # What runs on is news where the cell was to end; otherwise it is the cell's own affair.
        ended = outcome.interrupted or outcome.pressed_late or outcome.time_limit is not None
        left = leftovers(outcome.unfinished, count) if ended else []
        if outcome.healed:
            sentences += healing(outcome.healed, count)
        elif outcome.verified and not left and (ended or outcome.verdict is not None):
            sentences.append("The cluster is intact, with its variables")
        elif ended or outcome.verdict is not None:
            sentences.append("All variables are kept")
            left = left or _computing_on(outcome.unfinished, count)
        sentences += left
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)


def _reasons(outcome: Outcome, count: int) -> list[str]:
    """Say why processes can't go on."""
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
            else "the processes offer no way to abort it"
        )
    if outcome.silent:
        name = name_processes(list(outcome.silent), count)
        said.append(f"{name} did not answer whether a device still computes")
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
    """Say what still runs in processes after a cell, and how it can be ended.

    Args:
        unfinished: What does, by process.
        count: How many processes there are.

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
    """Return equal values with the processes that have them."""
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
    """Say what healing did.

    Args:
        healed: What was restored, by process.
        count: How many processes there are.

    Example:
        >>> for sentence in healing({0: Healed(2, lost=("y",)), 1: Healed(2, lost=("y",))}, 2):
        ...     print(sentence)
        The cluster was healed: the same processes, joined anew, with their variables (2 arrays)
        Without a value, as the computation was ended: y
    """
    arrays = max(one.arrays for one in healed.values())
    same, their = ("process", "its") if count == 1 else ("processes", "their")
    sentences = [
        f"The cluster was healed: the same {same}, joined anew, with {their} variables "
        f"({plural(arrays, 'array', 'arrays')})"
    ]
    for words, chosen in (
        (
            "Without a value, as the computation was ended",
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
