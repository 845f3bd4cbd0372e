"""Ways to part: each gets the right verdict, processes and lines, and the cluster goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import mcnb
from mcnb.lockstep.model import LaunchRecord
from tests.conftest import wait_until
from tests.support.divergences import RAISED, WAITS, Divergence
from tests.support.divergences_of_order import ORDERS
from tests.support.divergences_of_programs import PROGRAMS
from tests.support.divergences_of_threads import THREADS
from tests.support.timing import shortest

pytestmark = pytest.mark.promise("each kind of divergence gets its verdict")
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
# Where the next cell's collective has to be right, in the same processes.
NEXT = (
    "assert pid == os.getpid()\nfloat(jnp.sum(x)) + float(mu.process_allgather(np.ones(1)).sum())"
)
# After the last announcement, or the last end.
VERDICT_S = 1.0

DIVERGENCES = {**PROGRAMS, **ORDERS, **THREADS}


@pytest.fixture(scope="module")
def parting_cluster(shared_cluster: mcnb.Cluster) -> mcnb.Cluster:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run(SETUP).raise_for_errors()
    shared_cluster.run(NEXT).raise_for_errors()
    return shared_cluster


@pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
def test_a_divergence(parting_cluster: mcnb.Cluster, divergence: Divergence) -> None:
    assert shortest(VERDICT_S, lambda: part(parting_cluster, divergence)) < VERDICT_S


def part(cluster: mcnb.Cluster, divergence: Divergence) -> float:
    """Part the processes, look at what came of it, and return how late the verdict was, in s."""
    began = time.monotonic()
    result = cluster.run(divergence.source, processes=divergence.processes)
    ended = time.monotonic()
    verdict = result.verdict
    assert verdict is not None, result.text()
    assert verdict.kind == divergence.kind, result.text()
    waits = {k: s.line for k, s in verdict.states.items() if s.doing == WAITS}
    others = {k: s.doing for k, s in verdict.states.items() if s.doing != WAITS}
    if divergence.waits or not waits:
        assert waits == divergence.waits, result.text()
    assert others == divergence.others, result.text()
    error = result.error()
    assert error is not None
    raised = RAISED in divergence.others.values()
    assert type(error) is (mcnb.CellError if raised else mcnb.LockstepError)
    for part in divergence.says:
        assert part in str(error)
    assert str(error).endswith("The cluster is intact; all variables are kept")
    # Certain from the last announcement or the last end on; compiling and sleeping come before.
    stood = max((launch.announced for launch in result.launches), default=began)
    assert cluster.run(NEXT).text() == "[all 4] 500.0\n"
    return ended - max(stood, began + divergence.sleeps)


def test_there_are_enough() -> None:
    assert len(DIVERGENCES) >= 45
    assert {divergence.kind for divergence in DIVERGENCES.values()} == {
        "mismatch",
        "missing",
        "cycle",
        "not invited",
    }


# The cell, and what it prints; the verdict is told all the same.
CAUGHT = {
    "retried": (
        "for i in range(3):\n    try: (total if k or i else meet)(x); break\n"
        "    except mcnb.LockstepError: print('again')\nprint(float(jnp.sum(x)))",
        "again\n496.0\n",
    ),
    "left out": (
        "try: (total if k else meet)(x)\nexcept Exception: pass\nprint(float(jnp.sum(x)))",
        "496.0\n",
    ),
    "suppressed, in a pool": (
        "import contextlib\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(1) as pool, contextlib.suppress(Exception):\n"
        "    pool.submit(total if k else meet, x).result()\nprint(float(jnp.max(x)))",
        "31.0\n",
    ),
    "raised in a function, several times": (
        "def both():\n    for f in (total, meet) if k < 2 else (meet, total):\n"
        "        try: f(x)\n        except mcnb.LockstepError: print(f is total)\n"
        "both()\nprint(float(jnp.max(x)))",
        None,
    ),
}


@pytest.mark.parametrize(("source", "printed"), CAUGHT.values(), ids=CAUGHT)
def test_a_program_that_catches_its_verdict_may_go_on(
    parting_cluster: mcnb.Cluster, source: str, printed: str | None
) -> None:
    result = parting_cluster.run(f"import mcnb\n{source}", timeout=50)
    assert result.verdict is not None
    assert result.verdict.kind == "mismatch"
    assert {state.doing for state in result.verdict.states.values()} == {WAITS}
    first = "True\nFalse\n31.0\n", "False\nTrue\n31.0\n"
    expected = [printed or first[k > 1] for k in range(4)]
    assert [result.stdout[k] for k in range(4)] == expected
    assert str(result.error()).startswith("mismatch: ")
    assert parting_cluster.run(NEXT).text() == "[all 4] 500.0\n"


def test_what_can_not_go_on_after_a_verdict_says_that_it_was_earlier(
    parting_cluster: mcnb.Cluster,
) -> None:
    result = parting_cluster.run(
        "try: (total if k else meet)(x)\nexcept Exception: pass\n"
        "try:\n    if k == 2: total(x)\nexcept Exception as error: print(error)",
        timeout=50,
    )
    [printed] = [text for text in result.stdout.values() if text]
    assert printed.startswith(
        "diverged earlier: mismatch: process 0 is waiting in jit(<lambda>) f32[8,4], line 1; "
        "processes 1-3 are waiting in jit(sum) f32[8,4], line 1. Hint: "
    )


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


# What is called when it has run before on some processes with the same static arguments, so that
# JAX's C++ launches it there, and how the verdict says what differs.
RAN_BEFORE = {
    "a static argument": (
        "step(x, rate=2, power=1 if k else 3)",
        "the static argument power: 3 on process 0; 1 on processes 1-3",
    ),
    "a static argument on one": (
        "rate = 5 if k == 2 else 2\nstep(x, rate, 1)",
        "the static argument rate: 2 on processes 0,1,3; 5 on process 2",
    ),
    "a setting of JAX's": (
        "with jax.default_matmul_precision('highest' if k == 2 else None):\n    step(x, 2, 1)",
        "the compiled program; first different line: ",
    ),
}


@pytest.mark.parametrize(("cell", "differs"), RAN_BEFORE.values(), ids=RAN_BEFORE)
def test_what_differs_from_an_earlier_launch(
    parting_cluster: mcnb.Cluster, cell: str, differs: str
) -> None:
    parting_cluster.run(
        "from functools import partial\n"
        "@partial(jax.jit, static_argnames=('rate', 'power'))\n"
        "def step(x, rate, power): return (x @ x.T).sum() * rate ** power\n"
        "for _ in range(2): step(x, rate=2, power=1); step(x, 2, 1)"
    ).raise_for_errors()
    error = parting_cluster.run(cell).error()
    assert error is not None
    (said,) = [line for line in " ".join(error.lines).split("What differs: ") if "Hint" in line]
    assert said.startswith(differs)
    assert "static argument" in differs or "operand_precision={highest,highest}" in said


# A loop, and how its hint begins: what may skip the launch is told if it depends on the process.
LOOPS = {
    "rounds": (
        "n = 4 - (k == 2)\nfor i in range(n):\n    if i == 99: break\n    total(x)",
        "the loop `for i in range(n):`",
    ),
    "a second condition": (
        "for i in range(4):\n    if len(str(i)) > 9: continue\n"
        "    if i == 2 and k == 1: continue\n    total(x)",
        "in the loop `for i in range(4):` (line 1), `if i == 2 and k == 1: continue`",
    ),
}


@pytest.mark.parametrize(("cell", "hint"), LOOPS.values(), ids=LOOPS)
def test_which_line_of_a_loop_is_told(parting_cluster: mcnb.Cluster, cell: str, hint: str) -> None:
    error = parting_cluster.run(cell).error()
    assert error is not None
    assert f"Hint: {hint}" in " ".join(error.lines).replace("\n", " ")


def test_a_range_of_constants_ran_equally_often(parting_cluster: mcnb.Cluster) -> None:
    parting_cluster.run("mine = jnp.ones(3) if k == 1 else x").raise_for_errors()
    error = parting_cluster.run("for i in range(3):\n    a = i\n    jnp.sum(mine)").error()
    assert error is not None
    assert "different number of times" not in " ".join(error.lines)


def test_a_thread_that_diverges_after_its_cell_is_told_by_the_next(
    parting_cluster: mcnb.Cluster, tmp_path: Path
) -> None:
    parting_cluster.run(
        "import pathlib, threading\ndef late(go, gone):\n"
        "    while not go.exists(): time.sleep(0.01)\n    try: jnp.sum(x)\n"
        "    finally: gone.touch()\n"
        f"files = [pathlib.Path({str(tmp_path)!r}, name) for name in ('go', 'gone')]\n"
        "if k == 1: threading.Thread(target=late, args=files).start()"
    ).raise_for_errors()
    (tmp_path / "go").touch()
    assert wait_until((tmp_path / "gone").exists)
    told = (
        "Since the cell before, the processes have diverged, in a thread that went on: missing: "
        "process 1 is waiting in sum, line 4; processes 0,2,3 finished the cell without reaching it"
    )
    assert parting_cluster.run("1").notes == (told,)
    assert parting_cluster.run("1").notes == ()
