"""CheckedInitialize processes that somebody else started."""

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
    """Join the engines of an ipyparallel cluster that somebody else started.

    They become JAX processes, all of them; whoever started them ends them.

    Args:
        profile: The IPython profile under which it was started.
        cluster_id: Its id, where several run under one profile.
        devices_per_process: How many devices each process is to have.
        env: Environment variables for the processes.
        checked: Whether a launch waits until all of its participants stand at it.
        listen: At which of this machine's addresses the processes reach the notebook; found out
            by default.

    Returns:
        The cluster, whose processes have joined.

    Raises:
        ClusterError: There is no such cluster, an engine does not answer, or has used JAX.
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
