"""From a compiled program, or a function to be compiled, to a model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jax

from mcnb.errors import PictureError
from mcnb.pictures.devices import Device, named
from mcnb.pictures.model import MeshModel
from mcnb.pictures.observe import layout_of, mesh_model
from mcnb.pictures.program import Use, uses
from mcnb.pictures.program_scene import ProgramModel

_HEADER = re.compile(r"HloModule (?P<name>[^,\s]+)")
_PARTITIONS = re.compile(r"num_partitions=(\d+)")
# What memory is needed for, as `jax.stages.Compiled.memory_analysis` calls it.
_MEMORY = (
    ("arguments", "argument_size_in_bytes"),
    ("results", "output_size_in_bytes"),
    ("what is in between", "temp_size_in_bytes"),
)


def compiled(function: Any, args: Iterable[Any]) -> Any:
    """Compile a function for arguments, or shapes of arguments, without running it.

    Raises:
        PictureError: It takes other arguments.
    """
    if isinstance(function, jax.stages.Compiled):
        return function
    if isinstance(function, jax.stages.Lowered):
        return function.compile()
    given = list(args)
    lower = function.lower if hasattr(function, "lower") else jax.jit(function).lower
    try:
        lowered = lower(*given)
    except TypeError as error:
        if given:
            raise
        name = getattr(function, "__name__", "f")
        raise PictureError(
            f"What {name} communicates depends on its arguments. Give them, or their shapes: "
            f"mcnb.show({name}, x) ({error})"
        ) from None
    return lowered.compile()


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
    title = _HEADER.match(header)
    return ProgramModel(
        name=name or (title["name"].removeprefix("jit_").strip("_") if title else "") or "program",
        uses=tuple(uses(text, int(count[1]) if count else 1)),
        devices=devices,
        mesh=mesh,
        outputs=tuple(
            (jax.tree_util.keystr(path) or "the result", layout_of(leaf))
            for path, leaf in jax.tree_util.tree_leaves_with_path(program.out_info)
            if leaf.sharding is not None
        ),
        memory=_memory(program),
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
