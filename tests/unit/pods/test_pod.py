"""TPU pods on paper: devices, meshes and programs of machines that are not there.

What JAX's tutorial on several controllers prints on a v5litepod-16 comes out here line by line.
"""

from __future__ import annotations

import importlib.util
import linecache
import re
import time
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.errors import ClusterError
from mcnb.lockstep.hlo import Operation
from mcnb.pictures import inspect
from mcnb.pictures.program import Use
from mcnb.pods import pod as pod_module
from mcnb.pods import topology
from mcnb.pods.bounds import CHIPS, least_time
from tests.conftest import ROOT
from tests.support.fake_devices import fake_devices
from tests.support.markdown import blocks
from tests.support.timing import known_work_s

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason=f"no libtpu: {topology.INSTALL}"
)
# As the tutorial prints them: id, process, coordinates, in the order of jax.devices().
DEVICES = [
    (0, 0, (0, 0, 0)),
    (1, 0, (1, 0, 0)),
    (4, 0, (0, 1, 0)),
    (5, 0, (1, 1, 0)),
    (2, 1, (2, 0, 0)),
    (3, 1, (3, 0, 0)),
    (6, 1, (2, 1, 0)),
    (7, 1, (3, 1, 0)),
    (8, 2, (0, 2, 0)),
    (9, 2, (1, 2, 0)),
    (12, 2, (0, 3, 0)),
    (13, 2, (1, 3, 0)),
    (10, 3, (2, 2, 0)),
    (11, 3, (3, 2, 0)),
    (14, 3, (2, 3, 0)),
    (15, 3, (3, 3, 0)),
]
V5E = CHIPS["TPU v5 lite"]


def rows(text: str) -> list[str]:
    """Return the devices in each row of a picture, as the tutorial writes them."""
    return re.findall(r"│ +(TPU [0-9,]+) · P\d+ +│", text)


def shape(mesh: Mesh, size: tuple[int, ...], *spec: Any, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(size, dtype, sharding=NamedSharding(mesh, P(*spec)))


@pytest.fixture(scope="module")
def pod() -> mcnb.Pod:
    return mcnb.Pod("v5e:4x4")


@needs_compiler
def test_the_devices_are_those_of_the_tutorial(pod: mcnb.Pod) -> None:
    assert repr(pod) == "<mcnb.Pod v5e:4x4: 16 chips, 4 hosts>"
    assert [(d.id, d.process_index, tuple(d.coords)) for d in pod.devices] == DEVICES


@needs_compiler
def test_its_first_picture(pod: mcnb.Pod) -> None:
    mesh = Mesh(pod.devices, ("a",))
    text = mcnb.picture(shape(mesh, (32, 32), "a"), ids=True).text()
    assert rows(text) == [f"TPU {number}" for number, _, _ in DEVICES]


@needs_compiler
def test_its_second_picture_and_its_product(pod: mcnb.Pod) -> None:
    mesh = pod.mesh((8, 2), ("a", "b"))
    rehearsal = pod.compile(
        lambda x, y: jax.nn.relu(x @ y),
        shape(mesh, (4096, 2048), "a", "b"),
        shape(mesh, (2048, 4096), "b", None),
    )
    assert rehearsal.output_shardings.spec == P("a")
    z = jax.ShapeDtypeStruct((4096, 4096), "float32", sharding=rehearsal.output_shardings)
    assert rows(mcnb.picture(z, ids=True).text()) == [
        *("TPU 0,1", "TPU 4,5", "TPU 8,9", "TPU 12,13"),
        *("TPU 2,3", "TPU 6,7", "TPU 10,11", "TPU 14,15"),
    ]
    [use] = rehearsal.model.uses  # the sum along 'b', of a part of 512 by 4096
    assert (use.operation.kind, use.operation.bytes) == ("all-reduce", 512 * 4096 * 4)
    text = str(rehearsal)
    assert re.search(r"1  all-reduce  'b' +each process by itself +8.39 MB +8.39 MB +1", text)
    # Arguments: 512 x 1024 and 1024 x 4096; the result: 512 x 4096; four bytes each.
    assert rehearsal.memory >= 4 * (512 * 1024 + 1024 * 4096 + 512 * 4096)


@needs_compiler
def test_the_bound_is_that_of_a_hand_count(pod: mcnb.Pod) -> None:
    mesh = pod.mesh((8, 2), ("a", "b"))
    rehearsal = pod.compile(
        jnp.matmul,
        shape(mesh, (8192, 8192), "a", "b", dtype="bfloat16"),
        shape(mesh, (8192, 8192), "b", None, dtype="bfloat16"),
    )
    bound = rehearsal.bound
    assert bound is not None
    assert bound.computing == pytest.approx(2 * 1024 * 4096 * 8192 / 197e12, rel=0.01)
    moved = 2 * (1024 * 4096 + 4096 * 8192 + 1024 * 8192)
    assert bound.memory == pytest.approx(moved / 819e9, rel=0.01)
    [use] = rehearsal.model.uses
    assert bound.links == use.operation.bytes * 2 * (1 / 2) / 200e9
    assert bound.seconds == max(bound.computing, bound.memory, bound.links)
    notes = str(rehearsal).splitlines()[-3:]
    assert re.fullmatch(
        r"Memory: the program needs [\d.]+ MB, which fits in the 16 GB of a v5e\.", notes[0]
    )
    assert re.fullmatch(
        r"Lower bound of the time: \d+ us, the longest of \d+ us for operations, \d+ us for "
        r"arguments and results, and [\d.]+ us for collectives\. The real time is longer\.",
        notes[1],
    )
    assert notes[2] == "Peak figures: https://docs.cloud.google.com/tpu/docs/v5e"


@needs_compiler
def test_what_does_not_fit_says_so(pod: mcnb.Pod) -> None:
    mesh = pod.mesh((16,), ("a",))
    big = shape(mesh, (16, 1024, 1024, 1024), "a")
    assert pod.compile(lambda x: x + 1, big).memory >= 2 * 4 * 1024**3
    with pytest.raises(ClusterError) as failed:
        pod.compile(lambda *given: sum(given), *[big] * 5)
    assert re.fullmatch(
        r"The program does not fit in device memory: each device of <mcnb\.Pod v5e:4x4: 16 chips, "
        r"4 hosts> would need "
        r"[\d.]+G bytes of memory and has 15\.75G\. Shard the arrays over more devices, or use a "
        r"larger pod",
        str(failed.value),
    )


@needs_compiler
def test_a_pod_of_four_thousand_chips() -> None:
    began = time.process_time()
    pod = mcnb.Pod("v5p:16x16x16")
    assert repr(pod) == "<mcnb.Pod v5p:16x16x16: 4096 chips, 1024 hosts>"
    mesh = pod.mesh((256, 16), ("data", "model"))

    def step(w: Any, v: Any, x: Any) -> Any:
        def loss(w: Any, v: Any) -> Any:
            return jnp.mean((jax.nn.relu(x @ w) @ v - x) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, (w, v), jax.grad(loss, (0, 1))(w, v))

    rehearsal = pod.compile(
        step,
        shape(mesh, (8192, 32768), None, "model", dtype="bfloat16"),
        shape(mesh, (32768, 8192), "model", None, dtype="bfloat16"),
        shape(mesh, (65536, 8192), "data", None, dtype="bfloat16"),
    )
    text = str(rehearsal)
    assert "all-reduce  'data'" in text
    assert "all-reduce  'model'" in text
    drawn = mcnb.picture(pod).text().splitlines()
    assert len(drawn) < 30
    assert drawn[-1] == "Drawn is the first plane, 'z' = 0, of 16."
    assert time.process_time() - began < 2200 * known_work_s()


@needs_compiler
def test_several_slices() -> None:
    pod = mcnb.Pod("v5e:4x4", slices=2)
    assert repr(pod) == "<mcnb.Pod 2 x v5e:4x4: 32 chips, 8 hosts>"
    mesh = pod.mesh((2, 16), ("slice", "chip"))
    assert {d.slice_index for d in mesh.devices[0]} == {0}
    assert {d.slice_index for d in mesh.devices[1]} == {1}
    rehearsal = pod.compile(lambda x: x.sum(0), shape(mesh, (64, 64), "slice", "chip"))
    assert rehearsal.output_shardings.spec == P("chip")


@needs_compiler
def test_a_picture_of_a_pod(pod: mcnb.Pod) -> None:
    text = mcnb.picture(pod).text()
    assert text.splitlines()[0] == "Pod v5e:4x4: 16 chips, 4 hosts"
    assert re.sub(r" +", " ", text.splitlines()[4]) == (
        "0 │ TPU 0 · P0 │ TPU 1 · P0 │ TPU 2 · P1 │ TPU 3 · P1 │"
    )
    bundle = pod._repr_mimebundle_()
    assert bundle["text/plain"] == text
    assert bundle["image/svg+xml"].startswith("<svg ")


@needs_compiler
def test_the_page_on_pods(capsys: pytest.CaptureFixture[str], no_cells: None) -> None:
    del no_cells
    program, shown = (block.text for block in blocks(ROOT / "docs" / "pods.md"))
    linecache.cache["train.py"] = (len(program), None, program.splitlines(True), "train.py")
    exec(compile(program, "train.py", "exec"), {"__name__": "train", "__file__": "train.py"})
    assert capsys.readouterr().out == shown


@needs_compiler
def test_chips_without_published_figures() -> None:
    pod = mcnb.Pod("v3:4x4")
    assert pod.chip is None
    rehearsal = pod.compile(jnp.sin, shape(pod.mesh((32,), ("a",)), (32,), "a"))
    assert rehearsal.bound is None
    assert (
        str(rehearsal).splitlines()[-1]
        == "mcnb has no peak figures of TPU v3, so it shows no bounds."
    )


@needs_compiler
def test_nonsense_gets_a_sentence(pod: mcnb.Pod) -> None:
    for name in ("nonsense", "v5e", "v5e:3x5"):
        with pytest.raises(ClusterError) as failed:
            mcnb.Pod(name)
        assert str(failed.value).startswith(
            f"Pod('{name}'): this TPU topology does not exist. A topology's name is the chip type "
            "and the number of chips along each dimension, such as v5e:4x4, v6e:16x16, v5p:8x8x8 "
            "or v4:4x4x4. "
            "libtpu says: INVALID_ARGUMENT: "
        )
    with pytest.raises(ClusterError) as failed:
        pod.mesh((3, 2), ("a", "b"))
    assert str(failed.value) == (
        "A mesh of shape (3, 2) has 6 devices and needs 2 axis names. <mcnb.Pod v5e:4x4: 16 chips, "
        "4 hosts> has 16 devices, and 2 axis names were given. For example: pod.mesh((16,), "
        "('data',))"
    )
    with pytest.raises(ClusterError) as failed:
        pod.compile(jnp.sin, jnp.ones(3))
    assert str(failed.value) == (
        "No argument has a sharding on a mesh of <mcnb.Pod v5e:4x4: 16 chips, 4 hosts>. Pass "
        "shapes with shardings: jax.ShapeDtypeStruct((8, 4), 'float32', sharding=NamedSharding("
        "pod.mesh(...), P('data')))"
    )


def test_a_missing_compiler_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ClusterError) as failed:
        mcnb.Pod("v5e:4x4")
    assert str(failed.value) == (
        "mcnb.Pod needs the TPU compiler (libtpu), which is not installed. Install it: "
        'python -m pip install "mcnb[tpu]"'
    )


ON_NO_DEVICE = (
    "No argument has a sharding on a mesh of <the pod>. Pass shapes with shardings: "
    "jax.ShapeDtypeStruct((8, 4), 'float32', sharding=NamedSharding(pod.mesh(...), P('data')))"
)
ON_OTHERS = (
    "Some arguments have shardings on other devices than those of <the pod>. All shardings must "
    "use a mesh of the pod"
)


@pytest.mark.parametrize(
    ("used", "error"),
    [
        ([], ON_NO_DEVICE),
        ([[]], ON_NO_DEVICE),
        ([[2, 3]], ON_NO_DEVICE),
        ([[1, 2]], ON_OTHERS),
        ([[0], [2]], ON_OTHERS),
        ([[0, 1], []], ""),
        ([[0], [1]], ""),
    ],
)
def test_arguments_are_on_devices_of_the_pod(
    monkeypatch: pytest.MonkeyPatch, used: list[list[int]], error: str
) -> None:
    """The pod has the first two of four devices; the arguments are on these numbers."""
    devices = fake_devices(4)
    pod = object.__new__(mcnb.Pod)
    pod.devices = list(devices[:2])
    monkeypatch.setattr(mcnb.Pod, "__repr__", lambda self: "<the pod>")
    monkeypatch.setattr(inspect, "compiled", lambda *_: "program")
    monkeypatch.setattr(pod_module, "Rehearsal", lambda pod, program: program)
    arguments = [
        shape(Mesh(devices[on], ("x",)), (4,), "x") if on else jax.ShapeDtypeStruct((4,), "float32")
        for on in used
    ]
    if error:
        with pytest.raises(ClusterError) as raised:
            pod.compile(jnp.sin, *arguments)
        assert str(raised.value) == error
    else:
        assert pod.compile(jnp.sin, arguments) == "program"


@pytest.mark.parametrize(("slices", "passed"), [(1, {}), (2, {"num_slices": 2})])
def test_a_topology_of_slices(
    monkeypatch: pytest.MonkeyPatch, slices: int, passed: dict[str, int]
) -> None:
    """The compiler is told how many slices there are only if there are several."""
    asked = []

    def describe(**settings: Any) -> Any:
        asked.append(settings)
        return SimpleNamespace(devices=["a", "b"])

    monkeypatch.setattr(topology, "has_compiler", lambda: True)
    monkeypatch.setattr(topologies, "get_topology_desc", describe)
    assert topology.devices_of("v5e:4x4", slices) == ["a", "b"]
    assert asked == [{"platform": "tpu", "topology_name": "v5e:4x4", **passed}]


def test_the_longest_of_three_times() -> None:
    permute = Operation("collective-permute", 200_000_000, ((0, 1), (1, 0)))
    bound = least_time(V5E, 197e9, 819e6, [Use(permute, times=3), Use(permute, branch=True)])
    assert (bound.computing, bound.memory, bound.links) == (1e-3, 1e-3, 3e-3)
    assert bound.seconds == 3e-3
    assert least_time(V5E, 393e9, 0, [], small=True).seconds == 1e-3
    assert least_time(V5E, 0, 0, [Use(permute, times=None)]).links == 1e-3
