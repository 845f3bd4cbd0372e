"""Processes of this machine, started by a keeper."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnb.errors import ClusterError
from mcnb.launch.environment import process_environment
from mcnb.launch.names import CONTROLLER, output_path, process_name
from mcnb.launch.start import OnExit, Start
from mcnb.launch.warm import give_back, take
from mcnb.launch.words import last_lines
from mcnb.options import Options

if TYPE_CHECKING:  # it takes its time to import, while the keeper imports what takes longer
    from mcnb.launch.local import KeptCluster

START_TRIES = 3  # ipyparallel's controller chooses ports before it binds them


class KeptStart(Start):
    """Has a keeper start the controller and the processes.

    Args:
        options: What to start.
    """

    watched = numbered = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = self._make_folder()
        self.keeping = take(process_environment(options, os.environ))
        self.cluster: KeptCluster | None = None

    def _make_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="mcnb-"))

    def begin(self, exits: dict[str, str], on_exit: OnExit) -> None:
        """Have the keeper start them, again where the controller finds its ports taken."""
        self.keeping.begin(self.folder, on_exit)
        for try_number in range(1, START_TRIES + 1):
            self.cluster = self._cluster(exits)
            try:
                self._start(self.cluster)
            except (RuntimeError, TimeoutError) as error:
                if try_number == START_TRIES:
                    lines = last_lines(self.output(CONTROLLER))
                    raise ClusterError(
                        f"ipyparallel's controller could not be started: {error}.{lines}"
                    ) from None
                self.keeping.end(remove=False)
                exits.clear()
            else:
                return

    def _cluster(self, exits: dict[str, str]) -> KeptCluster:
        # Not before the keeper imports, at the same time, what is the longer part.
        from mcnb.launch.local import KeptCluster

        return KeptCluster(self.keeping, self.folder, self.options, exits)

    def _start(self, cluster: KeptCluster) -> None:
        cluster.start_cluster_sync(n=self.options.processes)

    def connect(self) -> Any:
        """Return a new client of the controller's."""
        assert self.cluster is not None
        return self.cluster.connect_client_sync()

    @property
    def cold(self) -> str:
        """Why they were started one by one and not forked; empty if they were forked."""
        return self.keeping.cold or ""

    @property
    def alive(self) -> bool:
        """Whether the keeper runs."""
        return self.keeping.alive

    def signal(self, k: int, number: int) -> None:
        """Have the keeper send a process a signal."""
        self.keeping.signal(self.folder, process_name(k), number)

    def output(self, name: str) -> str:
        """Return the common path of a process's output files."""
        return output_path(self.folder, name)

    def close(self, grace_s: float | None = None) -> None:
        """Have the keeper end everything and remove the folder."""
        give_back(self.keeping, grace_s)
        shutil.rmtree(self.folder, ignore_errors=True)  # where the keeper was killed
