"""Where processes of one job find their referee: a file that only their user can read.

Process 0 leaves it, with the address and the key, before it calls `jax.distributed.initialize`; the
others look for it afterwards, when that call has brought all of them together.
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

from mcnb.errors import ClusterError
from mcnb.lockstep.ranks import Identity
from mcnb.lockstep.server import Server
from mcnb.lockstep.wire import Address

FOLDER = "MCNB_FOLDER"
# A file that another host wrote may be seen late: NFS keeps what it knows of a folder for a minute.
WAIT_S, POLL_S = 70.0, 0.05


def meeting_point(identity: Identity, environment: Mapping[str, str]) -> Path:
    """Return the file in which a job's processes find their referee; its folder is made.

    Args:
        identity: Which process this is.
        environment: The process's environment; `MCNB_FOLDER` names a folder to use.

    Raises:
        ClusterError: The folder is not this user's alone.
    """
    if environment.get(FOLDER):
        folder = Path(environment[FOLDER])
    elif identity.one_host:
        folder = Path(tempfile.gettempdir(), f"mcnb-{os.getuid()}")
    else:
        folder = Path.home() / ".cache" / "mcnb"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise ClusterError(
            f"{folder} must be a folder that only its owner, you, can enter, since a key is left "
            f"in it: chmod 700 {folder}, or name another one in {FOLDER}"
        )
    job = re.sub(r"[^\w.-]+", "_", f"{identity.launcher}-{identity.job}")
    return folder / f"{job}.referee"


def leave(address: Address, path: Path) -> None:
    """Leave an address for the other processes, at once and as a whole."""
    fresh = path.with_suffix(".new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(address), file)
    fresh.replace(path)


def find(path: Path, wait_s: float = WAIT_S) -> Address:
    """Return the address that process 0 left.

    Args:
        path: The file.
        wait_s: How long to wait for it, in seconds.

    Raises:
        ClusterError: It is not there.
    """
    deadline = time.monotonic() + wait_s
    while True:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return Address(**json.loads(path.read_text()))
        if time.monotonic() > deadline:
            raise ClusterError(
                f"Process 0 left word of the referee in {path.parent}, and it can't be seen from "
                f"here. Name a folder that all hosts share, and only you can enter, in {FOLDER}"
            )
        time.sleep(POLL_S)


# How long those that are left have when the first one ends with an error.
LINGER_S = 3.0


class RefereeProcess:
    """A referee in a process of its own.

    Args:
        count: How many processes there are.
        path: Where its address is left; it is gone when the referee ends.
        host: The address of this host at which the others reach it; by default they are on it.
    """

    def __init__(self, count: int, path: Path, host: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mcnb.lockstep.rendezvous", str(count), str(path), host],
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
            Path(path).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
