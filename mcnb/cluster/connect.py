"""Connect to the engines of an ipyparallel cluster that mcnb did not start."""

from __future__ import annotations

from collections.abc import Mapping

from mcnb.cluster.cluster import Cluster
from mcnb.options import CONNECTED, Options


def connect(
    profile: str = "default",
    cluster_id: str = "",
    devices_per_process: int = 2,
    env: Mapping[str, str] | None = None,
    checked: bool = True,
    listen: str = "",
) -> Cluster:
    """Connect to the engines of an ipyparallel cluster that mcnb did not start.

    All engines become JAX processes. mcnb does not end them.

    Args:
        profile: The IPython profile under which the cluster was started.
        cluster_id: The cluster's id, if several clusters run under one profile.
        devices_per_process: The number of devices per process.
        env: Environment variables for the processes.
        checked: Whether each launch waits until all its participants have reached it.
        listen: The address of this machine at which the processes reach the notebook kernel;
            determined automatically by default.

    Returns:
        The cluster, whose processes have joined.

    Raises:
        ClusterError: There is no such cluster, or an engine does not reply or has used JAX.
    """
    from mcnb.launchers.existing import engines_of

    cluster = Cluster.of(
        Options(
            engines_of(profile, cluster_id),
            devices_per_process,
            env=dict(env or {}),
            checked=checked,
            launcher=CONNECTED,
            listen=listen,
            profile=profile,
            cluster_id=cluster_id,
        )
    )
    cluster.start()
    return cluster
