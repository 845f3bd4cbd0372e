"""Describe the computations that JAX launches, from JAX's executables and stack frames."""

from __future__ import annotations

import functools
import importlib
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

import numpy as np

from mcnb.lockstep import _jax
from mcnb.lockstep.hlo import (
    ELIDED,
    by_process,
    comparable,
    donated,
    fingerprint,
    operations,
    partners,
)
from mcnb.lockstep.model import Launch

# Modules whose functions a learner calls; a launch inside such a function gets its name.
_PUBLIC = ("jax", "jax.numpy", "jax.experimental.multihost_utils", "jax.lax", "jax.random")

# JAX's function that is called in place of a compiled one.
COMPILED_CALL = "cache_miss"


def describe(execute: Any, args: Sequence[Any]) -> Launch:
    """Describe a computation, as JAX executes it, with its arguments."""
    devices = _jax.devices_of(execute)
    owners = [int(device.process_index) for device in devices]
    process = int(devices[0].client.process_index())
    text = _jax.program_text(execute)
    where = " ".join(device_names(devices))
    collectives = by_process(operations(text, len(devices)), owners)
    kept = [arg for i, arg in enumerate(args) if i in execute.kept_var_idx]
    shardings = execute.in_handler.in_shardings
    values = [*(_jax.constants_of(execute) if ELIDED in text else ()), *_jax.closed_over(execute)]
    return Launch(
        name=str(execute.name),
        program=fingerprint(text, len(devices), where, values),
        lowered=_jax.lowered(execute),
        participants=partners(collectives, process, owners),
        arguments=tuple(_argument(arg) for arg in kept),
        shardings=tuple(_spec(sharding) for sharding in shardings),
        mesh=next((str(dict(s.mesh.shape)) for s in shardings if hasattr(s, "mesh")), ""),
        devices=where,
        collectives=collectives,
        donated=donated(text),
    )


def lines_of(execute: Any) -> tuple[str, ...]:
    """Return the lines of a computation's program that equal programs have in common."""
    text = comparable(_jax.program_with_constants(execute), len(_jax.devices_of(execute)))
    return tuple(line.strip().removeprefix("ROOT ") for line in text.splitlines())


def device_names(devices: Sequence[Any]) -> list[str]:
    """Return the names of devices, made of process and local position, such as `"P0.1"`."""
    local: dict[int, list[int]] = {}
    for device in sorted(devices[0].client.devices(), key=lambda device: device.id):
        local.setdefault(device.process_index, []).append(device.id)
    return [f"P{d.process_index}.{local[d.process_index].index(d.id)}" for d in devices]


def _spec(sharding: Any) -> str:
    return str(getattr(sharding, "spec", "")).replace("PartitionSpec", "P")


def _argument(arg: Any) -> str:
    import jax

    aval = jax.typeof(arg)
    dtype = str(aval.dtype)  # a random key has JAX's own dtype: key<fry>
    for long, short in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        dtype = dtype.replace(long, short)
    return f"{dtype}[{','.join(str(size) for size in aval.shape)}]"


class Call(NamedTuple):
    """A call of a compiled function.

    Attributes:
        execute: The computation; None if it is not known.
        static: The function's static arguments, by name; None if they are not known.
        names: The names of the computation's arguments.
        parameters: The names of the function's parameters, in order.
        given: The positional arguments by parameter.
        of_jax: Whether the function is JAX's own.
        function: The function; None if it is not known.
    """

    execute: Any
    static: dict[str, str] | None
    names: tuple[str, ...]
    parameters: tuple[str, ...]
    given: Mapping[str, Any]
    of_jax: bool
    function: Any = None


def call_under_way(frame: FrameType | None) -> Call:
    """Return the call in which a thread, by its innermost frame, is about to launch."""
    execute = None
    while frame is not None:
        local = frame.f_locals
        if frame.f_code is _jax.gate_code():
            if (known := local["call"]) is not None:
                return cast("Call", known())
        elif frame.f_code is _jax.call_code():
            execute = local["self"]
        elif frame.f_code.co_name == COMPILED_CALL and "p" in local and "fun" in local:
            if _jax.is_primitive(local["fun"]):  # JAX calls its arguments args[0], args[1], ...
                break
            names = tuple(local["p"].arg_names or ())
            static = _static(local["fun"], local["args"], local["kwargs"], names)
            if execute is not None:  # an unused argument has no parameter
                names = tuple(name for i, name in enumerate(names) if i in execute.kept_var_idx)
            parameters = _parameters(local["fun"])
            of_jax = str(getattr(local["fun"], "__module__", "")).partition(".")[0] == "jax"
            given = dict(zip(parameters, local["args"], strict=False))
            return Call(execute, static, names, parameters, given, of_jax, local["fun"])
        frame = frame.f_back
    return Call(execute, None, (), (), {}, of_jax=False)


def recall(frame: FrameType, execute: Any) -> Callable[[], Call]:
    """Return a function that describes a call when JAX's C++ repeats it, without JAX's frames.

    Neither arguments nor the computation are kept alive.

    Args:
        frame: The frame in which JAX prepares C++ for such calls.
        execute: The computation.
    """
    call = call_under_way(frame)
    names = tuple(name for i, name in enumerate(call.names) if i in execute.kept_var_idx)
    # The arguments of JAX's own functions are called by what the learner passes, and no expression
    # is known here.
    known = call._replace(names=() if call.of_jax else names, execute=None, given={}, function=None)
    if call.of_jax:
        known = known._replace(parameters=())
    computation = weakref.ref(execute)
    return lambda: known._replace(execute=computation())


def _parameters(function: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _static(function: Any, args: Any, kwargs: Any, names: Sequence[str]) -> dict[str, str] | None:
    import jax

    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return None
    dynamic = {str(name).partition("[")[0].partition(".")[0] for name in names}
    return {
        name: repr(value)[:100]
        for name, value in given.items()
        if name not in dynamic
        and not any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))
    }


# Functions of JAX that may launch several computations: one for each leaf of a PyTree.
_FOR_EACH_LEAF = frozenset(("device_put", "tree_map", "map", "map_with_path"))


def launches_once(codes: Sequence[CodeType]) -> bool:
    """Return whether functions on the stack, from the innermost, can't have made other launches.

    They are those below the learner's line. Other libraries than JAX may have loops of their own.
    """
    import jax

    folder = f"{Path(jax.__file__).parent}/"
    if not all(code.co_filename.startswith(folder) for code in codes):
        return False
    return not any(
        code.co_name in _FOR_EACH_LEAF or "/jax/experimental/" in code.co_filename for code in codes
    )


@functools.cache
def is_public(name: str) -> bool:
    """Return whether JAX has a public function of this name."""
    return not name.startswith("_") and any(
        callable(getattr(importlib.import_module(module), name, None)) for module in _PUBLIC
    )
