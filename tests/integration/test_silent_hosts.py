"""A host that is silent: paused, without a network for a while or for good, or killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import once
from tests.support import hosts
from tests.support.launchers import launcher_on_hosts

pytestmark = [
    once,
    pytest.mark.long("hosts that are silent for minutes"),
    pytest.mark.timeout(1500),
]

PAUSE_S = 310
INTERRUPTION_S = 60
# Only ends what hangs, on however busy a machine.
HANG_S = 120
SETUP = """
import os, time, jax, jax.numpy as jnp, numpy as np
k = jax.process_index()
split = jax.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "a"), jax.P("a"))
x = jax.device_put(jnp.arange(4.0), split)
n, total = 7, float(jnp.sum(x))
"""
SUM = "total = float(jnp.sum(x))\nprint(n, total)"
LOOP = """
print("begins")
for i in range(100):
    total = float(jnp.sum(x + i))
    time.sleep(0.05)
print(n, total)
"""
KEPT = ["[all 4] begins\n        7 402.0\n", "[all 4] 7 6.0\n"]
# Which of them are named depends on who is noticed first: the end of process 0 ends the others.
LOST = re.compile(
    r"([Pp]rocess(es)? [0-3,-]+|all 4 processes) (was|were) lost: the ssh connection to one broke"
    r"( after the previous cell, so this cell did not run)?\. All 4 processes are being restarted: "
    r"their variables are lost\. To restore them, re-run the cells that succeeded: "
    r"%mcjax restart --replay"
)
ANEW = "The cluster did not start: The host one can't be reached: ssh: "
NOTEBOOK = """
import json, sys, threading, time
import mcnb
options, setup, first, second = sys.argv[1:]
def say(cell):
    try:
        result = cluster.run(cell)
        said = str(result.error() or result.text())
    except mcnb.McnbError as error:
        said = str(error)
    print(json.dumps(said), flush=True)
with mcnb.Cluster(4, 1, launcher="ssh", hosts="one,two", launcher_options=options) as cluster:
    cluster.run(setup).raise_for_errors()
    thread = threading.Thread(target=say, args=[first])
    if first:
        thread.start()
        time.sleep(2)
    print("ready", flush=True)
    if first:
        thread.join()
    sys.stdin.readline()
    say(second)
"""


class Notebook:
    """A notebook with two processes on each of two hosts.

    Args:
        options: The options for ssh.
        first: A cell that runs when something happens to a host; none by default.
    """

    def __init__(self, options: str, first: str = "") -> None:
        self.computes = bool(first)
        self._process = subprocess.Popen(
            hosts.on(hosts.NOTEBOOK, sys.executable, "-c", NOTEBOOK, options, SETUP, first, SUM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": ""},
        )
        assert self._line() == "ready\n"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def says(self) -> list[str]:
        """Return what the cells give: the one that runs, if there is one, and then another one."""
        first = [json.loads(self._line())] if self.computes else []
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [*first, json.loads(self._line())]

    def end(self) -> None:
        try:
            self._process.communicate(timeout=HANG_S)
        finally:
            self._process.kill()
            self._process.wait()


@pytest.fixture(params=["", LOOP], ids=["idle", "computing"])
def notebook(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Notebook]:
    with launcher_on_hosts("ssh", tmp_path) as launcher:
        notebook = Notebook(launcher.options, request.param)
        yield notebook
        link("up")
        notebook.end()


def link(state: str) -> None:
    """Interrupt the network of host one, or restore it."""
    own = hosts.namespace(hosts.NOTEBOOK)
    subprocess.run(["ip", "-netns", own, "link", "set", "one", state], check=True)


def of_host_one(home: Path) -> list[psutil.Process]:
    """Return host one's sshd, and all that it has started."""
    configuration = str(home / "one" / "sshd_config")
    [server] = [
        one for one in psutil.process_iter(["cmdline"]) if configuration in one.info["cmdline"]
    ]
    return [server, *server.children(recursive=True)]


def test_a_network_that_is_interrupted_for_a_minute(notebook: Notebook) -> None:
    link("down")
    time.sleep(INTERRUPTION_S)
    link("up")
    assert notebook.says() == KEPT[not notebook.computes :]


def test_a_host_that_is_paused_for_five_minutes(notebook: Notebook, tmp_path: Path) -> None:
    own = of_host_one(tmp_path)
    for process in own:
        process.suspend()
    time.sleep(PAUSE_S)
    for process in own:
        process.resume()
    assert notebook.says() == KEPT[not notebook.computes :]


def test_a_network_that_is_cut_for_good(notebook: Notebook) -> None:
    """After ten minutes, the loss is named, and then why there are no new processes."""
    link("down")
    said = notebook.says()
    assert LOST.fullmatch(said[0])
    assert [text.startswith(ANEW) for text in said[1:]] == [True] * notebook.computes


def test_a_host_that_is_killed(notebook: Notebook, tmp_path: Path) -> None:
    for process in of_host_one(tmp_path):
        process.kill()
    said = notebook.says()
    assert LOST.fullmatch(said[0])
    assert [text.startswith(ANEW) for text in said[1:]] == [True] * notebook.computes
    # Nobody is left on this host who could remove the cluster's files.
    shutil.rmtree(tmp_path / "one" / ".cache" / "mcnb", ignore_errors=True)
