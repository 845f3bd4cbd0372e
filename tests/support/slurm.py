"""A Slurm of the tests' own, on this host or on several: daemons, key, ports and folders."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.conftest import wait_until
from tests.support.ports import LOOPBACK, reserved_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
WHY_NOT = "no Slurm, or not root: apt-get install slurmctld slurmd slurm-client munge"
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={controller.name}({controller.address})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
TCPTimeout=60
MessageTimeout=100
BatchStartTimeout=250
UnkillableStepTimeout=600
{nodes}
PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


@dataclass(frozen=True)
class Host:
    """A host of a Slurm.

    Attributes:
        name: Its name.
        address: Its address.
        on: What runs a command on it; nothing for this one.
    """

    name: str
    address: str
    on: Sequence[str] = ()


def here() -> Host:
    """Return this host."""
    return Host(socket.gethostname().partition(".")[0], LOOPBACK)


def available() -> bool:
    """Return whether a Slurm can be started here; its daemons want to be root."""
    return os.geteuid() == 0 and all(map(program, PROGRAMS))


def program(name: str) -> str | None:
    """Return where a program is."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@contextmanager
def slurm(
    folder: Path, controller: Host | None = None, nodes: Sequence[Host] = ()
) -> Iterator[dict[str, str]]:
    """Run a Slurm; yield the environment in which its commands find it.

    Args:
        folder: Where its files go.
        controller: The host where jobs are submitted; by default this one.
        nodes: The hosts where they run; by default this one.
    """
    controller = controller or here()
    nodes = nodes or (controller,)
    for name in ("state", *(f"spool-{node.name}" for node in nodes)):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    with reserved_port() as one, reserved_port() as other:
        configuration = CONFIGURATION.format(
            controller=controller,
            nodes="\n".join(
                f"NodeName={node.name} NodeAddr={node.address} CPUs=8 RealMemory=2000 State=UNKNOWN"
                for node in nodes
            ),
            user=getpass.getuser(),
            folder=folder,
            ports=(one, other),
        )
        (folder / "slurm.conf").write_text(configuration)
        with _daemons(folder, controller, nodes) as environment:
            yield environment


@contextmanager
def _daemons(folder: Path, controller: Host, nodes: Sequence[Host]) -> Iterator[dict[str, str]]:
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in _MUNGE_FILES]
    commands: list[tuple[Host, list[str]]] = [
        (controller, ["munged", "--foreground", "--force", "--num-threads=2", *munge]),
        (controller, ["slurmctld", "-D"]),
        *((node, ["slurmd", "-D"]) for node in nodes),
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for host, command in commands:
            daemons.append(
                subprocess.Popen(
                    [*host.on, str(program(command[0])), *command[1:]],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            if command[0] == "munged":
                assert wait_until((folder / "munge.socket").exists, 60)
        ready = ["idle"] * len(nodes)
        assert wait_until(lambda: _states(controller, environment) == ready, 120), _logs(folder)
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for process in with_variable("SLURM_CONF", environment["SLURM_CONF"]):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()  # a job of a test that failed


def with_variable(name: str, value: str) -> list[psutil.Process]:
    """Return the other processes that were started with this value of an environment variable."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(name) == value:
                found.append(process)
    return found


_MUNGE_FILES = ("socket", "key-file", "pid-file", "log-file", "seed-file")


def _states(controller: Host, environment: dict[str, str]) -> list[str]:
    """Return the state of each node."""
    done = subprocess.run(
        [*controller.on, str(program("sinfo")), "--noheader", "--Node", "--format=%T"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
