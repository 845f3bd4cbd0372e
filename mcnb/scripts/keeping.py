"""The referee of a job, in a process of its own beside process 0.

It outlives process 0 by a moment, so that the others still hear how that one ended. Process 0 keeps
the other end of its standard input: when that closes, process 0 is gone.

    python -m mcnb.scripts.keeping COUNT [HOST]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict

from mcnb.lockstep.server import Server
from mcnb.lockstep.wire import Address

# How long the others have to hear a verdict when process 0 is gone.
LINGER_S, POLL_S = 3.0, 0.05


def start(count: int, host: str = "") -> tuple[Address, subprocess.Popen[str]]:
    """Start a referee; return where it listens, and its process.

    Args:
        count: How many processes there are.
        host: The address of this host at which the others reach it; by default they are on it.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "mcnb.scripts.keeping", str(count), host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for those that compute
    )
    assert process.stdout
    return Address(**json.loads(process.stdout.readline())), process


def main(words: list[str]) -> int:
    """Run a referee until process 0 is gone."""
    count, host = words
    with Server(int(count), host=host) as server:
        print(json.dumps(asdict(server.address)), flush=True)
        sys.stdout.close()
        sys.stdin.read()
        deadline = time.monotonic() + LINGER_S
        while not server.alone and time.monotonic() < deadline:
            time.sleep(POLL_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
