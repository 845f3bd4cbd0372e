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
        backends = sys.modules.get("jax._src.xla_bridge")
        distributed = sys.modules.get("jax._src.distributed")
        if distributed is not None and distributed.global_state.client is not None:
            return "belongs to another system of JAX processes since an earlier run"
        if backends is not None and backends.backends_are_initialized():
            return "has computed with JAX by itself before"
        from mcnb.worker.kernel import adopt

        try:
            adopt(Path(self.folder))
        except ClusterError as error:
            return str(error)
        return ""
