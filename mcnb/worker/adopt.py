"""Turn an ipyparallel engine that another program started into one of mcnb's processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcnb.errors import ClusterError
from mcnb.lockstep.compiling import without_device_count


@dataclass(frozen=True)
class Adopt:
    """A callable that turns the engine in which it runs into one of mcnb's processes.

    Attributes:
        env: The environment variables to set. If there are no `XLA_FLAGS` among them, the engine
            keeps its own, except for the number of CPU devices.
        folder: The folder for its output, if its host has that folder.
    """

    env: Mapping[str, str]
    folder: str

    def __call__(self) -> str:
        """Adopt this engine; return why that is not possible, or an empty text."""
        own_flags = without_device_count(os.environ.get("XLA_FLAGS", ""))
        # The imports below read the environment.
        os.environ.update(self.env)
        os.environ["XLA_FLAGS"] = self.env.get("XLA_FLAGS") or own_flags
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
