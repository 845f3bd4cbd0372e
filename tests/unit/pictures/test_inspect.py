"""Pictures that are known from documents on sharding, box for box: rows of JAX's device ids."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import mcnb
from mcnb.pictures.inspect import layout_of
from tests.support.fake_devices import FakeDevice

P = PartitionSpec
BOX = re.compile(r"TPU ([\d,]+) · (P[\d-]+(?: P[\d-]+)*)")

# A v5litepod-16: jax.devices() in its order, four to a process, which is two rows of chips of two.
POD = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]
POD_DEVICES = np.array([FakeDevice(n, i // 4) for i, n in enumerate(POD)], dtype=object)
# The same as jax.make_mesh((8, 2), ...) puts them, which follows the chips' places.
PLACED = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
PLACED_DEVICES = POD_DEVICES[[POD.index(number) for number in PLACED]]
# Eight devices of one machine, as in "Distributed arrays and automatic parallelization".
ONE = np.array([FakeDevice(n, 0) for n in range(8)], dtype=object)
# Eight machines with a device each.
EIGHT = np.array([FakeDevice(n, n) for n in range(8)], dtype=object)


def mesh(devices: Any, shape: tuple[int, ...], names: str) -> Mesh:
    return Mesh(devices.reshape(shape), tuple(names))


def column(*rows: str) -> list[list[str]]:
    return [[row] for row in rows]


ONE_4_2, ONE_8 = mesh(ONE, (4, 2), "ab"), mesh(ONE, (8,), "a")
MODEL = Mesh(ONE.reshape(4, 2), ("batch", "model"))
EVERY = "0,1,2,3,4,5,6,7"
PAIRS = column("0,1", "2,3", "4,5", "6,7")
GRID_4_2 = [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]
GRID_2_4 = [["0", "2", "4", "6"], ["1", "3", "5", "7"]]
HALVES = ["0,2,4,6", "1,3,5,7"]
ROWS = column(*"01234567")

KNOWN: dict[str, tuple[Mesh, PartitionSpec, tuple[int, ...], list[list[str]]]] = {
    "rows over a pod": (mesh(POD_DEVICES, (16,), "a"), P("a"), (32, 32), column(*map(str, POD))),
    "a matmul's result on a pod": (
        mesh(PLACED_DEVICES, (8, 2), "ab"),
        P("a"),
        (4096, 4096),
        column("0,1", "4,5", "8,9", "12,13", "2,3", "6,7", "10,11", "14,15"),
    ),
    "both axes": (ONE_4_2, P("a", "b"), (8192, 8192), GRID_4_2),
    "swapped": (ONE_4_2, P("b", "a"), (8192, 8192), GRID_2_4),
    "first axis": (ONE_4_2, P("a", None), (8192, 8192), PAIRS),
    "second axis over b": (ONE_4_2, P(None, "b"), (8192, 8192), [HALVES]),
    "second axis over a": (ONE_4_2, P(None, "a"), (8192, 8192), [[r[0] for r in PAIRS]]),
    "both on one axis": (ONE_4_2, P(("a", "b"), None), (8192, 8192), ROWS),
    "nothing": (ONE_4_2, P(), (8192, 8192), [[EVERY]]),
    "a batch": (ONE_8, P("a"), (8192, 784), ROWS),
    "parameters": (ONE_8, P(), (784, 8192), [[EVERY]]),
    "a batch over 4 x 2": (MODEL, P("batch", None), (8192, 784), PAIRS),
    "W2": (MODEL, P(None, "model"), (8192, 8192), [HALVES]),
    "b2": (MODEL, P("model"), (8192,), [HALVES]),
    "W3": (MODEL, P("model", None), (8192, 8192), column(*HALVES)),
    "b3": (MODEL, P(), (8192,), [[EVERY]]),
    "a pencil, 4 x 2": (mesh(EIGHT, (4, 2), "ab"), P("a", "b"), (8192, 8192), GRID_4_2),
    "a pencil, 2 x 4": (mesh(EIGHT, (4, 2), "ab"), P("b", "a"), (8192, 8192), GRID_2_4),
    "slices of eight machines": (mesh(EIGHT, (8,), "x"), P("x"), (1024, 128), ROWS),
    "2 x 2": (mesh(ONE[:4], (2, 2), "xy"), P("x", "y"), (4096, 4096), [["0", "1"], ["2", "3"]]),
    "1 x 4": (mesh(ONE[:4], (1, 4), "xy"), P("x", "y"), (4096, 4096), [list("0123")]),
    "4 x 1": (mesh(ONE[:4], (4, 1), "xy"), P("x", "y"), (4096, 4096), column(*"0123")),
}


@pytest.mark.parametrize(("over", "spec", "shape", "boxes"), KNOWN.values(), ids=KNOWN)
def test_a_known_picture(
    over: Mesh, spec: PartitionSpec, shape: tuple[int, ...], boxes: list[list[str]]
) -> None:
    sharding = NamedSharding(over, spec)
    picture = mcnb.picture(sharding, shape, ids=True)
    found = [BOX.findall(line) for line in picture.text().splitlines() if "│" in line]
    assert [[numbers for numbers, _ in row] for row in found] == boxes
    process = {str(device.id): device.process_index for device in over.devices.flat}
    for row in found:
        for numbers, owners in row:
            first, _, last = owners.removeprefix("P").partition("-")
            own = {process[number] for number in numbers.split(",")}
            assert own == set(range(int(first), int(last or first) + 1))
    # And the regions are JAX's own.
    named = {
        device.id: region.bounds
        for region in layout_of(sharding, shape).regions
        for device in region.devices
    }
    assert named == {
        device.id: tuple(p.indices(n)[:2] for p, n in zip(index, shape, strict=True))
        for device, index in sharding.devices_indices_map(shape).items()
    }


def test_a_mesh_by_ids() -> None:
    drawn = BOX.findall(mcnb.picture(mesh(PLACED_DEVICES, (8, 2), "ab"), ids=True).text())
    assert [numbers for numbers, _ in drawn] == [str(number) for number in PLACED]
    assert [owner for _, owner in drawn] == [f"P{POD.index(number) // 4}" for number in PLACED]


def test_very_many_devices_by_ids() -> None:
    over = mesh(
        np.array([FakeDevice(n, n // 4) for n in range(4096)], dtype=object), (64, 64), "ab"
    )
    text = mcnb.picture(NamedSharding(over, P("a")), (64, 64), ids=True).text()
    assert "TPU 0-63 · P0-15" in text
    assert len(text.splitlines()) < 30


def test_on_one_process_it_is_what_jax_draws(capsys: pytest.CaptureFixture[str]) -> None:
    x = jax.numpy.ones((4, 4))
    mcnb.show(x, ids=True)
    assert "│ CPU 0 · P0 │" in capsys.readouterr().out
