"""Describe the variables of a process, so that those of several processes can be compared.

Digests are sent instead of elements. What processes have in common of an array is digested as for
launches, see `mcnb.lockstep.values`; a value that each process has for itself as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import types
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from IPython.core.interactiveshell import InteractiveShell

from mcnb._text import array_type, error_line
from mcnb.lockstep.values import Replicas
from mcnb.lockstep.wire import Message
from mcnb.messages import LEAKED_TRACER, Leaf, Variable
from mcnb.pictures.scene import Scene
from mcnb.worker.introspection import has_plain_text, layout
from mcnb.worker.rpc import interruptible

# The most leaves of a PyTree that are compared, the most nodes that are visited to find them, and
# the longest text that is sent of a value.
MOST_LEAVES, MOST_NODES, MOST_TEXT = 10_000, 20_000, 60
# The most bytes of arrays that are digested for an overview, which nobody asked for, and the most
# meshes that are drawn.
MOST_BYTES, MOST_MESHES = 32_000_000, 4
# Python's own containers. One with more items than MOST_LEAVES is a leaf: visiting a million items
# takes seconds, on every process and after every cell.
_CONTAINERS = (list, tuple, dict, deque)
# What is no data of the learner's.
_CODE = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type),
    *(types.GenericAlias,),
)


class _Everywhere:
    """Stands for the sharding of a value that each process has for itself."""

    is_fully_addressable = False
    is_fully_replicated = True


class _Tree(NamedTuple):
    """The leaves of a value's PyTree, with their paths.

    Attributes:
        leaves: The leaves, at most MOST_LEAVES.
        truncated: Whether the PyTree has more leaves.
    """

    leaves: list[tuple[str, Any]]
    truncated: bool


def variables(shell: InteractiveShell, number: int) -> tuple[Variable, ...]:
    """Return the variables of a process that hold data, by name.

    Args:
        shell: The process's shell.
        number: The number of the cell that the call counts as.
    """
    with interruptible(shell, number):
        return tuple(_surveyed(name, value, math.inf)[0] for name, value in _data(shell))


class Overview(NamedTuple):
    """What a process holds between cells.

    Attributes:
        variables: Its variables that hold data; values that are large, or not computed yet, are not
            digested.
        memory: For each of its devices, the bytes in use, and the bytes that it has; 0 if unknown.
        meshes: Pictures of the meshes in its variables, by the name of the variable.
    """

    variables: tuple[Variable, ...]
    memory: tuple[tuple[int, int], ...]
    meshes: dict[str, Scene]


def overview(shell: InteractiveShell) -> Overview:
    """Return what a process holds, without waiting for a computation."""
    found = []
    left = float(MOST_BYTES)
    data = _data(shell)
    for name, value in data:
        variable, cost = _surveyed(name, value, left)
        found.append(variable)
        left -= cost
    return Overview(tuple(found), _memory(), _meshes(data))


def _data(shell: InteractiveShell) -> list[tuple[str, Any]]:
    """Return the learner's variables that hold data, by name."""
    hidden = shell.user_ns_hidden
    return [
        (name, value)
        for name, value in sorted(shell.user_ns.items())
        if not (name.startswith("_") or name in hidden or _is_code(value))
    ]


def _surveyed(name: str, value: Any, most: float) -> tuple[Variable, float]:
    """Describe one of several variables; an error is part of the description.

    Args:
        name: Its name.
        value: Its value.
        most: The most bytes that are digested; infinitely many where the process may wait.

    Returns:
        The description, and how many of these bytes were digested.
    """
    try:
        tree = _tree(value)
        cost = 0.0 if most == math.inf else sum(_cost(leaf) for _, leaf in tree.leaves)
        digested = cost <= most
        variable = _described(name, value, tree, whole=False, digested=digested)
    except Exception as error:  # a PyTree of the learner's, or a value of a kind unknown to mcnb
        why = f"can't be described: {error_line(error)}"
        return Variable(name, type(value).__qualname__, (Leaf("", why),)), 0.0
    return variable, cost if digested else 0.0


def _cost(leaf: Any) -> float:
    """Return how many bytes a process digests of a leaf: infinitely many if it had to wait."""
    import jax

    if not _has_elements(leaf):
        return 0
    if not isinstance(leaf, jax.Array):
        return float(getattr(leaf, "nbytes", 0))
    if leaf.is_deleted():
        return 0
    return len(leaf.addressable_shards) * _bytes(leaf) if leaf.is_ready() else math.inf


def _memory() -> tuple[tuple[int, int], ...]:
    """Return the bytes in use on each device of this process, and the bytes that it has."""
    import jax

    found = []
    arrays: dict[Any, int] | None = None
    for device in jax.local_devices():
        known = device.memory_stats()
        if known is None:  # of CPU devices, JAX does not know it
            arrays = _bytes_of_arrays() if arrays is None else arrays
            known = {"bytes_in_use": arrays.get(device, 0)}
        found.append((int(known.get("bytes_in_use", 0)), int(known.get("bytes_limit", 0))))
    return tuple(found)


def _bytes_of_arrays() -> dict[Any, int]:
    """Return the bytes of all arrays on each device of this process."""
    import jax

    # A part of an array that somebody has looked at is an array, too, with the same buffer.
    buffers: dict[tuple[Any, int], int] = {}
    for array in jax.live_arrays():
        if array.is_deleted():
            continue
        # An array has no buffer if its computation has failed, or a thread has just deleted it.
        with contextlib.suppress(Exception):
            ready = array.is_ready()
            for shard in array.addressable_shards:
                buffer = shard.data.unsafe_buffer_pointer() if ready else id(array)
                buffers[shard.device, buffer] = int(shard.data.nbytes)
    found: dict[Any, int] = {}
    for (device, _), size in buffers.items():
        found[device] = found.get(device, 0) + size
    return found


def _meshes(data: Sequence[tuple[str, Any]]) -> dict[str, Scene]:
    """Return pictures of the meshes in variables; of equal ones, that of the first name."""
    import jax

    meshes: dict[Any, str] = {}
    for name, value in data:
        if isinstance(value, jax.sharding.Mesh):
            meshes.setdefault(value, name)
    if not meshes:
        return {}
    from mcnb.pictures.show import scene_of

    scenes = {}
    for mesh, name in [*meshes.items()][:MOST_MESHES]:
        with contextlib.suppress(Exception):  # the table has a row for it all the same
            scenes[name] = scene_of(mesh, name=name)
    return scenes


def variable(shell: InteractiveShell, number: int, name: str) -> Variable | None:
    """Return a variable, or the value of an expression; None if there is no such name.

    Args:
        shell: The process's shell.
        number: The number of the cell that the call counts as.
        name: The name or the expression.
    """
    with interruptible(shell, number):
        if name.isidentifier() and name not in shell.user_ns:
            return None
        value = eval(name, shell.user_ns)  # noqa: S307  (the learner's own expression)
        tree = _tree(value)
        _compared[:] = [leaf for _, leaf in tree.leaves]
        return _described(name, value, tree, whole=True)


# The leaves of the variable that is being compared. An expression is evaluated only once, because
# later questions are not for all processes, and it may communicate.
_compared: list[Any] = []


def answer(
    shell: InteractiveShell, number: int, part: str, blocks: Sequence[int] | None
) -> Message:
    """Return digests or elements of a slice; see `mcnb.lockstep.values.Replicas.answer`.

    Args:
        shell: The process's shell.
        number: The number of the cell that the call counts as.
        part: The name of the slice, whose position is that of the leaf in the PyTree.
        blocks: The numbers of the blocks; None for the digests of all blocks.
    """
    with interruptible(shell, number):
        return _replicas(_compared).answer(part, blocks)


def forget(shell: InteractiveShell, number: int) -> None:
    """Keep nothing of the variable that was compared.

    Args:
        shell: The process's shell.
        number: The number of the cell that the call counts as.
    """
    with interruptible(shell, number):
        _compared.clear()


def _is_code(value: Any) -> bool:
    # As those of jax.jit.
    try:
        return isinstance(value, _CODE) or (callable(value) and hasattr(value, "__wrapped__"))
    except Exception:  # of the learner's own __getattr__
        return False


def _described(
    name: str, value: Any, tree: _Tree, *, whole: bool, digested: bool = True
) -> Variable:
    replicas = _replicas([leaf for _, leaf in tree.leaves])
    digests = replicas.digests(whole=whole) if digested else {}
    by_leaf: dict[int, dict[str, str]] = {}
    for part, text in digests.items():
        by_leaf.setdefault(int(part.partition(" ")[0]), {})[part] = text
    return Variable(
        name,
        type(value).__qualname__,
        tuple(
            Leaf(path, *_kind(leaf), _is_shared(leaf), by_leaf.get(i, {}))
            for i, (path, leaf) in enumerate(tree.leaves)
        ),
        sum(_bytes(leaf) for _, leaf in tree.leaves),
        replicas.every > 1,
        tree.truncated,
    )


def _tree(value: Any) -> _Tree:
    """Return the leaves of a value's PyTree, without visiting many more nodes than are described.

    Containers that are too large, or that follow after too many nodes, are leaves.
    """
    import jax

    visited = 0

    def is_leaf(node: Any) -> bool:
        nonlocal visited
        visited += 1
        return visited > MOST_NODES or _is_large(node)

    found = jax.tree_util.tree_leaves_with_path(value, is_leaf=is_leaf)
    leaves = [(jax.tree_util.keystr(path), leaf) for path, leaf in found[:MOST_LEAVES]]
    return _Tree(leaves, visited > MOST_NODES or len(found) > MOST_LEAVES)


def _is_large(node: Any) -> bool:
    return isinstance(node, _CONTAINERS) and len(node) > MOST_LEAVES


def _replicas(leaves: Sequence[Any]) -> Replicas:
    def arguments() -> Iterator[tuple[Any, Any]]:
        for leaf in leaves:
            if not _has_elements(leaf):
                yield None, None  # it keeps the positions of the others
            else:
                yield leaf, leaf.sharding if _is_shared(leaf) else _Everywhere()

    return Replicas(arguments)


def _has_elements(leaf: Any) -> bool:
    """Return whether a leaf has elements to digest; of other leaves, the text is compared."""
    import jax

    known = isinstance(leaf, (jax.Array, np.ndarray, np.generic))
    return (known or hasattr(type(leaf), "__jax_array__")) and not _is_tracer(leaf)


def _is_tracer(leaf: Any) -> bool:
    import jax

    return isinstance(leaf, jax.core.Tracer)


def _is_shared(leaf: Any) -> bool:
    import jax

    # A tracer is an instance of jax.Array, and raises an error if it is asked for its devices.
    is_array = isinstance(leaf, jax.Array) and not _is_tracer(leaf)
    return is_array and not leaf.is_fully_addressable


def _kind(leaf: Any) -> tuple[str, str]:
    """Return what a leaf is, and its value as text or as a digest of a longer text."""
    import jax

    if _is_tracer(leaf):
        return LEAKED_TRACER, ""
    if _is_large(leaf):
        return f"{type(leaf).__qualname__} of {len(leaf)} items", ""
    if isinstance(leaf, (jax.Array, np.ndarray)):
        kind = array_type(leaf.dtype, leaf.shape)
        if not isinstance(leaf, jax.Array):
            return f"NumPy {kind}", ""
        if leaf.is_deleted():
            return f"{kind}, deleted", ""
        split = len(leaf.sharding.device_set) > 1
        return f"{kind}, {layout(leaf)}" if split else kind, ""
    kind = type(leaf).__qualname__
    if not has_plain_text(leaf):
        return kind, ""
    text = _text(leaf)
    if " at 0x" in text and not isinstance(leaf, (str, bytes)):  # a function: its address is told
        return kind, ""
    if len(text) > MOST_TEXT:
        text = f"{text[: MOST_TEXT // 2]}… ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
    return kind, text


def _text(leaf: Any) -> str:
    """Return a value's text, that of a set in an order that does not depend on hashes."""
    if type(leaf) not in (set, frozenset) or not leaf:
        return repr(leaf)
    text = f"{{{', '.join(sorted(_text(one) for one in leaf))}}}"
    return text if type(leaf) is set else f"frozenset({text})"


def _bytes(leaf: Any) -> int:
    """Return how many bytes of a JAX array each of its devices holds."""
    import jax

    if not isinstance(leaf, jax.Array) or _is_tracer(leaf) or leaf.is_deleted():
        return 0
    elements = math.prod(leaf.sharding.shard_shape(leaf.shape))
    return int(elements * leaf.dtype.itemsize)
