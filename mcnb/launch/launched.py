"""Processes that ipyparallel's launchers start: by mpirun, by ssh, or as a job of a cluster's."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnb.errors import ClusterError
from mcnb.launch.environment import process_environment
from mcnb.launch.kept import KeptStart
from mcnb.launch.obituaries import ending_of
from mcnb.launch.route import LOOPBACK, address_toward, check_listen, outward_address
from mcnb.launch.settings import Settings, leave_settings
from mcnb.launch.words import said_lines
from mcnb.options import Options

if TYPE_CHECKING:
    from mcnb.launch.local import KeptCluster

FOLDER = "MCNB_FOLDER"
LOOK_S = 1.0  # how often it is looked whether a job is still there
# Set where a job has been given hosts, one of which may be another than this.
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_HOSTS")
# What of the notebook's environment processes on other hosts are to have, too.
HANDED_ON = ("JAX_", "XLA_")


class LaunchedStart(KeptStart):
    """Has a keeper start the controller, and one of ipyparallel's launchers the processes.

    Args:
        options: What to start.

    Raises:
        OptionError: The launcher is not known, or an option makes no sense.
        ClusterError: A command of the launcher's is not installed.
    """

    watched = numbered = False
    told_s = 3.0

    def __init__(self, options: Options) -> None:
        from mcnb.launch.launchers import commands_of, launcher_class, split_words
        from mcnb.launch.ssh import address_from

        self._kind = options.engines
        cls = launcher_class(self._kind)
        self.patient = hasattr(cls, "submit_command")
        for command in commands_of(self._kind):
            if shutil.which(command) is None:
                raise ClusterError(
                    f"--engines {self._kind} needs the command {command}, which is not installed"
                )
        check_listen(options.listen)
        self._words = split_words(options.launcher_options)
        # Also where the address is given: it is looked whether the hosts let this one in.
        found = address_from(options.hosts, self._words) if options.hosts else self._find_host()
        self.host = options.listen or found
        super().__init__(options)
        self._looked = 0.0
        self._turn = threading.Lock()  # guards the two that follow
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
        """Make a folder; where processes may be on other hosts, one that those are likely to see.

        A job's own /tmp may be another one than this, also on this host.
        """
        if os.environ.get(FOLDER):
            parent = Path(os.environ[FOLDER])
        elif self._kind == "ssh" or (self._kind == "mpi" and self.host == LOOPBACK):
            return super()._make_folder()
        else:
            parent = Path.home() / ".cache" / "mcnb"
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="mcnb-", dir=parent))

    def _cluster(self, exits: dict[str, str]) -> KeptCluster:
        from mcnb.launch.launchers import configure, launcher_class
        from mcnb.launch.local import KeptCluster

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
        return KeptCluster(
            self.keeping, self.folder, options, exits, engines=cls, host=self.host, config=config
        )

    def _start(self, cluster: KeptCluster) -> None:
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
        """Return why processes will not come up: what the launcher started has ended."""
        from mcnb.launch.launchers import is_gone

        launcher = self._launcher
        if launcher is None or time.monotonic() < self._looked + LOOK_S:
            return ""
        self._looked = time.monotonic()
        if not is_gone(self._kind, launcher):
            return ""
        return f"what {self._kind} started ended before it could join.{self.said()}"

    def said(self) -> str:
        """Return what the launcher, or what it started, has said."""
        return said_lines(self._output())

    def ending(self, k: int) -> str:
        """Return how a process ended, if the launcher has written of it."""
        endings = getattr(self._launcher, "endings", None)
        if endings is not None:  # of all, in no order that is known here
            return next(iter(endings()), "")
        return ending_of(k, self._output())

    def signal(self, k: int, number: int) -> None:
        """Refuse: a launcher signals all processes or none."""
        raise NotImplementedError

    def output(self, name: str) -> str:
        """Return the common path of the controller's output files; processes have their own."""
        return super().output(name) if name == "controller" else ""

    def close(self, grace_s: float | None = None) -> None:
        """End everything: the processes leave when the referee is gone, and their job with them."""
        with self._turn:
            self._closed.set()
            # What is being launched can't be named yet: whoever launches it ends it, too.
            stops = not self._launching
        if stops:
            self._stop_launched()
        super().close(grace_s)

    def _stop_launched(self) -> None:
        cluster = self.cluster
        if cluster is not None and self._launcher is not None:
            with contextlib.suppress(Exception):  # whatever it is: what was started has ended
                cluster.stop_engines_sync()

    @property
    def _launcher(self) -> Any:
        return self.cluster.engine_set if self.cluster is not None else None

    def _output(self) -> str:
        """Return what the launcher, or what it started, has written."""
        launcher = self._launcher
        if launcher is None:
            return ""
        path = getattr(launcher, "output_file", "")
        if path and Path(path).is_file():
            return Path(path).read_text(errors="replace")
        return str(launcher.get_output())  # read, and removed, by ipyparallel


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
    """Return what a launcher's command complained of, if it did."""
    said = getattr(error, "stderr", None) or getattr(error, "output", None) or ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text.strip() or str(error)
