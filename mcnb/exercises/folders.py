"""A folder that all processes of a cluster see, for exercises that write files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

LONGEST_PATH = 1024


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Have process 0 make a folder, and tell the others; it is removed when process 0 is through.

    It communicates: all processes enter it together.
    """
    import jax
    from jax.experimental import multihost_utils

    made = tempfile.mkdtemp() if jax.process_index() == 0 else ""
    try:
        name = np.frombuffer(made.encode().ljust(LONGEST_PATH, b"\0"), np.uint8)
        told = multihost_utils.broadcast_one_to_all(name)
        yield Path(bytes(np.asarray(told, np.uint8)).rstrip(b"\0").decode())
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)
