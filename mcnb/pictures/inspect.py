"""Convert JAX objects to models from their metadata, without reading data or communicating."""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from mcnb._text import a_or_an, plural, spec_text
from mcnb.errors import PictureError
from mcnb.pictures.model import (
    Axis,
    Device,
    Layout,
    MeshModel,
    Region,
    counts,
    grouped,
    named,
)
from mcnb.pictures.program import Use, uses
from mcnb.pictures.scenes.program import ProgramModel

_HEADER = re.compile(r"HloModule (?P<name>[^,\s]+)")
_NOT_LEARNERS = {"jax", "jaxlib", "mcnb", "contextlib", "functools", "inspect", "numpy"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PARTITIONS = re.compile(r"num_partitions=(\d+)")
# Uses of memory, with their names in `jax.stages.Compiled.memory_analysis`.
_MEMORY = (
    ("arguments", "argument_size_in_bytes"),
    ("results", "output_size_in_bytes"),
    ("what is in between", "temp_size_in_bytes"),
)


def mesh_model(mesh: Any) -> MeshModel:
    """Return the model of a `jax.sharding.Mesh` or `AbstractMesh`.

    Raises:
        PictureError: An axis has no devices, or the devices no longer exist.
    """
    axes = tuple(
        Axis(str(name), int(size), str(kind).rpartition(".")[2])
        for (name, size), kind in zip(mesh.shape.items(), mesh.axis_types, strict=True)
    )
    empty = next((axis.name for axis in axes if axis.size == 0), None)
    if empty is not None:
        raise PictureError(
            f"The mesh has no devices, because its axis '{empty}' has size 0. Give every axis at "
            "least one device"
        )
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return MeshModel(axes, ())
    devices = list(mesh.devices.flat)
    _refuse_strangers(devices, "mesh")
    names = named(devices)
    return MeshModel(axes, tuple(names[d] for d in devices), *counts(devices))


def _refuse_strangers(devices: Sequence[Any], what: str) -> None:
    """Reject devices of a backend that this process has left, which hold no data any more.

    Devices without a backend, such as those of a pod without the hardware, are accepted.
    """
    client = getattr(devices[0], "client", None) if devices else None
    try:
        current = jax.devices(devices[0].platform)[0].client
    except (AttributeError, IndexError, RuntimeError):
        return
    if client is not current and type(client) is type(current):
        raise PictureError(
            f"The {what} contains devices that no longer exist: JAX was initialized again in this "
            f"process, for example by a heal. Create the {what} again, from "
            f"jax.devices()"
        )


def shape_of(given: Any) -> tuple[int, ...]:
    """Return a shape: the given one, or that of an array.

    Raises:
        PictureError: `given` is not a shape.

    Example:
        >>> shape_of((8, np.int64(4))), shape_of(8), shape_of(np.zeros((2, 3)))
        ((8, 4), (8,), (2, 3))
    """
    sizes = getattr(given, "shape", given)
    sizes = list(sizes) if isinstance(sizes, (tuple, list)) else [sizes]
    if not all(hasattr(size, "__index__") and int(size) >= 0 for size in sizes):
        raise PictureError(
            f"{given!r} is not a valid shape. A shape is a tuple of whole numbers, none of them "
            "below 0: "
            "mcnb.show(sharding, (8, 4))"
        )
    return tuple(map(int, sizes))


def element_type(dtype: Any) -> Any:
    """Return a type of elements, with its name as text and its `itemsize`: NumPy's, or JAX's keys'.

    Args:
        dtype: The type, or what NumPy takes for one.

    Raises:
        TypeError: There is no such type.

    Example:
        >>> str(element_type("f4")), element_type(jax.random.key(0).dtype).itemsize
        ('float32', 8)
    """
    extended = jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
    return dtype if extended else jax.numpy.dtype(dtype)


def layout_of(thing: Any, shape: Sequence[int] | None = None, dtype: Any = None) -> Layout:
    """Return the layout of an array, of a `ShapeDtypeStruct` with a sharding, or of a sharding.

    Args:
        thing: Sharding, or an object that has one.
        shape: Global shape, if `thing` is a sharding.
        dtype: Type of the elements, if `thing` is a sharding and the type is known.

    Raises:
        PictureError: `thing` has no sharding or no devices, or its shape can't be split that way.
    """
    if isinstance(thing, jax.sharding.Sharding):
        if shape is None:
            raise PictureError(
                "A sharding has no shape. Pass the array's shape, too: mcnb.show(sharding, (8, 4))"
            )
        if dtype is None:
            return _layout(thing, tuple(shape), "", 0)
        kind = element_type(dtype)
        return _layout(thing, tuple(shape), str(kind), kind.itemsize)
    if isinstance(thing, jax.Array) and thing.is_deleted():
        raise PictureError(
            f"The array of shape {_shape(thing.shape)} has been deleted or donated, so it is on "
            "no device. Show what was computed from it"
        )
    sharding = getattr(thing, "sharding", None)
    if sharding is None:
        raise PictureError(
            f"{a_or_an(type(thing).__name__)} of shape {_shape(thing.shape)} has no sharding, so "
            "its devices are unknown. Pass a sharding: jax.ShapeDtypeStruct(shape, dtype, "
            "sharding=NamedSharding(mesh, P('x')))"
        )
    return _layout(sharding, tuple(thing.shape), str(thing.dtype), int(thing.dtype.itemsize))


def _layout(sharding: Any, shape: tuple[int, ...], dtype: str, item_bytes: int) -> Layout:
    spec = getattr(sharding, "spec", None)
    mesh = getattr(sharding, "mesh", None)
    if isinstance(mesh, jax.sharding.AbstractMesh):
        raise PictureError(
            f"The sharding {spec_text(spec)} is over an abstract mesh, which has no devices yet. "
            "Show the mesh, or give the sharding a mesh of devices"
        )
    unreduced = tuple(sorted(getattr(spec, "unreduced", None) or ()))
    indices = _indices(sharding, shape, bool(unreduced))
    names = named(indices)
    devices = list(indices)
    _refuse_strangers(devices, "array" if dtype else "sharding")
    processes, all_devices = counts(devices)
    return Layout(
        shape=shape,
        dtype=dtype,
        item_bytes=item_bytes,
        regions=_regions(indices, shape, names),
        spec=spec_text(spec),
        mesh=None if mesh is None else mesh_model(mesh),
        split=_split(spec, len(shape)),
        unreduced=unreduced,
        memory=_memory(sharding, devices),
        processes=processes,
        all_devices=all_devices,
    )


def _indices(
    sharding: Any, shape: tuple[int, ...], unreduced: bool
) -> Mapping[Any, tuple[slice, ...]]:
    spec = getattr(sharding, "spec", None)
    if unreduced:  # JAX does not list the shards of an unreduced array: use those of its sum
        summed = jax.sharding.PartitionSpec(*_parts(spec))
        sharding = jax.sharding.NamedSharding(sharding.mesh, summed)
    if spec is not None and len(_parts(spec)) > len(shape):
        raise PictureError(
            f"An array of shape {_shape(shape)} has "
            f"{plural(len(shape), 'dimension', 'dimensions')}, but {spec_text(spec)} has "
            f"{plural(len(_parts(spec)), 'entry', 'entries')}"
        )
    try:
        return dict(sharding.devices_indices_map(shape))
    except ValueError as error:
        reason = str(error).replace("\n", " ").split("implies that ", 1)[-1].strip()
        raise PictureError(
            f"An array of shape {_shape(shape)} can't be split as {spec_text(spec)}: {reason}"
        ) from None


def bounds_of(index: Sequence[slice], shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the begin and end of a part of an array in each dimension."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _regions(
    indices: Mapping[Any, tuple[slice, ...]], shape: tuple[int, ...], names: Mapping[Any, Device]
) -> tuple[Region, ...]:
    holders = grouped(indices, lambda device: bounds_of(indices[device], shape))
    return tuple(
        Region(bounds, tuple(sorted(names[device] for device in devices)))
        for bounds, devices in sorted(holders.items(), key=lambda item: item[0])
    )


def _split(spec: Any, rank: int) -> tuple[tuple[str, ...], ...]:
    if spec is None:
        return ()
    parts = [*_parts(spec), *[None] * (rank - len(_parts(spec)))]
    axes = [(part,) if isinstance(part, str) else part for part in parts]
    # What is not a tuple is not split, or left to XLA.
    return tuple(tuple(map(str, axis)) if isinstance(axis, tuple) else () for axis in axes)


def _parts(spec: Any) -> tuple[Any, ...]:
    """Return the partitions of a spec; newer specs with other fields can't be unpacked."""
    parts = getattr(spec, "partitions", None)
    return tuple(spec if parts is None else parts)


def _memory(sharding: Any, devices: Sequence[Any]) -> str:
    kind = getattr(sharding, "memory_kind", None)
    try:
        usual = devices[0].default_memory().kind
    except (AttributeError, IndexError, RuntimeError):
        return ""
    return "" if kind in (None, usual) else str(kind)


def _shape(shape: Sequence[int]) -> str:
    return str(tuple(int(size) for size in shape))


def compiled(
    function: Any, args: Sequence[Any], keywords: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Compile a function for arguments, or shapes of arguments, without running it.

    Args:
        function: Function, jitted or not; or a lowered or compiled one.
        args: Arguments of the function.
        keywords: Keyword arguments of the function. If it is not jitted, those that are not arrays
            become constants of the program.

    Raises:
        PictureError: The function does not accept these arguments, or needs some.
    """
    if isinstance(function, (jax.stages.Compiled, jax.stages.Lowered)):
        if args or keywords:
            raise PictureError(
                "A compiled function takes no further arguments: mcnb.show(compiled). To compile "
                "it for other arguments: mcnb.show(f, x)"
            )
        return function.compile() if isinstance(function, jax.stages.Lowered) else function
    name = getattr(function, "__name__", type(function).__name__)
    try:
        lowered = _lowered(function, args, keywords)
    except Exception as error:
        if _is_learners(error):
            raise  # the traceback shows the line of the learner's code
        message = _ADDRESS.sub("", str(error).strip().partition("\n")[0])
        if not args and not keywords:
            raise PictureError(
                f"What {name} communicates depends on its arguments. Pass arrays or "
                "jax.ShapeDtypeStruct: "
                f"mcnb.show({name}, x) ({message})"
            ) from None
        raise PictureError(
            f"{name} can't be compiled for these arguments. {type(error).__name__}: {message}"
        ) from None
    return lowered.compile()


def _lowered(function: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    if hasattr(function, "lower"):
        return function.lower(*args, **keywords)
    array = (jax.Array, jax.ShapeDtypeStruct, np.ndarray)
    arrays = {key: value for key, value in keywords.items() if isinstance(value, array)}
    rest = {key: value for key, value in keywords.items() if key not in arrays}
    partial = functools.partial(function, **rest) if rest else function
    return jax.jit(partial).lower(*args, **arrays)


def _is_learners(error: BaseException) -> bool:
    """Return whether an error was raised from the learner's code."""
    modules = (
        str(frame.f_globals.get("__name__", "")).partition(".")[0]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
    return any(module not in _NOT_LEARNERS for module in modules)


def moving(thing: Any, sharding: Any) -> tuple[Use, ...] | None:
    """Return the collectives with which XLA would move an array to another sharding.

    Returns:
        The collectives; None if the devices differ, or if the move can't be compiled.
    """
    before = thing.sharding
    if before is None or set(before.device_set) != set(sharding.device_set):
        return None
    shape = jax.ShapeDtypeStruct(thing.shape, thing.dtype, sharding=before)
    try:
        program = jax.jit(lambda x: x, out_shardings=sharding).lower(shape).compile()
    except (ValueError, TypeError, RuntimeError, AttributeError):
        return None  # devices without the hardware, or in another order
    return _uses(program.as_text())


def _uses(text: str) -> tuple[Use, ...]:
    """Return the collectives of a program, on the number of devices that its first line has."""
    count = _PARTITIONS.search(text.partition("\n")[0])
    return tuple(uses(text, int(count[1]) if count else 1))


def program_model(program: Any, name: str = "") -> ProgramModel:
    """Return the model of a `jax.stages.Compiled`, named like its function by default."""
    text = program.as_text()
    leaves = jax.tree.leaves((program.input_shardings, program.output_shardings))
    shardings = [leaf for leaf in leaves if isinstance(leaf, jax.sharding.Sharding)]
    mesh, devices = _where(shardings)
    results = jax.tree_util.tree_leaves_with_path(program.out_info)
    outputs = tuple(
        (jax.tree_util.keystr(path) or "the result", layout_of(leaf))
        for path, leaf in results
        if leaf.sharding is not None
    )
    memory = _program_memory(program)
    if memory and len(outputs) == len(results):
        # XLA's number includes its table of results.
        held = sum(max(layout.device_bytes.values(), default=0) for _, layout in outputs)
        memory = tuple((what, held if what == "results" else n) for what, n in memory)
    title = _HEADER.match(text)
    return ProgramModel(
        name=name or (title["name"].removeprefix("jit_").strip("_") if title else "") or "program",
        uses=_uses(text),
        devices=devices,
        mesh=mesh,
        outputs=outputs,
        memory=memory,
    )


def _where(shardings: list[Any]) -> tuple[MeshModel | None, tuple[Device, ...]]:
    """Return the mesh, and the devices in the program's order, which is that of the mesh."""
    for sharding in shardings:
        mesh = getattr(sharding, "mesh", None)
        if isinstance(mesh, jax.sharding.Mesh):
            model = mesh_model(mesh)
            return model, model.devices
    devices = {device for sharding in shardings for device in sharding.device_set}
    return None, tuple(sorted(named(sorted(devices, key=lambda d: d.id)).values()))


def _program_memory(program: Any) -> tuple[tuple[str, int], ...]:
    try:
        analysis = program.memory_analysis()
    except (NotImplementedError, RuntimeError):
        return ()
    if analysis is None:
        return ()
    return tuple((what, int(getattr(analysis, key))) for what, key in _MEMORY)
