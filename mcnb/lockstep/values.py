"""Digest the values of replicated arguments in a process.

A program computes right results only if what is replicated is equal on all processes. JAX does not
verify that, because it would have to communicate: an array that claims to be replicated may have
other elements on one process, and the results are wrong without an error.

What an argument has in common with other processes is cut into *slices*: all of an array that is
fully replicated, or one slice of the array for each shard that several processes hold. A slice is
named by the position of the argument and by its bounds, such as `"2"` or `"0 0:4,8:16"`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from mcnb.lockstep.wire import Message

# The elements of a slice are compared in blocks of this many.
BLOCK = 4096
# By default, a launch has digests of at most so many bytes.
MOST_BYTES = 1 << 27
# The elements of a launch's own values are sent as long as they have at most so many bytes in all.
MOST_SENT_BYTES = 1 << 18
# The answer of a process that does not know a slice.
NO_ANSWER: tuple[Any, ...] = ("", (), ())
# The start and the stop of a slice in each dimension; empty for the whole array.
_Bounds: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a value of this process alone, which it places on its devices."""

    value: Any
    bounds: _Bounds

    @property
    def nbytes(self) -> int:
        """The size of the part in bytes."""
        return math.prod(_shape(self)) * int(np.dtype(self.value.dtype).itemsize)


def slice_name(position: int, bounds: Sequence[tuple[int, int]] = ()) -> str:
    """Return the name of a slice.

    Args:
        position: The position of the argument.
        bounds: The start and the stop in each dimension; none for the whole array.

    Example:
        >>> slice_name(2), slice_name(0, [(0, 4), (8, 16)])
        ('2', '0 0:4,8:16')
    """
    return f"{position} {','.join(f'{start}:{stop}' for start, stop in bounds)}".strip()


def digest(elements: np.ndarray, every: int = 1, offset: int = 0) -> str:
    """Return a digest of the bytes of an array's elements.

    Args:
        elements: The array.
        every: Of the array's blocks, only one of so many counts.
        offset: The first block that counts. What does not fill a block always does.
    """
    flat = np.ascontiguousarray(elements).reshape(-1)
    filled = flat.size // BLOCK * BLOCK if every > 1 else 0
    blocks = flat[:filled].reshape(-1, BLOCK)[offset::every]
    found = hashlib.sha256(flat[filled:].view(np.uint8).data)
    found.update(np.ascontiguousarray(blocks).reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:16]


@dataclass
class Replicas:
    """The slices of a launch's arguments that this process has in common with others.

    Args:
        arguments: Returns the arguments, which are JAX arrays, NumPy arrays or numbers, each with
            the sharding with which the launch takes it.
        before: How often the arguments of the computation's launches were digested before.
        digested: Called when they are digested.

    Example:
        >>> Replicas(lambda: [(np.ones(2), None)]).digests()
        {}
    """

    arguments: Callable[[], Iterable[tuple[Any, Any]]]
    before: int = 0
    digested: Callable[[], object] = lambda: None
    seconds: float = field(default=0.0, init=False)
    every: int = field(default=1, init=False)

    def digests(self, *, whole: bool = True) -> dict[str, str]:
        """Return the digest of each slice, by the slice's name.

        It waits for computations that still make the arguments. `seconds` is the time that it took,
        and of so many blocks as `every` says, one counted.

        Args:
            whole: Whether all elements count. Otherwise a part of them does if they are many,
                another one each time.
        """
        import jax

        began = time.monotonic()
        self.digested()
        found = {}
        slices = list(self._slices())
        size = sum(getattr(value, "nbytes", 0) for _, value in slices)
        every = self.every = 1 if whole else math.ceil(size / MOST_BYTES) or 1
        for name, value in slices:
            with _unless_it_has_no_value():
                # Interrupts end this wait, but not NumPy's.
                jax.block_until_ready(value.value if isinstance(value, _Part) else value)
                found[name] = digest(_on_host(value), every, self.before % every)
        self.seconds = time.monotonic() - began
        return found

    def answer(self, name: str, blocks: Sequence[int] | None) -> Message:
        """Return the digests of a slice's blocks, or the elements of some of its blocks.

        Args:
            name: The name of the slice.
            blocks: The numbers of the blocks; None for the digests of all blocks.

        Returns:
            The name of the elements' type, the slice's shape, and the digests or the elements, as
            hexadecimal text for each block.
        """
        for other, value in self._slices():
            if other == name:
                flat = _flat(value)
                numbers = range(-(-flat.size // BLOCK)) if blocks is None else blocks
                parts = [flat[i * BLOCK : (i + 1) * BLOCK] for i in numbers]
                texts = [digest(p) if blocks is None else p.tobytes().hex() for p in parts]
                return [_type_name(flat), [*_shape(value)], texts]
        return list(NO_ANSWER)

    @property
    def has_own(self) -> bool:
        """Whether the launch takes values of this process alone."""
        return any(_takes_own(*pair) for pair in self.arguments())

    @property
    def has_common(self) -> bool:
        """Whether the launch takes arrays that several processes hold together."""
        return not all(_is_own(argument) for argument, _ in self.arguments())

    @property
    def followed(self) -> bool:
        """Whether Python makes each such launch, if it does not communicate, and not only some."""
        return takes_own_arrays(argument for argument, _ in self.arguments())

    def inputs(self, *, common: bool, whole: bool) -> dict[str, Message]:
        """Return the values of a launch that JAX expects to be equal on several processes.

        These are the values of this process alone, also where each process takes only a part of its
        value; and, on request, what several processes hold of larger arrays. It waits for
        computations that still make them.

        Args:
            common: Whether arrays that several processes hold together count, too.
            whole: Whether all elements of these arrays count, or only the first block.

        Returns:
            For each argument, by the name of its slice: the digest, the name of the elements' type,
            the shape, and the elements as hexadecimal text, which is empty if they are more than a
            block, or more than what is sent for one launch.
        """
        import jax

        self.digested()
        left = MOST_SENT_BYTES
        found: dict[str, Message] = {}
        for position, (argument, sharding) in enumerate(self.arguments()):
            slices: list[tuple[_Bounds, Any]] = []
            with _unless_it_has_no_value():
                if not _is_own(argument):
                    slices = list(_common_slices(argument, sharding)) if common else []
                elif _takes_own(argument, sharding):
                    slices = [((), argument)]
            for bounds, value in slices:
                with _unless_it_has_no_value():
                    jax.block_until_ready(value)
                    flat = _flat(value)
                    if not (whole or _is_own(argument)):
                        flat = flat[:BLOCK]
                    is_sent = flat.size <= BLOCK and flat.nbytes <= left
                    left -= flat.nbytes if is_sent else 0
                    text = flat.tobytes().hex() if is_sent else ""
                    entry = [digest(flat), _type_name(flat), [*_shape(value)], text]
                    found[slice_name(position, bounds)] = entry
        return found

    def _slices(self) -> Iterator[tuple[str, Any]]:
        for position, (argument, sharding) in enumerate(self.arguments()):
            slices: list[tuple[_Bounds, Any]] = []
            with _unless_it_has_no_value():
                slices = list(_common_slices(argument, sharding))
            for bounds, value in slices:
                yield slice_name(position, bounds), value


@contextlib.contextmanager
def _unless_it_has_no_value() -> Iterator[None]:
    """Leave out an argument of a kind that mcnb does not know, or whose computation has failed.

    The launch itself will raise the error. Errors of the learner's signal handlers pass.
    """
    try:
        yield
    except Exception as error:
        *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
        package = str(innermost.f_globals.get("__name__")).partition(".")[0]
        if package not in ("mcnb", "jax", "jaxlib", "numpy"):
            raise


def _takes_own(argument: Any, sharding: Any) -> bool:
    """Return whether processes pass values of their own that the launch takes as one value."""
    return _is_own(argument) and not getattr(sharding, "is_fully_addressable", True)


def takes_own_arrays(arguments: Iterable[Any]) -> bool:
    """Return whether an argument is an array, or a random key, of this process alone.

    Example:
        >>> takes_own_arrays([2.0, np.float32(1)]), takes_own_arrays([2.0, np.ones(3)])
        (False, True)
    """
    import jax

    def is_array(argument: Any) -> bool:
        dtype = getattr(argument, "dtype", None)
        is_key = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
        return is_key or np.ndim(argument) > 0

    return any(_is_own(one) and is_array(one) for one in arguments)


def _is_own(argument: Any) -> bool:
    """Return whether an argument is a value of this process alone, not part of a larger array."""
    import jax

    return not isinstance(argument, jax.Array) or bool(argument.is_fully_addressable)


def _common_slices(argument: Any, sharding: Any) -> Iterator[tuple[_Bounds, Any]]:
    """Return the bounds and the value of the slices that several processes hold."""
    import jax

    if isinstance(argument, jax.Array) and argument.is_deleted():
        return
    if _is_own(argument):
        # Each process places its own value on its devices, all of it or a part.
        if not _takes_own(argument, sharding):
            return
        if sharding.is_fully_replicated:
            yield (), argument
            return
        whole = np.shape(argument)
        own = sharding.addressable_devices_indices_map(whole).values()
        for bounds in _held_by_several(sharding, whole, own):
            yield bounds, _Part(argument, bounds)
        return
    if argument.is_fully_replicated:
        yield (), argument.addressable_shards[0].data
        return
    shards = {_bounds(shard.index, argument.shape): shard for shard in argument.addressable_shards}
    indices = (shard.index for shard in shards.values())
    for bounds in _held_by_several(argument.sharding, argument.shape, indices):
        yield bounds, shards[bounds].data


def _held_by_several(
    sharding: Any, shape: Sequence[int], indices: Iterable[Sequence[slice]]
) -> Iterator[_Bounds]:
    """Return the bounds of those slices that other processes hold, too, each once."""
    holders: dict[_Bounds, set[int]] = {}
    for device, index in sharding.devices_indices_map(tuple(shape)).items():
        holders.setdefault(_bounds(index, shape), set()).add(device.process_index)
    for bounds in dict.fromkeys(_bounds(index, shape) for index in indices):
        if len(holders[bounds]) > 1:
            yield bounds


def _bounds(index: Sequence[slice], shape: Sequence[int]) -> _Bounds:
    return tuple(one.indices(size)[:2] for one, size in zip(index, shape, strict=True))


def _on_host(value: Any) -> np.ndarray:
    """Return a value as a NumPy array of the type that JAX gives it."""
    import jax

    if isinstance(value, _Part):
        return _on_host(value.value)[tuple(slice(*one) for one in value.bounds)]
    dtype = jax.typeof(value).dtype
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return np.asarray(jax.random.key_data(value))
    return np.asarray(value, dtype)


def _flat(value: Any) -> np.ndarray:
    """Return the elements of a value in a row; those of random keys, of several words, as bytes."""
    flat = np.ascontiguousarray(_on_host(value)).reshape(-1)
    size = math.prod(_shape(value))
    return flat.view(f"V{flat.nbytes // size}") if flat.size > size > 0 else flat


def _type_name(elements: np.ndarray) -> str:
    return str(elements.dtype).removeprefix("|")


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, _Part):
        return tuple(stop - start for start, stop in value.bounds)
    return tuple(np.shape(value))
