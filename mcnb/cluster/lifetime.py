"""Manage the lifetime of a cluster's processes: start, loss, restart and stop."""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING

from mcnb._text import release
from mcnb.cluster.shielding import delayed_ctrl_c, in_thread, to_the_end
from mcnb.errors import ClusterError, McnbError, OptionError
from mcnb.launchers.base import process_environment
from mcnb.launchers.forkserver_client import preload
from mcnb.options import Options

if TYPE_CHECKING:
    from mcnb.cluster.workers import Processes

OLDEST_JAX = (0, 8)
# Code that runs in lost processes can't continue in any case.
LOST_GRACE_S = 0.2


def check_jax() -> None:
    """Check that JAX is installed and recent enough.

    Raises:
        ClusterError: JAX or jaxlib is missing or too old.
    """
    wanted = ".".join(map(str, OLDEST_JAX))
    mend = f'python -m pip install --upgrade "jax>={wanted}" "jaxlib>={wanted}"'
    for package in ("jax", "jaxlib"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            what = f"{package} is not installed for this Python"
            raise ClusterError.remedied(what, mend) from None
        if release(version) < OLDEST_JAX:
            what = f"{package} {version} is too old: mcnb needs {wanted} or newer"
            raise ClusterError.remedied(what, mend)


_running: weakref.WeakSet[Lifetime] = weakref.WeakSet()


class Absence(Enum):
    """Reason that a cluster has no processes, as a predicate of "The cluster"."""

    NOT_STARTED = "has not been started"
    FAILED = "did not start"
    NOT_JOINED = "is not connected"
    INTERRUPTED = "was interrupted during its start"
    RESTARTING = "is being restarted"
    RESTART_INTERRUPTED = "was interrupted during its restart"
    STOPPED = "was stopped"
    LOST = "has lost its processes. Restart the engines (ipcluster stop, ipcluster start)"


class Lifetime:
    """Lifetime of a cluster's processes, which are started and restarted as needed.

    Attributes:
        lock: The lock that a thread holds while it uses the processes.
        processes: The processes; None while there are none.
    """

    def __init__(self, options: Options) -> None:
        self.lock = threading.RLock()
        self._options = options
        self.processes: Processes | None = None
        self._absence = Absence.NOT_STARTED
        self._error = ""  # why the cluster did not start, or could not be joined
        self._lost = False
        self._warned = False
        # The restart of lost processes. The task takes no lock: a thread that holds the lock waits
        # for the task before doing anything else.
        self._recovery: Future[object] | None = None
        self._untouched = False

    @property
    def running(self) -> bool:
        """Whether the processes are running or being restarted."""
        return self.processes is not None or self._lost

    @property
    def recovering(self) -> bool:
        """Whether lost processes are currently being restarted."""
        return self._recovery is not None and not self._recovery.done()

    @property
    def untouched(self) -> bool:
        """Whether the processes were restarted after a loss, and have not been used since."""
        return self._lost or self._untouched

    def start(self, tell: Callable[[str], object] | None = None) -> None:
        """Start the processes; return when all of them have joined.

        Args:
            tell: Called each second after the first ten with what the start waits for; by default,
                it is written to the standard error once, if that is a terminal.

        Raises:
            ClusterError: The processes could not be started.
            KeyboardInterrupt: Ctrl-C; the processes have been ended.
        """
        self._wait_for_recovery()
        self._start(tell)

    def _start(self, tell: Callable[[str], object] | None = None) -> None:
        check_jax()
        try:
            if self._options.ours:
                # First of all: a fork server imports JAX while this process imports the rest.
                preload(process_environment(self._options, os.environ), gently=False)
            from mcnb.cluster.workers import start_processes

            start_processes(self._options, self._accept, tell or _telling_a_terminal())
        except OptionError:
            raise
        except (McnbError, OSError) as error:
            self._absence = Absence.FAILED if self._options.ours else Absence.NOT_JOINED
            self._error = str(error)
            self._lost = False
            raise ClusterError(f"The cluster {self._absent()}") from None
        except KeyboardInterrupt:
            # After an interrupted restart, the next cell tries to restart the cluster again.
            self._absence = Absence.INTERRUPTED
            raise
        unchecked = self.processes.unchecked if self.processes is not None else ""
        if unchecked and not self._warned:
            self._warned = True
            warnings.warn(unchecked, RuntimeWarning, stacklevel=2)

    def _accept(self, processes: Processes) -> None:
        self.processes = processes
        self._lost = False
        _running.add(self)

    def end(self, absence: Absence) -> None:
        """End the processes; return when they have ended.

        `absence` is the reason to report to later callers that need the processes.
        """

        def end() -> None:
            self._wait_for_recovery()
            self._lost = self._untouched = False
            processes, self.processes = self.processes, None
            _running.discard(self)
            if processes is not None:
                self._absence = absence
                processes.close()

        to_the_end(end)

    def lose(self) -> str:
        """End the lost processes and start new ones, in the background; describe the effect."""
        from mcnb.cluster.outcome import Outcome, aftermath

        def recover(lost: Processes | None) -> None:
            if lost is not None:
                lost.close(LOST_GRACE_S)
            if self._lost:
                # The next call reports the error, which is kept.
                with contextlib.suppress(ClusterError):
                    self._start()
                    self._untouched = True

        def begin() -> None:
            lost, self.processes = self.processes, None
            self._absence = Absence.RESTARTING if self._options.ours else Absence.LOST
            self._lost = self._options.ours
            self._recovery = in_thread(lambda: recover(lost))

        to_the_end(begin)
        return aftermath(Outcome(intact=False), self._options.processes, ours=self._options.ours)

    def _wait_for_recovery(self) -> None:
        """Wait until lost processes have been restarted, or the restart has failed.

        Raises:
            KeyboardInterrupt: Ctrl-C; the restart continues.
        """
        if self._recovery is not None:
            with delayed_ctrl_c() as ctrl_c:
                if ctrl_c.wait_for(self._recovery):
                    self._recovery = None

    def ready(self) -> Processes:
        """Return the processes when they are ready to be called.

        Raises:
            ClusterError: There are no processes; or a process died, and new ones are being started.
            KeyboardInterrupt: Ctrl-C during a restart; the restart continues.
        """
        self._wait_for_recovery()
        self._untouched = False
        if self.processes is None and self._lost:
            self._start()
        if self.processes is None:
            raise ClusterError(self.absence_sentence())
        if self.processes.exits:
            from mcnb.cluster.outcome import died_sentence

            try:
                died = died_sentence(self.processes.died(), self._options.processes)
            except ClusterError as error:
                died = str(error)
            died = f"{died[0].upper()}{died[1:]}"
            raise ClusterError(
                f"{died} after the previous cell, so this cell did not run. {self.lose()}"
            )
        return self.processes

    def state(self) -> str:
        """Return the state of the processes, in a few words."""
        if self.recovering or self.processes is None:
            return "being restarted" if self._lost or self.recovering else f"it {self._absent()}"
        return "broken: a process died" if self.processes.exits else "ready"

    def _absent(self) -> str:
        tried = self._absence in (Absence.FAILED, Absence.NOT_JOINED)
        return f"{self._absence.value}: {self._error}" if tried else self._absence.value

    def absence_sentence(self) -> str:
        """Return a sentence on why there are no processes, and what to do."""
        said = f"The cluster {self._absent()}"
        if self._absence is Absence.FAILED:
            return f"{said}\nWhen that is fixed: %mcjax start"
        if not self._options.ours:
            how = "; then: " if self._absence is Absence.LOST else ". To connect: "
            return f"{said}{how}%mcjax connect"
        return f"{said}. Start it: %mcjax start"


def _telling_a_terminal() -> Callable[[str], object]:
    """Return a function that writes the first text that it is given, if somebody can read it."""
    told: list[str] = []

    def tell(text: str) -> None:
        if not told and sys.stderr is not None and sys.stderr.isatty():
            print(f"mcnb: {text}", file=sys.stderr, flush=True)
        told.append(text)

    return tell


@atexit.register
def _end_all() -> None:
    for lifetime in list(_running):
        with lifetime.lock:
            lifetime.end(Absence.STOPPED)
