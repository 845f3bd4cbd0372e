"""Reading what JAX compiles, in each spelling that it uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnb.lockstep.hlo import Operation, fingerprint, operations
from tests.support.hlo_texts import DEVICES

pytestmark = pytest.mark.thorough("compiles many programs")

REAL = """
import json
from types import SimpleNamespace

import jax
import numpy as np
from jax import lax, shard_map
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from mcnb.lockstep._jax import program_text


def programs(first, second):
    mesh = jax.make_mesh((2, 2), (first, second), axis_types=(AxisType.Auto,) * 2)
    over = {"a": first, "b": second, "ab": (first, second)}

    def compiled(function, inside, dtype="float32", outside=None):
        argument = jax.ShapeDtypeStruct((8, 8), dtype, sharding=NamedSharding(mesh, inside))
        where = None if outside is None else NamedSharding(mesh, outside)
        return jax.jit(function, out_shardings=where).lower(argument).compile()

    def mapped(function, dtype="float32"):
        spec = P(first, second)
        wrapped = shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        return compiled(wrapped, spec, dtype)

    for name, axes in over.items():
        size = 4 if name == "ab" else 2
        ring = [(i, (i + 1) % size) for i in range(size)]
        yield f"psum {name}", mapped(lambda x: lax.psum(x, axes))
        yield f"pmax {name}", mapped(lambda x: lax.pmax(x, axes))
        yield f"all_gather {name}", mapped(lambda x: lax.all_gather(x, axes))
        yield f"ppermute {name}", mapped(lambda x: lax.ppermute(x, axes, ring))
        yield f"all_to_all {name}", mapped(lambda x: lax.all_to_all(x, axes, 0, 0, tiled=True))
        yield f"psum_scatter {name}", mapped(lambda x: lax.psum_scatter(x, axes, tiled=True))
    yield "psum a c64", mapped(lambda x: lax.psum(x, first), "complex64")
    yield "all_gather a s8", mapped(lambda x: lax.all_gather(x, first), "int8")
    yield "none", mapped(lambda x: x + 1)
    yield "two", mapped(lambda x: lax.psum(lax.all_gather(x, first, tiled=True), second))
    yield "reshard a", compiled(lambda x: x + 1, P(first), outside=P())
    yield "reshard b", compiled(lambda x: x + 1, P(None, second), outside=P(None, None))
    yield "reshard ba", compiled(lambda x: x + 1, P((second, first)), outside=P())


def summed(axes):
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    spec = P(("a", "b"))
    add = shard_map(lambda x: lax.psum(x, axes), mesh=mesh, in_specs=spec, out_specs=spec)
    powers = jax.device_put(np.array([1, 2, 4, 8], np.int32), NamedSharding(mesh, spec))
    return np.asarray(jax.jit(add)(powers)).tolist()


def canonical(compiled):
    return program_text(SimpleNamespace(xla_executable=compiled.runtime_executable()))


said = {name: (one.as_text(), canonical(one)) for name, one in programs("a", "b")}
renamed = {name: canonical(one) for name, one in programs("data", "model")}
sums = {"a": summed("a"), "b": summed("b"), "ab": summed(("a", "b"))}
print(json.dumps({"texts": said, "renamed": renamed, "sums": sums}))
"""


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """What JAX compiles for four devices: texts by the name of the program."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, "-c", REAL], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def as_sets(operation: Operation) -> tuple[str, int, set[frozenset[int]]]:
    assert operation.groups is not None
    return operation.kind, operation.bytes, set(map(frozenset, operation.groups))


GROUPS = {
    "a": {frozenset({0, 2}), frozenset({1, 3})},
    "b": {frozenset({0, 1}), frozenset({2, 3})},
    "ab": {frozenset({0, 1, 2, 3})},
}


@pytest.mark.parametrize("axes", ["a", "b", "ab"])
@pytest.mark.parametrize(
    ("name", "kind", "size", "grows"),
    [
        ("psum", "all-reduce", 64, 0),
        ("pmax", "all-reduce", 64, 0),
        ("all_gather", "all-gather", 64, 1),
        ("all_to_all", "all-to-all", 64, 0),
        ("psum_scatter", "reduce-scatter", 64, -1),
    ],
)
def test_what_jax_compiles(
    real: dict[str, Any], axes: str, name: str, kind: str, size: int, grows: int
) -> None:
    members = 4 if axes == "ab" else 2
    for text in real["texts"][f"{name} {axes}"]:
        [found] = operations(text, 4)
        assert as_sets(found) == (kind, int(size * float(members) ** grows), GROUPS[axes])


@pytest.mark.parametrize(
    ("axes", "pairs"),
    [
        ("a", {(0, 2), (2, 0), (1, 3), (3, 1)}),
        ("b", {(0, 1), (1, 0), (2, 3), (3, 2)}),
        ("ab", {(0, 1), (1, 2), (2, 3), (3, 0)}),
    ],
)
def test_a_permutation_that_jax_compiles(
    real: dict[str, Any], axes: str, pairs: set[tuple[int, int]]
) -> None:
    for text in real["texts"][f"ppermute {axes}"]:
        [found] = operations(text, 4)
        assert (found.kind, found.bytes) == ("collective-permute", 64)
        assert found.groups is not None
        assert set(found.groups) == pairs


def test_other_types_and_several_collectives_that_jax_compiles(real: dict[str, Any]) -> None:
    for i in range(2):
        texts = {name: texts[i] for name, texts in real["texts"].items()}
        [one] = operations(texts["psum a c64"], 4)
        assert as_sets(one) == ("all-reduce", 128, GROUPS["a"])
        [one] = operations(texts["all_gather a s8"], 4)
        assert as_sets(one) == ("all-gather", 32, GROUPS["a"])
        assert [as_sets(one) for one in operations(texts["two"], 4)] == [
            ("all-gather", 128, GROUPS["a"]),
            ("all-reduce", 128, GROUPS["b"]),
        ]
        assert operations(texts["none"], 4) == []


def test_collectives_that_the_partitioner_puts_in(real: dict[str, Any]) -> None:
    for i in range(2):
        for axis in "ab":
            [one] = operations(real["texts"][f"reshard {axis}"][i], 4)
            assert as_sets(one) == ("all-gather", 256, GROUPS[axis])
        [one] = operations(real["texts"]["reshard ba"][i], 4)
        assert (one.kind, one.bytes, one.groups) == ("all-gather", 256, ((0, 2, 1, 3),))


@pytest.mark.parametrize("axes", ["a", "b", "ab"])
def test_who_is_said_to_take_part_is_who_is_summed(real: dict[str, Any], axes: str) -> None:
    [found] = operations(real["texts"][f"psum {axes}"][1], 4)
    assert found.groups is not None
    sums = {i: sum(1 << k for k in group) for group in found.groups for i in group}
    assert [sums[i] for i in range(4)] == real["sums"][axes]


@pytest.mark.promise("different programs differ")
def test_fingerprints_of_what_jax_compiles(real: dict[str, Any]) -> None:
    prints = {name: fingerprint(text, 4, DEVICES) for name, (_, text) in real["texts"].items()}
    assert prints == {name: fingerprint(text, 4, DEVICES) for name, text in real["renamed"].items()}
    assert len(set(prints.values())) == len(prints)


@settings(max_examples=50)
@given(st.text("abé{}[]()=,<'\"-> \n%", max_size=60), st.integers(1, 4))
def test_no_text_is_too_strange(text: str, partitions: int) -> None:
    assert operations(text, partitions) == []
    assert len(fingerprint(text, partitions, DEVICES)) == 32


def test_groups_that_cannot_be_read_are_told_apart_by_their_text() -> None:
    text = "HloModule m\n\nENTRY e {{\n  r = f32[8] all-reduce(x), replica_groups={}\n}}"
    prints = {
        groups: fingerprint(text.format(groups), 4, DEVICES)
        for groups in ("mesh['a'=4] {'y'}", "mesh['a'=4] {'z'}")
    }
    assert len(set(prints.values())) == 2
