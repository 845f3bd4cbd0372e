"""How a cell ended, and in words what had to be done to end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcnb.lockstep.rescue import Healed
from mcnb.lockstep.verdicts import Verdict
from mcnb.messages import Reply
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
    if not outcome.intact:
        everyone = name_processes(list(range(count)), count)
        was, their = ("was", "its") if count == 1 else ("were", "their")
        if outcome.unfreed:
            name = name_processes(list(outcome.unfreed), count)
            sentences.append(f"{name} could not be got out of what runs there")
        elif outcome.unhealed:
            sentences.append(outcome.unhealed)
        if ours:
            sentences.append(f"{everyone} {was} started anew: {their} variables are gone")
            sentences.append("To run the cells again that made them: %mcjax restart --replay")
        else:
            sentences.append(NOT_OURS)
    elif outcome.healed:
        sentences += healing(outcome.healed, count)
    elif outcome.interrupted or outcome.verdict is not None:
        sentences.append("The cluster is intact, with its variables")
    return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)


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
