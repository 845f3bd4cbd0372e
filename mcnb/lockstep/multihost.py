"""Describe what JAX's functions exchange between processes, in terms of what each process passes.

`jax.experimental.multihost_utils` makes one global array of the arrays of all processes, and
launches a function of its own with it. `jax.device_put` and others call it, too. Its callers know
neither that array nor that function, so they are shown what they have passed.
"""

from __future__ import annotations

from dataclasses import replace
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from mcnb.lockstep.model import Launch
from mcnb.lockstep.source import WRAPPERS, is_of_jax

# JAX's barrier, its functions that launch an exchange, and the end of the name of their file.
_BARRIER, _FILE = "sync_global_devices", "multihost_utils.py"
_GATHER, _BROADCAST = "_handle_array_process_allgather", "broadcast_one_to_all"
# How the meshes begin that they make.
_MESH = "{'processes': "


class Exchange(NamedTuple):
    """An exchange of arrays that is about to be launched.

    Attributes:
        given: What JAX's function was given by its caller, such as a PyTree of arrays.
        array: The array that is exchanged, which may be a leaf of that; None if all of it is
            exchanged at once.
    """

    given: Any
    array: Any

    def path(self) -> str | None:
        """Return where the array is in what was given, such as `"['w']"`; None if not known.

        Example:
            >>> w = np.ones(3)
            >>> Exchange({"b": np.ones(4), "w": w}, w).path(), Exchange(w, np.ones(3)).path()
            ("['w']", '')
        """
        import jax

        leaves = jax.tree_util.tree_leaves_with_path(self.given)
        found = (jax.tree_util.keystr(path) for path, leaf in leaves if leaf is self.array)
        return next(found, "" if [path for path, _ in leaves] == [()] else None)


def exchange_at(frame: FrameType | None) -> Exchange | None:
    """Return the exchange that a thread launches, by its innermost frame; None if it is none.

    Arrays that have shards in several processes are gathered as they are. That is none, either.

    Example:
        >>> exchange_at(None) is None
        True
    """
    launches: FrameType | None = None
    outer: FrameType | None = None
    while frame is not None:
        code = frame.f_code
        if launches is None and _is_of_multihost_utils(code, (_GATHER, _BROADCAST)):
            launches = frame
        if not is_of_jax(code.co_filename):  # what calls JAX, or what JAX calls back
            break
        if launches is not None and code.co_name not in WRAPPERS and code.co_argcount:
            outer = frame
        frame = frame.f_back
    if launches is None or outer is None:
        return None
    given = outer.f_locals.get(outer.f_code.co_varnames[0])
    if launches.f_code.co_name == _BROADCAST:
        return Exchange(given, None)
    array = launches.f_locals.get("inp")
    if array is None or not getattr(array, "is_fully_addressable", True):
        return None
    return Exchange(given, array)


def as_passed(launch: Launch, frame: FrameType | None) -> Launch:
    """Return a launch with the arguments that each process has passed, if it is an exchange.

    Example:
        >>> launch = Launch("jit(f)", "1", (0, 1), ("f32[8]",), mesh="{'x': 8}")
        >>> as_passed(launch, None) is launch
        True
    """
    if not launch.mesh.startswith(_MESH) or (exchange := exchange_at(frame)) is None:
        return launch
    array = exchange.array
    shown = [
        _without_first(one) if array is None else _with_shape(one, np.shape(array))
        for one in launch.arguments
    ]
    return replace(launch, arguments=tuple(shown))


def synchronizes(code: CodeType | None) -> bool:
    """Return whether a function is `jax.experimental.multihost_utils.sync_global_devices`."""
    return code is not None and _is_of_multihost_utils(code, (_BARRIER,))


def barrier_name(frame: FrameType | None) -> str:
    """Return the name of the barrier that a thread launches, as Python writes it.

    The barrier is `jax.experimental.multihost_utils.sync_global_devices`, which launches sums. The
    name is empty if the thread launches something else.

    Example:
        >>> barrier_name(None)
        ''
    """
    while frame is not None:
        if synchronizes(frame.f_code):
            return repr(frame.f_locals.get("name", ""))
        frame = frame.f_back
    return ""


def _is_of_multihost_utils(code: CodeType, names: tuple[str, ...]) -> bool:
    return code.co_name in names and code.co_filename.endswith(_FILE)


def _with_shape(argument: str, shape: tuple[int, ...]) -> str:
    return f"{argument.partition('[')[0]}[{','.join(map(str, shape))}]"


def _without_first(argument: str) -> str:
    dtype, _, sizes = argument.partition("[")
    return f"{dtype}[{sizes.partition(',')[2] or ']'}"
