r"""Fold the outputs of several processes into one sequence of blocks.

A block is output that is identical on certain processes. The blocks of one process, read in order,
are exactly its output: nothing is dropped or reordered. The same outputs always give the same
blocks. What differs only by chance, an address or the order of a set, counts as identical: the
block has the text of the first process, or of progress bars the range of their rates.

The algorithm first finds the items that all processes share, ignoring processes without output.
If every process has equally many items, they are compared one by one; otherwise a common
subsequence is used, if it is a substantial part of the output. The items between shared ones are
folded in the same way. If nothing is shared, processes with identical output are grouped, in the
order of their lowest index.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mcnb.messages import Display, Event, Text
from mcnb.output.bars import behind, is_bar, merged, plain, settled
from mcnb.output.chance import comparable
from mcnb.output.terminal import moves_cursor

# Comparing sequences takes time quadratic in their length: for this limit, half a second.
MOST_COMPARISONS = 2_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """Item written to a stream: a line, or the lines of one `print` call."""

    stream: str
    text: str


Item: TypeAlias = Line | Display


@dataclass(frozen=True, slots=True)
class Block:
    """Items that are identical on several processes, whose indices are ascending."""

    processes: tuple[int, ...]
    items: tuple[Item, ...]


def items_of(events: Iterable[Event]) -> list[Item]:
    r"""Split the events of a process into items to compare.

    Example:
        >>> items_of([Text("stdout", "a\n[[0]\n [1]]\n", joins=(6,))])
        [Line(stream='stdout', text='a\n'), Line(stream='stdout', text='[[0]\n [1]]\n')]
        >>> items_of([Text("stderr", "\r 10%\r    \r")])  # a line that was erased
        []
    """
    items: list[Item] = []
    for event in events:
        if isinstance(event, Display):
            items.append(event)
            continue
        # Not splitlines: \r, \f and others do not end a line in a notebook.
        moves = moves_cursor(event.text)
        *lines, rest = (settled(event.text) if moves else event.text).split("\n")
        # tqdm.write erases the bars before it prints, on the other stream.
        if "\r" in rest and not plain(rest):
            rest = ""
        if moves or not event.joins:
            items += [Line(event.stream, f"{behind(line)}\n") for line in lines]
        else:
            joins, position, held = set(event.joins), 0, ""
            for line in lines:
                position += len(line) + 1
                held += f"{behind(line)}\n"
                if position - 1 not in joins:
                    items.append(Line(event.stream, held))
                    held = ""
            rest = held + rest
        if rest:
            items.append(Line(event.stream, rest))
    return items


def fold(said: Mapping[int, Sequence[Item]]) -> list[Block]:
    r"""Fold the items of several processes into blocks.

    Args:
        said: Items of each process, by process index.

    Returns:
        Blocks, in an order that preserves the order of items on every process.

    Example:
        >>> a, b, c = (Line("stdout", f"{x}\n") for x in "abc")
        >>> for block in fold({0: [a, b], 1: [a, c], 2: [a, c]}):
        ...     print(block.processes, [item.text.strip() for item in block.items])
        (0, 1, 2) ['a']
        (0,) ['b']
        (1, 2) ['c']
    """
    return _fold(((k,), said[k]) for k in sorted(said))


def fold_events(said: Mapping[int, Sequence[Event]]) -> list[Block]:
    """Fold the text and displays of several processes, by process index, into blocks."""
    # Output that is identical on several processes, the usual case, is split only once.
    alike: dict[Hashable, list[int]] = {}
    for k in sorted(said):
        key = tuple(e if isinstance(e, Text) else display_key(e) for e in said[k])
        alike.setdefault(key, []).append(k)
    return _fold((tuple(ks), items_of(said[ks[0]])) for ks in alike.values())


def _fold(said: Iterable[tuple[tuple[int, ...], Sequence[Item]]]) -> list[Block]:
    """Fold the items of groups of processes with identical output, ordered by lowest index."""
    numbers: dict[Hashable, int] = {}
    voices = []
    for processes, items in said:
        keys = (_key(item) for item in items)
        spoken = tuple(numbers.setdefault(key, len(numbers)) for key in keys)
        voices.append(_Voice(processes, (items,), spoken))
    blocks: list[Block] = []
    ahead: list[Block | list[_Voice]] = [voices]
    while ahead:
        part = ahead.pop()
        if not isinstance(part, Block):
            ahead += reversed(_parts(part))
        elif blocks and blocks[-1].processes == part.processes:
            blocks[-1] = Block(part.processes, blocks[-1].items + part.items)
        else:
            blocks.append(part)
    return blocks


def _key(item: Item) -> Hashable:
    """Return a key that is equal for items that differ only by chance, if at all."""
    if isinstance(item, Line):
        return item.stream, comparable(item.text)
    data = {k: comparable(v) if isinstance(v, str) else v for k, v in item.data.items()}
    return display_key(Display(data, item.metadata, item.is_value))


def display_key(display: Display) -> Hashable:
    """Return a key that is equal only for exactly equal displays: 1 is not True."""
    return (display.is_value, _frozen(display.data), _frozen(display.metadata))


def _frozen(value: object) -> Hashable:
    if isinstance(value, Mapping):
        return ("mapping", frozenset((_frozen(key), _frozen(v)) for key, v in value.items()))
    if isinstance(value, (list, tuple)):
        return ("sequence", tuple(_frozen(v) for v in value))
    return (type(value).__name__, value if isinstance(value, str) else repr(value))


# Consecutive items that all processes share: their start in each process, and their number.
_Run: TypeAlias = tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class _Voice:
    """Processes with identical output.

    Attributes:
        processes: Their indices.
        said: Their items; one sequence for all processes whose items are exactly equal.
        spoken: A number for each item, which is equal for items that differ only by chance.
    """

    processes: tuple[int, ...]
    said: tuple[Sequence[Item], ...]
    spoken: tuple[int, ...]

    def part(self, start: int, end: int) -> _Voice:
        """Return the items from one position to another."""
        said = tuple(items[start:end] for items in self.said)
        return _Voice(self.processes, said, self.spoken[start:end])


def _joined(voices: Sequence[_Voice]) -> _Voice:
    """Join voices whose items differ only by chance."""
    processes = tuple(sorted(k for voice in voices for k in voice.processes))
    return _Voice(processes, tuple(s for voice in voices for s in voice.said), voices[0].spoken)


def _block(voice: _Voice) -> Block:
    if len(voice.said) == 1:
        return Block(voice.processes, tuple(voice.said[0]))
    return Block(voice.processes, tuple(map(_one, zip(*voice.said, strict=True))))


def _one(items: Sequence[Item]) -> Item:
    """Return the item to show for several that differ only by chance."""
    first = items[0]
    if not (isinstance(first, Line) and is_bar(first.text)):
        return first
    shown = merged([plain(item.text) for item in items if isinstance(item, Line)])
    return Line(first.stream, f"\r{shown}\n" if first.text.endswith("\n") else f"\r{shown}")


def _parts(voices: Iterable[_Voice]) -> list[Block | list[_Voice]]:
    """Divide output into blocks and the shorter outputs between them, in order."""
    groups: dict[tuple[int, ...], list[_Voice]] = {}
    for voice in voices:
        if voice.spoken:
            groups.setdefault(voice.spoken, []).append(voice)
    speaking = [_joined(group) for group in groups.values()]
    runs = _shared_runs(list(groups)) if len(groups) > 1 else []
    if not runs:
        return [_block(voice) for voice in speaking]
    parts: list[Block | list[_Voice]] = []
    done = (0,) * len(speaking)
    for starts, length in [*runs, (tuple(map(len, groups)), 0)]:
        spans = zip(speaking, done, starts, strict=True)
        parts.append([voice.part(a, b) for voice, a, b in spans])
        if length:
            shared = zip(speaking, starts, strict=True)
            parts.append(_block(_joined([voice.part(a, a + length) for voice, a in shared])))
        done = tuple(start + length for start in starts)
    return parts


def _shared_runs(sequences: Sequence[tuple[int, ...]]) -> list[_Run]:
    """Return the runs of items that all sequences share, in order, if they are substantial."""
    shortest, longest = min(map(len, sequences)), max(map(len, sequences))
    if shortest == longest:
        runs = []
        position = 0
        columns = (len(set(items)) == 1 for items in zip(*sequences, strict=True))
        for shared, column in itertools.groupby(columns):
            length = sum(1 for _ in column)
            if shared:
                runs.append(((position,) * len(sequences), length))
            position += length
        return runs
    runs = _common_runs(sequences)
    return runs if 2 * sum(length for _, length in runs) >= shortest else []


def _shared_start(sequences: Iterable[Sequence[int]]) -> int:
    """Return the number of items with which all sequences begin."""
    columns = zip(*sequences, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _common_runs(sequences: Sequence[tuple[int, ...]]) -> list[_Run]:
    """Return the runs of items in a common subsequence of all sequences."""
    head = _shared_start(sequences)
    rests = [s[head:] for s in sequences]
    tail = _shared_start(rest[::-1] for rest in rests)
    middles = [rest[: len(rest) - tail] for rest in rests]
    places: list[tuple[int, ...]] = []
    if all(middles) and sum(len(middle) ** 2 for middle in middles) <= MOST_COMPARISONS:
        places = [(i,) for i in range(len(middles[0]))]
        for middle in middles[1:]:
            left = [middles[0][place[0]] for place in places]
            matcher = difflib.SequenceMatcher(None, left, middle, autojunk=False)
            places = [
                (*places[match.a + i], match.b + i)
                for match in matcher.get_matching_blocks()
                for i in range(match.size)
            ]
    runs: list[_Run] = [((0,) * len(sequences), head)]
    for place in places:
        here = tuple(head + p for p in place)
        starts, length = runs[-1]
        if here == tuple(start + length for start in starts):
            runs[-1] = (starts, length + 1)
        else:
            runs.append((here, 1))
    runs.append((tuple(len(s) - tail for s in sequences), tail))
    return [run for run in runs if run[1]]
