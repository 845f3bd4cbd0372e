"""Nothing is left behind, and nothing is open to others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

import mcnb
from mcnb.launchers import forkserver_client
from tests.conftest import descendants, wait_until
from tests.support.timing import shortest, since

# Only ends what hangs, on however busy a machine.
HANG_S = 120

MORE = pytest.mark.thorough("more of the same kind", once=True)

# How long after the kernel's end everything is gone, on a machine that does nothing else.
GONE_S = 5.0
KERNEL = """
import json, os, signal, sys, tempfile
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started with
from pathlib import Path
import mcnb
cluster = mcnb.Cluster(processes=2, devices_per_process=1)
cluster.start()
print(json.dumps(str(cluster._lifetime.processes.launcher.folder)), flush=True)
cluster.run(
    "import subprocess, time\\n"
    "subprocess.Popen(['sleep', '1000'], start_new_session=True)\\n"  # a stray child
    "print('running')\\n"
    "time.sleep(1000)"
)
"""


def listening(processes: set[psutil.Process]) -> set[tuple[str, int]]:
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # some fork, and end at once
            found |= {
                (connection.laddr.ip, connection.laddr.port)
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            }
    return found


def listening_with(token: str, ports: set[tuple[str, int]]) -> list[str]:
    """Return the processes with a token in their environment that listen at one of the ports.

    Another program may have taken a port that has become free.
    """
    found = []
    for connection in psutil.net_connections("inet"):
        at_it = connection.laddr and tuple(connection.laddr) in ports
        if at_it and connection.status == psutil.CONN_LISTEN and connection.pid:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(connection.pid)
                found += [process.name()] if token in process.environ().values() else []
    return found


def shared_memory() -> set[str]:
    return {str(path) for path in Path("/dev/shm").glob("*")}


def in_use() -> set[str]:
    """Return the shared memory that running processes have, whosever it is."""
    found: set[str] = set()
    for path in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended
            found.update(re.findall(r"/dev/shm/\S+", path.read_text()))
    return found


def kill_in_the_middle_of_a_cell(signal_number: int) -> float:
    """Kill a notebook's kernel; return how long its cluster takes to end, in seconds."""
    shared_before = shared_memory()
    token = secrets.token_hex(8)
    with subprocess.Popen(
        [sys.executable, "-c", KERNEL],
        env={**os.environ, "MCNB_TESTED_KERNEL": token},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as kernel:
        assert kernel.stdout is not None
        folder = Path(json.loads(kernel.stdout.readline()))
        said = [folder / f"process-{k}.said" for k in range(2)]
        assert wait_until(lambda: all(b"running" in path.read_bytes() for path in said), HANG_S)
        family = set(psutil.Process(kernel.pid).children(recursive=True))
        assert (
            len(family) >= 6
        )  # the fork server, the controller, two processes, a stray child of each
        ports = listening(family)
        assert listening_with(token, ports)
        kernel.send_signal(signal_number)
    began = time.monotonic()
    assert wait_until(lambda: not any(p.is_running() for p in family), HANG_S), family
    assert wait_until(lambda: not folder.exists(), HANG_S)
    took = since(began)
    assert listening_with(token, ports) == []
    assert wait_until(lambda: shared_memory() <= shared_before | in_use())
    return took


@pytest.mark.parametrize(
    "signal_number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=MORE),
        pytest.param(signal.SIGHUP, marks=MORE),
    ],
)
def test_the_kernel_is_killed_in_the_middle_of_a_cell(signal_number: int) -> None:
    assert shortest(GONE_S, lambda: kill_in_the_middle_of_a_cell(signal_number)) < GONE_S


@pytest.mark.parametrize("end", ["stop", "restart"])
def test_stop_and_restart_leave_nothing(cluster: mcnb.Cluster, end: str) -> None:
    # Another cluster runs meanwhile, so that what ZeroMQ makes once for all is there already.
    del cluster
    forkserver_client.close_idle()
    before = descendants()
    threads = len(psutil.Process().threads())
    descriptors = psutil.Process().num_fds()
    cluster = mcnb.Cluster(processes=2, devices_per_process=1)
    cluster.start()
    family = descendants() - before
    assert cluster._lifetime.processes is not None
    folder = cluster._lifetime.processes.launcher.folder
    cluster.run("import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True);")
    [forkserver] = [one for one in family if one.ppid() == os.getpid()]
    family -= {forkserver}
    getattr(cluster, end)()
    assert not any(process.is_running() for process in family)
    assert not folder.exists()
    cluster.stop()
    # The fork server is warm for the next one, and has nothing any more.
    assert descendants() - before <= {forkserver}
    forkserver_client.close_idle()
    assert descendants() <= before
    # Sockets close in ZeroMQ's own time.
    assert wait_until(lambda: psutil.Process().num_fds() <= descriptors)
    assert wait_until(lambda: len(psutil.Process().threads()) <= threads)


@pytest.mark.promise("loopback only")
def test_everything_listens_on_loopback_only(cluster: mcnb.Cluster) -> None:
    assert cluster.run("import jax; jax.device_count()").ok
    open_to = listening(descendants())
    assert len(open_to) >= 5  # Gloo on each process, and JAX's coordinator
    assert {ip for ip, _ in open_to} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


@pytest.mark.promise("private files")
def test_files_are_private_to_the_user(cluster: mcnb.Cluster) -> None:
    assert cluster._lifetime.processes is not None
    folder = cluster._lifetime.processes.launcher.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [path for path in folder.rglob("*") if path.is_file()]
    connection_files = [path for path in files if path.suffix == ".json"]
    assert connection_files
    for path in connection_files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert all(path.stat().st_uid == os.getuid() for path in files)


@pytest.mark.promise("the user's folders")
def test_nothing_is_written_into_the_users_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    home = tmp_path / "home"
    for folder in (work, home):
        folder.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    temporary = set(Path(tempfile.gettempdir()).iterdir())
    with mcnb.Cluster(processes=1, devices_per_process=1) as one:
        # The processes work where the notebook does.
        assert one.run("import os; os.getcwd()").value == {0: repr(str(work))}
    assert list(work.iterdir()) == []
    assert [p for p in home.rglob("*") if p.is_file() and ".cache" not in p.parts] == []
    left = set(Path(tempfile.gettempdir()).iterdir()) - temporary
    assert not [path for path in left if "mcnb" in path.name]
