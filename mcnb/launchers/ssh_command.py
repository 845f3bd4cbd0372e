"""Run commands on other hosts by ssh, and explain why that fails."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence

from mcnb.errors import ClusterError

FAILED = 255  # ssh's exit code if ssh itself failed
_TIMEOUT_S = 60
# There is no terminal for a password prompt. A host that has been silent for ten minutes counts as
# gone, as for the other connections of processes: it may be paused, or its network interrupted.
_OPTIONS = (
    *("-T", "-oBatchMode=yes", "-oConnectTimeout=20"),
    *("-oServerAliveInterval=30", "-oServerAliveCountMax=20"),
)


def command_on(host: str, words: Sequence[str], command: str) -> list[str]:
    """Return the command line that runs a command on a host.

    Args:
        host: The host, with a port after a colon if it is not ssh's own.
        words: More options for ssh.
        command: The command, for a shell there.

    Example:
        >>> command_on("one:2222", ["-4"], "date")[-5:]
        ['-4', '-p', '2222', 'one', 'date']
    """
    return ["ssh", *_OPTIONS, *_login(host, words), command]


def typed(host: str, words: Sequence[str], command: str) -> str:
    """Return the command line by which a person runs a command on a host.

    Args:
        host: The host, with a port after a colon if it is not ssh's own.
        words: More options for ssh.
        command: The command, for a shell there.

    Example:
        >>> typed("one:2222", ["-4"], "date -u")
        "ssh -4 -p 2222 one 'date -u'"
    """
    return shlex.join(["ssh", *_login(host, words), command])


def failure(host: str, words: Sequence[str], code: int, stderr: str) -> ClusterError:
    """Return an error for a Python program on a host that ended with an exit code other than 0.

    Args:
        host: The host.
        words: More options for ssh.
        code: The exit code of ssh, which is that of the program unless ssh itself failed.
        stderr: What was written to the standard error.
    """
    [said] = stderr.strip().splitlines()[-1:] or [f"exit code {code}"]
    if code == FAILED:
        return ClusterError(_why_not(host, said.rstrip("."), " ".join(_login(host, words))))
    return ClusterError(
        f"The host {host} can't run mcnb: {said}. It needs the same Python as this one, at the "
        f"same path, with mcnb: {sys.executable}"
    )


def no_answer(host: str, words: Sequence[str]) -> ClusterError:
    """Return an error for a host that does not answer in time."""
    plain = f"ssh -o BatchMode=yes {' '.join(_login(host, words))}"
    return ClusterError(f"The host {host} does not answer. Try: {plain}")


def _login(host: str, words: Sequence[str]) -> list[str]:
    """Return the words after `ssh` that log in to a host."""
    name, _, port = host.partition(":")
    return [*words, *(["-p", port] if port else []), name]


def run_python(host: str, words: Sequence[str], code: str, *arguments: str, given: str = "") -> str:
    """Run Python code on a host by ssh, and return its output.

    Raises:
        ClusterError: The host can't be reached, or can't run mcnb.
    """
    command = shlex.join([sys.executable, "-P", "-c", code, *arguments])
    try:
        asked = subprocess.run(
            command_on(host, words, command),
            input=given,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise no_answer(host, words) from None
    if asked.returncode:
        raise failure(host, words, asked.returncode, asked.stderr)
    return asked.stdout


def _why_not(host: str, said: str, login: str) -> str:
    """Return an error message, with a remedy, for ssh's own failure, whose last line is `said`."""
    if "Host key" in said:  # in batch mode, ssh accepts none
        return (
            f"ssh does not know the key of the host {host} ({said}). Log in once and accept the "
            f"key: ssh {login}"
        )
    what = f"can't be reached: {said}. Try"
    if "Permission denied" in said:
        what = f"refused a login without a password: {said}. Set up a key with ssh-copy-id, and try"
    return f"The host {host} {what}: ssh -o BatchMode=yes {login}"
