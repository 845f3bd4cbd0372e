"""The referee of a job, in a process of its own beside process 0.

Process 0 holds the other ends of its standard streams: a line says that the referee can be found,
the end of its output that all others are gone, and the end of its input that process 0 is. It
outlives process 0 by a moment, so that the others still hear how that one ended.

    python -m mcnb.scripts.keeping COUNT FILE [HOST]
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path

from mcnb.lockstep.server import Server
from mcnb.scripts import meeting

# How long those that are left have when the first one ends with an error.
LINGER_S, POLL_S = 3.0, 0.05


class Keeper:
    """A referee in a process of its own.

    Args:
        count: How many processes there are.
        path: Where its address is left; it is gone when the referee ends.
        host: The address of this host at which the others reach it; by default they are on it.
    """

    def __init__(self, count: int, path: Path, host: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mcnb.scripts.keeping", str(count), str(path), host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for those that compute
        )
        assert self._process.stdout
        self._said = self._process.stdout
        self._said.readline()

    def wait_for_others(self) -> None:
        """Return when all processes but this one are gone, or have had some time."""
        select.select([self._said], [], [], LINGER_S)


def main(words: list[str]) -> int:
    """Run a referee until process 0 is gone, and all others, or have had some time."""
    count, path, host = words
    with Server(int(count), host=host) as server:
        meeting.leave(server.address, Path(path))
        print(flush=True)
        try:
            complete = False
            while not select.select([sys.stdin], [], [], POLL_S)[0]:
                complete = complete or len(server.present) == int(count)
                if complete and server.present <= {0}:
                    sys.stdout.close()
                    sys.stdin.read()
                    break
            deadline = time.monotonic() + LINGER_S
            while server.present and time.monotonic() < deadline:
                time.sleep(POLL_S)
        finally:
            Path(path).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
