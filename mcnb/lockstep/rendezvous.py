"""Start a job's referee, and share its address through a file that only the user can read.

Process 0 writes the file, with the address and the key, before `jax.distributed.initialize`. The
other processes read the file after that call, because it returns only when all have connected.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from mcnb._system import RunningClock
from mcnb.errors import ClusterError
from mcnb.lockstep.ranks import Identity
from mcnb.lockstep.wire import Address

FOLDER = "MCNB_FOLDER"
# A file from another host may appear late, because NFS caches a folder for a minute.
WAIT_S, POLL_S = 70.0, 0.05


def meeting_point(identity: Identity, environment: Mapping[str, str]) -> Path:
    """Return the path of the file with the referee's address, and create its folder.

    `MCNB_FOLDER` in the environment names another folder.

    Raises:
        ClusterError: Other users own or can enter the folder.
    """
    if environment.get(FOLDER):
        folder = Path(environment[FOLDER])
    elif identity.one_host:
        folder = Path(tempfile.gettempdir(), f"mcnb-{os.getuid()}")
    else:
        folder = Path.home() / ".cache" / "mcnb"
    with contextlib.suppress(FileExistsError):  # maybe no folder: see below
        folder.mkdir(mode=0o700, parents=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise ClusterError(
            f"{folder} must be accessible to you alone, because a key is stored in it: chmod 700 "
            f"{folder}, or name another one in {FOLDER}"
        )
    job = re.sub(r"[^\w.-]+", "_", identity.job)
    return folder / f"{job}.referee"


def leave(address: Address, path: Path) -> None:
    """Write an address for the other processes, atomically."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(address), file)
    fresh.replace(path)


def find(path: Path, wait_s: float = WAIT_S) -> Address:
    """Wait for the address that process 0 writes, and read it.

    Raises:
        ClusterError: The file did not appear.
    """
    clock = RunningClock()
    while True:
        if (address := _read(path)) is not None:
            return address
        if clock() > wait_s:
            raise ClusterError(
                f"Process 0 stored the referee's address in {path.parent}, which this host does "
                f"not see. Name a folder that all hosts share, and that only you can access, in "
                f"{FOLDER}"
            )
        time.sleep(POLL_S)


def _read(path: Path) -> Address | None:
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        return Address(**json.loads(path.read_text()))
    return None


# The time for the remaining processes to exit after the first exits with an error, in seconds. They
# take less than one, but many on a busy machine.
LINGER_S = 15.0


class RefereeProcess:
    """Runs a referee in a process of its own.

    Args:
        count: The number of processes.
        path: The file for the referee's address; the referee deletes it at its end.
        host: This host's address for processes on other hosts; by default all are on this host.
    """

    def __init__(self, count: int, path: Path, host: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mcnb.lockstep.rendezvous", str(count), str(path), host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must not end the referee
        )
        assert self._process.stdout
        self._said = self._process.stdout
        self._said.readline()

    def wait_for_others(self) -> None:
        """Wait until all processes but this one are gone, for at most `LINGER_S`."""
        select.select([self._said], [], [], LINGER_S)


def main(words: list[str]) -> int:
    """Run a referee until process 0 is gone, and the others are gone or `LINGER_S` has passed."""
    from mcnb.lockstep.server import Server  # the processes of the job do without

    count, path, host = words
    with Server(int(count), host=host) as server:
        leave(server.address, Path(path))
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
            # The next job of the same coordinator may have written its own address meanwhile.
            if _read(Path(path)) == server.address:
                Path(path).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
