"""How a cluster's processes are brought up, reached and ended: what each way has to offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

OnExit = Callable[[str, str], None]


class Start(ABC):
    """A way to have processes; each is an ipyparallel engine.

    Attributes:
        folder: A folder that this user alone can enter, for what the processes share.
        host: At which of this host's addresses the processes find the referee; empty where a socket
            in the folder will do.
        watched: Whether it tells by itself when a process ends, and can send it signals.
        numbered: Whether engines have their process index as their id.
        patient: Whether processes may wait in a queue, for who knows how long, before they begin.
        told_s: How long it may take, in seconds, until it knows how a process ended.
    """

    folder: Path
    host: str = ""
    watched: bool = False
    numbered: bool = False
    patient: bool = False
    told_s: float = 0.0

    @abstractmethod
    def begin(self, exits: dict[str, str], on_exit: OnExit) -> None:
        """Bring them up, or begin to.

        Args:
            exits: How what is gone ended, by name.
            on_exit: Called with a name and how it ended, in words, when something ends.

        Raises:
            ClusterError: That is not possible.
        """

    @abstractmethod
    def connect(self) -> Any:
        """Return a new client of ipyparallel's."""

    def failure(self) -> str:
        """Return why processes that have not come up yet never will, as far as is known."""
        return ""

    def said(self) -> str:
        """Return what the launcher has said, for the end of a sentence; empty if nothing."""
        return ""

    def ending(self, k: int) -> str:
        """Return how a process ended that is gone without a word; empty if nobody knows."""
        del k
        return ""

    @property
    def cold(self) -> str:
        """Why processes import JAX one by one; empty if they do not."""
        return ""

    @property
    def alive(self) -> bool:
        """Whether the process that started them, and ends them, runs."""
        return True

    def signal(self, k: int, number: int) -> None:
        """Send a process a signal."""
        raise NotImplementedError

    def output(self, name: str) -> str:
        """Return the common path of a process's output files; empty if they can't be read here."""
        del name
        return ""

    @abstractmethod
    def close(self, grace_s: float | None = None) -> None:
        """End everything; return when all is gone.

        Args:
            grace_s: How long processes have to leave before they are killed, in seconds, where that
                can be chosen.
        """
