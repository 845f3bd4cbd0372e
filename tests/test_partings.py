"""Ways to part: each gets the right verdict, processes and lines, and the cluster goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

import mcnb
from mcnb.lockstep.launches import LaunchRecord

SETUP = """
import functools, gc, os, threading, time
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.experimental import multihost_utils as mu
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

def make(shape, names, devices=None):
    devices = np.array(jax.devices() if devices is None else devices).reshape(shape)
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))

mesh = make((4, 2), ("a", "b"))
def put(v, spec, on=mesh):
    return jax.make_array_from_callback(v.shape, NamedSharding(on, spec), lambda i: v[i])

def of(*processes):
    chosen = [d for d in jax.devices() if d.process_index in processes]
    return make((len(processes), 2), ("a", "b"), chosen)

def among(*processes):
    if k in processes:
        return put(np.arange(16.0), P(("a", "b")), of(*processes))

x = put(np.arange(32.0).reshape(8, 4), P("a", "b"))
y = put(np.ones((8, 4)), P("a", "b"))
k, pid = jax.process_index(), os.getpid()
total = jax.jit(jnp.sum)
scaled = jax.jit(lambda v, n: jnp.sum(v) * n, static_argnames="n")
meet = jax.jit(jax.shard_map(lambda v: lax.psum(v, ("a", "b")), mesh=mesh,
                             in_specs=P("a", "b"), out_specs=P()))
def helper(v):
    return jnp.sum(v)
"""
WAITS, DONE, RAISED = "waits", "finished", "raised"
# Where the next cell's collective has to be right, in the same processes.
NEXT = (
    "assert pid == os.getpid()\nfloat(jnp.sum(x)) + float(mu.process_allgather(np.ones(1)).sum())"
)


@dataclass(frozen=True)
class Parting:
    """A program that parts.

    Attributes:
        source: The cell.
        kind: The verdict.
        waits: The line at which processes wait, by process.
        others: What the other processes that have to do with it did.
        says: What its error says, in parts.
        processes: Which processes run it.
        sleeps: For how many seconds it sleeps itself.
    """

    source: str
    kind: str
    waits: Mapping[int, int]
    others: Mapping[int, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    processes: str | None = None
    sleeps: float = 0.0


def alone(k: int, line: int) -> dict[str, Mapping[int, object]]:
    """Return the stands where one process waits and the others have finished."""
    return {"waits": {k: line}, "others": {p: DONE for p in range(4) if p != k}}


def left(k: int, line: int, doing: str = DONE) -> dict[str, Mapping[int, object]]:
    """Return the stands where all but one process wait."""
    return {"waits": {p: line for p in range(4) if p != k}, "others": {k: doing}}


def all_at(*lines: int) -> Mapping[int, int]:
    return dict(enumerate(lines * 4 if len(lines) == 1 else lines))


IF_ZERO = "that line runs only where `k == 0` holds"
STATIC = "a static argument is part of the program"
PARTINGS = {
    # Communication under a condition on the process index.
    "sum under if": Parting(
        "if k == 0:\n    print(jnp.sum(x))", "missing", **alone(0, 2), says=(IF_ZERO,)
    ),
    "device_put under if": Parting(
        "if k == 0:\n    jax.device_put(x, NamedSharding(mesh, P()))",
        "missing",
        **alone(0, 2),
        says=("waits at line 2 in device_put; processes 1-3 finished without it", IF_ZERO),
    ),
    "device_put of a host value under if": Parting(
        "v = np.ones((8, 4))\nif k == 3:\n    jax.device_put(v, NamedSharding(mesh, P('a')))",
        "missing",
        **alone(3, 3),
        says=("in device_put",),
    ),
    "process_allgather under if": Parting(
        "if k == 0: mu.process_allgather(np.ones(3))",
        "missing",
        **alone(0, 1),
        says=("in process_allgather",),
    ),
    "sync_global_devices under if": Parting(
        "if k == 2:\n    mu.sync_global_devices('here')",
        "missing",
        **alone(2, 2),
        says=("in sync_global_devices",),
    ),
    "broadcast_one_to_all under if": Parting(
        "if k == 0:\n    mu.broadcast_one_to_all(np.ones(3))",
        "missing",
        **alone(0, 2),
        says=("in broadcast_one_to_all",),
    ),
    "assert_equal under if": Parting(
        "if k == 1: mu.assert_equal(np.ones(2))", "missing", **alone(1, 1), says=("assert_equal",)
    ),
    "shard_map under if": Parting("if k == 1:\n    meet(x)", "missing", **alone(1, 2)),
    "pmap under if": Parting(
        "f = jax.pmap(lambda v: lax.psum(v, 'i'), axis_name='i')\n"
        "if k == 1:\n    f(np.ones((2, 3)))",
        "missing",
        **alone(1, 3),
    ),
    "ahead-of-time compiled under if": Parting(
        "f = total.lower(x).compile()\nif k == 0:\n    f(x)", "missing", **alone(0, 3)
    ),
    "comparison under if": Parting(
        "if k == 0 and bool((x == x).all()): pass", "missing", **alone(0, 1)
    ),
    # Different computations.
    "x @ y against y @ x": Parting(
        "square = put(np.ones((8, 8)), P('a', 'b'))\n"
        "if k < 3:\n    z = x.T @ square\nelse:\n    z = square @ x",
        "mismatch",
        all_at(3, 3, 3, 5),
        says=("processes 0-2 wait at line 3 in jit(matmul) f32[4,8] f32[8,8]",),
    ),
    "other function": Parting(
        "z = (jnp.sum if k else jnp.max)(x)",
        "mismatch",
        all_at(1),
        says=("What differs: the computation: max on process 0; sum on processes 1-3",),
    ),
    "other shape": Parting(
        "v = put(np.ones((8, 4 + 4 * (k == 2))), P('a', 'b'))\ntotal(v)",
        "mismatch",
        all_at(2),
        says=("the shape of argument", "f32[8,8] on process 2", "same global shapes"),
    ),
    "other shape, behind an argument that is not used": Parting(
        "f = jax.jit(lambda unused, used: jnp.sum(used))\n"
        "f(x, put(np.ones((8, 4 + 4 * (k == 2))), P('a', 'b')))",
        "mismatch",
        all_at(2),
        says=("the shape of argument used: f32[8,4] on processes 0,1,3; f32[8,8] on process 2",),
    ),
    "other dtype": Parting(
        "v = put(np.ones((8, 4), np.float32 if k else np.int32), P('a', 'b'))\ntotal(v)",
        "mismatch",
        all_at(2),
        says=("the dtype of argument", "i32[8,4] on process 0; f32[8,4] on processes 1-3"),
    ),
    "other sharding": Parting(
        "v = put(np.ones((8, 8)), P('a', 'b') if k else P('b', 'a'))\ntotal(v)",
        "mismatch",
        all_at(2),
        says=("the sharding of argument", "P('b', 'a') on process 0"),
    ),
    "other mesh axis order": Parting(
        "m = make((4, 2), ('a', 'b')) if k else make((2, 4), ('b', 'a'))\n"
        "total(put(np.ones((8, 8)), P('a', 'b'), m))",
        "mismatch",
        all_at(2),
        says=("the mesh: {'b': 2, 'a': 4} on process 0", "all processes must use the same mesh"),
    ),
    "other device order": Parting(
        "m = make((8,), ('a',), jax.devices()[::1 if k else -1])\n"
        "total(put(np.ones(8), P('a'), m))",
        "mismatch",
        all_at(2),
        says=("the devices, or their order: P3.1 P3.0",),
    ),
    "other static argument": Parting(
        "scaled(x, n=k % 2)",
        "mismatch",
        all_at(1),
        says=("the static argument n: 0 on processes 0,2; 1 on processes 1,3", STATIC),
    ),
    "other closed-over number": Parting(
        "n = float(k == 3)\njax.jit(lambda v: jnp.sum(v) + n)(x)",
        "mismatch",
        all_at(2),
        says=("the compiled program, first in: ", "became part of the program"),
    ),
    "other output sharding": Parting(
        "jax.jit(lambda v: v * 2, out_shardings=NamedSharding(mesh, P('b' if k else None)))(x)",
        "mismatch",
        all_at(1),
    ),
    "other sharding constraint": Parting(
        "@jax.jit\ndef f(v):\n    s = NamedSharding(mesh, P('b', 'a') if k else P(None, 'a'))\n"
        "    return lax.with_sharding_constraint(v + 1, s)\nf(x)",
        "mismatch",
        all_at(5),
    ),
    "resharding to another": Parting(
        "jax.device_put(x, NamedSharding(mesh, P('b', 'a') if k else P()))",
        "mismatch",
        all_at(1),
    ),
    "random branch": Parting(
        "rng = np.random.default_rng(k // 2)\n"
        "if rng.random() < 0.55:\n    total(x)\nelse:\n    meet(x)",
        "mismatch",
        all_at(5, 5, 3, 3),
    ),
    "python value of an array": Parting(
        "mine = float(x.addressable_shards[0].data[0, 0])\n"
        "z = jnp.sum(x) if mine > 10 else jnp.min(x)",
        "mismatch",
        all_at(2),
    ),
    # Order and number.
    "order swapped": Parting(
        "for f in (total, meet) if k else (meet, total):\n    f(x)",
        "mismatch",
        all_at(2),
    ),
    "order of a set": Parting(
        "names = {0: ['sum', 'max'], 1: ['max', 'sum']}[k % 2]  # as a set may give them\n"
        "for name in names:\n    getattr(jnp, name)(x)",
        "mismatch",
        all_at(3),
        says=("Sort what comes from a set",),
    ),
    "extra launch": Parting(
        "if k == 1:\n    jnp.max(x)\njnp.sum(x)",
        "mismatch",
        all_at(3, 2, 3, 3),
        says=("max on process 1",),
    ),
    "missing launch": Parting(
        "if k != 1:\n    jnp.max(x)\njnp.sum(x)", "mismatch", all_at(2, 3, 2, 2)
    ),
    "last batch": Parting(
        "batches = range(3 + (k == 0))\nfor _ in batches:\n    jnp.sum(x)",
        "missing",
        **alone(0, 3),
        says=("the loop `for _ in batches:` ran a different number of times",),
    ),
    "a loop left early": Parting(
        "for i in range(4):\n    if i == 2 and k == 3: break\n    jnp.sum(x)",
        "missing",
        **left(3, 3),
    ),
    "while loop on own data": Parting(
        "n = 0\nwhile n < 2 + (k == 1):\n    n += 1\n    meet(x)", "missing", **alone(1, 4)
    ),
    "early return": Parting(
        "def step(v):\n    if k == 2:\n        return None\n    return jnp.sum(v)\nstep(x)",
        "missing",
        **left(2, 4),
    ),
    "padded to its own length": Parting(
        "longest = 4 + 4 * (k % 2)\nbatch = put(np.ones((8, longest)), P('a', 'b'))\n"
        "jnp.sum(batch)",
        "mismatch",
        all_at(3),
        says=("Pad to a length that all agree on",),
    ),
    "gathered in other sizes": Parting(
        "mu.process_allgather(np.ones(3 + (k == 1)))",
        "mismatch",
        all_at(1),
        says=("process_allgather", "the shape of argument"),
    ),
    "a step skipped": Parting(
        "g = jax.jit(jax.grad(lambda w, x: jnp.sum((x @ w) ** 2)))\n"
        "w = put(np.ones((4, 2)), P())\n"
        "for i in range(3):\n    if i == 1 and k == 0: continue\n    w = w - 0.1 * g(w, x)",
        "missing",
        **left(0, 5),
    ),
    # Errors.
    "error before": Parting(
        "if k == 1: raise ValueError('mine')\njnp.sum(x)",
        "missing",
        **left(1, 2, RAISED),
        says=("process 1 raised ValueError: mine (line 1). Processes 0,2,3 waited at line 2",),
    ),
    "error between": Parting(
        "jnp.sum(x)\nif k == 0: 1 / 0\njnp.max(x)", "missing", **left(0, 3, RAISED)
    ),
    "errors on all but one": Parting(
        "if k < 3:\n    raise KeyError(k)\nmeet(x)",
        "missing",
        {3: 3},
        dict.fromkeys(range(3), RAISED),
        ("Process 3 waited at line 3",),
    ),
    "error caught, launch skipped": Parting(
        "try:\n    if k == 2: 1 / 0\n    jnp.sum(x)\nexcept ZeroDivisionError:\n    pass",
        "missing",
        **left(2, 3),
    ),
    "SystemExit": Parting(
        "import sys\nif k == 3: sys.exit(1)\njnp.sum(x)", "missing", **left(3, 3, RAISED)
    ),
    "KeyboardInterrupt": Parting(
        "if k == 3: raise KeyboardInterrupt\njnp.sum(x)", "missing", **left(3, 2, RAISED)
    ),
    "StopIteration of one's own data": Parting(
        "data = iter(range(2 + (k > 0)))\nfor _ in range(3):\n    next(data); jnp.sum(x)",
        "missing",
        **left(0, 3, RAISED),
    ),
    "collective in finally": Parting(
        "try:\n    if k == 0: 1 / 0\n    jnp.max(x)\nfinally:\n    jnp.sum(x)",
        "mismatch",
        all_at(5, 3, 3, 3),
    ),
    "the verdict swallowed": Parting(
        "try:\n    if k == 0: jnp.max(x)\nexcept Exception:\n    pass\njnp.sum(x)",
        "mismatch",
        all_at(2, 5, 5, 5),
    ),
    # Where launches hide.
    "in a thread": Parting(
        "t = threading.Thread(target=lambda: jnp.sum(x))\nif k == 0: t.start(); t.join()",
        "missing",
        **alone(0, 1),
    ),
    "in threads that differ": Parting(
        "f = total if k else meet\nt = threading.Thread(target=lambda: f(x))\nt.start(); t.join()",
        "mismatch",
        all_at(2),
    ),
    "in a pool": Parting(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(1) as pool:\n    if k: pool.submit(jnp.sum, x)",
        "missing",
        {},
        {0: DONE},
    ),
    "in a callback": Parting(
        "def ask(v):\n    if k == 0: jnp.sum(x)\n    return v\n"
        "s = jax.ShapeDtypeStruct((), np.float32)\n"
        "local = jax.jit(lambda v: jax.pure_callback(ask, s, v))\nlocal(jnp.float32(1))"
        ".block_until_ready()",
        "missing",
        **alone(0, 2),
    ),
    "in a generator": Parting(
        "def steps():\n    while True:\n        yield jnp.sum(x)\n"
        "g = steps()\nfor _ in range(2 + (k == 1)):\n    next(g)",
        "missing",
        **alone(1, 3),
    ),
    "in __del__": Parting(
        "class Closing:\n    def __del__(self):\n        jnp.sum(x)\n"
        "c = Closing()\nif k == 2:\n    del c\n    time.sleep(0)\nelse: kept = c",
        "missing",
        **alone(2, 3),
    ),
    "in a function of an earlier cell": Parting(
        "\n\nif k == 0:\n    helper(x)", "missing", **alone(0, 4)
    ),
    "awaited": Parting(
        "async def f():\n    return jnp.sum(x)\nif k == 1:\n    await f()",
        "missing",
        **alone(1, 2),
    ),
    # Subsets.
    "three in a ring": Parting(
        "order = {0: [(0, 1), (0, 2)], 1: [(1, 2), (0, 1)], 2: [(0, 2), (1, 2)], 3: []}[k]\n"
        "v = {pair: among(*pair) for pair in order}\n"
        "for pair in order:\n    total(v[pair])",
        "cycle",
        {0: 4, 1: 4, 2: 4},
        says=(
            "process 0 waits for process 1, process 1 for process 2, and process 2 for process 0",
            "in one order",
        ),
    ),
    "four in a ring": Parting(
        "pairs = [(k, (k + 1) % 4), ((k - 1) % 4, k)]\n"
        "v = {tuple(sorted(pair)): among(*sorted(pair)) for pair in pairs}\n"
        "for pair in v:\n    total(v[pair])",
        "cycle",
        all_at(4),
    ),
    "rows first, columns first": Parting(
        "rows, columns = [(0, 1), (2, 3)], [(0, 2), (1, 3)]\n"
        "order = rows + columns if k in (0, 3) else columns + rows\n"
        "v = [among(*pair) for pair in order]\n"
        "for w in v:\n    if w is not None: total(w)",
        "cycle",
        all_at(5),
    ),
    "one of a subset is missing": Parting(
        "v = among(1, 2)\nif k == 1:\n    total(v)", "missing", {1: 3}, {2: DONE}
    ),
    "a subset against all": Parting(
        "v = among(2, 3)\nif k == 3:\n    total(v)\ntotal(x)",
        "mismatch",
        all_at(4, 4, 4, 3),
        says=("process 3 waits at line 3",),
    ),
    "not invited": Parting(
        "jnp.sum(x)",
        "not invited",
        {0: 1, 1: 1},
        {2: "not invited", 3: "not invited"},
        ("processes 2,3 were not given this cell",),
        processes="0,1",
    ),
    "one is late": Parting(
        "if k == 3: time.sleep(0.7)\nelse: jnp.sum(x)", "missing", **left(3, 2), sleeps=0.7
    ),
}


@pytest.fixture(scope="module")
def parting_cluster(shared_cluster: mcnb.Cluster) -> mcnb.Cluster:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run(SETUP).raise_for_errors()
    shared_cluster.run(NEXT).raise_for_errors()
    return shared_cluster


@pytest.mark.parametrize("parting", PARTINGS.values(), ids=PARTINGS)
def test_a_parting(parting_cluster: mcnb.Cluster, parting: Parting) -> None:
    cluster = parting_cluster
    began = time.monotonic()
    result = cluster.run(parting.source, processes=parting.processes)
    took = time.monotonic() - began
    verdict = result.verdict
    assert verdict is not None, result.text()
    assert verdict.kind == parting.kind, result.text()
    waits = {k: s.line for k, s in verdict.stands.items() if s.doing == WAITS}
    others = {k: s.doing for k, s in verdict.stands.items() if s.doing != WAITS}
    if parting.waits or not waits:
        assert waits == parting.waits, result.text()
    assert others == parting.others, result.text()
    error = result.error()
    assert error is not None
    raised = RAISED in parting.others.values()
    assert type(error) is (mcnb.CellError if raised else mcnb.LockstepError)
    for part in parting.says:
        assert part in str(error)
    assert str(error).endswith("The cluster is intact, with its variables")
    # Certain from the last announcement or the last end on; compiling and sleeping come before.
    stood = max((launch.announced for launch in result.launches), default=began)
    assert time.monotonic() - max(stood, began + parting.sleeps) < 1 or took < 1.5
    assert cluster.run(NEXT).text() == "[all 4] 500.0\n"


def test_there_are_enough() -> None:
    assert len(PARTINGS) >= 45
    assert {parting.kind for parting in PARTINGS.values()} == {
        "mismatch",
        "missing",
        "cycle",
        "not invited",
    }


def test_an_unchecked_cell_makes_no_difference_to_the_next(
    parting_cluster: mcnb.Cluster,
) -> None:
    assert parting_cluster.run("jnp.sum(x)", checked=False).verdict is None
    verdict = parting_cluster.run("jnp.sum(x) if k else jnp.max(x)").verdict
    assert verdict is not None
    assert verdict.kind == "mismatch"


def test_what_was_launched_is_kept(parting_cluster: mcnb.Cluster) -> None:
    result = parting_cluster.run("jnp.sum(x)\nif k == 0: jnp.max(x)")
    made = [record for record in result.launches if record.began is not None]
    assert [
        (record.process, record.launch.name, record.line) for record in sorted(made, key=by)
    ] == [(k, "sum", 1) for k in range(4)]
    [stood] = [record for record in result.launches if record.began is None]
    assert (stood.process, stood.launch.name, stood.line) == (0, "max", 2)


def by(record: LaunchRecord) -> int:
    return record.process
