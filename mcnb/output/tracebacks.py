"""Fold the tracebacks of several processes that differ only in the texts of their exceptions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from mcnb.output.chance import comparable
from mcnb.output.fold import Block, Item, Line, fold
from mcnb.output.terminal import without_escapes
from mcnb.output.text import entries, text_of

# A line of a stack, as mcnb's tracebacks and Python's have it: of a file, of its source, or a mark.
_OF_STACK = re.compile(r"(Cell |File |-+> *\d| {3,}\d+ |    \S|  File |Traceback )")


def fold_tracebacks(groups: Iterable[tuple[Sequence[int], str]]) -> list[list[Block]]:
    r"""Fold tracebacks that have the same stack.

    Args:
        groups: Processes, and the traceback that they have in common.

    Returns:
        The blocks of each folded traceback, in the order of the first of each.

    Example:
        >>> stack = "Cell In[1], line 2\n----> 2 load(k)\n"
        >>> [blocks] = fold_tracebacks([([0, 2], f"{stack}E: 3"), ([1], f"{stack}E: 4")])
        >>> [(block.processes, block.items[-1].text) for block in blocks]
        [((0, 1, 2), '----> 2 load(k)\n'), ((0, 2), 'E: 3\n'), ((1,), 'E: 4\n')]
    """
    by_stack: dict[tuple[str, ...], dict[int, list[Item]]] = {}
    for processes, traceback in groups:
        lines = traceback.split("\n")
        keys = [comparable(without_escapes(line)) for line in lines]
        # Without a stack, as a SyntaxError may be, the whole text has to be equal.
        said = by_stack.setdefault(tuple(filter(_OF_STACK.match, keys)) or tuple(keys), {})
        said |= {k: [Line("stderr", f"{line}\n") for line in lines] for k in processes}
    found = []
    for said in by_stack.values():
        blocks = fold(said)
        # Without a shared block, their texts are much longer than the stack.
        shared = any(len(block.processes) == len(said) for block in blocks)
        found += [blocks] if shared else [[block] for block in blocks]
    return found


def processes_of(blocks: Iterable[Block]) -> tuple[int, ...]:
    """Return the processes whose traceback was folded into blocks."""
    return tuple(sorted({k for block in blocks for k in block.processes}))


def traceback_text(blocks: Sequence[Block], count: int) -> str:
    """Return a folded traceback as text; what not all of its processes share has their label.

    Args:
        blocks: The blocks.
        count: The number of processes of the cluster.
    """
    everyone = processes_of(blocks)
    texts: list[str] = []
    for shared, run in itertools.groupby(blocks, lambda block: block.processes == everyone):
        if shared:
            texts += [text_of(item) for block in run for item in block.items]
        else:
            texts += [entry.text for entry in entries([*run], count)]
    return "".join(texts).removesuffix("\n")
