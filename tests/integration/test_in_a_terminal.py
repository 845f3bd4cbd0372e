"""A cell in IPython in a terminal: its view is drawn in place, and gone when the cell ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import HANG_S
from tests.support.terminal import Terminal

pytestmark = pytest.mark.thorough("starts IPython in a terminal")
COLUMNS, LINES = 80, 24
COUNTS = "import time\\nfor i in range(4):\\n    print(i)\\n    time.sleep(0.7)"


class IPython:
    """IPython in a terminal, and a person who types."""

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        options = ["--simple-prompt", "--no-banner", "--colors=nocolor", "--no-confirm-exit"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "IPython", *options],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, "TERM": "xterm", "IPYTHONDIR": str(folder)},
            start_new_session=True,
        )
        os.close(theirs)
        self.screen = Terminal(COLUMNS, LINES)
        self.raw = ""

    def wait_for(self, pattern: str) -> None:
        """Wait until the end of what was written matches a pattern."""
        while not re.search(pattern + r"\Z", self.raw):
            ready, _, _ = select.select([self._ours], [], [], HANG_S)
            assert ready, self.raw
            text = os.read(self._ours, 65536).decode()
            self.raw += text
            self.screen.feed(text)

    def type(self, line: str) -> None:
        """Type a line."""
        self.raw = ""
        os.write(self._ours, f"{line}\n".encode())

    def close(self) -> None:
        """End it."""
        self.type("exit")
        self.process.wait(HANG_S)
        os.close(self._ours)


@pytest.fixture
def ipython(tmp_path: Path) -> Iterator[IPython]:
    started = IPython(tmp_path)
    yield started
    started.close()


def test_a_view_is_drawn_in_place(ipython: IPython) -> None:
    ipython.wait_for(r"In \[1\]: ")
    ipython.type("%load_ext mcnb")
    ipython.wait_for(r"In \[2\]: ")
    ipython.type("%mcjax start -n 2 -d 1")
    ipython.wait_for(r"In \[3\]: ")
    ipython.type(f'get_ipython().run_cell_magic("mcjax", "", "{COUNTS}")')
    ipython.wait_for(r"In \[4\]: ")
    assert ipython.raw.count("Both processes have been running for") >= 3
    shown = ipython.screen.text
    assert shown[shown.index("In [2]: ") : shown.index("In [3]: ")] == (
        "In [2]: %mcjax start -n 2 -d 1\nReady: 2 processes x 1 CPU device\n\n"
    )
    assert shown[shown.index("[all 2]") :] == (
        "[all 2] 0\n        1\n        2\n        3\n\nIn [4]: "
    )
