"""A keeper that is warm before a cluster needs it, and stays so for the next one."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping

from mcnb.errors import ClusterError
from mcnb.launch.keeping import Keeping

# What may differ between clusters though the keeper has imported everything: it is told a fork.
_LATE = ("JAX_NUM_CPU_DEVICES", "NPROC")

_lock = threading.Lock()
_idle: Keeping | None = None


def warm(env: Mapping[str, str]) -> None:
    """Have a keeper import what processes need, unless one has; in the background, gently.

    Args:
        env: The environment of the processes.
    """
    global _idle
    with _lock:
        if _idle is None or not _fits(_idle, env):
            before, _idle = _idle, Keeping(_early(env), gently=True)
        else:
            before = None
    if before is not None:
        before.close()


def take(env: Mapping[str, str]) -> Keeping:
    """Return a keeper for processes of that environment, a warm one if there is one."""
    global _idle
    with _lock:
        idle = _idle
        if idle is not None and _fits(idle, env):
            _idle = None
            return idle
    return Keeping(_early(env))


def give_back(keeping: Keeping, grace_s: float | None = None) -> None:
    """End a keeper's cluster, and keep the keeper for the next one; close it if there is one.

    Args:
        keeping: The keeper.
        grace_s: How long processes have to leave before they are killed, in seconds.
    """
    global _idle
    try:
        keeping.end(grace_s=grace_s)
    except ClusterError:  # it was killed
        keeping.close()
        return
    with _lock:
        before, _idle = _idle, keeping
    if before is not None:
        before.close()


@atexit.register
def cool() -> None:
    """Close the keeper that waits, if there is one."""
    global _idle
    with _lock:
        idle, _idle = _idle, None
    if idle is not None:
        idle.close()


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in _LATE}


def _fits(keeping: Keeping, env: Mapping[str, str]) -> bool:
    return keeping.alive and keeping.env == _early(env)
