"""Connect to the engines of a cluster that mcnb did not start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mcnb.cluster.cluster import Cluster
from mcnb.options import CONNECTED, Options, words


def connect(
    profile: str = "",
    cluster_id: str = "",
    devices_per_process: int = Options.devices_per_process,
    env: Mapping[str, str] | None = None,
    checked: bool = True,
    listen: str = "",
    values: bool | None = None,
    arguments: str | Sequence[str] = (),
    platform: str = Options.platform,
    profile_dir: str = "",
    processes: int | None = None,
) -> Cluster:
    """Connect to the engines of an ipyparallel cluster that mcnb did not start.

    All engines become JAX processes. mcnb does not end them.

    Args:
        profile: The IPython profile under which the cluster was started; by default, the one that
            is named `default`.
        cluster_id: The cluster's id, if several clusters run under one profile.
        devices_per_process: The number of devices per process.
        env: Environment variables for the processes.
        checked: Whether each launch waits until all its participants have reached it.
        listen: The address of this machine at which the processes reach the notebook kernel;
            determined automatically by default.
        values: As for `Cluster`.
        arguments: As for `Cluster`.
        platform: As for `Cluster`.
        profile_dir: The folder that `ipcontroller` was given as `--profile-dir`, instead of a
            profile.
        processes: The number of engines to wait for; by default, those that are there.

    Returns:
        The cluster, whose processes have joined.

    Raises:
        ClusterError: There is no such cluster, or an engine does not reply or has used JAX.
        OptionError: A value is not allowed.
    """
    from mcnb.launchers.existing import engines_of

    options = Options(
        Options.processes if processes is None else processes,
        devices_per_process,
        platform=platform,
        env=dict(env or {}),
        checked=checked,
        values=values,
        launcher=CONNECTED,
        listen=listen,
        profile=profile,
        profile_dir=profile_dir,
        cluster_id=cluster_id,
        arguments=words(arguments),
    )
    count = engines_of(options, None if processes is None else options.processes)
    cluster = Cluster.of(replace(options, processes=count))
    cluster.start()
    return cluster
