"""What the keeper and the notebook call what they start."""

from __future__ import annotations

import re
from pathlib import Path

CONTROLLER = "controller"
KEEPER = "keeper"


def process_name(index: int) -> str:
    """Return the keeper's name for a JAX process."""
    return f"process {index}"


def process_index(name: str) -> int | None:
    """Return the index of the process of that name, None for the controller."""
    match = re.fullmatch(r"process (\d+)", name)
    return int(match[1]) if match else None


def output_path(folder: Path, name: str) -> str:
    """Return the common path of a process's output files."""
    return str(folder / name.replace(" ", "-"))
