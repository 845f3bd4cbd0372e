"""The launchers of the tests' own: Open MPI, an sshd and a Slurm, each as users have theirs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.conftest import wait_until
from tests.support import hosts, slurm, sshd

NAMES = ("mpi", "ssh", "slurm")
ENDED_S = 30.0
# Tests may run as root, in a container of their own.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass(frozen=True)
class Engines:
    """A launcher, and how to have it start processes.

    Attributes:
        name: Its name.
        environment: What it needs in the environment.
        hosts: On which hosts.
        options: Options for its own command.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    hosts: str = ""
    options: str = ""

    @property
    def line(self) -> str:
        """The options of `%mcjax start`."""
        hosts = f" --hosts {self.hosts}" if self.hosts else ""
        options = f" --options '{self.options}'" if self.options else ""
        return f"--launcher {self.name}{hosts}{options}"

    def jobs(self) -> str:
        """Return the jobs that Slurm has, a line for each."""
        if self.name != "slurm":
            return ""
        asked = subprocess.run(
            ["squeue", "--noheader"],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return asked.stdout


@contextmanager
def engines(name: str, folder: Path) -> Iterator[Engines]:
    """Bring a launcher up; skip the test where it is not installed.

    Args:
        name: One of `NAMES`.
        folder: Where its files go.
    """
    if name == "mpi":
        if shutil.which("mpiexec") is None:
            pytest.skip("no mpiexec: apt-get install openmpi-bin")
        yield Engines(name, OPEN_MPI)
    elif name == "ssh":
        if not sshd.available():
            pytest.skip(sshd.WHY_NOT)
        with sshd.sshd(folder) as client:
            yield Engines(name, {}, "one,two", f"-F {client}")
    else:
        if not slurm.available():
            pytest.skip(slurm.WHY_NOT)
        with slurm.slurm(folder) as environment:
            own = {key: environment[key] for key in ("SLURM_CONF",)}
            yield Engines(name, own)


@contextmanager
def launcher_at_home(name: str, folder: Path) -> Iterator[Engines]:
    """Bring a launcher up, with a home folder of its own; see that nothing is left of clusters."""
    with (
        pytest.MonkeyPatch.context() as patch,
        engines(name, folder) as launcher,
    ):
        for name, value in launcher.environment.items():
            patch.setenv(name, value)
        # What processes of other hosts share, and what is sent to them, goes into one's home.
        patch.setenv("HOME", str(folder))
        (folder / ".cache").mkdir()
        yield launcher
        assert wait_until(lambda: not left(folder), ENDED_S), left(folder)
        assert wait_until(lambda: launcher.jobs() == "", ENDED_S), launcher.jobs()


@contextmanager
def launcher_on_hosts(name: str, home: Path, delay_s: float = 0.0) -> Iterator[Engines]:
    """Bring up two hosts beside the notebook's, and a launcher for them.

    See that nothing is left of clusters.

    Args:
        name: ssh or slurm.
        home: The home folder on the notebook's host, and with Slurm on the others.
        delay_s: How long a message takes between the notebook's host and another one.
    """
    if not hosts.available():
        pytest.skip(hosts.WHY_NOT)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("HOME", str(home))
        (home / ".cache").mkdir()
        stack.enter_context(hosts.hosts(delay_s))
        if name == "ssh":
            launcher, homes = _ssh_on_hosts(stack, home), [home, *map(home.joinpath, hosts.OTHERS)]
        else:
            launcher, homes = _slurm_on_hosts(stack, home), [home]
            for variable, value in launcher.environment.items():
                patch.setenv(variable, value)
        yield launcher
        for place in homes:
            assert wait_until(lambda place=place: not left(place), ENDED_S), left(place)


def _ssh_on_hosts(stack: ExitStack, home: Path) -> Engines:
    if not sshd.available():
        pytest.skip(sshd.WHY_NOT)
    clients = []
    for name in hosts.OTHERS:
        folder = home / name
        folder.mkdir()
        address = hosts.ADDRESSES[name]
        clients.append(stack.enter_context(sshd.sshd(folder, name, address, hosts.on(name))))
    client = home / "ssh_config"
    client.write_text("".join(one.read_text() for one in clients))
    return Engines("ssh", {}, ",".join(hosts.OTHERS), f"-F {client}")


def _slurm_on_hosts(stack: ExitStack, home: Path) -> Engines:
    if not slurm.available():
        pytest.skip(slurm.WHY_NOT)
    controller, *nodes = (
        slurm.Host(name, hosts.ADDRESSES[name], hosts.on(name)) for name in hosts.NAMES
    )
    environment = stack.enter_context(slurm.slurm(home, controller, nodes))
    return Engines("slurm", {"SLURM_CONF": environment["SLURM_CONF"]}, "", "--nodes=2")


def left(home: Path) -> list[object]:
    """Return what is left of the clusters of a home: processes, and files with their keys."""
    cache = home / ".cache" / "mcnb"
    return [*(cache.iterdir() if cache.exists() else ()), *processes_of(home)]


def processes_of(home: Path) -> list[psutil.Process]:
    """Return the processes of the clusters of a home, with the commands that start them.

    The home is in the environment of each process, whichever launcher starts it. The command line
    does not tell these clusters from those of another test: for ssh it names a relative folder.
    """
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "mcnb.worker" in words and any("--profile-dir" in word for word in words):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(home):
                    found.append(process)
    return found
