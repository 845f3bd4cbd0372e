"""From JAX's objects to models: only what they say about themselves, no data, no communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mcnb.errors import PictureError
from mcnb.options import a_or_an, plural
from mcnb.pictures.devices import Device, device_count, named, process_count
from mcnb.pictures.model import Axis, Layout, MeshModel, Region


def mesh_model(mesh: Any) -> MeshModel:
    """Return the model of a `jax.sharding.Mesh` or `AbstractMesh`."""
    axes = tuple(
        Axis(str(name), int(size), str(kind).rpartition(".")[2])
        for (name, size), kind in zip(mesh.shape.items(), mesh.axis_types, strict=True)
    )
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return MeshModel(axes, ())
    devices = list(mesh.devices.flat)
    _refuse_strangers(devices, "mesh")
    names = named(devices)
    return MeshModel(
        axes, tuple(names[d] for d in devices), process_count(devices), device_count(devices)
    )


def _refuse_strangers(devices: Sequence[Any], what: str) -> None:
    """Refuse devices of a system that this process has left, which hold nothing any more.

    Devices of no system at all, which exist on paper only, are welcome.
    """
    client = getattr(devices[0], "client", None) if devices else None
    try:
        current = jax.devices(devices[0].platform)[0].client
    except (AttributeError, IndexError, RuntimeError):
        return
    if client is not current and type(client) is type(current):
        raise PictureError(
            f"The {what} is of devices that are gone: this process has left the system that they "
            f"belong to, and joined a new one. Make the {what} anew, on jax.devices()"
        )


def shape_of(given: Any) -> tuple[int, ...]:
    """Return a shape: one that is given, or that of an array.

    Raises:
        PictureError: It is no shape.

    Example:
        >>> shape_of((8, np.int64(4))), shape_of(8), shape_of(np.zeros((2, 3)))
        ((8, 4), (8,), (2, 3))
    """
    sizes = getattr(given, "shape", given)
    sizes = list(sizes) if isinstance(sizes, (tuple, list)) else [sizes]
    if not all(hasattr(size, "__index__") and int(size) >= 0 for size in sizes):
        raise PictureError(
            f"{given!r} is no shape. A shape is a tuple of whole numbers, none of them below 0: "
            "mcnb.show(sharding, (8, 4))"
        )
    return tuple(map(int, sizes))


def layout_of(thing: Any, shape: Sequence[int] | None = None, dtype: Any = None) -> Layout:
    """Return the layout of an array, of a `ShapeDtypeStruct` with a sharding, or of a sharding.

    Args:
        thing: What has a sharding, or is one.
        shape: The global shape, where `thing` is a sharding.
        dtype: The type of the elements, where `thing` is a sharding and it is known.

    Raises:
        PictureError: It has no sharding, no devices, or a shape that can't be split like that.
    """
    if isinstance(thing, jax.sharding.Sharding):
        if shape is None:
            raise PictureError(
                "A sharding alone has no shape. Say which: mcnb.show(sharding, (8, 4))"
            )
        kind = None if dtype is None else jax.numpy.dtype(dtype)
        return _layout(thing, tuple(shape), str(kind or ""), kind.itemsize if kind else 0)
    if isinstance(thing, jax.Array) and thing.is_deleted():
        raise PictureError(
            f"The array of shape {_shape(thing.shape)} has been deleted or donated, so it lies "
            "nowhere. Show what was computed from it"
        )
    sharding = getattr(thing, "sharding", None)
    if sharding is None:
        raise PictureError(
            f"{a_or_an(type(thing).__name__)} of shape {_shape(thing.shape)} without a sharding "
            "does not say where it would lie. Give it one: jax.ShapeDtypeStruct(shape, dtype, "
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
    indices = _indices(sharding, shape, spec, mesh, bool(unreduced))
    names = named(indices)
    devices = list(indices)
    _refuse_strangers(devices, "array" if dtype else "sharding")
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
        processes=process_count(devices),
        all_devices=device_count(devices),
    )


def _indices(
    sharding: Any, shape: tuple[int, ...], spec: Any, mesh: Any, unreduced: bool
) -> Mapping[Any, tuple[slice, ...]]:
    if unreduced:  # JAX does not say where summands lie: where the sum would
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*_parts(spec)))
    if spec is not None and len(_parts(spec)) > len(shape):
        raise PictureError(
            f"An array of shape {_shape(shape)} can't be split as {spec_text(spec)}, which speaks "
            f"of {plural(len(_parts(spec)), 'dimension', 'dimensions')}"
        )
    try:
        found: Mapping[Any, tuple[slice, ...]] = sharding.devices_indices_map(shape)
    except ValueError as error:
        raise PictureError(
            f"An array of shape {_shape(shape)} can't be split as {spec_text(spec)}: "
            f"{_reason(error)}"
        ) from None
    return found


def _reason(error: ValueError) -> str:
    text = str(error).replace("\n", " ").strip()
    _, found, reason = text.partition("implies that ")
    return reason.strip() if found else text


def _regions(
    indices: Mapping[Any, tuple[slice, ...]], shape: tuple[int, ...], names: Mapping[Any, Device]
) -> tuple[Region, ...]:
    holders: dict[tuple[tuple[int, int], ...], list[Device]] = {}
    for device, index in indices.items():
        bounds = tuple(
            (part.indices(size)[0], part.indices(size)[1])
            for part, size in zip(index, shape, strict=True)
        )
        holders.setdefault(bounds, []).append(names[device])
    return tuple(Region(bounds, tuple(sorted(holders[bounds]))) for bounds in sorted(holders))


def _split(spec: Any, rank: int) -> tuple[tuple[str, ...], ...]:
    if spec is None:
        return ()
    parts = [*_parts(spec), *[None] * (rank - len(_parts(spec)))]
    return tuple(
        tuple(map(str, part))
        if isinstance(part, tuple)
        else (part,)
        if isinstance(part, str)
        else ()  # whole, or left to XLA
        for part in parts
    )


def _parts(spec: Any) -> tuple[Any, ...]:
    """Return what a spec says of each dimension; newer ones with more to say can't be unpacked."""
    return tuple(getattr(spec, "partitions", None) or spec)


def spec_text(spec: Any) -> str:
    """Return a spec as short as it is written; the same on all versions of JAX."""
    return "" if spec is None else str(spec).replace("PartitionSpec", "P").replace(",)", ")")


def _memory(sharding: Any, devices: Sequence[Any]) -> str:
    kind = getattr(sharding, "memory_kind", None)
    try:
        usual = devices[0].default_memory().kind
    except (AttributeError, IndexError, RuntimeError):
        return ""
    return "" if kind in (None, usual) else str(kind)


def _shape(shape: Sequence[int]) -> str:
    return str(tuple(int(size) for size in shape))


def is_host_value(thing: Any) -> bool:
    """Return whether something is a value that lies on the host, and on no device."""
    return isinstance(thing, (np.ndarray, np.generic, int, float, complex, bool))
