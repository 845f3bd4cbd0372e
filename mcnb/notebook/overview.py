"""Show a cluster by itself: its state, memory, meshes and variables, up to date after each cell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from IPython.core.getipython import get_ipython
from IPython.display import display

from mcnb._text import grouped, label, name_processes, size
from mcnb.cluster import cluster as clusters
from mcnb.cluster.cluster import Cluster, current_cluster
from mcnb.messages import ProcessError
from mcnb.notebook.display import preformatted
from mcnb.notebook.live import somebody_looks
from mcnb.notebook.panel import is_available, stand
from mcnb.pictures.pages import is_opened

if TYPE_CHECKING:
    from mcnb.pictures.picture import Picture
    from mcnb.worker.survey import Overview

# A panel is brought up to date when no cell has run for so long: cells that run one after another
# do not wait for it.
REST_S = 0.3
# How long processes may take to answer.
PATIENCE_S = 2.0
NO_CLUSTER = "No cluster. To start one: %mcjax start"
# The most pictures of meshes: where each process has one of its own devices, they are many.
MOST_PICTURES = 4


@dataclass(frozen=True)
class Contents:
    """What a panel says of a cluster.

    Attributes:
        about: Its state, and the memory in use.
        pictures: Of the meshes.
        variables: A table.
    """

    about: str
    pictures: tuple[Picture, ...] = ()
    variables: str = ""

    @property
    def text(self) -> str:
        """The contents as text."""
        parts = [self.about, *(one.text() for one in self.pictures), self.variables]
        return "\n\n".join(part for part in parts if part)

    def data(self) -> dict[str, str]:
        """Return the contents by MIME type, as HTML only for a notebook that somebody has open."""
        if not is_opened():
            return {"text/plain": self.text}
        pictures = "".join(one.html() for one in self.pictures)
        above, below = (preformatted(text) if text else "" for text in (self.about, self.variables))
        return {"text/html": f"<div>{above}{pictures}{below}</div>", "text/plain": self.text}


def contents_of(cluster: Cluster) -> Contents:
    """Ask the processes of a cluster what they hold, unless they run a cell."""
    # Imported here: the start of the magics does not need them.
    from mcnb.cluster.pictures import shared_pictures
    from mcnb.cluster.variables import table
    from mcnb.worker.survey import overview

    count = cluster.options.processes
    answers: dict[int, Overview | ProcessError] = cluster.ask_idle(
        overview, processes=range(count), within_s=PATIENCE_S
    )
    about = cluster.status()
    if not answers:
        return Contents(about)
    if silent := [k for k in range(count) if k not in answers]:
        about += f"\n{_named(silent)} did not answer within {PATIENCE_S:.0f} s"
    errors = {k: one.summary() for k, one in answers.items() if isinstance(one, ProcessError)}
    for error, ks in grouped(errors):
        its = "its" if len(ks) == 1 else "their"
        about += f"\n{_named(ks)} can't describe {its} variables: {error}"
    found = {k: one for k, one in answers.items() if not isinstance(one, ProcessError)}
    if not found:
        return Contents(about)
    memory = {k: memory_text(one.memory) for k, one in found.items()}
    groups = [f"{label(ks, count)} {text}" for text, ks in grouped(memory)]
    scenes = {k: one.meshes for k, one in found.items()}
    names = dict.fromkeys(name for meshes in scenes.values() for name in meshes)
    pictures = [
        picture
        for name in names
        for picture in shared_pictures({k: of[name] for k, of in scenes.items() if name in of})
    ]
    if len(pictures) > MOST_PICTURES:
        groups.append(f"{MOST_PICTURES} of {len(pictures)} meshes are drawn")
    return Contents(
        "\n".join([about, *groups]),
        tuple(pictures[:MOST_PICTURES]),
        table({k: one.variables for k, one in found.items()}, count),
    )


def _named(processes: list[int]) -> str:
    """Name processes at the beginning of a sentence."""
    name = name_processes(processes)
    return f"{name[0].upper()}{name[1:]}"


def memory_text(memory: tuple[tuple[int, int], ...]) -> str:
    """Return what is in use on the devices of a process.

    Example:
        >>> memory_text(((96, 0), (96, 0)))
        'memory in use: 96 B on each device'
        >>> memory_text(((1_200_000_000, 80_000_000_000), (400_000_000, 80_000_000_000)))
        'memory in use: 1.2 GB of 80 GB on device 0, 400 MB of 80 GB on device 1'
    """
    words = [size(used) + (f" of {size(most)}" if most else "") for used, most in memory]
    if len(words) == 1:
        return f"memory in use: {words[0]}"
    if len({*words}) == 1:
        return f"memory in use: {words[0]} on each device"
    return "memory in use: " + ", ".join(f"{word} on device {i}" for i, word in enumerate(words))


class _Shown:
    """A panel in the output of a cell.

    Args:
        update: Replaces what is displayed.
        contents: What is displayed.
    """

    def __init__(self, update: Callable[[Mapping[str, str]], object], contents: Contents) -> None:
        self._update = update
        self._contents = contents
        self._timer: asyncio.TimerHandle | None = None

    def refresh_soon(self, runs: Callable[[], bool]) -> None:
        """Bring the panel up to date if no cell runs a moment later."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REST_S, lambda: None if runs() else self.refresh())

    def refresh(self) -> None:
        """Bring the panel up to date."""
        cluster = clusters.current
        contents = Contents(NO_CLUSTER) if cluster is None else contents_of(cluster)
        if contents != self._contents:
            self._contents = contents
            self._update(contents.data())


_shown: _Shown | None = None


def panel() -> None:
    """Show the cluster by itself: its state, memory, meshes and variables.

    In a notebook that somebody has open, it is brought up to date when cells have ended, and has a
    strip for each process of the cell that runs, where widgets are drawn. In JupyterLab, *Create
    New View for Cell Output*, in the menu of the output, puts it beside the notebook. Elsewhere, it
    says how the cluster is when it is called.

    The strips belong to the notebook kernel that has drawn them. Of a notebook that is opened
    again, `mcnb lab` has stored a text in their place; other servers store the view, and JupyterLab
    then shows "model not found" above the rest until this is called again.

    Raises:
        ClusterError: No cluster is running.
    """
    global _shown
    contents = contents_of(current_cluster())
    shell = get_ipython()
    if not hasattr(shell, "kernel"):
        print(contents.text)
        return
    watched = somebody_looks(shell)
    if watched and is_available():
        stand()
    handle = display(contents.data(), raw=True, display_id=True)
    _shown = _Shown(lambda data: handle.update(data, raw=True), contents) if watched else None


def refresh_soon(runs: Callable[[], bool]) -> None:
    """Bring the panel up to date, if there is one; called when a cell has ended.

    Args:
        runs: Returns whether a cell runs.
    """
    if _shown is not None:
        _shown.refresh_soon(runs)
