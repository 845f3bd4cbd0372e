"""Drive N JAX processes at once from one Jupyter notebook.

In a notebook:

    %load_ext mcnb
    %mcjax start -n 4 -d 2

    %%mcjax
    import jax
    print(jax.process_index(), jax.devices())

In Python:

    with mcnb.Cluster(processes=4, devices_per_process=2) as cluster:
        result = cluster.run("import jax; jax.device_count()")
        print(result.text())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcnb.cluster.cluster import Cluster as Cluster
    from mcnb.cluster.cluster import current_cluster as current_cluster
    from mcnb.cluster.connecting import connect as connect
    from mcnb.cluster.result import Result as Result
    from mcnb.errors import CellError as CellError
    from mcnb.errors import ClusterError as ClusterError
    from mcnb.errors import LockstepError as LockstepError
    from mcnb.errors import McnbError as McnbError
    from mcnb.errors import OptionError as OptionError
    from mcnb.errors import PictureError as PictureError
    from mcnb.exercises import check as check
    from mcnb.exercises.form import predict as predict
    from mcnb.lockstep.model import Verdict as Verdict
    from mcnb.messages import ProcessError as ProcessError
    from mcnb.notebook.overview import panel as panel
    from mcnb.pictures.explore import explore as explore
    from mcnb.pictures.picture import Picture as Picture
    from mcnb.pictures.play import play as play
    from mcnb.pictures.show import picture as picture
    from mcnb.pictures.show import show as show
    from mcnb.pods.pod import Pod as Pod
    from mcnb.worker.breakpoints import breakpoint as breakpoint  # noqa: A004

__version__ = "0.1.0"

# Imported on first use: the processes and the fork server don't need them, and start faster.
_HOMES = {
    "CellError": "errors",
    "Cluster": "cluster.cluster",
    "ClusterError": "errors",
    "LockstepError": "errors",
    "McnbError": "errors",
    "OptionError": "errors",
    "Picture": "pictures.picture",
    "PictureError": "errors",
    "Pod": "pods.pod",
    "ProcessError": "messages",
    "Result": "cluster.result",
    "Verdict": "lockstep.model",
    "breakpoint": "worker.breakpoints",
    "check": "exercises",
    "connect": "cluster.connecting",
    "current_cluster": "cluster.cluster",
    "explore": "pictures.explore",
    "panel": "notebook.overview",
    "picture": "pictures.show",
    "play": "pictures.play",
    "predict": "exercises.form",
    "show": "pictures.show",
}
__all__ = [*sorted(_HOMES), "load_ipython_extension"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mcnb' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mcnb.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def load_ipython_extension(shell: Any) -> None:
    """Register `%mcjax` and `%%mcjax`; IPython calls this for `%load_ext mcnb`."""
    import os

    from mcnb.launchers.base import process_environment
    from mcnb.launchers.forkserver_client import preload
    from mcnb.options import Options

    # Preload the modules of a cluster's processes, before the notebook kernel's own imports.
    preload(process_environment(Options(), os.environ))
    from mcnb.notebook.magics import register

    register(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Stop the cluster of the magics; IPython calls this for `%unload_ext mcnb`."""
    from mcnb.notebook.magics import unregister

    unregister(shell)
