"""The one cluster that a notebook's magics drive."""

from __future__ import annotations

from mcnb.cluster import Cluster
from mcnb.errors import ClusterError

_current: Cluster | None = None


def current_cluster() -> Cluster:
    """Return the cluster that `%mcjax` and `%%mcjax` drive.

    Raises:
        ClusterError: There is none yet.
    """
    if _current is None:
        raise ClusterError("There is no cluster yet. Start one: %mcjax start -n 4 -d 2")
    return _current


def current() -> Cluster | None:
    """Return the cluster that the magics drive, None if there is none yet."""
    return _current


def set_current(cluster: Cluster | None) -> None:
    """Have the magics drive this cluster."""
    global _current
    _current = cluster
