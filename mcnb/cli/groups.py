"""The process groups of a program: each process, and the child processes that it has started."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

# Reads lines such as "+ 123" and "- 123", and kills the groups that are left when the pipe closes.
_KILL_AT_THE_END = """\
import os, sys
groups = set()
for line in sys.stdin:
    sign, group = line.split()
    (groups.add if sign == "+" else groups.discard)(int(group))
for group in groups:
    try: os.killpg(group, 9)
    except OSError: pass
"""


def signal_group(leader: int, number: int) -> None:
    """Send a signal to all processes of a group, if there are any.

    Args:
        leader: The process id of the group's leader, which may have ended.
        number: The signal.

    Example:
        >>> one = subprocess.Popen(["sleep", "1000"], process_group=0)
        >>> signal_group(one.pid, 9)
        >>> one.wait()
        -9
        >>> signal_group(one.pid, 9)
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


class Guard:
    """Kills process groups if this process is killed itself, and can't do so any more.

    The system would kill only this process's children, and not what these have started. The guard
    is a process in a session of its own, which Ctrl-C does not reach.

    Example:
        >>> guard = Guard()
        >>> one = subprocess.Popen(["sleep", "1000"], process_group=0)
        >>> guard.add(one.pid)
        >>> guard.close()  # in the end, nothing is killed
        >>> one.poll()
        >>> one.kill(), one.wait()
        (None, -9)
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KILL_AT_THE_END],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, leader: int) -> None:
        """Guard a group."""
        self._tell(f"+ {leader}\n")

    def remove(self, leader: int) -> None:
        """Leave a group alone from now on: its leader has ended as it should."""
        self._tell(f"- {leader}\n")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody has killed the guard
            os.write(self._process.stdin.fileno(), line.encode())

    def close(self) -> None:
        """End the guard; nothing is killed."""
        self._process.kill()
        self._process.communicate()
