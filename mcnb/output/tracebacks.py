"""Merge the tracebacks of several processes that differ only in the texts of their exceptions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcnb._text import label
from mcnb.output.chance import comparable
from mcnb.output.terminal import without_escapes

# A line of a stack, as mcnb's tracebacks and Python's have it: of a file, of its source, or a mark.
_OF_STACK = re.compile(r"(Cell |File |-+> *\d| {3,}\d+ |    \S|  File |Traceback )")


@dataclass(frozen=True, slots=True)
class MergedTraceback:
    """The traceback of several processes.

    Attributes:
        processes: The processes.
        lines: The lines, each with the processes whose traceback has it.
    """

    processes: tuple[int, ...]
    lines: tuple[tuple[tuple[int, ...], str], ...]

    def labelled(self, count: int) -> Iterator[str]:
        """Yield the lines, of which those have a label that not all of the processes have.

        Args:
            count: The number of processes of the cluster.
        """
        for shared, run in itertools.groupby(self.lines, lambda one: one[0] == self.processes):
            if shared:
                yield from (text for _, text in run)
                continue
            variants = [
                (label(processes, count), [text for _, text in own])
                for processes, own in itertools.groupby(run, lambda one: one[0])
            ]
            width = max(len(name) for name, _ in variants)
            for name, (first, *rest) in variants:
                yield f"{name:<{width}} {first}"
                yield from (f"{'':<{width}} {text}".rstrip() for text in rest)


def merge_tracebacks(
    groups: Sequence[tuple[Sequence[int], Sequence[str]]],
) -> list[MergedTraceback]:
    """Merge tracebacks with equal stacks, whose exceptions have different texts.

    Args:
        groups: Processes, and the lines of the traceback that they have in common.

    Returns:
        The merged tracebacks, in the order of the first of each.

    Example:
        >>> stack = ["Cell In[1], line 2", "----> 2 load(k)", ""]
        >>> [merged] = merge_tracebacks([([0, 2], [*stack, "E: 3"]), ([1], [*stack, "E: 4"])])
        >>> merged.processes, merged.lines[2:]
        ((0, 1, 2), (((0, 1, 2), ''), ((0, 2), 'E: 3'), ((1,), 'E: 4')))
    """
    found: list[list[_Own]] = []
    for processes, lines in groups:
        own = _Own(
            tuple(processes), tuple(lines), tuple(comparable(without_escapes(one)) for one in lines)
        )
        for alike in found:
            if _has_stack_in_common([*alike, own]):
                alike.append(own)
                break
        else:
            found.append([own])
    return [_merged(alike) for alike in found]


@dataclass(frozen=True, slots=True)
class _Own:
    """A traceback before it is merged, with its lines as they are compared."""

    processes: tuple[int, ...]
    lines: tuple[str, ...]
    keys: tuple[str, ...]


def _has_stack_in_common(alike: Sequence[_Own]) -> bool:
    """Return whether tracebacks differ, and only in lines that belong to no stack."""
    spans = [*_spans(alike)]
    differing = [span for equal, span in spans if not equal]
    shared = any(
        _OF_STACK.match(key)
        for equal, span in spans
        if equal
        for key in alike[0].keys[slice(*span[0])]
    )
    return shared and not any(
        _OF_STACK.match(key)
        for span in differing
        for own, (start, end) in zip(alike, span, strict=True)
        for key in own.keys[start:end]
    )


def _spans(alike: Sequence[_Own]) -> Iterator[tuple[bool, list[tuple[int, int]]]]:
    """Yield whether lines are equal, and where they are in each traceback, from the first on."""
    lengths = {len(own.keys) for own in alike}
    if len(lengths) == 1:
        columns = zip(*(own.keys for own in alike), strict=True)
        at = 0
        for equal, run in itertools.groupby(len({*column}) == 1 for column in columns):
            end = at + len([*run])
            yield equal, [(at, end)] * len(alike)
            at = end
        return
    before = _common(alike, min(lengths), reverse=False)
    after = _common(alike, min(lengths) - before, reverse=True)
    yield True, [(0, before)] * len(alike)
    yield False, [(before, len(own.keys) - after) for own in alike]
    yield True, [(len(own.keys) - after, len(own.keys)) for own in alike]


def _common(alike: Sequence[_Own], most: int, *, reverse: bool) -> int:
    """Return how many lines tracebacks have in common at their beginning, or at their end."""
    lines = [own.keys[::-1] if reverse else own.keys for own in alike]
    for i in range(most):
        if len({one[i] for one in lines}) > 1:
            return i
    return most


def _merged(alike: Sequence[_Own]) -> MergedTraceback:
    everybody = tuple(sorted(k for own in alike for k in own.processes))
    lines: list[tuple[tuple[int, ...], str]] = []
    for equal, places in _spans(alike):
        variants: dict[tuple[str, ...], tuple[list[int], Sequence[str]]] = {}
        for own, (start, end) in zip(alike, places, strict=True):
            key = () if equal else own.keys[start:end]
            variants.setdefault(key, ([], own.lines[start:end]))[0].extend(own.processes)
        for processes, texts in variants.values():
            who = everybody if equal else tuple(sorted(processes))
            lines += [(who, text) for text in texts]
    return MergedTraceback(everybody, tuple(lines))
