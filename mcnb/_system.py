"""Use this host's operating system: addresses, ports and the death of a parent process."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mcnb.errors import ClusterError, OptionError

_PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
_IOLBF = 1  # in <stdio.h> of Linux and macOS
_LINES_BYTES = 1 << 13
LOOPBACK = "127.0.0.1"
# The variable that XLA takes as the number of cores, and so of threads for its CPU devices.
THREADS = "NPROC"
_THREADS_FOR_EACH, _MOST_THREADS = 8, 64
# What counts of a pause, for limits of about a second.
BRIEFLY_S = 0.25
# How long a process that is told to end has for atexit handlers and open files.
GRACE_S = 1.0
# How long a process that is being killed may still write files.
_WRITING_S, _WRITING_POLL_S = 2.0, 0.001
# An address that belongs to no host: https://www.rfc-editor.org/rfc/rfc5737. Connecting to it by
# UDP sends nothing, and shows the address that this host would use.
_NOBODY = "192.0.2.1"
_ANY_PORT = 9


class RunningClock:
    """A clock for time limits that stands still while this process is paused.

    A process is paused with its machine, as a laptop whose lid is closed, or by a signal. Python's
    monotonic clock may go on meanwhile: then all limits would be over at the end of the pause.

    Args:
        most_s: The most that counts between two looks at the clock, in seconds; more is a pause. It
            has to be longer than the waits between looks.

    Example:
        >>> clock = RunningClock(0.5)
        >>> began = clock()
        >>> 0 <= clock() - began <= 0.5
        True
    """

    def __init__(self, most_s: float = 2.0) -> None:
        self._most_s = most_s
        self._time, self._looked = 0.0, time.monotonic()

    def __call__(self) -> float:
        """Return the time in seconds; it begins at 0."""
        now = time.monotonic()
        self._time += min(now - self._looked, self._most_s)
        self._looked = now
        return self._time


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, while processes that are being killed may use it.

    A process that makes a file between the removal of the others and that of the folder keeps the
    folder. Then the removal is repeated, for at most 2 s. What can't be removed is left.

    Args:
        folder: The folder; it need not exist.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "file").write_text("text")
        >>> remove_folder(folder)
        >>> folder.exists()
        False
    """
    deadline = time.monotonic() + _WRITING_S
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > deadline:
            return
        time.sleep(_WRITING_POLL_S)


def prctl(option: int, value: Any) -> None:
    """Call Linux's prctl; do nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(parent: int | None = None) -> None:
    """Let the system kill this process when its parent ends, if the system can.

    The system does not kill it for a parent that has ended before. Therefore this process kills
    itself if its parent is not the given one any more.

    Args:
        parent: The parent's process id; None if this process can't know it.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def has_reader(pipe: int) -> bool:
    """Return whether a process has the reading end of a pipe, given its writing end.

    Example:
        >>> read, write = os.pipe()
        >>> has_reader(write), os.close(read), has_reader(write), os.close(write)
        (True, None, False, None)
    """
    poll = select.poll()
    poll.register(pipe, 0)  # errors are always reported
    return not poll.poll(0)


def threads_for(devices: int) -> int:
    """Return the number of XLA threads for a process's CPU devices.

    By default XLA has one thread per core. On a laptop, collectives of unawaited launches can
    occupy all threads, each waiting for a collective that finds no free thread: a few dozen such
    launches can hang forever. XLA takes `NPROC` as the number of cores:
    DefaultThreadPoolSize in https://github.com/openxla/xla/blob/main/xla/pjrt/utils.cc

    Example:
        >>> threads_for(100) >= 64
        True
    """
    return max(os.cpu_count() or 1, min(_THREADS_FOR_EACH * devices, _MOST_THREADS))


def current_umask() -> int:
    """Return this process's file mode creation mask."""
    with contextlib.suppress(OSError):
        # os.umask() can't read the mask without changing it, for other threads too.
        status = Path("/proc/self/status").read_text()
        if match := re.search(r"^Umask:\s*([0-7]+)", status, re.MULTILINE):
            return int(match[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def write_whole_lines() -> None:
    """Make C's stdout line-buffered, which Python's unbuffered mode turns off.

    Unbuffered, C++ writes a line in pieces, between which another thread's text can appear.
    """
    with contextlib.suppress(ValueError):
        library = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(
            library, "__stdoutp" if sys.platform == "darwin" else "stdout"
        )
        # Never freed, because C writes the last line after Python has ended.
        library.malloc.restype = ctypes.c_void_p
        buffer = ctypes.c_void_p(library.malloc(_LINES_BYTES))
        library.setvbuf(stdout, buffer, _IOLBF, ctypes.c_size_t(_LINES_BYTES))


def reserve_port(host: str) -> tuple[socket.socket, int]:
    """Reserve a free port of this host for JAX's coordinator, which gRPC binds with SO_REUSEPORT.

    While this socket is bound, the system gives the port to no program that asks for any port. The
    socket does not listen, so connections reach only the coordinator.

    Returns:
        The socket, to be closed when the coordinator listens, and the port.
    """
    reservation = socket.socket()
    if hasattr(socket, "SO_REUSEPORT"):
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind((host, 0))
    return reservation, reservation.getsockname()[1]


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a free loopback port for JAX's coordinator."""
    reservation, port = reserve_port(LOOPBACK)
    with reservation:
        yield port


def address_toward(hosts: Iterable[str]) -> str:
    """Return this host's address as those hosts reach it: loopback, if they are all this host.

    Raises:
        ClusterError: A host's name is not known.

    Example:
        >>> address_toward(["localhost", "127.0.0.1"])
        '127.0.0.1'
    """
    others = [address for address in map(_address_of, hosts) if not is_own(address)]
    return local_end(others[0]) if others else LOOPBACK


def outward_address() -> str:
    """Return this host's address on its network; loopback if it is on none."""
    with contextlib.suppress(OSError):
        return local_end(_NOBODY)
    return LOOPBACK


def is_own(address: str) -> bool:
    """Return whether an address is one of this host's."""
    with socket.socket() as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
    return True


def check_listen(address: str) -> None:
    """Check that an address from the user, if there is one, belongs to this host.

    Raises:
        OptionError: This host has no such address.
    """
    if address and not is_own(address):
        import psutil  # slow to import

        interfaces = itertools.chain.from_iterable(psutil.net_if_addrs().values())
        own = sorted({one.address for one in interfaces if one.family == socket.AF_INET})
        raise OptionError(
            f"--listen {address}: this machine has no such address. It has: {', '.join(own)}"
        )


def local_end(host: str) -> str:
    """Return the address of this host from which it connects to that host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        question.connect((host, _ANY_PORT))
        source: str = question.getsockname()[0]
        return source


def _address_of(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        raise ClusterError(f"The host name {host} can't be resolved on this host") from None
