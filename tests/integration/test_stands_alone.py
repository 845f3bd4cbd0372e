"""The check needs the standard library, NumPy and JAX, and the bottom layers of mcnb."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Only ends what hangs, on however busy a machine.
HANG_S = 240
STANDS_ALONE = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top, _, rest = name.partition(".")
        outside = top == "mcnb" and rest.split(".")[0] not in (
            "", "lockstep", "errors", "_text", "_system")
        if outside or top in ("IPython", "ipykernel", "ipyparallel", "zmq", "psutil", "traitlets"):
            raise ImportError(f"the check imports {{name}}")

sys.meta_path.insert(0, Refuse())
import mcnb.lockstep
for module in pkgutil.iter_modules(mcnb.lockstep.__path__, "mcnb.lockstep."):
    importlib.import_module(module.name)
{line}
"""


@pytest.mark.parametrize(
    ("line", "code"), [("", 0), ("import mcnb.options", 1), ("import psutil", 1)]
)
def test_the_check_stands_alone(line: str, code: int) -> None:
    """It needs the standard library, NumPy and JAX, and the first floor of mcnb."""
    program = STANDS_ALONE.format(line=line)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert done.returncode == code, done.stderr
