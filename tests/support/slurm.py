"""A Slurm of the tests' own, on this host: daemons, key, ports and folders are its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.conftest import wait_until
from tests.support.ports import reserved_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
WHY_NOT = "no Slurm, or not root: apt-get install slurmctld slurmd slurm-client munge"
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
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
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=2000 State=UNKNOWN
PartitionName=tests Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def available() -> bool:
    """Return whether a Slurm can be started here; its daemons want to be root."""
    return os.geteuid() == 0 and all(map(program, PROGRAMS))


def program(name: str) -> str | None:
    """Return where a program is."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Run a Slurm; yield the environment in which its commands find it.

    Args:
        folder: Where its files go.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    with reserved_port() as one, reserved_port() as other:
        configuration = CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            user=getpass.getuser(),
            folder=folder,
            ports=(one, other),
        )
        (folder / "slurm.conf").write_text(configuration)
        with _daemons(folder) as environment:
            yield environment


@contextmanager
def _daemons(folder: Path) -> Iterator[dict[str, str]]:
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munge = [f"--{name}={folder}/munge.{name.split('-')[0]}" for name in _MUNGE_FILES]
    commands = (
        ["munged", "--foreground", "--force", "--num-threads=2", *munge],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    )
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            daemons.append(
                subprocess.Popen(
                    [str(program(command[0])), *command[1:]],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            if command[0] == "munged":
                assert wait_until((folder / "munge.socket").exists, 60)
        assert wait_until(lambda: "idle" in _states(environment), 120), _logs(folder)
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


def _states(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(program("sinfo")), "--noheader", "--format=%T"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
