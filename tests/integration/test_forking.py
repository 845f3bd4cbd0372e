"""Processes are forked from a warm one: as if they had been started, and without its locks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import mcnb
from mcnb.launchers import forkserver, forkserver_client
from mcnb.launchers.base import process_environment
from mcnb.options import Options
from tests.conftest import BUSY, once, wait_until

pytestmark = pytest.mark.thorough("starts many processes")

# Only ends what hangs, on however busy a machine.
HANG_S = 280


def test_a_notebook_that_starts_nothing_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as S\n"
        "shell = S.instance()\nshell.run_line_magic('load_ext', 'mcnb')\n"
        "import psutil; print([c.pid for c in psutil.Process().children()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )
    [pid] = json.loads(done.stdout)
    assert done.stderr == ""
    assert wait_until(lambda: not psutil.pid_exists(pid))


def test_who_starts_while_it_warms_up_gently_waits_for_it(cluster: mcnb.Cluster) -> None:
    del cluster
    forkserver_client.close_idle()
    forkserver_client.preload(process_environment(Options(processes=2), os.environ))
    with mcnb.Cluster(processes=2, devices_per_process=1) as two:
        assert two.run("import jax; jax.device_count()").text() == "[all 2] 2\n"
        # What waited was imported at the lowest priority; what computes has its own.
        assert two.pull("__import__('os').getpriority(0, 0)") == dict.fromkeys(
            range(2), os.getpriority(os.PRIO_PROCESS, 0)
        )


@pytest.mark.promise("a start takes half a second")
def test_one_keeper_serves_one_cluster_after_the_other(cluster: mcnb.Cluster) -> None:
    del cluster
    parents = []
    with mcnb.Cluster(processes=1, devices_per_process=1) as one:
        for _ in range(2):
            parents.append(one.pull("__import__('os').getppid()")[0])
            one.restart()
    with mcnb.Cluster(processes=2, devices_per_process=3) as other:
        parents += other.pull("__import__('os').getppid()").values()
        assert other.run("import jax; jax.local_device_count()").text() == "[all 2] 3\n"
    assert len(set(parents)) == 1


def test_another_environment_needs_another_keeper(
    cluster: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cluster
    with mcnb.Cluster(1, 1, env={"JAX_ENABLE_X64": "1", "MINE": "yes"}) as one:
        assert one.run("import jax, os; (jax.numpy.ones(1).dtype, os.environ['MINE'])").text() == (
            "[0] (dtype('float64'), 'yes')\n"
        )
    monkeypatch.setenv("MINE", "no")
    with mcnb.Cluster(1, 1) as one:
        assert one.run("import jax, os; (jax.numpy.ones(1).dtype, os.environ['MINE'])").text() == (
            "[0] (dtype('float32'), 'no')\n"
        )


def test_what_imports_add_to_the_environment_is_in_forked_processes(cluster: mcnb.Cluster) -> None:
    """JAX sets how much XLA's libraries log, which those that are loaded later read."""
    level = "__import__('os').environ.get('TF_CPP_MIN_LOG_LEVEL')"
    assert set(cluster.pull(level).values()) == {"1"}
    with mcnb.Cluster(1, 1, env={"TF_CPP_MIN_LOG_LEVEL": "0"}) as one:
        assert one.pull(level) == {0: "0"}


@pytest.mark.promise("a forked process is like a started one")
def test_a_forked_process_is_as_if_it_had_been_started(cluster: mcnb.Cluster) -> None:
    """Nothing of the fork server is left in it, and nothing is shared that each has of its own."""
    drawn = cluster.run(
        "import numpy as np, random, uuid\n(np.random.rand(), random.random(), uuid.uuid4().hex)"
    )
    assert len(set(drawn.value.values())) == 4
    state = cluster.pull(
        "(lambda os, signal: ("
        "os.getpgid(0) == os.getpid(), os.readlink('/proc/self/fd/0'),"
        "signal.getsignal(signal.SIGTERM) == signal.SIG_IGN,"
        "os.getcwd()))(*map(__import__, ['os', 'signal']))"
    )
    assert set(state.values()) == {(True, "/dev/null", False, str(Path.cwd()))}
    forkserver = psutil.Process(cluster.pull("__import__('os').getppid()")[0])
    pipes = {str(Path(f"/proc/{forkserver.pid}/fd/{fd}").readlink()) for fd in (0, 1)}
    for pid in cluster.pull("__import__('os').getpid()").values():
        with contextlib.suppress(FileNotFoundError):
            open_ones = {
                str(path.readlink())
                for path in Path(f"/proc/{pid}/fd").iterdir()
                if path.is_symlink()
            }
            assert not pipes & open_ones


IMPORTED = """
import json, sys
from mcnb.launchers import forkserver
warm = forkserver.Preload(gently=False)
warm.get(forkserver.NEEDED["mcnb.worker"])
needed = list(sys.modules)
warm.get(forkserver.CELLS)
print(json.dumps([needed, list(sys.modules)]))
"""


def test_what_each_process_needs_is_imported_before_it_is_forked() -> None:
    """Or each would import it again, at each start."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    needed, more = json.loads(done.stdout)
    forkserver_client.close_idle()
    with mcnb.Cluster(processes=2, devices_per_process=1) as cluster:
        modules = set(cluster.pull("list(__import__('sys').modules)")[0])
    # A new fork server has imported more only if the start took it long.
    late = modules - set(more if "matplotlib" in modules else needed)
    # Without debugpy, which is left out there, what runs the process itself, and a module that
    # `mcnb.worker.textbars`, which is imported, takes the place of.
    assert late <= {
        "ipykernel.debugger",
        "mcnb.launchers.forkserver",
        "tqdm.notebook",
        "unicodedata",
    }


def test_cells_can_import_debugpy_though_kernels_are_made_without(cluster: mcnb.Cluster) -> None:
    cluster.restart()
    assert cluster.pull("'debugpy' in __import__('sys').modules", processes=[0]) == {0: False}
    assert cluster.run("import debugpy; debugpy.__name__").text() == "[all 4] 'debugpy'\n"
    cluster.restart()


def test_nothing_but_the_main_thread_lives_in_who_forks(cluster: mcnb.Cluster) -> None:
    forkserver = psutil.Process(cluster.pull("__import__('os').getppid()")[0])
    # A thread may import modules that are rarely needed, as long as nothing is to be forked.
    assert wait_until(lambda: [one.id for one in forkserver.threads()] == [forkserver.pid], HANG_S)


def test_where_forking_is_forbidden_processes_are_started_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def fork(): raise OSError(1, 'Operation not permitted')\n"
        "if 'mcnb.launchers.forkserver' in sys.orig_argv: os.fork = fork\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with mcnb.Cluster(processes=2, devices_per_process=1) as cluster:
        assert cluster.run("import jax; jax.device_count()").text() == "[all 2] 2\n"
        assert cluster.status() == (
            "2 processes x 1 CPU device: ready. The processes are not forked, so each one imports "
            "JAX and the start takes longer: the operating system does not allow it: Operation "
            "not permitted"
        )


def test_where_the_system_has_no_room_for_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "real, forks = os.fork, []\n"
        "def fork():\n"
        "    forks.append(1)\n"
        "    if len(forks) > 4: raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "    return real()\n"  # two rehearsals, the controller and process 0
        "if 'mcnb.launchers.forkserver' in sys.orig_argv: os.fork = fork\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(mcnb.ClusterError) as caught:
        mcnb.Cluster(processes=2, devices_per_process=1).start()
    assert str(caught.value) == (
        "The cluster did not start: process 1 could not be started "
        "(Resource temporarily unavailable) during the start."
    )


@once
def test_each_can_have_hashes_of_its_own() -> None:
    """Forks share the seed of their hashes; hosts do not, and the order of a set may part them."""
    one_by_one = (
        "The processes are not forked, so each one imports JAX and the start takes longer: "
    )
    hashes = "hash('a string')"
    with mcnb.Cluster(processes=3, devices_per_process=1) as cluster:
        assert len(set(cluster.pull(hashes).values())) == 1
        assert one_by_one not in cluster.status()
    with mcnb.Cluster(3, 1, env={"PYTHONHASHSEED": "random"}) as cluster:
        assert len(set(cluster.pull(hashes).values())) == 3
        assert cluster.status().endswith(
            one_by_one + "PYTHONHASHSEED=random requires a different hash seed in each process"
        )
    with mcnb.Cluster(3, 1, env={"PYTHONHASHSEED": "7"}) as cluster:
        asked = [sys.executable, "-c", f"print({hashes})"]
        alone = subprocess.run(
            asked, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, check=True
        )
        assert set(cluster.pull(hashes).values()) == {int(alone.stdout)}


CHILD = """
import logging, os, sys, threading
import numpy as np

logging.warning("a lock of logging's")
threads = [threading.Thread(target=lambda: np.ones((64, 64)) @ np.ones((64, 64))) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert float((np.ones((200, 200)) @ np.ones((200, 200)))[0, 0]) == 200
import email.mime.text, sqlite3  # what the parent has not imported
if int(sys.argv[1]) % 20 == 0:
    import jax

    assert jax.device_count() == 2 and float(jax.numpy.arange(8.0).sum()) == 28
"""
FORKS = """
import os, sys
from mcnb.launchers import forkserver

warm = forkserver.Preload(gently=True)
warm.begin()
warm.get(forkserver.NEEDED["mcnb.worker"])
running, failed = {}, []
spec = forkserver.Spec("first", "child", [], {}, "/", "", 0)
assert forkserver.why_not(spec) == "", forkserver.why_not(spec)
try:
    for number in range(200):
        env = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
        output = f"{sys.argv[1]}/out{number}"
        name, folder = f"child {number}", sys.argv[1]
        spec = forkserver.Spec(name, "child", [str(number)], env, folder, output, 0o77)
        running[forkserver.fork(spec)] = number
        while len(running) >= 8 or (number == 199 and running):
            pid, status = os.wait()
            child = running.pop(pid)
            if status:
                failed.append((child, status))
except forkserver.Forked as forked:
    forked.spec.run()
else:
    print(failed)
"""


@once
def test_two_hundred_forks_under_load(tmp_path: Path) -> None:
    """Children log, start threads, compute with BLAS and JAX, and import; none of them hangs."""
    (tmp_path / "child.py").write_text(CHILD)
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 2)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", FORKS, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path.cwd()}",
            },
        )
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_process_that_cannot_be_forked_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        forkserver.fork(
            forkserver.Spec("lost", "child", [], {}, str(tmp_path), f"{tmp_path}/no/out", 0)
        )
