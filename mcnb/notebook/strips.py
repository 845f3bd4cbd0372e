"""What each process of a running cell does, at regular times: a strip of letters for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from mcnb.cluster.workers import Pending

# What a process does: runs Python, compiles, waits for a result of JAX, waits for other processes
# before a launch, waits in native code while all its threads sleep, or has finished the cell;
# `Letter` values are parts of a strip.
Letter = Literal["p", "x", "j", "w", "n", "f"]
WORDS: Mapping[Letter, str] = {
    "p": "Python",
    "x": "compiling",
    "j": "computing",
    "w": "waiting for others",
    "n": "waiting in native code",
    "f": "finished",
}
_LETTERS: Mapping[str, Letter] = {"python": "p", "compiles": "x", "computes": "j"}
# The longest strips, in parts, and how long a part is at first; it doubles when they are full.
LONGEST = 240
FIRST_PERIOD_S = 0.25


class Strips:
    """The strips of a cell's processes.

    A part has what a process did at the time of most looks in it; the strips never become longer
    than `LONGEST`, however long a cell runs.

    Attributes:
        period_s: How long each part is, in seconds.
        late_s: For how many seconds others have waited for a process, by process.

    Example:
        >>> strips = Strips()
        >>> for at, doing in (0.0, "p"), (0.25, "p"), (0.5, "j"), (0.75, "w"):
        ...     strips.add(at, {0: doing}, late=())
        >>> strips.rows
        {0: 'ppj'}
    """

    def __init__(self) -> None:
        self.period_s = FIRST_PERIOD_S
        self.late_s: dict[int, float] = {}
        self._ended: dict[int, str] = {}
        # How often each process was seen to do what in the part that is under way; what it was seen
        # to do last is at the end. Counted, since a part of a long cell has thousands of looks.
        self._current: dict[int, dict[Letter, int]] = {}
        self._since: float | None = None
        self._looked: float | None = None

    @property
    def rows(self) -> dict[int, str]:
        """The strips, by process; all have the same length, without the part that is under way."""
        return dict(sorted(self._ended.items()))

    def add(self, now: float, doing: Mapping[int, Letter], late: tuple[int, ...]) -> None:
        """Add a look.

        Args:
            now: The time, in seconds.
            doing: What each process does.
            late: The processes for which others wait.
        """
        if self._looked is not None:
            for k in late:
                self.late_s[k] = self.late_s.get(k, 0.0) + now - self._looked
        self._looked = now
        if self._since is None:
            self._since = now
        while now - self._since >= self.period_s and self._current:
            self._end_part()
            self._since += self.period_s
        for k, letter in doing.items():
            counts = self._current.setdefault(k, {})
            counts[letter] = counts.pop(letter, 0) + 1

    def _end_part(self) -> None:
        for k, counts in self._current.items():
            self._ended[k] = self._ended.get(k, "") + _most(counts)
            self._current[k] = {next(reversed(counts)): 1}  # until the next look, it does the same
        if len(next(iter(self._ended.values()))) >= LONGEST:
            self._ended = {k: _halved(row) for k, row in self._ended.items()}
            self.period_s *= 2


def _halved(row: str) -> str:
    """Return a strip of parts twice as long: of two parts, the first one's letter."""
    return row[::2]


def _most(counts: Mapping[Letter, int]) -> Letter:
    """Return the most frequent letter, the latest of several."""
    return max(reversed([*counts]), key=counts.__getitem__)


def doing_in(pending: Pending) -> dict[int, Letter]:
    """Return what each process of a running cell does."""
    found: dict[int, Letter] = dict.fromkeys(pending.answers, "f")
    for k in pending.waiting:
        if k in pending.waits:
            found[k] = "w"
        else:
            progress = pending.progress(k)
            # It may be in a collective that others have not begun, in a callback or in a file that
            # native code reads: only the referee knows who waits for whom.
            found[k] = "n" if progress.waits_s else _LETTERS[progress.doing]
    return found


def native_in(doing: Mapping[int, Letter]) -> tuple[int, ...]:
    """Return the processes that wait in native code, if none waits for others before a launch.

    Args:
        doing: What each process does.

    Example:
        >>> native_in({0: "n", 1: "p"}), native_in({0: "n", 1: "w"})
        ((0,), ())
    """
    if "w" in doing.values():
        return ()
    return tuple(sorted(k for k, letter in doing.items() if letter == "n"))


def late_in(pending: Pending) -> tuple[int, ...]:
    """Return the processes for which others wait, before a launch in which they take part."""
    needed = {
        k
        for wait in pending.waits.values()
        if wait.state.launch is not None
        for k in wait.state.launch.participants
    }
    return tuple(sorted(needed & pending.waiting - pending.waits.keys()))
