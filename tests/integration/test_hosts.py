"""Processes of several hosts: they find each other, part, die and are started anew as on one."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcnb.launchers.credentials import make_credentials
from tests.conftest import once
from tests.support import hosts
from tests.support.command import MCNB
from tests.support.launchers import launcher_on_hosts

pytestmark = [pytest.mark.thorough("needs hosts in network namespaces"), once]

NOTEBOOK = """
import json, os, sys
import mcnb
said = {}
with mcnb.Cluster(4, 2, launcher="ssh", hosts="one,two", launcher_options=sys.argv[1]) as cluster:
    cluster.run('''
import os, socket, time, jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((8,), ("a",), axis_types=(AxisType.Auto,))
x = jax.device_put(np.arange(16.0), NamedSharding(mesh, P("a")))
''').raise_for_errors()
    said["slices"] = cluster.pull("[d.slice_index for d in jax.devices()]")[0]
    said["hosts"] = cluster.pull("socket.gethostname()")
    said["keys"] = cluster.pull("__import__('mcnb.worker.settings').worker.settings._files")
    said["sum"] = cluster.run("print(float(jnp.sum(x)))").stdout
    said["diverged"] = str(cluster.run("if k == 2:\\n    print(jnp.sum(x))").error())
    hung = cluster.run("if k == 2:\\n    print(float(jnp.sum(x)))", checked=False)
    said["hung"] = hung.verdict.happened
    said["healed"] = cluster.heal()
    said["sum after"] = cluster.run("print(float(jnp.sum(x)))").stdout
    killed = cluster.run("if k == 3:\\n    os.kill(os.getpid(), 9)\\njnp.sum(x)")
    said["killed"] = str(killed.error())
    said["anew"] = cluster.run("import jax; print(jax.device_count())").stdout
    said["listens"] = cluster._lifetime.processes.referee.address.host
    cluster.push({"port": cluster._lifetime.processes.referee.address.port})
print(json.dumps(said))
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Path]:
    """The configuration of ssh for two hosts, to which the notebook's host can log in."""
    with launcher_on_hosts("ssh", tmp_path):
        yield tmp_path / "ssh_config"


def doctor(names: str, client: Path, *words: str) -> tuple[int, list[str]]:
    """Return the exit code of `mcnb doctor`, and what it says of these hosts."""
    done = hosts.on_the_notebooks(
        *(*MCNB, "doctor", f"--hosts={names}", f"--options=-F {client}", *words),
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    alone = next(i for i, line in enumerate(lines) if "settings of JAX" in line)
    return done.returncode, lines[alone + 1 :]


SLICES = (
    "note     JAX takes each of these hosts for a slice. jax.make_mesh accepts several slices of "
    "CPU devices in cells and in programs of mcnb script. Elsewhere, make meshes with "
    "jax.experimental.mesh_utils.create_hybrid_device_mesh"
)


def same(host: str) -> str:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "mcnb")]
    return f"ok       {host} has {' and '.join(versions)}, as this machine has"


def test_doctor_on_good_hosts(client: Path) -> None:
    code, (of_one, *lines) = doctor("one,two", client)
    assert of_one.startswith("ok       2 processes with 2 devices each started")
    assert lines[:4] == [
        same("one"),
        same("two"),
        "ok       one, two and this machine can connect to each other",
        SLICES,
    ]
    assert re.fullmatch(
        r"ok       2 processes on one, two with 2 devices each started, computed a sum together "
        r"and ended, in \d+\.\d seconds",
        lines[4],
    )
    assert lines[5:] == ["No problems found. To open the lessons: mcnb lab"]
    assert code == 0


def test_doctor_finds_what_is_wrong(client: Path) -> None:
    """A host that can't be reached from another one, a name, and a host that is not there."""
    subprocess.run(
        ["ip", "-netns", hosts.namespace("one"), "route", "add", "prohibit", "10.97.0.3/32"],
        check=True,
    )
    names = Path("/etc/netns", hosts.namespace("two"), "hosts")
    names.write_text("127.0.0.1 localhost\n127.0.1.1 two\n")
    assert doctor("one,two,three", client, "--quick") == (
        1,
        [
            same("one"),
            same("two"),
            "note     The address of two is 127.0.1.1, which no other host reaches, on two itself. "
            "mcnb gives JAX another address; without mcnb, processes on this host do not find each "
            f"other. Fix it: ssh -F {client} two 'echo 10.97.0.3 two | sudo tee -a /etc/hosts'",
            "missing  The host three can't be reached: ssh: Could not resolve hostname three: "
            f"Temporary failure in name resolution. Try: ssh -o BatchMode=yes -F {client} three",
            "missing  one can't connect to two at 10.97.0.3: Permission denied. mcnb and JAX use "
            f"free ports. Fix it: ssh -F {client} two 'sudo ufw allow from 10.97.0.2 to any proto "
            "tcp'",
            # What one answers does not reach two either.
            "missing  two can't connect to one at 10.97.0.2: no answer. mcnb and JAX use free "
            f"ports. Fix it: ssh -F {client} one 'sudo ufw allow from 10.97.0.3 to any proto tcp'",
            SLICES,
            "3 problems found, see above",
        ],
    )


def test_a_notebook_and_two_other_hosts(client: Path) -> None:
    done = hosts.on_the_notebooks(sys.executable, "-c", NOTEBOOK, f"-F {client}")
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout)
    everybody = {"0": "120.0\n", "1": "120.0\n", "2": "120.0\n", "3": "120.0\n"}
    # Each host is a slice: XLA tells them apart by their boot ids.
    assert said["slices"] == [0, 0, 0, 0, 1, 1, 1, 1]
    protects = make_credentials() is not None  # depends on JAX's version
    for given in said["keys"].values():
        assert given.get("mtls_key_file", "").endswith("/security/key.pem") == protects
    # Neighbours share a host.
    assert said["hosts"] == {"0": "one", "1": "one", "2": "two", "3": "two"}
    assert said["listens"] == hosts.ADDRESSES[hosts.NOTEBOOK]
    assert said["sum"] == said["sum after"] == everybody
    assert said["diverged"].startswith(
        "missing: process 2 is waiting in sum, line 2; processes 0,1,3 finished the cell without "
        "reaching it. Hint: "
    )
    assert said["hung"] == "hung"
    assert "reconnected, and their variables are kept (1 array)" in said["healed"]
    assert said["killed"].startswith("process 3 was killed by SIGKILL")
    assert said["anew"] == dict.fromkeys(everybody, "8\n")
