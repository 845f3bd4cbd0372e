"""Run nbval on a machine that may be busy: `python .ci/notebooks.py ARGUMENTS`, those of pytest.

nbval gives up on a kernel that is ready and does not reply within 10 s, and on outputs that come
more than 5 s after their cell. A kernel that gets no core needs longer, and no option says so. This
file is the plugin that gives it longer, too: the processes of pytest-xdist load it by its name.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Only a kernel that hangs takes so long.
HANG_S = 300


def pytest_configure() -> None:
    """Set how long a kernel's reply may take, and have outputs made as they were stored."""
    from nbval.kernel import RunningKernel

    for name in ("NO_COLOR", "FORCE_COLOR", "JPY_SESSION_NAME"):
        os.environ.pop(name, None)
    await_reply = RunningKernel.await_reply

    def patiently(kernel: RunningKernel, message: str, timeout: float | None = None) -> None:
        await_reply(kernel, message, timeout and max(timeout, HANG_S))

    RunningKernel.await_reply = patiently


def pytest_itemcollected(item: pytest.Item) -> None:
    """Set how long a cell's outputs may take."""
    if hasattr(item, "output_timeout"):
        item.output_timeout = HANG_S


def main(words: list[str]) -> int:
    """Run pytest with nbval; return its exit code."""
    options = ["--nbval", "--nbval-current-env", f"--nbval-kernel-startup-timeout={HANG_S}"]
    return pytest.main(["-p", Path(__file__).stem, *options, *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
