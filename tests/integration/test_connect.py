"""Clusters of ipyparallel's that somebody else started, with ordinary engines."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import ipyparallel
import psutil
import pytest
from traitlets.config import Config

import mcnb
from mcnb.cluster import cluster as clusters
from tests.conftest import Notebook, once, wait_until

pytestmark = [once, pytest.mark.thorough("starts ordinary engines many times")]

COUNT, HANG_S = 3, 120.0
OWN_FLAG = "--xla_cpu_enable_fast_math=false"
SETUP = """
import os, time, jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((6,), ("a",), axis_types=(AxisType.Auto,))
x = jax.device_put(np.arange(12.0), NamedSharding(mesh, P("a")))
"""
MEND = "Restart the engines: ipcluster stop, then ipcluster start"
LOST = (
    "The processes can't communicate any more. Restart them with the tool that started them; then: "
    "%mcjax"
)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ipyparallel.Cluster]:
    """Somebody else's cluster, under the profile `default`."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count=8 {OWN_FLAG}")
    cluster = ipyparallel.Cluster(
        n=COUNT,
        profile="default",
        cluster_id="",
        # As often, a new engine is registered; one that is stopped, or gets no core, stays so.
        controller_args=[
            "--HeartMonitor.period=300",
            "--HeartMonitor.max_heartmonitor_misses=1000000",
        ],
        config=Config({"LocalEngineLauncher": {"engine_args": ["--IPEngine.timeout=120"]}}),
        log=logging.getLogger("theirs"),
        delay=0,
    )
    cluster.start_cluster_sync()
    client = cluster.connect_client_sync(timeout=HANG_S)
    client.wait_for_engines(COUNT, timeout=HANG_S, interactive=False)
    client.close()
    monkeypatch.delenv("XLA_FLAGS")
    yield cluster
    for launcher in list(cluster.engine_set.launchers.values()):
        with contextlib.suppress(psutil.NoSuchProcess):
            launcher.process.send_signal(signal.SIGKILL)  # JAX lets SIGTERM pass
    cluster.stop_cluster_sync()


@pytest.mark.promise("%mcjax connect")
def test_its_engines_become_processes(theirs: ipyparallel.Cluster) -> None:
    cluster = mcnb.connect()
    try:
        assert cluster.options.processes == COUNT
        cluster.run(SETUP).raise_for_errors()
        result = cluster.run(
            "print(k, jax.device_count(), float(jnp.sum(x)))\nos.system('echo hi')"
        )
        assert result.stdout == {k: f"{k} 6 66.0\nhi\n" for k in range(COUNT)}
        assert result.value == dict.fromkeys(range(COUNT), "0")
        parted = cluster.run("if k == 2:\n    print(jnp.sum(x))")
        assert str(parted.error()).startswith(
            "missing: process 2 is waiting in sum, line 2; processes 0,1 finished the cell without "
            "reaching it. Hint: "
        )
        hung = cluster.run("if k == 2:\n    print(float(jnp.sum(x)))", checked=False)
        assert hung.verdict is not None
        assert hung.verdict.happened == "hung"
        assert "reconnected, and their variables are kept (1 array)" in cluster.heal()
        assert cluster.run("print(float(jnp.sum(x)))").stdout[0] == "66.0\n"
        with pytest.raises(mcnb.ClusterError) as refused:
            cluster.restart()
        assert str(refused.value) == (
            "These processes were not started by mcnb. Restart them with the tool that started "
            "them; then: %mcjax connect"
        )
        # The engines' own flags stay, except for the number of devices.
        assert set(cluster.pull("os.environ['XLA_FLAGS']").values()) == {OWN_FLAG}
        pids = cluster.pull("os.getpid()")
        launched = {one.process.pid for one in theirs.engine_set.launchers.values()}
        assert set(pids.values()) == launched
    finally:
        cluster.stop()
    assert all(one.process.is_running() for one in theirs.engine_set.launchers.values())
    # They have been JAX processes, and can't be again.
    with pytest.raises(mcnb.ClusterError) as stale:
        mcnb.connect()
    assert str(stale.value) == (
        "The cluster is not connected: Engine 0 is still connected to the JAX processes "
        f"of an earlier %mcjax connect. {MEND}"
    )


def test_an_interrupt_and_a_death(theirs: ipyparallel.Cluster) -> None:
    del theirs
    cluster = mcnb.connect(devices_per_process=1)
    try:
        assert cluster.run("import jax; print(jax.device_count())").stdout[0] == f"{COUNT}\n"

        def when_it_runs() -> None:
            assert wait_until(lambda: cluster.status().endswith("running a cell"), HANG_S)
            cluster.interrupt()

        helper = threading.Thread(target=when_it_runs)
        helper.start()
        assert cluster.run("import time; time.sleep(10_000)").interrupted
        helper.join()
        died = cluster.run("import os\nif jax.process_index() == 2:\n    os.kill(os.getpid(), 9)")
        assert str(died.error()) == f"process 2 ended, and the reason is not known. {LOST} connect"
        with pytest.raises(mcnb.ClusterError) as lost:
            cluster.run("1")
        assert str(lost.value) == (
            "The cluster has lost its processes. Restart the engines (ipcluster stop, ipcluster "
            "start); then: %mcjax connect"
        )
    finally:
        cluster.stop()


def test_the_magic(
    theirs: ipyparallel.Cluster, empty_notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    del theirs
    assert empty_notebook.error("%mcjax connect --hosts one") == (
        "OptionError: %mcjax connect --hosts one: --hosts is only accepted by %mcjax start. "
        "Help: %mcjax?"
    )
    assert empty_notebook.error("%mcjax connect -n 2") == (
        "ClusterError: The ipyparallel cluster has 3 engines, and -n 2 expects 2. To connect to "
        "all, leave out -n"
    )
    with monkeypatch.context() as patch:
        patch.setattr("mcnb.launchers.existing.CONNECT_S", 1.0)
        assert empty_notebook.error("%mcjax connect -n 4") == (
            "ClusterError: The ipyparallel cluster has 3 engines, and -n 4 expects 4. When all "
            "have started: %mcjax connect -n 4"
        )
    ready = empty_notebook.run("%mcjax connect -n 3 -d 1 --env GREETING=hello")
    assert ready.stdout == f"Ready: {COUNT} processes x 1 CPU device\n"
    assert empty_notebook.run("%%mcjax\nimport jax; print(jax.process_count())").stdout == (
        f"[all {COUNT}] {COUNT}\n"
    )
    greeting = empty_notebook.run("%%mcjax\nimport os; print(os.environ['GREETING'])")
    assert greeting.stdout == f"[all {COUNT}] hello\n"
    # The first cell of a notebook, run again.
    again = empty_notebook.run("%mcjax connect")
    assert again.stdout == f"Already connected: {COUNT} processes x 1 CPU device\n"
    assert empty_notebook.run("%mcjax stop").stdout == (
        f"Disconnected from {COUNT} processes x 1 CPU device. The processes still run, but you "
        "can't connect to them again. To end them: ipcluster stop\n"
    )
    clusters.current = None


def test_a_notebook_that_is_killed_leaves_nothing(theirs: ipyparallel.Cluster) -> None:
    code = (
        "import sys, mcnb\ncluster = mcnb.connect(devices_per_process=1)\n"
        "print(cluster._lifetime.processes.launcher.folder, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as notebook:
        assert notebook.stdout
        folder = Path(notebook.stdout.readline().decode().strip())
        assert len(list(folder.iterdir())) == COUNT
        notebook.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not folder.exists(), 30), list(folder.iterdir())
    assert all(one.process.is_running() for one in theirs.engine_set.launchers.values())


def test_an_engine_that_has_used_jax(theirs: ipyparallel.Cluster) -> None:
    client = theirs.connect_client_sync(timeout=HANG_S)
    client[1].execute("import jax; jax.devices()", block=True)
    client.close()
    with pytest.raises(mcnb.ClusterError) as stale:
        mcnb.connect()
    assert str(stale.value) == (
        "The cluster is not connected: Engine 1 has already initialized JAX, so it can't "
        f"connect to other processes. {MEND}"
    )


def test_an_engine_that_does_not_answer(
    theirs: ipyparallel.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcnb.launchers.existing.ANSWER_S", 1.0)
    stopped = [one.process for one in theirs.engine_set.launchers.values()]
    for process in stopped:
        os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(mcnb.ClusterError) as stale:
        mcnb.connect()
    assert str(stale.value) == (
        "The cluster is not connected: Engines 0-2 of 3 did not answer within 1 seconds. "
        f"They may be busy, or left over from an earlier run. {MEND}"
    )
    for process in stopped:
        os.kill(process.pid, signal.SIGCONT)


def test_no_such_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    with pytest.raises(mcnb.ClusterError) as missing:
        mcnb.connect("lab", "second")
    assert str(missing.value) == (
        "No running ipyparallel cluster was found for the profile lab and the id second: there is "
        "no connection file. Start one: ipcluster start --profile=lab --cluster-id=second -n 4"
    )
    with pytest.raises(mcnb.ClusterError) as empty:
        mcnb.connect(profile_dir=str(tmp_path))
    assert str(empty.value) == (
        f"No running ipyparallel cluster was found in the folder {tmp_path}: there is no "
        f"connection file. Start one: ipcluster start --profile-dir={tmp_path} -n 4"
    )
    assert not list(tmp_path.iterdir())
