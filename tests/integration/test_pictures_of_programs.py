"""What a compiled program communicates is told, and equals what one counts by hand."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import pytest

import mcnb
from mcnb.pictures.program import Use, axes_of, sent_bytes, uses

SETUP = """
import jax, jax.numpy as jnp, mcnb
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
def mesh_of(shape, *names):
    return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(names))
def struct(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
def predict(params, inputs):
    for W, b in params:
        outputs = jnp.dot(inputs, W) + b
        inputs = jnp.maximum(outputs, 0)
    return outputs
def loss(params, batch):
    inputs, targets = batch
    return jnp.mean(jnp.sum((predict(params, inputs) - targets) ** 2, axis=-1))
mesh = mesh_of((4, 2), "a", "b")
"""
SIZES, BATCH = (16, 64, 128, 32, 10), 64
F32 = 4


@pytest.fixture
def prepared(cluster: mcnb.Cluster) -> mcnb.Cluster:
    cluster.run(SETUP).raise_for_errors()
    return cluster


def table(cluster: mcnb.Cluster, what: str) -> tuple[str, list[list[str]]]:
    """Return the title of a program's picture, and the rows of its collectives."""
    result = cluster.run(f"print(mcnb.picture({what}).text())")
    result.raise_for_errors()
    assert result.launches == (), "it was run"
    lines = result.stdout[0].splitlines()
    assert set(result.stdout.values()) == {result.stdout[0]}
    rows = [re.split(r"  +", line.strip()) for line in lines if re.match(r"\d+  ", line)]
    return lines[0], rows


def test_a_matmul_whose_contracted_dimension_is_whole_needs_no_communication(
    prepared: mcnb.Cluster,
) -> None:
    what = "jnp.dot, struct(mesh, (64, 32), 'a', None), struct(mesh, (32, 16), None, 'b')"
    assert table(prepared, what) == ("dot: no communication", [])


def test_a_matmul_of_two_arrays_split_both_ways_gathers_both(prepared: mcnb.Cluster) -> None:
    what = "jnp.dot, struct(mesh, (64, 32), 'a', 'b'), struct(mesh, (32, 16), 'a', 'b')"
    title, rows = table(prepared, what)
    gathered = [F32 * 32 * 16 // 2, F32 * 64 // 4 * 32]  # all rows of one, all columns of another
    sent = [gathered[0] * 3 / 4, gathered[1] / 2]  # a device has a part of what is gathered
    assert title == f"dot: 2 collectives, {sum(sent) / 1000:.3g} KB sent by each device"
    assert sorted(row[1:4] for row in rows) == [
        ["all-gather", "'a'", "P0-3"],
        ["all-gather", "'b'", "each process by itself"],
    ]
    assert sorted(row[4] for row in rows) == sorted(f"{n / 1000:.3g} KB" for n in gathered)
    assert sorted(row[5] for row in rows) == ["1.02 KB", "768 B"]
    assert sorted(sent) == [768, 1024]


def test_a_data_parallel_step_sums_the_gradients_up_once(prepared: mcnb.Cluster) -> None:
    prepared.run(
        f"mesh8 = mesh_of((8,), 'batch')\nsizes = {SIZES}\n"
        "params = [(struct(mesh8, (m, n)), struct(mesh8, (n,)))"
        " for m, n in zip(sizes, sizes[1:])]\n"
        f"batch = [struct(mesh8, ({BATCH}, n), 'batch') for n in (sizes[0], sizes[-1])]"
    ).raise_for_errors()
    _, rows = table(prepared, "jax.grad(loss), params, batch")
    by_hand = F32 * sum(m * n + n for m, n in itertools.pairwise(SIZES))
    assert by_hand == 55464
    sent = f"{by_hand * 2 * 7 / 8 / 1000:.3g} KB"
    assert [row[1:7] for row in rows] == [["all-reduce", "'batch'", "P0-3", "55.5 KB", sent, "1"]]


def test_a_step_of_data_and_tensor_parallelism(prepared: mcnb.Cluster) -> None:
    prepared.run(
        f"m = mesh_of((4, 2), 'batch', 'model')\nn0, n1, n2, n3, n4 = {SIZES}\n"
        "params = ((struct(m, (n0, n1)), struct(m, (n1,))),\n"
        "    (struct(m, (n1, n2), None, 'model'), struct(m, (n2,), 'model')),\n"
        "    (struct(m, (n2, n3), 'model', None), struct(m, (n3,))),\n"
        "    (struct(m, (n3, n4)), struct(m, (n4,))))\n"
        f"batch = [struct(m, ({BATCH}, n), 'batch', None) for n in (n0, n4)]"
    ).raise_for_errors()
    title, rows = table(prepared, "jax.grad(loss), params, batch")
    n0, n1, n2, n3, n4 = SIZES
    rows_of_one = BATCH // 4
    forward = F32 * rows_of_one * n3  # the third layer's outputs, summed over 'model'
    backward = F32 * rows_of_one * n1  # what goes back to the first layer, likewise
    held = n0 * n1 + n1 + n1 * n2 // 2 + n2 // 2 + n2 // 2 * n3 + n3 + n3 * n4 + n4
    gradients = F32 * held  # those that a device holds, summed over 'batch'
    # All-reduces of two devices send as much as their result has, those of four 1.5 times as much.
    sent = (forward, backward, 1.5 * gradients)
    kb = [f"{count / 1000:.3g} KB" for count in (forward, backward, gradients, *sent)]
    assert [row[1:7] for row in rows] == [
        ["all-reduce", "'model'", "each process by itself", kb[0], kb[3], "1"],
        ["all-reduce", "'model'", "each process by itself", kb[1], kb[4], "1"],
        ["all-reduce", "'batch'", "P0-3", kb[2], kb[5], "1"],
    ]
    assert title == f"loss: 3 collectives, {sum(sent) / 1000:.3g} KB sent by each device"
    text = prepared.run("print(mcnb.picture(jax.grad(loss), params, batch).text())").stdout[0]
    assert re.search(r"\[1\]\[0\] +float32\[64,128\] +P\(None, 'model'\) +4 +16.4 KB", text)
    assert f"Each device needs {(F32 * (held + rows_of_one * (n0 + n4))) / 1000:.3g} KB" in text


def test_loops_and_branches(prepared: mcnb.Cluster) -> None:
    prepared.run(
        "half = struct(mesh, (8,), 'a')\n"
        "def norm(v): return v / v.sum()\n"
        "def loop(x): return lax.fori_loop(0, 5, lambda i, v: lax.fori_loop("
        "0, 3, lambda j, w: lax.with_sharding_constraint(norm(w), half.sharding), v), x)\n"
        "def until(x): return lax.while_loop(lambda v: v.sum() < 1e3, lambda v: v * 2, x)\n"
        "def branch(p, x): return lax.cond(p, norm, lambda v: v, x)\n"
    ).raise_for_errors()
    title, rows = table(prepared, "loop, half")
    assert title == "loop: 15 collectives, 90 B sent by each device"
    assert rows[0][1:7] == ["all-reduce", "'a'", "P0-3", "4 B", "6 B", "15"]
    title, rows = table(prepared, "until, half")
    assert title == "until: at least 1 collective, 6 B sent by each device"
    assert rows[0][6] == "?"
    _, rows = table(prepared, "branch, True, half")
    assert rows[0][6] == "0 or 1"


def test_a_permutation_tells_its_pairs(prepared: mcnb.Cluster) -> None:
    prepared.run(
        "def turn(v): return lax.ppermute(v, 'a', [(i, (i + 1) % 4) for i in range(4)])\n"
        "turned = jax.shard_map(turn, mesh=mesh, in_specs=P('a'), out_specs=P('a'))\n"
    ).raise_for_errors()
    _, rows = table(prepared, "turned, struct(mesh, (8,), 'a')")
    pairs = "8 pairs, 8 between processes"
    assert rows[0][1:7] == ["collective-permute", "'a'", pairs, "8 B", "8 B", "1"]


def test_one_that_was_compiled_or_lowered_already(prepared: mcnb.Cluster) -> None:
    prepared.run(
        "lowered = jax.jit(lambda x: x.sum()).lower(struct(mesh, (8,), 'a'))\n"
        "program = lowered.compile()"
    ).raise_for_errors()
    for what in ("lowered", "program"):
        title, rows = table(prepared, f"{what}, name='total'")
        assert title == "total: 1 collective, 6 B sent by each device"
        assert rows[0][1:4] == ["all-reduce", "'a'", "P0-3"]


def test_functions_that_need_other_arguments() -> None:
    def scale(x: jax.Array, by: float) -> jax.Array:
        return x * by

    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(scale)
    assert str(caught.value).startswith(
        "What scale communicates depends on its arguments. Pass arrays or jax.ShapeDtypeStruct: "
        "mcnb.show(scale, x) ("
    )
    with pytest.raises(mcnb.PictureError) as missing:
        mcnb.picture(scale, jnp.ones(3))
    assert str(missing.value).startswith("scale can't be compiled for these arguments. TypeError: ")
    assert str(missing.value).endswith("missing 1 required positional argument: 'by'")
    with pytest.raises(mcnb.PictureError) as strange:
        mcnb.picture(scale, jnp.ones(3), object())
    assert "0x" not in str(strange.value)

    def wrong(x: jax.Array) -> float:
        return float(x.sum())

    with pytest.raises(jax.errors.ConcretizationTypeError):  # at the learner's own line
        mcnb.picture(wrong, jnp.ones(3))
    assert mcnb.picture(scale, jnp.ones(3), by=2.0).text().startswith("scale: no communication\n")
    total = mcnb.picture(jnp.sum, jnp.ones((3, 2)), axis=0).text()
    assert re.search(r"the result +float32\[2\]", total)

    class Twice:
        def __call__(self, x: jax.Array) -> jax.Array:
            return 2 * x

    text = mcnb.picture(Twice(), jnp.ones(3), name="twice").text()
    assert text.startswith("twice: no communication\n")
    pair = mcnb.picture(lambda x: (x, x + 1), jnp.ones(3)).text()
    assert "24 B for results" in pair
    assert mcnb.picture(scale, jnp.ones(3), 2.0).text().startswith("scale: no communication\n")


def test_a_program_without_metadata_and_of_an_older_spelling() -> None:
    text = """HloModule jit_f, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %c = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %r = f32[2]{0} all-reduce(f32[2]{0} %p), replica_groups={{0,1}}, to_apply=%add, \
metadata={op_name="f" source_file="/tmp/cell.py" source_line=7}
}
"""
    [use] = uses(text, 2)
    assert use.source == ("/tmp/cell.py", 7)
    assert (use.times, use.branch, use.operation.bytes) == (1, False, 8)
    assert sent_bytes([use, Use(use.operation, 3), Use(use.operation, None)]) == 8 + 24 + 8
    assert axes_of([], {"a": 2}) is None
    assert axes_of([(0, 1, 2, 3)], {"a": 2, "b": 2}) == ("a", "b")
    assert axes_of([(0, 9)], {"a": 2}) is None
