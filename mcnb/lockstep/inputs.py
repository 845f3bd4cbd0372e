"""Compare the values that processes pass to launches that involve no communication.

A launch on devices of several processes takes a value of the process alone, such as a random key or
a NumPy array, as equal on all of them, and also what several processes hold of one array. If the
launch communicates, its announcement has the values' digests, and unequal values give a verdict. If
it does not, no process waits for another one, and each makes its part of the result from its own
value. Such launches are compared afterwards.

Processes may rightly make different launches of this kind. Therefore only launches of the same
program from the same lines are compared: the first of one process with the first of another one,
and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from mcnb.lockstep.comparison import differing_elements, differing_slices
from mcnb.lockstep.model import Launch, UnequalInput
from mcnb.lockstep.wire import Message

# The most launches that wait for those of other processes, and the most findings. A launch keeps up
# to a block of elements of each of its values.
MOST_WAITING, MOST_FOUND = 1000, 100
# The name, the program and the lines of a launch.
_Key: TypeAlias = tuple[str, str, tuple[str, ...]]


class Inputs:
    """Collects the values that processes pass to launches, and compares them.

    Attributes:
        unequal: The unequal inputs, in the order in which they were found, one for each line.

    Example:
        >>> inputs, launch = Inputs(), Launch("jit(init)", "1", (0,), devices="P0.0 P1.0")
        >>> for k, word in enumerate(["07", "08"]):
        ...     value = [f"digest {k}", "uint8", [1], word]
        ...     inputs.passed(k, launch, "line 3", ("line 3",), 0, ["seed"], {"0": value})
        >>> [one.values[1].text for one in inputs.unequal]
        ['8']
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[_Key, int], dict[int, Mapping[str, Message]]] = {}
        self._found: dict[_Key, UnequalInput] = {}

    @property
    def unequal(self) -> tuple[UnequalInput, ...]:
        """The unequal inputs; see above."""
        return tuple(self._found.values())

    def clear(self) -> None:
        """Forget everything, as a new cell begins."""
        self._waiting.clear()
        self._found.clear()

    def passed(
        self,
        process: int,
        launch: Launch,
        where: str,
        lines: Sequence[str],
        before: int,
        names: Sequence[str],
        values: Mapping[str, Message],
        *,
        exact: bool = True,
    ) -> None:
        """Take the values that a process passed to a launch.

        Args:
            process: The process.
            launch: The launch.
            where: The line of the launch, in words.
            lines: All lines on the stack, from the outermost.
            before: The number of launches of the process from there before.
            names: The names of the launch's arguments, as far as known.
            values: The values by slice; see `mcnb.lockstep.values.Replicas.inputs`.
            exact: Whether values that differ by no more than rounding count as different.
        """
        key = launch.name, launch.program, (*lines, where)
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
        together = self._waiting.setdefault((key, before), {})
        together[process] = values
        known = self._found.get(key)
        if known is None or process not in known.values:
            found = _compare(launch, where, names, together, exact=exact)
            if found is not None and (known or len(self._found) < MOST_FOUND):
                self._found[key] = found
        if together.keys() >= launch.processes:
            del self._waiting[key, before]


def _compare(
    launch: Launch,
    where: str,
    names: Sequence[str],
    together: Mapping[int, Mapping[str, Message]],
    *,
    exact: bool,
) -> UnequalInput | None:
    digests = {k: {name: one[0] for name, one in own.items()} for k, own in together.items()}
    for name in differing_slices(digests):
        held = {k: own[name][1:] for k, own in sorted(together.items()) if name in own}
        values = differing_elements(name, held, {k: digests[k][name] for k in held}, exact=exact)
        if values:
            at = next(iter(values.values())).argument
            called = names[at] if at < len(names) else str(at)
            return UnequalInput(launch, called, where, values)
    return None
