"""A pause of all processes for minutes, as on a laptop that is closed: all goes on afterwards."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import once, wait_until
from tests.support.command import MCNB

pytestmark = [once, pytest.mark.long("a pause of five minutes"), pytest.mark.timeout(900)]

PAUSE_S = 310
# Only ends what hangs, on however busy a machine.
HANG_S = 280
BEGIN = """\
import os, signal, threading, time
from pathlib import Path
import mcnb, psutil
from mcnb.errors import McnbError

def wait_for(*names):
    while not all(Path(name).exists() for name in names):
        time.sleep(0.02)

def pause():
    # Stops the cluster's processes, also those that are being started, and then this one.
    own, stopped = psutil.Process(), set()
    while every := {*own.children(recursive=True)} - stopped:
        for one in every:
            one.suspend()
        stopped |= every
    os.kill(os.getpid(), signal.SIGSTOP)

def meanwhile(action, *awaited, delay=0.0):
    # Begins something; all are paused in the middle of it, and then it goes on.
    said = []
    def act():
        try:
            said.append(action())
        except McnbError as error:
            said.append(error)
    thread = threading.Thread(target=act)
    thread.start()
    wait_for(*awaited)
    time.sleep(delay)
    pause()
    Path("go").touch()
    thread.join()
    return said[0]

SETUP = '''
import jax, jax.numpy as jnp, numpy as np, os, time
from pathlib import Path
k = jax.process_index()
split = jax.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "a"), jax.P("a"))
x = jax.device_put(jnp.arange(4.0), split)
total = float(jnp.sum(x))
n = 7
def here():
    Path(f"in{k}").touch()
def gone_on():
    return os.path.exists("go")
'''
LAST = "total = float(jnp.sum(x)); print(n, total)"
def begin():
    cluster.start()
    cluster.run(SETUP).raise_for_errors()
cluster = mcnb.Cluster(2, 1)
"""
END = "print(cluster.run(LAST).text(), end='')\ncluster.stop()\n"
KEPT = "[all 2] 7 6.0\n"
# What happens while they are paused, and what is printed then.
MOMENTS = {
    "starting": ("meanwhile(cluster.start, delay=0.2)\ncluster.run(SETUP)", ""),
    "idle": ("begin()\nmeanwhile(lambda: None)", ""),
    "in Python": (
        "begin()\n"
        'cell = "here()\\nwhile not gone_on(): time.sleep(0.01)"\n'
        'print(meanwhile(lambda: cluster.run(cell), "in0", "in1").ok)',
        "True\n",
    ),
    "in collectives": (
        'begin()\ncell = """here()\n'
        "while not float(jnp.max(jax.make_array_from_process_local_data(\n"
        '    split, np.array([float(gone_on())])))): n = 7"""\n'
        'print(meanwhile(lambda: cluster.run(cell), "in0", "in1").ok)',
        "True\n",
    ),
    "one waits for the other": (
        'begin()\ncell = """here()\n'
        'while k and not gone_on(): time.sleep(0.01)\nprint(float(jnp.sum(x)))"""\n'
        'print(meanwhile(lambda: cluster.run(cell), "in0", "in1", delay=1.0).text(), end="")',
        "[all 2] 6.0\n",
    ),
    "one waits for a verdict": (
        'begin()\ncell = """here()\nif k: time.sleep(3)\nelse: jnp.sum(x)"""\n'
        'print(meanwhile(lambda: cluster.run(cell), "in0", "in1", delay=1.0).verdict.kind)',
        "missing\n",
    ),
    "stopping": (
        "begin()\n"
        "def stop():\n"
        '    wait_for("in0", "in1")\n'
        "    cluster.interrupt()\n"
        "threading.Thread(target=stop).start()\n"
        'cell = "here()\\nwhile True: time.sleep(0.01)"\n'
        'print(meanwhile(lambda: cluster.run(cell), "in0", "in1").error())',
        "The cell was interrupted. Both processes (line 2) were interrupted. The cluster is "
        "intact; all variables are kept\n",
    ),
    "a death": (
        "begin()\n"
        "print(cluster.run('if k: os.kill(os.getpid(), 9)').ok)\n"
        "meanwhile(lambda: None, delay=0.1)\n"
        "cluster.run(SETUP).raise_for_errors()",
        "False\n",
    ),
    "restarting": (
        "begin()\nmeanwhile(cluster.restart, delay=0.2)\ncluster.run(SETUP).raise_for_errors()",
        "",
    ),
    "healing": (
        "begin()\n"
        'cell = "if k == 1: print(float(jnp.sum(x)))"\n'
        "print(cluster.run(cell, checked=False).verdict.happened)\n"
        "print(meanwhile(cluster.heal, delay=0.1))",
        "hung\nThe cluster was healed: the same processes reconnected, and their variables are "
        "kept (1 array)\n",
    ),
}


@contextlib.contextmanager
def started(words: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        for one in family(process):
            one.kill()
        process.communicate()


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return a process with its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        own = psutil.Process(process.pid)
        return [own, *own.children(recursive=True)]
    return []


def is_paused(process: subprocess.Popen[str]) -> bool:
    """Return whether a process is paused; one that has ended will not be."""
    return process.poll() is not None or family(process)[0].status() == psutil.STATUS_STOPPED


XLA_COMPLAINS = re.compile(r"^[^\n]*\*{32}$.*?^\s*\*{32}\n", re.MULTILINE | re.DOTALL)
PROGRAM = """\
import os, jax, jax.numpy as jnp, time
from pathlib import Path
jax.distributed.initialize()
split = jax.NamedSharding(jax.sharding.Mesh(jax.devices(), "a"), jax.P("a"))
x = jax.device_put(jnp.arange(4.0), split)
print("sum", float(jnp.sum(x)), flush=True)
if jax.process_index():
    os.kill(os.getppid(), 19)
    time.sleep(5)
print("max", float(jnp.max(x)), flush=True)
"""


def test_everything_goes_on(tmp_path: Path) -> None:
    """Notebooks at many moments, and a program in which one process waits for the other."""
    commands, expected = {}, {}
    for name, (source, said) in MOMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "cells.py").write_text(f"{BEGIN}{source}\n{END}")
        commands[name] = [sys.executable, "cells.py"]
        expected[name] = f"{said}{KEPT}"
    (folder := tmp_path / "program").mkdir()
    (folder / "program.py").write_text(PROGRAM)
    commands["program"] = [*MCNB, "run", "program.py", "-n", "2", "-d", "1"]
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(started(words, tmp_path / name))
            for name, words in commands.items()
        }
        assert wait_until(lambda: all(map(is_paused, running.values())), HANG_S)
        time.sleep(PAUSE_S)
        for one in [one for process in running.values() for one in family(process)]:
            one.resume()
        said = {name: one.communicate(timeout=HANG_S)[0] for name, one in running.items()}
    program = sorted(said.pop("program").splitlines())
    assert program == ["[0] max 3.0", "[0] sum 6.0", "[1] max 3.0", "[1] sum 6.0"]
    # XLA complains of a compilation in which the pause was.
    assert {name: XLA_COMPLAINS.sub("", text) for name, text in said.items()} == expected
