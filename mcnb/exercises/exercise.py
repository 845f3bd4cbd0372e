"""Define exercises, and make the meshes, arrays and folders that learners' functions are given."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

UNSET = "not set yet"
LONGEST_PATH = 1024
Hint: TypeAlias = Callable[[Any, Any, int, int], str]


@dataclass(frozen=True)
class Exercise:
    """Exercise that is checked on every process.

    A value, right or wrong, is described by plain data that can be sent from its process, compared
    and printed on one line: a number, a string, or one of the dataclasses in `looks`.

    Attributes:
        variable: Name of the variable that the learner sets, to a value or a function.
        look: Describes the variable's value, on its process. A learner's function is called here,
            on all processes at once, and its launches are checked like those of a cell.
        expected: Returns the right description, given the process index, the number of processes
            and the number of devices per process.
        hint: Returns a hint, given a wrong description, the right one, the number of processes
            and the number of devices per process. The hint never contains the answer.
    """

    variable: str
    look: Callable[[Any], object]
    expected: Callable[[int, int, int], object]
    hint: Hint


def hint_for(form: object, otherwise: str) -> Callable[[Hint], Hint]:
    """Restrict a hint to descriptions of a form.

    Args:
        form: Type of the descriptions; or, for tuples of a fixed length, a tuple of the forms of
            their items.
        otherwise: Hint for all other descriptions.

    Example:
        >>> @hint_for((int, int), "two whole numbers are wanted.")
        ... def hint(seen, *_):
        ...     return f"{seen[0]} is wrong."
        >>> hint((1, 2), (2, 2), 4, 2), hint((1, 2, 3), (2, 2), 4, 2)
        ('1 is wrong.', 'two whole numbers are wanted.')
    """

    def restrict(hint: Hint) -> Hint:
        @functools.wraps(hint)
        def hinted(seen: object, *others: Any) -> str:
            return hint(seen, *others) if _has_form(seen, form) else otherwise

        return hinted

    return restrict


def _has_form(value: object, form: Any) -> bool:
    if not isinstance(form, tuple):
        return isinstance(value, form)
    return isinstance(value, tuple) and len(value) == len(form) and all(map(_has_form, value, form))


def of_function(hint: Hint) -> Hint:
    """Extend a hint to ask for a function if the learner's value is not one."""

    @functools.wraps(hint)
    def hinted(seen: object, *others: Any) -> str:
        if isinstance(seen, str) and seen.endswith("no function"):
            return "define a function, with def."
        return hint(seen, *others)

    return hinted


def mesh_of(axes: Sequence[str], shape: Sequence[int] = (), *, explicit: bool = False) -> Any:
    """Return a mesh of all devices.

    Args:
        axes: Names of its axes.
        shape: Their sizes; by default, those of processes by local devices.
        explicit: Whether the axes are `Explicit` rather than `Auto`.
    """
    import jax

    sizes = tuple(shape) or (jax.process_count(), jax.local_device_count())
    kind = jax.sharding.AxisType.Explicit if explicit else jax.sharding.AxisType.Auto
    return jax.make_mesh(sizes, tuple(axes), axis_types=(kind,) * len(axes))


def sharded(whole: np.ndarray[Any, Any], mesh: Any, *spec: Any) -> Any:
    """Return a global array, sharded over a mesh, of values that every process has."""
    import jax

    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    return jax.make_array_from_callback(whole.shape, sharding, whole.__getitem__)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Create a temporary folder on process 0, and share its path with all processes.

    All processes must enter it together. Process 0 removes the folder on leaving the context.
    """
    import jax
    from jax.experimental import multihost_utils

    made = tempfile.mkdtemp() if jax.process_index() == 0 else ""
    try:
        name = np.frombuffer(made.encode().ljust(LONGEST_PATH, b"\0"), np.uint8)
        told = multihost_utils.broadcast_one_to_all(name)
        yield Path(bytes(np.asarray(told, np.uint8)).rstrip(b"\0").decode())
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)
