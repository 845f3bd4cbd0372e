"""ipyparallel's launchers of engines, and what each is told to start mcnb's processes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ipyparallel.cluster.launcher import (
    BatchSystemLauncher,
    EngineLauncher,
    MPIEngineSetLauncher,
)
from traitlets.config import Config

from mcnb.errors import OptionError
from mcnb.launch.local import ENGINE_ARGS
from mcnb.launch.settings import FILE
from mcnb.launch.ssh import SshProcesses

GROUP = "ipyparallel.engine_launchers"
# Which command tells whether a job is still there: it then writes something.
_QUEUES = {"slurm": ("squeue", "--noheader", "--jobs")}


# Open MPI refuses more processes than cores: version 4, and what version 5 has for it.
_MORE_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class MpiProcesses(MPIEngineSetLauncher):
    """Open MPI's or MPICH's processes: their ranks stand in the environment.

    ipyparallel's own option has engines ask MPI for it, for which they would need mpi4py.
    """

    @property
    def program(self) -> list[str]:
        """The command."""
        command: list[str] = self.engine_cmd
        return command


_OWN: dict[str, type[EngineLauncher]] = {"mpi": MpiProcesses, "ssh": SshProcesses}


def launcher_class(name: str) -> type[EngineLauncher]:
    """Return a launcher by its name.

    Args:
        name: What ipyparallel calls it, such as `"mpi"`, `"ssh"` or `"slurm"`.

    Raises:
        OptionError: There is none of that name.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        names = ", ".join(sorted(known))
        raise OptionError(f"--engines {name}: there is no such launcher. There are: {names}")
    loaded: type[EngineLauncher] = _OWN.get(name) or known[name].load()
    return loaded


def spread(processes: int, hosts: Sequence[str]) -> dict[str, int]:
    """Return how many processes each host gets: neighbours share a host.

    A host that is named twice gets twice as many.

    Example:
        >>> spread(4, ["a", "b", "c"])
        {'a': 2, 'b': 1, 'c': 1}
        >>> spread(4, ["a", "a", "b", "b"])
        {'a': 2, 'b': 2}
    """
    each, more = divmod(processes, len(hosts))
    counts: Counter[str] = Counter()
    for i, host in enumerate(hosts):
        counts[host] += each + (i < more)
    return {host: count for host, count in counts.items() if count}


def configure(
    name: str,
    folder: Path,
    processes: int,
    hosts: Sequence[str],
    words: Sequence[str],
    *,
    one_host: bool,
) -> Config:
    """Return what a launcher is told.

    Args:
        name: Which launcher.
        folder: The cluster's folder.
        processes: How many processes it starts.
        hosts: On which hosts, for ssh.
        words: More options for its command.
        one_host: Whether all processes are on this host.
    """
    cls = launcher_class(name)
    command = [sys.executable, "-P", "-m", "mcnb.process"]
    told: dict[str, Any] = {"engine_cmd": command}
    profile = str(folder)
    if issubclass(cls, BatchSystemLauncher):
        told["batch_file_name"] = str(folder / f"{name}.job")
        told["submit_command"] = [*cls.class_traits()["submit_command"].default(), *words]
    elif issubclass(cls, SshProcesses):
        profile = f".cache/mcnb/{folder.name}"
        told |= {
            "hosts": spread(processes, hosts),
            "words": list(words),
            "remote_folder": profile,
            "files": ["security/ipcontroller-engine.json", f"security/{FILE}"],
        }
    elif issubclass(cls, MPIEngineSetLauncher):
        told["mpi_args"] = list(words)
        if one_host:
            told["environment"] = {k: v for k, v in _MORE_THAN_CORES.items() if k not in os.environ}
    told["engine_args"] = [f"--profile-dir={profile}", *ENGINE_ARGS]
    config = Config()
    config[cls.__name__].update(told)
    return config


def commands_of(name: str) -> list[str]:
    """Return the commands that a launcher calls, which have to be installed."""
    cls = launcher_class(name)
    traits = cls.class_traits()
    kinds = ("mpi_cmd", "submit_command", "delete_command")
    found = [traits[kind].default()[0] for kind in kinds if kind in traits]
    return ["ssh"] if cls is SshProcesses else found


def is_gone(name: str, launcher: Any) -> bool:
    """Return whether what a launcher started is known to have ended."""
    if isinstance(launcher, BatchSystemLauncher):
        queue = _QUEUES.get(name)
        if queue is None:
            return False
        asked = subprocess.run(
            [*queue, launcher.job_id], capture_output=True, text=True, check=False
        )
        return not asked.stdout.strip()
    return launcher.poll() is not None


def split_words(text: str) -> list[str]:
    """Return options for a launcher as words.

    Raises:
        OptionError: A quote is not closed.

    Example:
        >>> split_words("--time=5 --partition=debug")
        ['--time=5', '--partition=debug']
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise OptionError(f"--options {text}: {error}") from None
