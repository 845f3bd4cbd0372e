"""Machines that people have: a proxy, a name that nobody knows, a closed lid, an odd folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from mcnb.lockstep.network import SILENCE_S
from tests.conftest import once
from tests.support.command import MCNB

# Proxies and names of folders are the same to each Python.
pytestmark = once

# Only ends what hangs, on however busy a machine.
HANG_S = 240
# JAX's own limit is 100 s of silence.
PAUSE_S = 115
IN_A_NOTEBOOK = """\
import sys, mcnb
with mcnb.Cluster(2, 1) as cluster:
    cluster.run("import jax, jax.numpy as jnp, os; n = 7").raise_for_errors()
    print("ready", flush=True)
    sys.stdin.readline()
    print(cluster.run(
        "mesh = jax.make_mesh((2,), 'a')\\n"
        "split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('a'))\\n"
        "print(os.getcwd(), n, float(jnp.sum(jax.device_put(jnp.arange(4.0), split))))"
    ).text(), end="")
"""
PROGRAM = """\
import sys, jax, jax.numpy as jnp
jax.distributed.initialize()
split = jax.sharding.NamedSharding(jax.make_mesh((2,), "a"), jax.sharding.PartitionSpec("a"))
x = jax.device_put(jnp.arange(4.0), split)
print("sum", float(jnp.sum(x)), flush=True)
if "wait" in sys.argv:
    sys.stdin.readline()
    print("max", float(jnp.max(x)), flush=True)
"""


@pytest.fixture
def silent_proxy() -> Iterator[str]:
    """A proxy that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def in_a_notebook(
    folder: Path, *before: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    (folder / "cells.py").write_text(IN_A_NOTEBOOK)
    return subprocess.run(
        [*before, sys.executable, "cells.py"],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        input="\n",
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


def by_command(
    folder: Path, *before: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.run(
        [*before, *MCNB, "run", "program.py", "-n", "2", "-d", "1", "--fold"],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


MORE = pytest.mark.thorough("more of the same kind")


@pytest.mark.parametrize(
    "name",
    ["http_proxy", pytest.param("https_proxy", marks=MORE), pytest.param("grpc_proxy", marks=MORE)],
)
def test_a_proxy_is_not_asked_for_the_processes(
    tmp_path: Path, silent_proxy: str, name: str
) -> None:
    # JAX warns of each of these variables, whatever the case of its letters.
    proxies = {name: silent_proxy, "HTTPS_PROXY": silent_proxy}
    if name == "http_proxy":
        done = in_a_notebook(tmp_path, environment=proxies)
        assert (done.stdout, done.stderr) == (f"ready\n[all 2] {tmp_path} 7 6.0\n", "")
    done = by_command(tmp_path, environment=proxies)
    assert (done.stdout, done.stderr) == ("[all 2] sum 6.0\n", "")


@pytest.mark.parametrize(
    "name", ["costs $HOME", *(pytest.param(name, marks=MORE) for name in ("${HOME}", "~", "50 %"))]
)
def test_a_folder_with_an_odd_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    done = in_a_notebook(folder)
    assert (done.stdout, done.stderr) == (f"ready\n[all 2] {folder} 7 6.0\n", "")


def nameless() -> list[str]:
    """Return the command that runs another one on a host whose name nobody knows."""
    inside = 'hostname nobody-knows-me && exec "$@"'
    return ["unshare", "--uts", "sh", "-c", inside, "sh"]


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="a host's name is set by root"
)
def test_a_host_whose_name_is_not_known(tmp_path: Path) -> None:
    asked = "import socket; socket.gethostbyname(socket.gethostname())"
    lost = subprocess.run(
        [*nameless(), sys.executable, "-c", asked], capture_output=True, text=True, timeout=HANG_S
    )
    assert "socket.gaierror" in lost.stderr
    done = in_a_notebook(tmp_path, *nameless())
    assert (done.stdout, done.stderr) == (f"ready\n[all 2] {tmp_path} 7 6.0\n", "")
    done = by_command(tmp_path, *nameless())
    assert (done.stdout, done.stderr) == ("[all 2] sum 6.0\n", "")


def pause(processes: Iterable[subprocess.Popen[str]]) -> None:
    """Stop processes and all their descendants for a while, as a closed lid does."""
    own = [psutil.Process(process.pid) for process in processes]
    every = [*own, *(child for one in own for child in one.children(recursive=True))]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for one in every:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)
        if number is signal.SIGSTOP:
            time.sleep(PAUSE_S)


LIMITS = """\
import jax
from jax._src import distributed
from jax._src.lib import _jax
for name in ("service", "client"):
    name = f"get_distributed_runtime_{name}"
    def told(*args, original=getattr(_jax, name), **given):
        print(given["heartbeat_timeout"], flush=True)
        return original(*args, **given)
    setattr(_jax, name, told)
jax.distributed.initialize()
"""


def test_the_limit_on_silence_reaches_jax(tmp_path: Path) -> None:
    """JAX's own function passes its default on to the method that mcnb replaces."""
    (tmp_path / "limits.py").write_text(LIMITS)
    done = subprocess.run(
        [*MCNB, "run", "limits.py", "-n", "2", "-d", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    said = sorted(done.stdout.splitlines())
    assert said == [f"[{k}] {SILENCE_S}" for k in (0, 0, 1)], done.stderr


@pytest.mark.long("a pause of two minutes; test_pauses.py has one of five")
def test_a_pause_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(IN_A_NOTEBOOK)
    (tmp_path / "program.py").write_text(PROGRAM)
    commands = {
        "notebook": [sys.executable, "cells.py"],
        "mcnb run": [*MCNB, "run", "program.py", "-n", "2", "-d", "1", "wait"],
    }
    running = {
        way: subprocess.Popen(
            words,
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for way, words in commands.items()
    }
    try:
        # All that they print before the pause: `communicate` does not see what is read ahead.
        first = {
            way: [read_line(process) for _ in range(2 if way == "mcnb run" else 1)]
            for way, process in running.items()
        }
        pause(running.values())
        said = {way: one.communicate("\n\n", timeout=HANG_S) for way, one in running.items()}
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    assert first["notebook"] == ["ready\n"]
    assert said["notebook"] == (f"[all 2] {tmp_path} 7 6.0\n", "")
    out, err = said["mcnb run"]
    lines = [f"[{k}] {what}" for k in range(2) for what in ("max 3.0", "sum 6.0")]
    told = sorted("".join(first["mcnb run"] + [out]).splitlines())
    assert (told, err) == (lines, "")


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()
