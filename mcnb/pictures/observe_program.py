"""From a compiled program, or a function to be compiled, to a model."""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from mcnb.errors import PictureError
from mcnb.pictures.devices import Device, named
from mcnb.pictures.model import MeshModel
from mcnb.pictures.observe import layout_of, mesh_model
from mcnb.pictures.program import Use, uses
from mcnb.pictures.program_scene import ProgramModel

_HEADER = re.compile(r"HloModule (?P<name>[^,\s]+)")
_NOT_LEARNERS = {"jax", "jaxlib", "mcnb", "contextlib", "functools", "inspect", "numpy"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PARTITIONS = re.compile(r"num_partitions=(\d+)")
# What memory is needed for, as `jax.stages.Compiled.memory_analysis` calls it.
_MEMORY = (
    ("arguments", "argument_size_in_bytes"),
    ("results", "output_size_in_bytes"),
    ("what is in between", "temp_size_in_bytes"),
)


def compiled(
    function: Any, args: Sequence[Any], keywords: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Compile a function for arguments, or shapes of arguments, without running it.

    Args:
        function: The function, jitted or not; or what is compiled already.
        args: Its arguments.
        keywords: Its keyword arguments. Where it is not jitted, those that are no arrays are
            constants of the program.

    Raises:
        PictureError: It takes other arguments, or none of these.
    """
    if isinstance(function, (jax.stages.Compiled, jax.stages.Lowered)):
        if args or keywords:
            raise PictureError(
                "What is compiled already takes no arguments: mcnb.show(compiled), or "
                "mcnb.show(f, x) of the function itself"
            )
        return function.compile() if isinstance(function, jax.stages.Lowered) else function
    name = getattr(function, "__name__", type(function).__name__)
    try:
        lowered = _lowered(function, args, keywords)
    except Exception as error:
        if _is_learners(error):
            raise  # with the line of the function at which it happened
        message = _ADDRESS.sub("", str(error).strip().partition("\n")[0])
        if not args and not keywords:
            raise PictureError(
                f"What {name} communicates depends on its arguments. Give them, or their shapes: "
                f"mcnb.show({name}, x) ({message})"
            ) from None
        raise PictureError(
            f"{name} can't be compiled for these arguments. {type(error).__name__}: {message}"
        ) from None
    return lowered.compile()


def _lowered(function: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    if hasattr(function, "lower"):
        return function.lower(*args, **keywords)
    arrays = {
        key: value
        for key, value in keywords.items()
        if isinstance(value, (jax.Array, jax.ShapeDtypeStruct, np.ndarray))
    }
    rest = {key: value for key, value in keywords.items() if key not in arrays}
    partial = functools.partial(function, **rest) if rest else function
    return jax.jit(partial).lower(*args, **arrays)


def _is_learners(error: BaseException) -> bool:
    """Return whether an error came from a line of the learner's, within the function."""
    modules = (
        str(frame.f_globals.get("__name__", "")).partition(".")[0]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
    return any(module not in _NOT_LEARNERS for module in modules)


def moving(thing: Any, sharding: Any) -> tuple[Use, ...] | None:
    """Return the collectives with which XLA would move an array to another sharding.

    Returns:
        None where it is no matter of XLA's, as for other devices, or can't be compiled.
    """
    before = thing.sharding
    if before is None or set(before.device_set) != set(sharding.device_set):
        return None
    shape = jax.ShapeDtypeStruct(thing.shape, thing.dtype, sharding=before)
    try:
        program = jax.jit(lambda x: x, out_shardings=sharding).lower(shape).compile()
    except (ValueError, TypeError, RuntimeError, AttributeError):
        return None  # devices on paper, or in another order
    count = _PARTITIONS.search(program.as_text().partition("\n")[0])
    return tuple(uses(program.as_text(), int(count[1]) if count else 1))


def program_model(program: Any, name: str = "") -> ProgramModel:
    """Return the model of a `jax.stages.Compiled`.

    Args:
        program: The compiled program.
        name: What to call it; as its function, by default.
    """
    text = program.as_text()
    header = text.partition("\n")[0]
    count = _PARTITIONS.search(header)
    shardings = [
        sharding
        for sharding in jax.tree.leaves((program.input_shardings, program.output_shardings))
        if isinstance(sharding, jax.sharding.Sharding)
    ]
    mesh, devices = _where(shardings)
    results = jax.tree_util.tree_leaves_with_path(program.out_info)
    outputs = tuple(
        (jax.tree_util.keystr(path) or "the result", layout_of(leaf))
        for path, leaf in results
        if leaf.sharding is not None
    )
    memory = _memory(program)
    if memory and len(outputs) == len(results):
        # XLA counts its table of results, too.
        held = sum(max(layout.device_bytes.values(), default=0) for _, layout in outputs)
        memory = tuple((what, held if what == "results" else n) for what, n in memory)
    title = _HEADER.match(header)
    return ProgramModel(
        name=name or (title["name"].removeprefix("jit_").strip("_") if title else "") or "program",
        uses=tuple(uses(text, int(count[1]) if count else 1)),
        devices=devices,
        mesh=mesh,
        outputs=outputs,
        memory=memory,
    )


def _where(shardings: list[Any]) -> tuple[MeshModel | None, tuple[Device, ...]]:
    """Return the mesh, and the devices in the program's order, which is the mesh's."""
    for sharding in shardings:
        mesh = getattr(sharding, "mesh", None)
        if isinstance(mesh, jax.sharding.Mesh):
            model = mesh_model(mesh)
            return model, model.devices
    devices = {device for sharding in shardings for device in sharding.device_set}
    return None, tuple(sorted(named(sorted(devices, key=lambda d: d.id)).values()))


def _memory(program: Any) -> tuple[tuple[str, int], ...]:
    try:
        analysis = program.memory_analysis()
    except (NotImplementedError, RuntimeError):
        return ()
    if analysis is None:
        return ()
    return tuple((what, int(getattr(analysis, key))) for what, key in _MEMORY)
