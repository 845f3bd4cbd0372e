"""Pods and what is told of a program for them, without the compiler for TPUs."""

from __future__ import annotations

import dataclasses
import itertools
import os
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import mesh_utils, topologies
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.errors import ClusterError
from mcnb.lockstep.hlo import Operation
from mcnb.pictures import inspect
from mcnb.pictures.model import Device
from mcnb.pictures.program import Use
from mcnb.pictures.scenes.program import ProgramModel
from mcnb.pods import pod as pod_module
from mcnb.pods import topology
from mcnb.pods.bounds import CHIPS, Bound
from mcnb.pods.pod import Rehearsal
from tests.support.fake_devices import FakeDevice

V5E, V5P, V3 = "TPU v5 lite", "TPU v5", "TPU v3"


class TpuDevice(FakeDevice):
    """A device at a place in a pod, with as many others on the same chip as its kind has."""

    def __init__(
        self, number: int, process: int, coords: tuple[int, int, int], core: int, kind: str
    ) -> None:
        super().__init__(number, process)
        self.coords, self.core_on_chip, self.device_kind = coords, core, kind


def tpu_devices(sizes: tuple[int, int, int], slices: int, cores: int, kind: str) -> list[Any]:
    """Return the devices of slices of `sizes`, x varying fastest; a host has 2 by 2 chips."""
    nx, ny, nz = sizes
    places = itertools.product(range(slices), range(nz), range(ny), range(nx), range(cores))
    devices = []
    for number, (part, z, y, x, core) in enumerate(places):
        host = (z * -(-ny // 2) + y // 2) * -(-nx // 2) + x // 2
        device = TpuDevice(number, host, (x, y, z), core, kind)
        device.slice_index = part if slices > 1 else None
        devices.append(device)
    return devices


@pytest.fixture
def pod_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a pod, as the compiler for TPUs describes it."""

    def make(
        name: str, sizes: tuple[int, int, int], slices: int = 1, cores: int = 1, kind: str = V5E
    ) -> mcnb.Pod:
        devices = tpu_devices(sizes, slices, cores, kind)
        monkeypatch.setattr(pod_module, "devices_of", lambda *asked: devices)
        return mcnb.Pod(name, slices)

    return make


SLICES = """\
Pod 2 x v5e:4x2: 16 chips, 4 hosts
'slice' = 0
↓ 'y': 2   → 'x': 4
        0            1            2            3
  ┌────────────┬────────────┬────────────┬────────────┐
0 │ TPU 0 · P0 │ TPU 1 · P0 │ TPU 2 · P1 │ TPU 3 · P1 │
  ├────────────┼────────────┼────────────┼────────────┤
1 │ TPU 4 · P0 │ TPU 5 · P0 │ TPU 6 · P1 │ TPU 7 · P1 │
  └────────────┴────────────┴────────────┴────────────┘
'slice' = 1
↓ 'y': 2   → 'x': 4
         0             1             2             3
  ┌─────────────┬─────────────┬─────────────┬─────────────┐
0 │  TPU 8 · P0 │  TPU 9 · P0 │ TPU 10 · P1 │ TPU 11 · P1 │
  ├─────────────┼─────────────┼─────────────┼─────────────┤
1 │ TPU 12 · P0 │ TPU 13 · P0 │ TPU 14 · P1 │ TPU 15 · P1 │
  └─────────────┴─────────────┴─────────────┴─────────────┘
Global: all 16 devices of all 2 processes: P0-1."""
CORES = """\
Pod v3:2x2: 4 chips, 1 host
'y' = 0                          'y' = 1
↓ 'x': 2   → 'core': 2           ↓ 'x': 2   → 'core': 2
        0            1                   0            1
  ┌────────────┬────────────┐      ┌────────────┬────────────┐
0 │ TPU 0 · P0 │ TPU 1 · P0 │    0 │ TPU 4 · P0 │ TPU 5 · P0 │
  ├────────────┼────────────┤      ├────────────┼────────────┤
1 │ TPU 2 · P0 │ TPU 3 · P0 │    1 │ TPU 6 · P0 │ TPU 7 · P0 │
  └────────────┴────────────┘      └────────────┴────────────┘
8 devices of 1 process: P0."""
ONE = """\
Pod v5e:1x1: 1 chip, 1 host
→ 'slice': 1
┌────────────┐
│ TPU 0 · P0 │
└────────────┘
1 device of 1 process: P0."""


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (("v5e:4x2", (4, 2, 1), 2), SLICES),
        (("v3:2x2", (2, 2, 1), 1, 2, V3), CORES),
        (("v5e:1x1", (1, 1, 1)), ONE),
    ],
    ids=["two slices", "two devices on a chip", "one chip"],
)
def test_a_pod_is_drawn_as_its_chips_lie(pod_of: Any, of: tuple[Any, ...], text: str) -> None:
    pod = pod_of(*of)
    assert repr(pod) == f"<mcnb.{text.partition(chr(10))[0]}>"
    assert mcnb.picture(pod).text() == text
    with pytest.raises(mcnb.PictureError, match="does not accept a value of type int after a Pod"):
        mcnb.picture(pod, 3)


@pytest.mark.parametrize(
    ("sizes", "note"),
    [
        ((8, 8, 8), "Global: all 512 devices of all 128 processes: P0-127."),
        ((16, 16, 4), "Drawn is the first plane, 'z' = 0, of 4."),
        ((32, 32, 1), "Global: all 1024 devices of all 256 processes: P0-255."),
    ],
)
def test_of_a_large_pod_the_first_plane_is_drawn(
    pod_of: Any, sizes: tuple[int, int, int], note: str
) -> None:
    pod = pod_of("v5p:" + "x".join(map(str, sizes)), sizes, kind=V5P)
    assert pod.chip == CHIPS[V5P]
    scene = pod.picture().scene
    assert scene.notes == (note,)
    assert scene.parts[0].column_axis == f"'x': {sizes[0]}"
    assert scene.parts[0].row_axis == f"'y': {sizes[1]}"


def test_a_mesh_of_several_slices_crosses_them_along_the_first_axis_if_it_can(pod_of: Any) -> None:
    pod = pod_of("v5e:4x2", (4, 2, 1), 2)
    across = pod.mesh((4, 4), ("a", "b"), (AxisType.Explicit, AxisType.Auto))
    assert across.axis_types == (AxisType.Explicit, AxisType.Auto)
    assert [{d.slice_index for d in row} for row in across.devices] == [{0}, {0}, {1}, {1}]
    assert sorted(d.id for d in across.devices.flat) == list(range(16))
    across_both: list[Any] = []

    def hybrid(*asked: Any, **options: Any) -> Any:
        across_both.extend([*asked[:2], [d.id for d in asked[2]]])
        return np.array(asked[2]).reshape(4, 4)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mesh_utils, "create_hybrid_device_mesh", hybrid)
        pod.mesh((4, 4), ("a", "b"))
    assert across_both == [(2, 4), (2, 1), list(range(16))]
    whole = pod.mesh((1, 16), ("a", "b"))
    assert whole.axis_types == (AxisType.Auto, AxisType.Auto)
    assert sorted(d.id for d in whole.devices.flat) == list(range(16))


@pytest.mark.parametrize("error", [NotImplementedError, ValueError, AssertionError])
def test_where_jax_finds_no_order_its_own_is_taken(
    pod_of: Any, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*asked: Any, **options: Any) -> Any:
        raise error

    pod = pod_of("v5e:2x2", (2, 2, 1))
    monkeypatch.setattr(mesh_utils, "create_device_mesh", fail)
    assert [d.id for d in pod.mesh((2, 2), ("a", "b")).devices.flat] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("shape", "names", "needs", "given"),
    [
        ((3,), ("a",), "3 devices and needs 1 axis name", "1 axis name was given"),
        ((2, 2), ("a",), "4 devices and needs 2 axis names", "1 axis name was given"),
        ((4,), ("a", "b"), "4 devices and needs 1 axis name", "2 axis names were given"),
    ],
)
def test_a_mesh_fits_the_pod_and_its_names(
    pod_of: Any, shape: tuple[int, ...], names: tuple[str, ...], needs: str, given: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        pod_of("v5e:2x2", (2, 2, 1)).mesh(shape, names)
    assert str(caught.value) == (
        f"A mesh of shape {shape} has {needs}. <mcnb.Pod v5e:2x2: 4 chips, 1 host> has 4 devices, "
        f"and {given}. For example: pod.mesh((4,), ('data',))"
    )


def compiled_for(pod: mcnb.Pod, name: str) -> Any:
    """Compile a function for the pod, with a keyword argument of this name."""
    sharding = NamedSharding(pod.mesh((4,), ("a",)), P("a"))
    array = jax.ShapeDtypeStruct((4,), "float32", sharding=sharding)
    return pod.compile(jnp.sin, **{name: array})


@pytest.mark.parametrize(
    "message",
    [
        "RESOURCE_EXHAUSTED: Ran out of memory. Used 20.5G of 15.75G hbm. Exceeded by 4.75G.",
        "INTERNAL: the size of the arguments (20.5G) exceeds available HBM (15.75G).",
    ],
)
def test_a_program_that_needs_too_much_memory(
    pod_of: Any, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    def fail(*given: Any) -> Any:
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr(inspect, "compiled", fail)
    with pytest.raises(ClusterError) as caught:
        compiled_for(pod_of("v5e:2x2", (2, 2, 1)), "x")
    assert str(caught.value) == (
        "The program does not fit in device memory: each device of <mcnb.Pod v5e:2x2: 4 chips, "
        "1 host> would need 20.5G bytes of memory and has 15.75G. Shard the arrays over more "
        "devices, or use a larger pod"
    )


def test_other_errors_of_the_compiler_and_keyword_arguments_are_passed_on(
    pod_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of("v5e:2x2", (2, 2, 1))
    given: list[Any] = []

    def fail(*what: Any) -> Any:
        given.extend(what)
        raise jax.errors.JaxRuntimeError("INTERNAL: no such operation")

    monkeypatch.setattr(inspect, "compiled", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="no such operation"):
        compiled_for(pod, "x")
    assert given[:2] == [jnp.sin, ()]
    assert list(given[2]) == ["x"]


EIGHT = tuple(Device(0, k) for k in range(4))
GATHER = Use(Operation("all-gather", 800_000_000, ((0, 1, 2, 3),)))
MODEL = ProgramModel(
    "step",
    (GATHER,),
    EIGHT,
    None,
    (),
    (("arguments", 8_000_000_000), ("results", 190_000_000), ("what is in between", 810_000_000)),
)
NOTES = (
    "Memory: the program needs 9 GB, which fits in the 16 GB of a v5e.",
    "Lower bound of the time: 10 ms, the longest of 2 ms for operations, 10 ms for arguments and "
    "results, and 3 ms for collectives. The real time is longer.",
    "Peak figures: https://docs.cloud.google.com/tpu/docs/v5e",
)


@pytest.fixture
def rehearsal(pod_of: Any, monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    program = SimpleNamespace(
        as_text=lambda: "HloModule jit_step, f32[8]",
        cost_analysis=lambda: {"flops": 394e9},
        output_shardings="the shardings",
    )
    monkeypatch.setattr(inspect, "program_model", lambda program: MODEL)
    return Rehearsal(pod_of("v5e:2x2", (2, 2, 1)), program)  # type: ignore[arg-type]


def test_a_rehearsal_tells_of_collectives_memory_and_time(rehearsal: Rehearsal) -> None:
    assert rehearsal.memory == 9_000_000_000
    assert rehearsal.output_shardings == "the shardings"
    assert rehearsal.bound == Bound(2e-3, 8_190_000_000 / 819e9, 3e-3)
    scene = mcnb.picture(rehearsal).scene
    assert scene.title == "step: 1 collective, 600 MB sent by each device"
    assert scene.notes[-3:] == NOTES
    assert scene.notes[-4] == (
        "Each device needs 8 GB for arguments, 190 MB for results, 810 MB for what is in between."
    )
    assert repr(rehearsal).splitlines()[-3:] == list(NOTES)
    with pytest.raises(mcnb.PictureError, match="of type int after a Rehearsal"):
        mcnb.picture(rehearsal, 3)


@pytest.mark.parametrize(
    ("text", "costs", "computing"),
    [
        ("s8[4]", {"flops": 393e9}, 1e-3),
        ("u8[4]", {"flops": 393e9}, 1e-3),
        ("f8e4m3[4]", {"flops": 393e9}, 1e-3),
        ("bf16[4]", {"flops": 197e9}, 1e-3),
        ("bf16[4]", {"flops": -1.0}, 0.0),
        ("bf16[4]", {}, 0.0),
        ("bf16[4]", None, 0.0),
    ],
)
def test_operations_on_small_numbers_are_faster_and_may_be_unknown(
    rehearsal: Rehearsal, text: str, costs: dict[str, float] | None, computing: float
) -> None:
    program: Any = SimpleNamespace(as_text=lambda: text, cost_analysis=lambda: costs)
    bound = dataclasses.replace(rehearsal, program=program).bound
    assert bound is not None
    assert bound.computing == computing


def test_a_program_larger_than_the_memory_of_a_chip_is_said_not_to_fit(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = dataclasses.replace(MODEL, memory=(("arguments", 16_000_000_001),))
    monkeypatch.setattr(inspect, "program_model", lambda program: large)
    assert mcnb.picture(rehearsal).scene.notes[-3] == (
        "Memory: the program needs 16 GB, which does not fit in the 16 GB of a v5e."
    )


def test_of_a_chip_without_published_figures_no_bounds_are_told(
    rehearsal: Rehearsal, pod_of: Any
) -> None:
    unknown = dataclasses.replace(rehearsal, pod=pod_of("v3:2x2", (2, 2, 1), kind=V3))
    assert unknown.bound is None
    assert mcnb.picture(unknown).scene.notes[-1] == (
        "mcnb has no peak figures of TPU v3, so it shows no bounds."
    )


def test_the_settings_of_the_compiler_leave_the_users_own_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(topology._SETTINGS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TPU_MIN_LOG_LEVEL", "0")
    seen: dict[str, str] = {}

    def describe(**settings: Any) -> Any:
        seen.update({name: os.environ[name] for name in topology._SETTINGS})
        raise RuntimeError("INVALID_ARGUMENT: no such topology\nat a line of C++")

    monkeypatch.setattr(topology, "has_compiler", lambda: True)
    monkeypatch.setattr(topologies, "get_topology_desc", describe)
    with pytest.raises(ClusterError) as caught:
        topology.devices_of("v5e:3x5", 1)
    assert str(caught.value) == (
        "Pod('v5e:3x5'): this TPU topology does not exist. A topology's name is the chip type and "
        "the number of chips along each dimension, such as v5e:4x4, v6e:16x16, v5p:8x8x8 or "
        "v4:4x4x4. libtpu says: INVALID_ARGUMENT: no such topology"
    )
    assert seen == {**topology._SETTINGS, "TPU_MIN_LOG_LEVEL": "0"}
    left = {name: os.environ[name] for name in topology._SETTINGS if name in os.environ}
    assert left == {"TPU_MIN_LOG_LEVEL": "0"}


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        (V5E, ("v5e", 197e12, 393e12, 16e9, 819e9, 400e9)),
        (V5P, ("v5p", 459e12, 918e12, 95e9, 2765e9, 1200e9)),
        ("TPU v6 lite", ("v6e", 918e12, 1836e12, 32e9, 1638e9, 800e9)),
    ],
)
def test_the_published_figures_of_chips(kind: str, figures: tuple[Any, ...]) -> None:
    *found, source = dataclasses.astuple(CHIPS[kind])
    assert tuple(found) == figures
    assert source == f"https://docs.cloud.google.com/tpu/docs/{figures[0]}"
