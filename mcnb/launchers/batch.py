"""Start processes with one of ipyparallel's engine launchers, such as those of batch systems."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ipyparallel.cluster.launcher import EngineLauncher
from traitlets.config import Config

from mcnb._system import LOOPBACK, check_listen, outward_address
from mcnb.errors import ClusterError, OptionError
from mcnb.launchers.base import forwarded_environment
from mcnb.launchers.credentials import make_credentials
from mcnb.launchers.exits import CONTROLLER, output_lines
from mcnb.launchers.forkserver import python_command
from mcnb.launchers.local import ENGINE_ARGS, ForkedCluster, LocalLauncher
from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options
from mcnb.worker.settings import Settings, leave_settings

FOLDER = "MCNB_FOLDER"
# For a launcher that reports exit reasons, also on a busy machine.
REPORT_S = 15.0
LOOK_S = 1.0  # how often to check whether a job still exists
# The traits of ipyparallel's launchers with the commands that must be installed.
_COMMANDS = ("mpi_cmd", "submit_command", "delete_command")


class BatchLauncher(LocalLauncher):
    """A launcher that uses a fork server for the controller, and ipyparallel for the engines.

    It serves PBS, SGE, LSF and HTCondor as it is. Subclasses override what is special about their
    launcher.

    Args:
        options: The cluster's options.
        engines: ipyparallel's launcher of the engines, if the class does not set it.

    Raises:
        OptionError: An option is invalid.
        ClusterError: A command that the launcher needs is not installed.

    Attributes:
        sent: Whether the processes' files are sent to their hosts; otherwise hosts share a folder.
        words: Additional options for the launcher's command.
    """

    watched = numbered = False
    exit_delay_s = 3.0
    engines: type[EngineLauncher]
    sent = False

    def __init__(self, options: Options, engines: type[EngineLauncher] | None = None) -> None:
        if engines is not None:
            self.engines = engines
        self.patient = hasattr(self.engines, "submit_command")
        for command in self.commands():
            if shutil.which(command) is None:
                raise ClusterError(
                    f"--launcher {options.launcher} needs the command {command}, which is not "
                    "installed"
                )
        check_listen(options.listen)
        self.words = split_words(options.launcher_options)
        self.options = options
        found = self.find_host()  # called in any case: it may check the hosts
        self.host = options.listen or found
        super().__init__(options)
        self._looked = 0.0
        self._launching = threading.Lock()  # held while the job is being launched
        # Processes connect to it, and end when it is closed. Nothing is sent.
        self._listener: socket.socket | None = None

    def commands(self) -> list[str]:
        """Return the commands that must be installed."""
        traits = self.engines.class_traits()
        return [traits[name].default()[0] for name in _COMMANDS if name in traits]

    def find_host(self) -> str:
        """Return the address of this host at which the processes reach it.

        Raises:
            ClusterError: The hosts of the processes can't be reached.
        """
        return outward_address()

    def folder_parent(self) -> Path | None:
        """Return the parent of the cluster's folder; None for this host's temporary folder.

        The processes' hosts must share it. Even on this host, a job's /tmp may differ from this
        process's /tmp.
        """
        return Path.home() / ".cache" / "mcnb"

    def engine_traits(self) -> dict[str, Any]:
        """Return the configuration of ipyparallel's launcher, besides the engines' command line."""
        if not self.patient:
            return {}
        submit = self.engines.class_traits()["submit_command"].default()
        return {
            "batch_file_name": str(self.folder / f"{self.options.launcher}.job"),
            "submit_command": [*submit, *self.words],
        }

    def has_ended(self) -> bool:
        """Return whether the job or command of `engine_set` is known to have ended."""
        return not self.patient and self.engine_set.poll() is not None

    @staticmethod
    def parse_exit(process: int, text: str) -> ProcessExit | None:
        """Parse a process's exit reason from the launcher's output.

        Args:
            process: The rank of the process, which is its index.
            text: The output of the launcher or its job.

        Returns:
            The exit reason; None if the output does not contain it.
        """
        del process, text
        return None

    @property
    def engine_set(self) -> Any:
        """The instance of ipyparallel's launcher; None before it starts the engines."""
        return self.cluster.engine_set if self.cluster is not None else None

    def _make_folder(self) -> Path:
        parent = Path(os.environ[FOLDER]) if os.environ.get(FOLDER) else self.folder_parent()
        if parent is None:
            return super()._make_folder()
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="mcnb-", dir=parent))

    def _cluster(self, exits: dict[str, ProcessExit]) -> ForkedCluster:
        traits = {
            "engine_cmd": python_command("mcnb.worker"),
            "engine_args": [f"--profile-dir={self.folder}", *ENGINE_ARGS],
            **self.engine_traits(),
        }
        return ForkedCluster(self, exits, self.engines, Config({self.engines.__name__: traits}))

    def _start(self, cluster: ForkedCluster) -> None:
        cluster.start_controller_sync()
        (self.folder / "log").mkdir(mode=0o700, exist_ok=True)
        try:
            with self._launching:
                if not self.closed:
                    leave_settings(self._settings(), self.folder)
                    cluster.start_engines_sync(n=self.options.processes)
        except Exception as error:
            raise ClusterError(
                f"{self.options.launcher} could not start the processes: {_said(error)}"
            ) from None
        finally:
            if self.closed:
                self._stop_launched()

    def _settings(self) -> Settings:
        host = self.host or LOOPBACK
        # The system accepts the connections, and closes them even if this process is killed.
        self._listener = socket.create_server((host, 0), backlog=socket.SOMAXCONN)
        kernel = f"{host}:{self._listener.getsockname()[1]}"
        environment = forwarded_environment(self.options)
        credentials = None if host == LOOPBACK else make_credentials()
        return Settings(environment, str(Path.cwd()), self.sent, kernel, credentials)

    def failure(self) -> str:
        """Return why the processes can't start: the launcher's job has ended; else empty."""
        if self.engine_set is None or time.monotonic() < self._looked + LOOK_S:
            return ""
        self._looked = time.monotonic()
        if not self.has_ended():
            return ""
        what = f"{self.options.launcher} {'job' if self.patient else 'launcher'}"
        return f"The {what} ended before its processes had connected.{self.output_lines()}"

    def queued(self) -> str:
        """Return that the scheduler has not started the job, if there is one."""
        return f"{self.options.launcher} starts the job" if self.patient else ""

    def output_lines(self) -> str:
        """Return the output of the launcher or its job, to be appended to a sentence."""
        return output_lines(self._output())

    def exit_of(self, k: int) -> ProcessExit | None:
        """Return a process's exit reason, if the launcher has reported it."""
        return self.parse_exit(k, self._output())

    def output(self, name: str) -> str:
        """Return the base path of the controller's output files; empty for the processes."""
        return super().output(name) if name == CONTROLLER else ""

    def close(self, grace_s: float | None = None) -> None:
        """End the job and the controller; the processes exit when the referee closes."""
        self.closed = True
        # A job that is being launched has no id yet: the launching thread ends it.
        if not self._launching.locked():
            self._stop_launched()
        super().close(grace_s)

    def _stop_launched(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self.cluster is not None:
            with contextlib.suppress(Exception):  # an error means that the job has ended
                self.cluster.stop_engines_sync()

    def _output(self) -> str:
        """Return the raw output of the launcher or its job."""
        if self.engine_set is None:
            return ""
        path = getattr(self.engine_set, "output_file", "")
        if path and Path(path).is_file():
            return Path(path).read_text(errors="replace")
        return str(self.engine_set.get_output())  # ipyparallel reads the file and removes it


def _said(error: Exception) -> str:
    """Return the error output of a launcher's command, or the error's text if there is none."""
    said = getattr(error, "stderr", None) or getattr(error, "output", None) or ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text.strip() or str(error)


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
