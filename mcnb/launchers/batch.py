"""Start the processes with ipyparallel's engine launchers, and configure each of them for mcnb."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
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

from mcnb._system import LOOPBACK, address_toward, check_listen, outward_address
from mcnb.errors import ClusterError, OptionError
from mcnb.launchers.base import process_environment
from mcnb.launchers.exits import ending_of, said_lines
from mcnb.launchers.local import ENGINE_ARGS, ForkedCluster, LocalLauncher
from mcnb.launchers.ssh import SshEngines
from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options
from mcnb.worker.settings import FILE, Settings, leave_settings

FOLDER = "MCNB_FOLDER"
LOOK_S = 1.0  # how often to check whether a job still exists
GROUP = "ipyparallel.engine_launchers"
# The command that checks whether a job still exists: its output is then not empty.
_QUEUES = {"slurm": ("squeue", "--noheader", "--jobs")}
# By default Open MPI refuses more processes than cores. The settings are for versions 4 and 5.
_MORE_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
# Set inside a job to which hosts are allocated, possibly other hosts than this one.
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_HOSTS")
# Prefixes of the notebook kernel's variables that processes on other hosts receive, too.
HANDED_ON = ("JAX_", "XLA_")


class IpyparallelLauncher(LocalLauncher):
    """A launcher that uses a fork server for the controller, and ipyparallel for the engines.

    Args:
        options: The cluster's options.

    Raises:
        OptionError: The launcher is unknown, or an option is invalid.
        ClusterError: A command that the launcher needs is not installed.
    """

    watched = numbered = False
    told_s = 3.0

    def __init__(self, options: Options) -> None:
        from mcnb.launchers.ssh import address_from

        self._kind = options.launcher
        cls = launcher_class(self._kind)
        self.patient = hasattr(cls, "submit_command")
        for command in commands_of(self._kind):
            if shutil.which(command) is None:
                raise ClusterError(
                    f"--launcher {self._kind} needs the command {command}, which is not installed"
                )
        check_listen(options.listen)
        self._words = split_words(options.launcher_options)
        # Called even if the address is given, to check that ssh can log in to the hosts.
        found = address_from(options.hosts, self._words) if options.hosts else self._find_host()
        self.host = options.listen or found
        super().__init__(options)
        self._looked = 0.0
        self._turn = threading.Lock()  # guards _launching and _closed
        self._launching = False
        self._closed = threading.Event()

    def _find_host(self) -> str:
        if self._kind == "slurm":
            return address_toward(_slurm_nodes())
        if self._kind == "mpi":
            allocated = any(os.environ.get(name) for name in _ALLOCATIONS)
            named = any("host" in word or "machinefile" in word for word in self._words)
            return outward_address() if allocated or named or "-H" in self._words else LOOPBACK
        return outward_address()

    def _make_folder(self) -> Path:
        """Create the cluster's folder, where possible on a file system that other hosts share.

        Even on this host, a job's /tmp may differ from this process's /tmp.
        """
        if os.environ.get(FOLDER):
            parent = Path(os.environ[FOLDER])
        elif self._kind == "ssh" or (self._kind == "mpi" and self.host == LOOPBACK):
            return super()._make_folder()
        else:
            parent = Path.home() / ".cache" / "mcnb"
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="mcnb-", dir=parent))

    def _cluster(self, exits: dict[str, ProcessExit]) -> ForkedCluster:
        options = self.options
        config = configure(
            self._kind,
            self.folder,
            options.processes,
            options.hosts,
            self._words,
            one_host=self.host == LOOPBACK,
        )
        cls = launcher_class(self._kind)
        return ForkedCluster(
            self.forkserver, self.folder, options, exits, engines=cls, host=self.host, config=config
        )

    def _start(self, cluster: ForkedCluster) -> None:
        cluster.start_reachable_controller_sync()
        env = {k: v for k, v in os.environ.items() if k.startswith(HANDED_ON)}
        env = process_environment(self.options, env)
        leave_settings(Settings(env, str(Path.cwd()), sent=self._kind == "ssh"), self.folder)
        (self.folder / "log").mkdir(mode=0o700, exist_ok=True)
        with self._turn:
            if self._closed.is_set():
                return
            self._launching = True
        try:
            cluster.start_engines_sync(n=self.options.processes)
        except Exception as error:
            raise ClusterError(
                f"{self._kind} could not start the processes: {_said(error)}"
            ) from None
        finally:
            with self._turn:
                self._launching = False
            if self._closed.is_set():
                self._stop_launched()

    def failure(self) -> str:
        """Return why the processes can't start: the launcher's job has ended; else empty."""
        launcher = self._launcher
        if launcher is None or time.monotonic() < self._looked + LOOK_S:
            return ""
        self._looked = time.monotonic()
        if not is_gone(self._kind, launcher):
            return ""
        return f"what {self._kind} started ended before it could join.{self.said()}"

    def said(self) -> str:
        """Return the output of the launcher or its job, to be appended to a sentence."""
        return said_lines(self._output())

    def ending(self, k: int) -> ProcessExit | None:
        """Return a process's exit reason, if the launcher has reported it."""
        endings = getattr(self._launcher, "endings", None)
        if endings is not None:  # exit reasons of all processes, in an order unknown here
            return next(iter(endings()), None)
        return ending_of(k, self._output())

    def signal(self, k: int, number: int) -> None:
        """Raise NotImplementedError: these launchers can't signal a single process."""
        raise NotImplementedError

    def output(self, name: str) -> str:
        """Return the base path of the controller's output files; empty for the processes."""
        return super().output(name) if name == "controller" else ""

    def close(self, grace_s: float | None = None) -> None:
        """End the job and the controller; the processes exit when the referee closes."""
        with self._turn:
            self._closed.set()
            # A job that is being launched has no id yet: the launching thread ends it.
            stops = not self._launching
        if stops:
            self._stop_launched()
        super().close(grace_s)

    def _stop_launched(self) -> None:
        cluster = self.cluster
        if cluster is not None and self._launcher is not None:
            with contextlib.suppress(Exception):  # an error means that the job has ended
                cluster.stop_engines_sync()

    @property
    def _launcher(self) -> Any:
        return self.cluster.engine_set if self.cluster is not None else None

    def _output(self) -> str:
        """Return the raw output of the launcher or its job."""
        launcher = self._launcher
        if launcher is None:
            return ""
        path = getattr(launcher, "output_file", "")
        if path and Path(path).is_file():
            return Path(path).read_text(errors="replace")
        return str(launcher.get_output())  # ipyparallel reads the file and removes it


def _slurm_nodes() -> list[str]:
    asked = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%o"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise ClusterError(f"Slurm does not answer: {asked.stderr.strip()}")
    return sorted(set(asked.stdout.split()))


def _said(error: Exception) -> str:
    """Return the error output of a launcher's command, or the error's text if there is none."""
    said = getattr(error, "stderr", None) or getattr(error, "output", None) or ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text.strip() or str(error)


class MpiEngines(MPIEngineSetLauncher):
    """Launcher of engines with Open MPI or MPICH, which set the ranks in the environment.

    With ipyparallel's own option, engines would ask MPI for their ranks, which requires mpi4py.
    """

    @property
    def program(self) -> list[str]:
        """The command line of an engine."""
        command: list[str] = self.engine_cmd
        return command


_OWN: dict[str, type[EngineLauncher]] = {"mpi": MpiEngines, "ssh": SshEngines}


def launcher_class(name: str) -> type[EngineLauncher]:
    """Return a launcher class by its name.

    Args:
        name: The name of the ipyparallel launcher, such as `"mpi"`, `"ssh"` or `"slurm"`.

    Raises:
        OptionError: There is no launcher of that name.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        names = ", ".join(sorted(known))
        raise OptionError(f"--launcher {name}: there is no such launcher. There are: {names}")
    loaded: type[EngineLauncher] = _OWN.get(name) or known[name].load()
    return loaded


def spread(processes: int, hosts: Sequence[str]) -> dict[str, int]:
    """Return the number of processes per host, with neighbouring processes on the same host.

    A host that is listed twice gets twice as many processes.

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
    """Return the traitlets configuration of a launcher.

    Args:
        name: The launcher's name.
        folder: The cluster's folder.
        processes: The number of processes to start.
        hosts: The hosts, for ssh.
        words: Additional options for the launcher's command.
        one_host: Whether all processes run on this host.
    """
    cls = launcher_class(name)
    command = [sys.executable, "-P", "-m", "mcnb.worker"]
    told: dict[str, Any] = {"engine_cmd": command}
    profile = str(folder)
    if issubclass(cls, BatchSystemLauncher):
        told["batch_file_name"] = str(folder / f"{name}.job")
        told["submit_command"] = [*cls.class_traits()["submit_command"].default(), *words]
    elif issubclass(cls, SshEngines):
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
    """Return the commands that a launcher calls and that must be installed."""
    cls = launcher_class(name)
    traits = cls.class_traits()
    kinds = ("mpi_cmd", "submit_command", "delete_command")
    found = [traits[kind].default()[0] for kind in kinds if kind in traits]
    return ["ssh"] if cls is SshEngines else found


def is_gone(name: str, launcher: Any) -> bool:
    """Return whether a launcher's job or command is known to have ended."""
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
    """Split a launcher's options into words, as a shell does.

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
