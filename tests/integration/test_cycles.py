"""A hundred starts in one kernel, half of them under load: none fails, nothing piles up."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

import mcnb
from mcnb.launchers import forkserver_client
from tests.conftest import BUSY, descendants, once, wait_until
from tests.support.stopping import HUNG_S

pytestmark = pytest.mark.thorough("fifty rounds")

CYCLES = 50
FIRST = 5  # libraries make what they keep
MB = 1 << 20
FORKSERVER = "mcnb forkserver"
COMPUTE = "import jax, jax.numpy as jnp\nprint(jax.device_count(), float(jnp.ones(3).sum()))"


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Keep every core busy."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 2)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def forkservers() -> set[psutil.Process]:
    return {one for one in psutil.Process().children(recursive=True) if one.name() == FORKSERVER}


@pytest.fixture
def others() -> set[psutil.Process]:
    """The forkservers of other tests' clusters; none is idle, which the next cluster would take."""
    forkserver_client.close_idle()
    return forkservers()


def held(forkserver: psutil.Process) -> dict[str, int]:
    """Return what this kernel and its fork server hold now."""
    gc.collect()
    own = psutil.Process()
    return {
        "processes": len(own.children(recursive=True)),
        "descriptors": own.num_fds(),
        "threads": threading.active_count(),
        "native threads": own.num_threads(),
        "memory": own.memory_full_info().uss,
        "fork server's descriptors": forkserver.num_fds(),
        # What is its own alone depends on what forked processes have written to.
        "fork server's memory": forkserver.memory_info().rss - forkserver.memory_info().shared,
    }


def imported_all(forkserver: psutil.Process) -> bool:
    """Return whether the fork server has imported also what it imports when it is idle.

    Its thread ends with the last module. In the middle of matplotlib, 15 MB are still to come.
    """
    begun = any("ft2font" in mapped.path for mapped in forkserver.memory_maps())
    return begun and forkserver.num_threads() == 1


def assert_nothing_piles_up(cycle: Callable[[], None], others: set[psutil.Process]) -> None:
    """Repeat something, the second half under load, and compare what is held."""
    for _ in range(FIRST):
        cycle()
    [forkserver] = forkservers() - others
    assert wait_until(lambda: imported_all(forkserver), HUNG_S)
    before = held(forkserver)
    for _ in range((CYCLES - FIRST) // 2):
        cycle()
    with load():
        for _ in range(CYCLES - FIRST - (CYCLES - FIRST) // 2):
            cycle()
    same = ("processes", "descriptors", "threads", "native threads", "fork server's descriptors")
    kept = [before[key] for key in same]
    assert wait_until(lambda: [held(forkserver)[key] for key in same] == kept, HUNG_S), (
        before,
        held(forkserver),
    )
    after = held(forkserver)
    print({key: after[key] - before[key] for key in after})
    for key in ("memory", "fork server's memory"):
        assert after[key] - before[key] < 8 * MB, (key, before[key], after[key])


@once
def test_fifty_starts_and_stops(others: set[psutil.Process]) -> None:
    cluster = mcnb.Cluster(processes=2, devices_per_process=1)

    def cycle() -> None:
        before = descendants()
        cluster.start()
        assert cluster.run(COMPUTE).text() == "[all 2] 2 3.0\n"
        cluster.stop()
        # The fork server stays, for the next start.
        assert wait_until(lambda: len(descendants() - before) <= 1)

    assert_nothing_piles_up(cycle, others)


@once
def test_fifty_restarts(others: set[psutil.Process]) -> None:
    with mcnb.Cluster(processes=2, devices_per_process=1) as cluster:

        def cycle() -> None:
            cluster.restart()
            assert cluster.run(COMPUTE).text() == "[all 2] 2 3.0\n"

        assert_nothing_piles_up(cycle, others)
