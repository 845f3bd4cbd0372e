r"""Folding: what several processes said, as one sequence of blocks.

A block is something that certain processes all said, to the letter. Read the blocks that a process
belongs to, one after the other, and you have exactly what it said: nothing is dropped, nothing
changes its place. The same replies always give the same blocks.

How it goes: first the parts that all processes share are found. Where every process said equally
many things they are compared one by one; where not, a common subsequence is used, if it is a
substantial part of what was said. Between the shared parts, processes that said the same are put
together, in the order of their lowest index.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mcnb.messages import Display, Event, Text

# Comparing sequences takes time that grows with the square of their length.
LONGEST_COMPARED = 400


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was written to a stream: a line, or the lines of one `print`."""

    stream: str
    text: str


Item: TypeAlias = Line | Display


@dataclass(frozen=True, slots=True)
class Block:
    """Something that several processes said.

    Attributes:
        processes: Their indices, ascending.
        items: What they said.
    """

    processes: tuple[int, ...]
    items: tuple[Item, ...]


def items_of(events: Iterable[Event]) -> list[Item]:
    r"""Cut what a process said into the things that are compared.

    Example:
        >>> items_of([Text("stdout", "a\n[[0]\n [1]]\n", joins=(6,))])
        [Line(stream='stdout', text='a\n'), Line(stream='stdout', text='[[0]\n [1]]\n')]
    """
    items: list[Item] = []
    for event in events:
        if isinstance(event, Display):
            items.append(event)
            continue
        pieces = iter(event.text.splitlines(keepends=True) if _plain(event.text) else _cut(event))
        joins, position, held = set(event.joins), 0, ""
        for piece in pieces:
            position += len(piece)
            held += piece
            if position - 1 not in joins:
                items.append(Line(event.stream, held))
                held = ""
        if held:
            items.append(Line(event.stream, held))
    return items


def _plain(text: str) -> bool:
    # str.splitlines also splits at \r, \f and others, which do not end a line in a notebook.
    return not any(end in text for end in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def _cut(event: Text) -> list[str]:
    lines = event.text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def fold(said: Mapping[int, Sequence[Item]]) -> list[Block]:
    """Fold what several processes said.

    Args:
        said: What each process said, by process index.

    Returns:
        Blocks, in an order that keeps every process's own.

    Example:
        >>> a, b, c = (Line("stdout", f"{x}\\n") for x in "abc")
        >>> for block in fold({0: [a, b], 1: [a, c], 2: [a, c]}):
        ...     print(block.processes, [item.text.strip() for item in block.items])
        (0, 1, 2) ['a']
        (0,) ['b']
        (1, 2) ['c']
    """
    everyone = tuple(sorted(said))
    keys: dict[Hashable, int] = {}
    spoken = {
        k: tuple(keys.setdefault(_key(item), len(keys)) for item in said[k]) for k in everyone
    }
    blocks: list[Block] = []
    done = dict.fromkeys(everyone, 0)
    for shared in [*_shared_runs(spoken), None]:
        ends = {k: len(spoken[k]) for k in everyone} if shared is None else shared.starts
        groups: dict[tuple[int, ...], list[int]] = {}
        for k in everyone:
            groups.setdefault(spoken[k][done[k] : ends[k]], []).append(k)
        for part, group in groups.items():
            if part:
                first = group[0]
                items = tuple(said[first][done[first] : ends[first]])
                blocks.append(Block(tuple(group), items))
        if shared is not None:
            first = everyone[0]
            start = shared.starts[first]
            blocks.append(Block(everyone, tuple(said[first][start : start + shared.length])))
            done = {k: shared.starts[k] + shared.length for k in everyone}
    return blocks


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of items that all processes share: where it starts in each, and how long it is."""

    starts: dict[int, int]
    length: int


def _key(item: Item) -> Hashable:
    if isinstance(item, Line):
        return (item.stream, item.text)
    return (item.is_value, _frozen(item.data), _frozen(item.metadata))


def _frozen(value: object) -> Hashable:
    if isinstance(value, Mapping):
        return tuple((key, _frozen(value[key])) for key in sorted(value))
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    return (type(value).__name__, repr(value))


def _shared_runs(spoken: Mapping[int, tuple[int, ...]]) -> list[_Run]:
    distinct = list(dict.fromkeys(spoken.values()))
    if len({len(sequence) for sequence in distinct}) == 1:
        places = [
            (i,) * len(distinct)
            for i, items in enumerate(zip(*distinct, strict=True))
            if len(set(items)) == 1
        ]
    else:
        places = _common_places(distinct)
        if 2 * len(places) < min(map(len, distinct)):
            return []
    order = {sequence: number for number, sequence in enumerate(distinct)}
    runs: list[_Run] = []
    previous: tuple[int, ...] | None = None
    length = 0
    for place in [*places, None]:
        if previous is not None and place != tuple(p + 1 for p in previous):
            starts = {k: previous[order[s]] - length + 1 for k, s in spoken.items()}
            runs.append(_Run(starts, length))
            length = 0
        previous, length = place, length + 1
    return runs


def _common_places(sequences: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return where a common subsequence of all sequences stands in each of them."""
    shortest = min(map(len, sequences))
    head = 0
    while head < shortest and len({s[head] for s in sequences}) == 1:
        head += 1
    tail = 0
    while tail < shortest - head and len({s[-1 - tail] for s in sequences}) == 1:
        tail += 1
    middles = [s[head : len(s) - tail] for s in sequences]
    inner: list[tuple[int, ...]] = []
    if max(map(len, middles)) <= LONGEST_COMPARED:
        inner = [(i,) for i in range(len(middles[0]))]
        for middle in middles[1:]:
            left = [middles[0][place[0]] for place in inner]
            matcher = difflib.SequenceMatcher(None, left, middle, autojunk=False)
            inner = [
                (*inner[match.a + i], match.b + i)
                for match in matcher.get_matching_blocks()
                for i in range(match.size)
            ]
    return [
        *((i,) * len(sequences) for i in range(head)),
        *(tuple(head + p for p in place) for place in inner),
        *(tuple(len(s) - tail + i for s in sequences) for i in range(tail)),
    ]
