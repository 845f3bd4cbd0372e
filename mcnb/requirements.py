"""What must be installed for a cluster to start."""

from __future__ import annotations

import importlib.metadata
import re

from mcnb.errors import ClusterError

OLDEST_JAX = (0, 8)


def check_jax() -> None:
    """Raise a plain sentence if there is no JAX, or one that is too old.

    Raises:
        ClusterError: There is none that fits.
    """
    wanted = ".".join(map(str, OLDEST_JAX))
    mend = f'python -m pip install --upgrade "jax>={wanted}" "jaxlib>={wanted}"'
    for package in ("jax", "jaxlib"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise ClusterError(
                f"{package} is not installed for this Python. Install it: {mend}"
            ) from None
        if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < OLDEST_JAX:
            raise ClusterError(
                f"{package} {version} is too old: mcnb needs {wanted} or newer. Install it: {mend}"
            )
