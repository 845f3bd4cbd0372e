"""Turn an ipyparallel engine that another program started into one of mcnb's processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcnb.errors import ClusterError


@dataclass(frozen=True)
class Adopt:
    """A callable that turns the engine in which it runs into one of mcnb's processes.

    Attributes:
        env: The environment variables to set.
        folder: The folder for its output, if its host has that folder.
    """

    env: Mapping[str, str]
    folder: str

    def __call__(self) -> str:
        """Adopt this engine; return why that is not possible, or an empty text."""
        # The imports below read the environment.
        os.environ.update(self.env)
        jax = sys.modules.get("jax")
        if jax is not None and jax.distributed.is_initialized():
            return "is still connected to the JAX processes of an earlier %mcjax connect"
        from mcnb.lockstep import _jax

        if _jax.backends_are_initialized():
            return "has already initialized JAX, so it can't connect to other processes"
        from mcnb.worker.kernel import adopt

        try:
            adopt(Path(self.folder))
        except ClusterError as error:
            return str(error)
        return ""
