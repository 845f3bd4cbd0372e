"""A way to part, and what is to come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

WAITS, DONE, RAISED = "waits", "finished", "raised"


@dataclass(frozen=True)
class Divergence:
    """A program that parts.

    Attributes:
        source: The cell.
        kind: The verdict.
        waits: The line at which processes wait, by process.
        others: What the other processes that have to do with it did.
        says: What its error says, in parts.
        processes: Which processes run it.
        sleeps: For how many seconds it sleeps itself.
    """

    source: str
    kind: str
    waits: Mapping[int, int]
    others: Mapping[int, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    processes: str | None = None
    sleeps: float = 0.0


def alone(k: int, line: int) -> dict[str, Mapping[int, object]]:
    """Return the states where one process waits and the others have finished."""
    return {"waits": {k: line}, "others": {p: DONE for p in range(4) if p != k}}


def left(k: int, line: int, doing: str = DONE) -> dict[str, Mapping[int, object]]:
    """Return the states where all but one process wait."""
    return {"waits": {p: line for p in range(4) if p != k}, "others": {k: doing}}


def all_at(*lines: int) -> Mapping[int, int]:
    return dict(enumerate(lines * 4 if len(lines) == 1 else lines))


IF_ZERO = "this line runs only if `k == 0`"
STATIC = "a static argument is compiled into the program"
