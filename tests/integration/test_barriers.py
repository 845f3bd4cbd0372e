"""Barriers of JAX's coordination service: what diverges there, and what is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mcnb
from tests.integration.test_divergences import NEXT, SETUP

BARRIERS = """
from jax._src import distributed
from concurrent.futures import ThreadPoolExecutor
def barrier(name, timeout_s=60, processes=None):
    distributed.global_state.client.wait_at_barrier(name, int(timeout_s * 1000), processes)
pool = ThreadPoolExecutor(2)
"""


@pytest.fixture(scope="module")
def cluster(shared_cluster: mcnb.Cluster) -> Iterator[mcnb.Cluster]:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run(SETUP + BARRIERS).raise_for_errors()
    yield shared_cluster
    shared_cluster.run("pool.shutdown()").raise_for_errors()


HINT = (
    "all participants of a barrier must pass the same name, and reach barriers in the same order. "
    "A name must not hold what differs between processes, such as the process index, or a counter "
    "that one process advanced more often"
)
# The cell, and what its error says.
DIVERGENT: dict[str, tuple[str, str]] = {
    "one raises": (
        "if k == 2: raise ValueError('no such file')\nbarrier('saved')",
        "process 2 raised ValueError: no such file (line 1). Processes 0,1,3 waited at line 2 in "
        "wait_at_barrier('saved')",
    ),
    "one finishes": (
        "if k != 2: barrier('saved')",
        "missing: processes 0,1,3 are waiting in wait_at_barrier('saved'), line 1; process 2 "
        "finished the cell without reaching it. Hint: this line runs only if `k != 2`. A "
        "collective must run on every participating process",
    ),
    "other names": (
        "barrier('a' if k else 'b')",
        "mismatch: process 0 is waiting in wait_at_barrier('b'), line 1; processes 1-3 are "
        "waiting in wait_at_barrier('a'), line 1. Likely cause: `name` depends on a value that "
        "differs between processes: `barrier('a' if k else 'b')` (line 1). "
        f"Hint: {HINT}",
    ),
    "other processes": (
        "if k < 3: barrier('same', processes=[0, 1] if k == 0 else [0, 1, 2])",
        "What differs: the processes that meet: 0,1 on process 0; 0,1,2 on processes 1,2. Hint: "
        "all participants of a barrier must pass the same process_ids",
    ),
    "a launch on one": (
        "if k == 1: jnp.sum(x)\nelse: barrier('launched')",
        "mismatch: processes 0,2,3 are waiting in wait_at_barrier('launched'), line 2; process 1 "
        "is waiting in sum f32[8,4], line 1",
    ),
    "one too many": (
        "for i in range(3 + (k == 3)): barrier(f'step {i}')",
        "missing: process 3 is waiting in wait_at_barrier('step 3'), line 1, for the 4th time; "
        "processes 0-2 finished the cell without reaching it a 4th time",
    ),
    "a thread of a pool": (
        "if k == 0: float(jnp.sum(x))\nelse: pool.submit(barrier, 'in a thread').result()",
        "mismatch: process 0 is waiting in sum f32[8,4], line 1; processes 1-3 are waiting in "
        "wait_at_barrier('in a thread')",
    ),
    "JAX's collective of that purpose": (
        "if k: mu.sync_global_devices('later')\nelse: barrier('later')",
        "process 0 is waiting in wait_at_barrier('later'), line 2; processes 1-3 are waiting in "
        "sync_global_devices('later'), line 1",
    ),
}


def test_names_of_jaxs_barrier_that_differ(cluster: mcnb.Cluster) -> None:
    source = "name = f'saved by {k % 2}'\nmu.sync_global_devices(name)"
    result = cluster.run(source)
    assert str(result.error()) == (
        "mismatch: processes 0,2 are waiting in sync_global_devices('saved by 0'), line 2; "
        "processes 1,3 are waiting in sync_global_devices('saved by 1'), line 2. Likely cause: "
        "`name` depends on a value that differs between processes: `name = f'saved by {k % 2}'` "
        f"(line 1). Hint: {HINT}. The cluster is intact; all variables are kept"
    )
    assert cluster.run(NEXT).text() == "[all 4] 500.0\n"


def test_a_program_that_expects_jaxs_error_gets_it(cluster: mcnb.Cluster) -> None:
    source = (
        "time.sleep(0.2 * (k > 1))  # the others have their verdict by then, or get it with these\n"
        "for name in (f'saved by {k}', 'saved'):\n"
        "    try: mu.sync_global_devices(name); print('met')\n"
        "    except AssertionError as error: print(type(error).__name__)"
    )
    assert cluster.run(source).text().startswith("[all 4] LockstepError\n        met\n")
    assert cluster.run(NEXT).text() == "[all 4] 500.0\n"


@pytest.mark.parametrize(("source", "says"), DIVERGENT.values(), ids=DIVERGENT)
def test_a_divergence_at_a_barrier(cluster: mcnb.Cluster, source: str, says: str) -> None:
    error = str(cluster.run(source, timeout=50).error())
    assert says in error
    assert error.endswith("The cluster is intact; all variables are kept")
    assert cluster.run(NEXT).text() == "[all 4] 500.0\n"


# The cell, and what it shows.
RIGHT: dict[str, tuple[str, str]] = {
    "barriers in a row": ("for i in range(20): barrier(f'row {i}')\nprint(1)", "[all 4] 1\n"),
    "one name again": ("for i in range(3): barrier('again')\nprint(1)", "[all 4] 1\n"),
    "between some": ("if k in (1, 3): barrier('two', processes=[1, 3])\nprint(1)", "[all 4] 1\n"),
    "of one": ("barrier(f'own {k}', processes=[k])\nprint(1)", "[all 4] 1\n"),
    "one is late": (
        "if k == 2: time.sleep(0.3)\nbarrier('late')\nprint(float(jnp.sum(x)))",
        "[all 4] 496.0\n",
    ),
    "in a thread, overtaken by launches": (
        "done = pool.submit(barrier, 'behind') if k != 1 else None\n"
        "for i in range(5): float(jnp.sum(x))\n"
        "done = done or pool.submit(barrier, 'behind')\ndone.result()\nprint(1)",
        "[all 4] 1\n",
    ),
    "its time limit": (
        "from jax.errors import JaxRuntimeError\n"
        "try:\n    barrier('limit', 0.2) if k != 1 else time.sleep(0.6)\n"
        "except JaxRuntimeError as error: print('DEADLINE_EXCEEDED' in str(error))\n"
        "mu.sync_global_devices('after it')",
        "[0,2,3] True\n",
    ),
    "its time limit, while others wait at the next one": (
        "from jax.errors import JaxRuntimeError\n"
        "try:\n    if k: barrier('never', 0.7)\n"
        "except JaxRuntimeError as error: print('DEADLINE_EXCEEDED' in str(error))\n"
        "barrier('next')",
        "[1-3] True\n",
    ),
    "its time limit, while others wait for a launch": (
        "from jax.errors import JaxRuntimeError\n"
        "try:\n    if k == 3: barrier('alone', 0.7)\n"
        "except JaxRuntimeError as error: print('DEADLINE_EXCEEDED' in str(error))\n"
        "float(jnp.sum(x))",
        "[3]     True\n[all 4] 496.0\n",
    ),
    "its time limit, in a thread": (
        "from jax.errors import JaxRuntimeError\n"
        "done = pool.submit(barrier, 'in a thread', 0.7) if k == 1 else None\n"
        "if k == 1: print(type(done.exception()) is JaxRuntimeError)\n"
        "v = float(jnp.sum(x))",
        "[1] True\n",
    ),
    "other time limits": ("barrier('uneven', 1.0 + 59 * (k == 2))\nprint(1)", "[all 4] 1\n"),
    "its time limit, and a participant that comes after it": (
        "from jax.errors import JaxRuntimeError\n"
        "if k == 1: distributed.global_state.client.blocking_key_value_get('given up', 60000)\n"
        "try: barrier('all late', 0.2)\n"
        "except JaxRuntimeError as error: print('DEADLINE_EXCEEDED' in str(error))\n"
        "if k == 0: distributed.global_state.client.key_value_set('given up', 'yes')",
        "[all 4] True\n",
    ),
}


@pytest.mark.parametrize(("source", "shows"), RIGHT.values(), ids=RIGHT)
def test_a_correct_barrier(cluster: mcnb.Cluster, source: str, shows: str) -> None:
    assert cluster.run(source, timeout=50).text() == shows
    assert cluster.run(NEXT).text() == "[all 4] 500.0\n"


@pytest.mark.parametrize("source", [RIGHT["barriers in a row"][0], RIGHT["one is late"][0]])
def test_unchecked(cluster: mcnb.Cluster, source: str) -> None:
    result = cluster.run(source.replace("('", "('unchecked "), checked=False, timeout=50)
    assert result.ok
    assert cluster.run(NEXT).text() == "[all 4] 500.0\n"
