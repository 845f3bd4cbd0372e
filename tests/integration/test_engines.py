"""Clusters whose processes others start: Open MPI, ssh and a real Slurm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcnb
from mcnb.cluster.workers import Pending
from mcnb.messages import Progress
from tests.conftest import once, wait_until
from tests.support.clients import HANG_S
from tests.support.launchers import ENDED_S, NAMES, Engines, launcher_at_home, left
from tests.support.timing import as_if_alone, since

pytestmark = [once, pytest.mark.thorough("every launcher in turn")]

SETUP = """
import os, time, jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((8,), ("a",), axis_types=(AxisType.Auto,))
x = jax.device_put(np.arange(16.0), NamedSharding(mesh, P("a")))
"""
KILLED = "was killed by SIGKILL (sent by a program, or by the system because memory ran out)"
LISTENS = "0A"  # of a socket, in <net/tcp_states.h> of Linux
ANEW = (
    "All 4 processes are being restarted: their variables are lost. To restore them, re-run "
    "the cells that succeeded: %mcjax restart --replay"
)


@pytest.fixture(scope="module", params=NAMES)
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    with launcher_at_home(request.param, tmp_path_factory.mktemp(request.param)) as launcher:
        yield launcher


@pytest.fixture(scope="module")
def shared(launcher: Engines) -> Iterator[mcnb.Cluster]:
    with mcnb.Cluster(
        4, 2, launcher=launcher.name, hosts=launcher.hosts, launcher_options=launcher.options
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: mcnb.Cluster) -> mcnb.Cluster:
    if not shared.running:
        shared.start()
    shared.run(SETUP).raise_for_errors()
    return shared


@pytest.mark.promise("mpi, ssh and Slurm")
def test_a_cell(cluster: mcnb.Cluster) -> None:
    result = cluster.run("print(k, jax.process_count(), jax.device_count(), float(jnp.sum(x)))")
    assert result.stdout == {k: f"{k} 4 8 120.0\n" for k in range(4)}
    # Neighbours in the mesh are neighbours on their hosts, and all see one folder.
    assert cluster.pull("os.getcwd()") == dict.fromkeys(range(4), str(Path.cwd()))


@pytest.mark.promise("verdicts on mpi, ssh and Slurm")
def test_a_verdict(cluster: mcnb.Cluster) -> None:
    result = cluster.run("if k == 2:\n    print(jnp.sum(x))")
    assert result.verdict is not None
    assert result.verdict.kind == "missing"
    with pytest.raises(mcnb.LockstepError) as parted:
        result.raise_for_errors()
    assert str(parted.value).startswith(
        "missing: process 2 is waiting in sum, line 2; processes 0,1,3 finished the cell without "
        "reaching it. Hint: "
    )
    assert cluster.run("print(float(jnp.sum(x)))").stdout[3] == "120.0\n"


def test_unchecked_processes_that_hang_are_freed(cluster: mcnb.Cluster) -> None:
    last: dict[int, Progress] = {}

    def look(pending: Pending) -> None:
        last.update({k: pending.progress(k) for k in pending.waiting})

    source = "if k == 2:\n    print(float(jnp.sum(x)))"
    result = cluster.run(source, checked=False, timeout=HANG_S, watcher=look)
    assert result.time_limit is None, (last, result.text())
    assert result.verdict is not None
    assert result.verdict.happened == "hung"
    after = cluster.run("print(float(jnp.sum(x)))")
    assert after.stdout[0] == "120.0\n", (result.text(), after.text())


def test_an_interrupt(cluster: mcnb.Cluster) -> None:
    asked: list[float] = []

    def when_all_run(pending: Pending) -> None:
        if all(pending.progress(k).line for k in range(4)):
            asked.append(time.monotonic())
            cluster.interrupt()

    result = cluster.run("time.sleep(600)", watcher=when_all_run)
    assert result.interrupted
    assert as_if_alone(since(asked[0])) < 20
    after = cluster.run("print(float(jnp.sum(x)))")
    assert after.stdout[1] == "120.0\n", (result.text(), after.text())


def test_heal(cluster: mcnb.Cluster) -> None:
    before = cluster.pull("os.getpid()")
    assert "reconnected, and their variables are kept (1 array)" in cluster.heal()
    assert cluster.run("print(float(jnp.sum(x)))").stdout[1] == "120.0\n"
    assert cluster.pull("os.getpid()") == before


def test_a_process_that_is_killed(cluster: mcnb.Cluster) -> None:
    result = cluster.run("print('ready')\nif k == 2:\n    os.kill(os.getpid(), 9)\njnp.sum(x)")
    assert result.verdict is not None
    assert result.verdict.kind == "died"
    with pytest.raises(mcnb.ClusterError) as died:
        result.raise_for_errors()
    assert str(died.value) == f"process 2 {KILLED}. {ANEW}"
    assert "preemption_notifier" not in result.text()  # how mpirun ends the others is its affair
    assert cluster.run("import jax; print(jax.device_count())").stdout[3] == "8\n"


def test_restart(cluster: mcnb.Cluster) -> None:
    cluster.run("y = 1 + k").raise_for_errors()
    before = cluster.pull("os.getpid()")
    assert cluster.restart(replay=True) is None
    assert cluster.pull("y") == {k: k + 1 for k in range(4)}
    assert not set(cluster.pull("os.getpid()").values()) & set(before.values())


def listening(ports: set[int]) -> set[str]:
    """Return the sockets of this machine that listen at some TCP ports, as the system numbers them.

    A port may be another process's a moment later.
    """
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *_, number = line.split()[:10]  # as in proc(5)
            if state == LISTENS and int(address.rpartition(":")[2], 16) in ports:
                found.add(number)
    return found


def test_stop(cluster: mcnb.Cluster, launcher: Engines, tmp_path: Path) -> None:
    home = Path(os.environ["HOME"])
    assert left(home)
    ports = set().union(
        *cluster.pull("__import__('mcnb').lockstep.abort.listening_ports()").values()
    )
    sockets = listening(ports)
    assert sockets
    cluster.stop()
    assert wait_until(lambda: not left(home), ENDED_S), left(home)
    assert wait_until(lambda: launcher.jobs() == "", ENDED_S), launcher.jobs()
    # A process that exits loses its environment, by which it is found, before its sockets.
    assert wait_until(lambda: not sockets & listening(ports), ENDED_S), listening(ports)


KERNEL = """\
import sys, mcnb
cluster = mcnb.Cluster(2, 1, launcher={name!r}, hosts={hosts!r}, launcher_options={options!r})
cluster.start()
print("up", flush=True)
sys.stdin.read()
"""


def test_a_notebook_that_is_killed_takes_all_with_it(launcher: Engines) -> None:
    code = KERNEL.format(name=launcher.name, hosts=launcher.hosts, options=launcher.options)
    home = Path(os.environ["HOME"])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as notebook:
        assert notebook.stdout
        assert notebook.stdout.readline() == b"up\n"
        assert left(home)
        notebook.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not left(home), ENDED_S), left(home)
    assert wait_until(lambda: launcher.jobs() == "", ENDED_S), launcher.jobs()


def test_processes_that_can_not_begin(launcher: Engines) -> None:
    """What the launcher, or the process, said of it stands in the error."""
    with pytest.raises(mcnb.ClusterError) as failed:
        mcnb.Cluster(
            2,
            1,
            launcher=launcher.name,
            hosts=launcher.hosts,
            launcher_options=f"{launcher.options} --no-such-option".strip(),
        ).start()
    assert re.match(
        r"The cluster did not start: (The mpi launcher ended before its processes had "
        r"connected\. Its output:"
        r"|slurm could not start the processes: |The host one can't be reached: )",
        str(failed.value),
    )
    assert re.search(r"[Uu]nknown option|unrecognized|option", str(failed.value))
    assert wait_until(lambda: not left(Path(os.environ["HOME"])), ENDED_S)
