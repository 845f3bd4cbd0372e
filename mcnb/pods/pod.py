"""Describe TPU pods without the hardware, and compile programs for them ahead of time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnb._text import plural, size
from mcnb.errors import ClusterError
from mcnb.pictures.picture import Picture
from mcnb.pods.bounds import CHIPS, Bound, Chip, least_time
from mcnb.pods.topology import devices_of

if TYPE_CHECKING:
    import jax

    from mcnb.pictures.scenes.program import ProgramModel


MOST_DRAWN = 512  # devices; of a larger pod, only the first plane is drawn
# The compiler's error for a program that needs too much memory.
_SIZE = r"([\d.]+[KMGT]?)"
_NEEDS = re.compile(rf"(?:Used {_SIZE} of |\({_SIZE}\) exceeds available HBM \(){_SIZE}")


class Pod:
    """TPU pod without the hardware: its devices, meshes over them, and programs compiled for it.

    Nothing runs: the compiler for TPUs, which the extra `tpu` installs, reports what a program
    would do. The compiler needs no TPU and no other process.

    Args:
        name: Kind of chip, and number of chips in each direction: `"v5e:4x4"`.
        slices: Number of slices of this size, connected only by the data centre's network.

    Raises:
        ClusterError: The pod does not exist, or the compiler is not installed.

    Attributes:
        devices: Devices of the pod, in JAX's order.
        chip: Peak figures of the chips; None if mcnb knows no published figures.

    Example:
        >>> pod = Pod("v5e:4x4")  # doctest: +SKIP
        >>> pod  # doctest: +SKIP
        <mcnb.Pod v5e:4x4: 16 chips, 4 hosts>
    """

    def __init__(self, name: str, slices: int = 1) -> None:
        self.name = name
        self.slices = slices
        self.devices = devices_of(name, slices)
        self.chip: Chip | None = CHIPS.get(self.devices[0].device_kind)

    @property
    def hosts(self) -> int:
        """Number of hosts, with one process on each."""
        return len({(_slice(device), device.process_index) for device in self.devices})

    @property
    def chips(self) -> int:
        """Number of chips; some kinds of chip have two devices each."""
        return len({(_slice(device), tuple(device.coords)) for device in self.devices})

    def __repr__(self) -> str:
        slices = f"{self.slices} x " if self.slices > 1 else ""
        size = f"{plural(self.chips, 'chip', 'chips')}, {plural(self.hosts, 'host', 'hosts')}"
        return f"<mcnb.Pod {slices}{self.name}: {size}>"

    def mesh(
        self, shape: Sequence[int], names: Sequence[str], axis_types: Any = None
    ) -> jax.sharding.Mesh:
        """Return a mesh over the devices, in an order that suits the links between them.

        Args:
            shape: Shape of the mesh; with several slices, the first axis crosses them if it can.
            names: Names of the axes.
            axis_types: Types of the axes; Auto by default.

        Raises:
            ClusterError: The shape does not match the number of devices, or the number of names.
        """
        import jax
        from jax.experimental import mesh_utils

        count = int(np.prod(shape))
        if count != len(self.devices) or len(shape) != len(names):
            own, needed = (plural(n, "device", "devices") for n in (len(self.devices), count))
            raise ClusterError(
                f"A mesh of shape {tuple(shape)} has {needed} and needs "
                f"{plural(len(shape), 'axis name', 'axis names')}. {self!r} has {own}, and "
                f"{plural(len(names), 'axis name was', 'axis names were')} given. For example: "
                f"pod.mesh(({len(self.devices)},), ('data',))"
            )
        kinds = axis_types or (jax.sharding.AxisType.Auto,) * len(shape)
        try:
            if self.slices > 1 and shape[0] % self.slices == 0:
                within = (shape[0] // self.slices, *shape[1:])
                across = (self.slices, *(1,) * (len(shape) - 1))
                devices = mesh_utils.create_hybrid_device_mesh(
                    within, across, self.devices, allow_split_physical_axes=True
                )
            else:
                devices = mesh_utils.create_device_mesh(
                    shape, self.devices, allow_split_physical_axes=True
                )
        except (NotImplementedError, ValueError, AssertionError):
            devices = np.array(self.devices).reshape(shape)  # fall back to JAX's order
        return jax.sharding.Mesh(devices, tuple(names), axis_types=kinds)

    def compile(self, function: Any, *args: Any, **keywords: Any) -> Rehearsal:
        """Compile a function for the pod, without running it.

        Args:
            function: Function, jitted or not.
            args: Arguments of the function: each a `jax.ShapeDtypeStruct` with a sharding on one
                of the pod's meshes, or a PyTree of them.
            keywords: Keyword arguments of the function.

        Raises:
            ClusterError: The arguments are not all on this pod, or the program exceeds its memory.
            PictureError: The function does not accept these arguments.
        """
        import jax

        from mcnb.pictures.inspect import compiled

        used = {
            device
            for leaf in jax.tree.leaves((args, keywords))
            if getattr(leaf, "sharding", None) is not None
            for device in leaf.sharding.device_set
        }
        if not used or not used <= set(self.devices):
            raise ClusterError(
                f"No argument has a sharding on a mesh of {self!r}. Pass shapes with shardings: "
                "jax.ShapeDtypeStruct((8, 4), 'float32', sharding=NamedSharding(pod.mesh(...), "
                "P('data')))"
                if not used & set(self.devices)
                else f"Some arguments have shardings on other devices than those of {self!r}. All "
                "shardings must use a mesh of the pod"
            )
        try:
            return Rehearsal(self, compiled(function, args, keywords))
        except jax.errors.JaxRuntimeError as error:
            needs = _NEEDS.search(str(error))
            if needs is None:
                raise
            raise ClusterError(
                f"The program does not fit in device memory: each device of {self!r} would need "
                f"{needs[1] or needs[2]} "
                f"bytes of memory and has {needs[3]}. Shard the arrays over more devices, or use "
                "a larger pod"
            ) from None

    def __mcnb_picture__(
        self, args: Sequence[Any], options: dict[str, Any], keywords: Mapping[str, Any]
    ) -> list[Picture] | None:
        """Return the pictures for `mcnb.show`; None if any argument is given."""
        return None if args or keywords else [self.picture()]

    def picture(self) -> Picture:
        """Return a picture of the physical positions of the devices."""
        import jax

        from mcnb.pictures.inspect import mesh_model
        from mcnb.pictures.scenes.mesh import mesh_scene

        mesh = self._places()
        note = ""
        if len(self.devices) > MOST_DRAWN and mesh.devices.ndim > 2:
            left_out = list(mesh.axis_names[:-2])
            first = ", ".join(f"{name!r} = 0" for name in left_out)
            note = f"Drawn is the first plane, {first}, of {mesh.devices[..., 0, 0].size}."
            plane = mesh.devices[(0,) * len(left_out)]
            kinds = mesh.axis_types[-2:]
            mesh = jax.sharding.Mesh(plane, mesh.axis_names[-2:], axis_types=kinds)
        scene = mesh_scene(mesh_model(mesh), ids=True)
        title = repr(self)[1:-1].removeprefix("mcnb.")
        return Picture(replace(scene, title=title, notes=(note,) if note else scene.notes[:1]))

    def _places(self) -> jax.sharding.Mesh:
        """Return a mesh with one axis for each direction that has several devices."""
        import jax

        places = np.array(
            [(_slice(d), *reversed(d.coords), getattr(d, "core_on_chip", 0)) for d in self.devices]
        )
        names = ("slice", *"zyx"[-(places.shape[1] - 2) :], "core")
        several = [i for i in range(places.shape[1]) if places[:, i].max() > 0] or [0]
        grid = np.empty([places[:, i].max() + 1 for i in several], dtype=object)
        for device, place in zip(self.devices, places[:, several], strict=True):
            grid[tuple(place)] = device
        kinds = (jax.sharding.AxisType.Auto,) * len(several)
        return jax.sharding.Mesh(grid, tuple(names[i] for i in several), axis_types=kinds)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self.picture()._repr_mimebundle_()


@dataclass(frozen=True)
class Rehearsal:
    """Program compiled ahead of time for a pod.

    Attributes:
        pod: Pod for which the program was compiled.
        program: Compiled program.
    """

    pod: Pod
    program: jax.stages.Compiled

    @cached_property
    def model(self) -> ProgramModel:
        """Collectives, results and memory of the program, as plain data."""
        from mcnb.pictures.inspect import program_model

        return program_model(self.program)

    @property
    def output_shardings(self) -> Any:
        """Shardings of the results, as a PyTree."""
        return self.program.output_shardings

    @property
    def memory(self) -> int:
        """Number of bytes that the program needs on each chip."""
        return sum(count for _, count in self.model.memory)

    @property
    def bound(self) -> Bound | None:
        """Lower bounds on the time of a run; None if the chip's figures are unknown."""
        if self.pod.chip is None:
            return None
        analysis = self.program.cost_analysis() or {}
        moved = sum(n for what, n in self.model.memory if what in ("arguments", "results"))
        small = any(kind in self.program.as_text() for kind in ("s8[", "u8[", "f8e"))
        flops = float(analysis.get("flops", 0.0))
        return least_time(self.pod.chip, max(flops, 0.0), moved, self.model.uses, small=small)

    def __mcnb_picture__(
        self, args: Sequence[Any], options: dict[str, Any], keywords: Mapping[str, Any]
    ) -> list[Picture] | None:
        """Return the pictures for `mcnb.show`; None if any argument is given."""
        return None if args or keywords else [self.picture(full=options["full"])]

    def picture(self, *, full: bool = False) -> Picture:
        """Return a picture of the program's collectives, results, memory and time.

        Args:
            full: Whether each collective and each result has a row of its own.
        """
        from mcnb.pictures.scenes.program import program_scene

        return Picture(program_scene(self.model, self._notes(), full=full))

    def _notes(self) -> Sequence[str]:
        chip, bound = self.pod.chip, self.bound
        if chip is None or bound is None:
            kind = self.pod.devices[0].device_kind
            return (f"mcnb has no peak figures of {kind}, so it shows no bounds.",)
        fits = "fits" if self.memory <= chip.memory else "does not fit"
        return (
            f"Memory: the program needs {size(self.memory)}, which {fits} in the "
            f"{size(int(chip.memory))} of a {chip.name}.",
            f"Lower bound of the time: {_time(bound.seconds)}, the longest of "
            f"{_time(bound.computing)} for operations, {_time(bound.memory)} for arguments and "
            f"results, and {_time(bound.links)} for collectives. The real time is longer.",
            f"Peak figures: {chip.source}",
        )

    def __repr__(self) -> str:
        return self.picture().text()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self.picture()._repr_mimebundle_()


def _slice(device: Any) -> int:
    return int(getattr(device, "slice_index", 0) or 0)


def _time(seconds: float) -> str:
    """Return a time in its own unit.

    Example:
        >>> [_time(seconds) for seconds in (1.0, 0.9996, 2.5e-3, 1e-6, 3e-8)]
        ['1 s', '1 s', '2.5 ms', '1 us', '30 ns']
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 0.9995:  # what is shown as 1
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
