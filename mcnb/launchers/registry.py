"""Find the launcher of a cluster's processes by its name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from mcnb.errors import OptionError
from mcnb.launchers.base import Launcher
from mcnb.launchers.batch import BatchLauncher
from mcnb.launchers.existing import ExistingLauncher
from mcnb.launchers.local import LocalLauncher
from mcnb.launchers.mpi import MpiLauncher
from mcnb.launchers.slurm import SlurmLauncher
from mcnb.launchers.ssh import SshLauncher
from mcnb.options import CONNECTED, LOCAL, Options

# The entry points of other packages: subclasses of Launcher, and ipyparallel's own launchers.
GROUP, IPYPARALLEL = "mcnb.launchers", "ipyparallel.engine_launchers"
_LAUNCHERS: dict[str, Callable[[Options], Launcher]] = {
    LOCAL: LocalLauncher,
    CONNECTED: ExistingLauncher,
    "mpi": MpiLauncher,
    "slurm": SlurmLauncher,
    "ssh": SshLauncher,
}


def create_launcher(options: Options) -> Launcher:
    """Create the launcher that the options name.

    A launcher of that name in another package comes before one of mcnb's own.

    Args:
        options: The cluster's options.

    Raises:
        OptionError: There is no launcher of that name, or an option is invalid.
        ClusterError: A command or host that the launcher needs is missing.
    """
    name = options.launcher
    if name in (LOCAL, CONNECTED):
        return _LAUNCHERS[name](options)
    others = {point.name: point for point in entry_points(group=GROUP)}
    if name in others:
        other: Launcher = others[name].load()(options)
        return other
    if name in _LAUNCHERS:
        return _LAUNCHERS[name](options)
    known = {point.name: point for point in entry_points(group=IPYPARALLEL)}
    if name not in known:
        names = ", ".join(sorted({*known, *others}))
        raise OptionError(f"--launcher {name}: there is no such launcher. Allowed: {names}")
    return BatchLauncher(options, known[name].load())
