"""The referee of a job, in a process of its own beside process 0.

It outlives process 0 by a moment, so that the others still hear how that one ended. Process 0 keeps
the other end of its standard input: when that closes, process 0 is gone.

    python -m mcnb.scripts.keeping COUNT FILE [HOST]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from mcnb.lockstep.server import Server
from mcnb.scripts import meeting

# How long the others have to hear a verdict when process 0 is gone.
LINGER_S, POLL_S = 3.0, 0.05


def start(count: int, path: Path, host: str = "") -> subprocess.Popen[bytes]:
    """Start a referee; return its process, when its address can be found.

    Args:
        count: How many processes there are.
        path: Where its address is left; it is gone when the referee ends.
        host: The address of this host at which the others reach it; by default they are on it.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "mcnb.scripts.keeping", str(count), str(path), host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for those that compute
    )
    assert process.stdout
    process.stdout.read()
    return process


def main(words: list[str]) -> int:
    """Run a referee until process 0 is gone."""
    count, path, host = words
    with Server(int(count), host=host) as server:
        meeting.leave(server.address, Path(path))
        os.close(sys.stdout.fileno())  # that is how it says so
        try:
            sys.stdin.read()
            deadline = time.monotonic() + LINGER_S
            while not server.alone and time.monotonic() < deadline:
                time.sleep(POLL_S)
        finally:
            Path(path).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
