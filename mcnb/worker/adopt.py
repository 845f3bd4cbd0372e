"""An engine that somebody else started becomes one of mcnb's processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcnb.errors import ClusterError


@dataclass(frozen=True)
class Adopt:
    """Called in an engine, it turns the engine into one of mcnb's processes.

    Attributes:
        env: What to set in its environment.
        folder: Where its output goes, if its host has that folder.
    """

    env: Mapping[str, str]
    folder: str

    def __call__(self) -> str:
        """Return why that is not possible; empty if it is done."""
        # What it imports needs what stands in the environment.
        os.environ.update(self.env)
        jax = sys.modules.get("jax")
        if jax is not None and jax.distributed.is_initialized():
            return "belongs to another system of JAX processes since an earlier run"
        from mcnb.lockstep import _jax

        if _jax.backends_are_initialized():
            return "has computed with JAX by itself before"
        from mcnb.worker.kernel import adopt

        try:
            adopt(Path(self.folder))
        except ClusterError as error:
            return str(error)
        return ""
