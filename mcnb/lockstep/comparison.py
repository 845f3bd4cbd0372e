"""Find an element in which replicated values differ, from the answers of processes.

The processes announce digests of what they have in common, see `mcnb.lockstep.values`. If digests
of a slice differ, the processes are asked for digests of its blocks, and then for the elements of
the blocks that differ. Digests are of bytes, so they may differ although the elements are equal,
such as 0.0 and -0.0.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mcnb.lockstep.model import SharedValue
from mcnb.lockstep.values import BLOCK
from mcnb.lockstep.wire import Message

# Blocks whose elements are requested together, and the most blocks of a slice.
BLOCKS_TOGETHER, MOST_BLOCKS = 64, 1024
# Names for values of which only digests are known.
_UNKNOWN = ("one value", "another value", "a third value", "yet another value")


@dataclass(frozen=True, slots=True)
class Question:
    """A question to processes; see `mcnb.lockstep.values.Replicas.answer`.

    Attributes:
        processes: The processes that are asked.
        name: The name of the slice.
        blocks: The numbers of blocks whose elements are wanted; None for digests of all blocks.
    """

    processes: tuple[int, ...]
    name: str
    blocks: tuple[int, ...] | None = None


def differing_slices(digests: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return the names of slices whose digests differ between processes, in order.

    Args:
        digests: The digests of each process, by the names of its slices.

    Example:
        >>> differing_slices({0: {"0": "a", "1": "b"}, 1: {"0": "a", "1": "c", "2": "d"}})
        ['1']
    """
    first: dict[str, str] = {}
    differing = {
        name
        for one in digests.values()
        for name, value in one.items()
        if first.setdefault(name, value) != value
    }
    return sorted(differing, key=lambda name: (_position(name), _starts(name)))


class Comparison:
    """Compares values whose digests differ, and asks for what it needs.

    Args:
        digests: The digests of each process, by the names of its slices.
        exact: Whether elements that differ by no more than rounding count as different.

    Attributes:
        question: What to ask next; None when the comparison is over.
        found: The value on each process, by process, if the values differ.

    Example:
        >>> comparison = Comparison({0: {"0": "a"}, 1: {"0": "b"}}, exact=True)
        >>> comparison.question
        Question(processes=(0, 1), name='0', blocks=None)
        >>> comparison.hear(0, ["int8", [3], ["a"]])
        >>> comparison.hear(1, ["int8", [3], ["b"]])
        >>> comparison.question
        Question(processes=(0, 1), name='0', blocks=(0,))
        >>> comparison.hear(0, ["int8", [3], ["010203"]])
        >>> comparison.hear(1, ["int8", [3], ["010403"]])
        >>> comparison.found[1]
        SharedValue(argument=0, index=(1,), text='4')
    """

    def __init__(self, digests: Mapping[int, Mapping[str, str]], *, exact: bool) -> None:
        self.found: dict[int, SharedValue] = {}
        self.question: Question | None = None
        self._digests = digests
        self._exact = exact
        self._answers: dict[int, Message] = {}
        self._names = iter(differing_slices(digests))
        self._blocks: list[int] = []
        self._next_slice()

    def hear(self, process: int, answer: Message) -> None:
        """Take the answer of a process to the question."""
        question = self.question
        if question is None or process not in question.processes:
            return
        self._answers[process] = answer
        if len(self._answers) < len(question.processes):
            return
        answers, self._answers = [self._answers[k] for k in question.processes], {}
        if len({(dtype, tuple(shape)) for dtype, shape, _ in answers}) > 1 or not answers[0][0]:
            self.give_up()
        elif question.blocks is None:
            digests = zip(*(texts for *_, texts in answers), strict=True)
            differing = [i for i, one in enumerate(digests) if len({*one}) > 1]
            self._blocks = differing[:MOST_BLOCKS]
            self._next_blocks()
        else:
            self._compare(question, answers)

    def give_up(self) -> None:
        """End the comparison without the element that differs, as a process does not answer.

        Digests that differ are a difference only if rounding counts as one.
        """
        question, self.question = self.question, None
        if question is not None and self._exact:
            digests = {k: self._digests[k][question.name] for k in question.processes}
            self.found = _unknown_values(question.name, digests)

    def _next_slice(self) -> None:
        name = next(self._names, None)
        if name is None:
            self.question = None
        else:
            holders = tuple(sorted(k for k, one in self._digests.items() if name in one))
            self.question = Question(holders, name)

    def _next_blocks(self) -> None:
        assert self.question is not None
        now, self._blocks = self._blocks[:BLOCKS_TOGETHER], self._blocks[BLOCKS_TOGETHER:]
        if now:
            self.question = Question(self.question.processes, self.question.name, tuple(now))
        else:
            self._next_slice()

    def _compare(self, question: Question, answers: Sequence[Message]) -> None:
        assert question.blocks is not None
        dtype, shape = answers[0][:2]
        for block, *texts in zip(question.blocks, *(texts for *_, texts in answers), strict=True):
            found = _first_difference(texts, dtype, exact=self._exact)
            if found is not None:
                at, values = found
                place = _position(question.name), _index(question.name, block * BLOCK + at, shape)
                self.found = {
                    k: SharedValue(*place, text)
                    for k, text in zip(question.processes, values, strict=True)
                }
                self.question = None
                return
        self._next_blocks()


def differing_elements(
    name: str, held: Mapping[int, Message], digests: Mapping[int, str], *, exact: bool
) -> dict[int, SharedValue]:
    """Return an element in which small arrays differ, on each process.

    It is the first of those that tell most processes apart.

    Args:
        name: The name of the slice.
        held: The name of the elements' type, the slice's shape, and the elements as hexadecimal
            text, of each process. The text is empty if they were too many to send; then the digests
            tell whether the arrays differ.
        digests: The digest of each process.
        exact: Whether elements that differ by no more than rounding count as different.

    Example:
        >>> held = {0: ["uint8", [2], "0105"], 1: ["uint8", [2], "0106"]}
        >>> differing_elements("1", held, {0: "a", 1: "b"}, exact=True)[1]
        SharedValue(argument=1, index=(1,), text='6')
    """
    (dtype, shape, _), *others = held.values()
    texts = [text for *_, text in held.values()]
    if any([dtype, shape] != one[:2] for one in others) or not all(texts):
        return _unknown_values(name, digests) if len({*digests.values()}) > 1 else {}
    found = _first_difference(texts, dtype, exact=exact)
    if found is None:
        return {}
    at, values = found
    index = _index(name, at, shape)
    return {
        k: SharedValue(_position(name), index, text) for k, text in zip(held, values, strict=True)
    }


def _first_difference(
    texts: Sequence[str], dtype: str, *, exact: bool
) -> tuple[int, list[str]] | None:
    """Return where blocks, as hexadecimal text, differ, and their elements there.

    It is the first of the places that tell most processes apart.
    """
    import ml_dtypes  # noqa: F401  (by it NumPy knows bfloat16 and other types)

    differ = differ_exactly if exact else differ_by_more_than_rounding
    elements = [np.frombuffer(bytes.fromhex(text), np.dtype(dtype)) for text in texts]
    where = np.zeros(elements[0].shape, bool)
    for one, other in itertools.pairwise([*elements, elements[0]]):
        where |= differ(one, other)
    if not where.any():
        return None
    # How many processes have an element there that no process before them has.
    new = np.zeros(where.shape, int)
    for i, one in enumerate(elements[1:], 1):
        new += np.all([differ(one, other) for other in elements[:i]], axis=0)
    at = int(np.argmax(np.where(where, new + 1, 0)))
    return at, [_text(one[at]) for one in elements]


def _unknown_values(name: str, digests: Mapping[int, str]) -> dict[int, SharedValue]:
    """Return names for values of which only the digests are known."""
    which = {text: i for i, text in enumerate(dict.fromkeys(digests.values()))}
    return {
        k: SharedValue(_position(name), (), _UNKNOWN[min(which[text], len(_UNKNOWN) - 1)])
        for k, text in digests.items()
    }


def differ_exactly(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which elements differ; NaN equals NaN.

    Example:
        >>> differ_exactly(np.array([0.0, 1.0, np.nan]), np.array([-0.0, 2.0, np.nan]))
        array([False,  True, False])
    """
    nan = (one != one) & (other != other)
    differ: np.ndarray = (one != other) & ~nan
    return differ


def differ_by_more_than_rounding(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which elements differ in the first half of their digits.

    Devices of another kind, or a program that was tuned on another device, may round differently.
    Half of the digits is what remains of an ill-conditioned sum; elements are compared with the
    largest of their block.

    Example:
        >>> a = np.array([1.0, 1.0, 1.0], np.float32)
        >>> differ_by_more_than_rounding(a, np.array([1.0, 1.00001, 1.01], np.float32))
        array([False, False,  True])
        >>> differ_by_more_than_rounding(np.array([3]), np.array([4]))
        array([ True])
    """
    import ml_dtypes

    differ = differ_exactly(one, other)
    try:
        precision = float(ml_dtypes.finfo(one.dtype).eps) ** 0.5  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, KeyError):  # integers are not rounded
        return differ
    kind = np.complex128 if np.iscomplexobj(one) else np.float64
    a, b = one.astype(kind), other.astype(kind)
    finite = np.isfinite(a) & np.isfinite(b)
    sizes = np.where(finite, np.maximum(abs(a), abs(b)), 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        apart: np.ndarray = ~finite | (abs(a - b) > precision * sizes.max(initial=0.0))
    both: np.ndarray = differ & apart
    return both


def _text(element: np.generic) -> str:
    """Return an element as text; that of an array of random keys is the words of a key."""
    if isinstance(element, np.void):
        return str(np.frombuffer(element.tobytes(), np.uint32))
    return str(element)


def _position(name: str) -> int:
    return int(name.partition(" ")[0])


def _starts(name: str) -> tuple[int, ...]:
    bounds = name.partition(" ")[2]
    return tuple(int(one.partition(":")[0]) for one in bounds.split(",") if one)


def _index(name: str, at: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index, in the whole array, of an element of a slice."""
    inside = [int(i) for i in np.unravel_index(at, shape)] if shape else []
    starts = _starts(name) or (0,) * len(inside)
    return tuple(i + s for i, s in itertools.zip_longest(inside, starts, fillvalue=0))
