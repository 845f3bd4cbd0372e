"""Start processes on other hosts by ssh, with one connection per process.

ipyparallel's own ssh launcher starts processes that outlive their connection, so the launcher must
reconnect to poll and to end the processes: a cluster of four takes more than a minute to end, and
exit reasons are never known. In this module a process and its ssh connection end together, and
ssh returns the exit status of the process.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipyparallel.cluster.launcher import EngineLauncher
from traitlets import Dict, List, Unicode

from mcnb._system import LOOPBACK, is_own, outward_address
from mcnb.errors import ClusterError
from mcnb.launchers.batch import REPORT_S, BatchLauncher
from mcnb.launchers.local import ENGINE_ARGS
from mcnb.launchers.ssh_command import FAILED, command_on, run_python
from mcnb.lockstep.model import ExitSource, ProcessExit
from mcnb.worker.settings import FILE

_ENDING_S = 3.0  # for processes to exit, before their connections are closed
# SSH_CONNECTION, as in ssh(1): the client's address and port, the server's address and port.
_ASK = "import os, mcnb; print(os.environ.get('SSH_CONNECTION', ''))"
_PUT = """
import json, os, sys
os.umask(0o077)
for path, text in json.load(sys.stdin).items():
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as file:
        file.write(text)
"""
# What the processes need, in the folder of the profile.
_FILES = ("security/ipcontroller-engine.json", f"security/{FILE}")
_REMOVE = """
import pathlib, sys
from mcnb._system import remove_folder
remove_folder(pathlib.Path(sys.argv[1]))
"""


class SshEngines(EngineLauncher):
    """Launcher of the processes, as ipyparallel engines, by ssh."""

    hosts = Dict(help="How many processes each host gets.", config=True)
    words = List(Unicode(), help="More options for ssh.", config=True)
    remote_folder = Unicode(
        help="Remote folder for the processes' files, in the home there.", config=True
    )

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.processes: list[subprocess.Popen[bytes]] = []

    def find_args(self) -> list[str]:
        """Return the command that runs on each host."""
        return [*self.engine_cmd, *self.engine_args]

    def start(self, n: int) -> None:
        """Copy the engines' files to each host, and start `n` processes."""
        self.n = n
        here = Path(self.profile_dir)
        texts = {f"{self.remote_folder}/{name}": (here / name).read_text() for name in _FILES}
        for host, count in self.hosts.items():
            run_python(host, self.words, _PUT, given=json.dumps(texts))
            for _ in range(count):
                # `exit` keeps the shell alive, so that its exit code reports a fatal signal.
                command = f"{shlex.join(self.args)}; exit $?"
                with self._log(len(self.processes)).open("wb") as log:
                    self.processes.append(
                        subprocess.Popen(
                            command_on(host, self.words, command),
                            stdin=subprocess.PIPE,  # closing the pipe makes the process exit
                            stdout=log,
                            stderr=log,
                            start_new_session=True,
                        )
                    )
        self.notify_start({})

    def poll(self) -> int | None:
        """Return the exit code of the first ended process, or None while all processes run."""
        return next((code for p in self.processes if (code := p.poll()) is not None), None)

    def first_exit(self) -> ProcessExit | None:
        """Return the exit reason of the first process that failed; None if none has failed."""
        places = (host for host, count in self.hosts.items() for _ in range(count))
        # Not all of them may have been started.
        ended = ((p.poll(), host) for p, host in zip(self.processes, places, strict=False))
        code, host = next(((code, host) for code, host in ended if code), (None, ""))
        if code is None:
            return None
        if code == FAILED:
            return ProcessExit(ExitSource.DISCONNECTED, reason=host)
        return ProcessExit(ExitSource.LAUNCHER, 128 - code if code > 128 else code)

    def get_output(self, remove: bool = False) -> str:
        """Return the output of ssh, and of the processes before they redirect it to files."""
        del remove
        logs = [self._log(i) for i in range(len(self.processes))]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    async def stop(self) -> None:
        """End the processes and remove their files; return when that is done."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        deadline = time.monotonic() + _ENDING_S
        for process in self.processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for host in self.hosts:
            try:
                run_python(host, self.words, _REMOVE, self.remote_folder)
            except ClusterError as error:
                self.log.warning("%s", error)
        self.notify_stop({})

    def _log(self, i: int) -> Path:
        return Path(self.profile_dir) / "log" / f"ssh-{i}.log"


class SshLauncher(BatchLauncher):
    """A launcher that starts the processes on other hosts by ssh, and copies their files there."""

    engines = SshEngines
    rank_variables = ()
    exit_delay_s = REPORT_S
    sent = True

    def commands(self) -> list[str]:
        """Return the commands that must be installed."""
        return ["ssh"]

    def find_host(self) -> str:
        """Return the address of this host as seen from the others; loopback if all are this host.

        Raises:
            ClusterError: A host can't be reached, or can't run mcnb.
        """
        seen = [LOOPBACK]
        for host in dict.fromkeys(self.options.hosts):
            connection = run_python(host, self.words, _ASK).split()
            if len(connection) == 4 and not is_own(connection[2]):
                seen.append(connection[0] if is_own(connection[0]) else outward_address())
        return seen[-1]

    def folder_parent(self) -> Path | None:
        """Return None, because the hosts share no folder."""
        return None

    def engine_traits(self) -> dict[str, Any]:
        """Return the hosts, and the files to send to them."""
        remote = f".cache/mcnb/{self.folder.name}"
        return {
            "hosts": spread(self.options.processes, self.options.hosts),
            "words": self.words,
            "remote_folder": remote,
            "engine_args": [f"--profile-dir={remote}", *ENGINE_ARGS],
        }

    def exit_of(self, k: int) -> ProcessExit | None:
        """Return the first reported exit reason: which process it belongs to is unknown."""
        del k
        return None if self.engine_set is None else self.engine_set.first_exit()


def spread(processes: int, hosts: Sequence[str]) -> dict[str, int]:
    """Return the number of processes per host, with neighbouring processes on the same host.

    A host that is listed twice gets twice as many processes.

    Example:
        >>> spread(4, ["a", "b", "c"])
        {'a': 2, 'b': 1, 'c': 1}
        >>> spread(4, ["a", "a", "b", "b"])
        {'a': 2, 'b': 2}
    """
    each, more = divmod(processes, len(hosts))
    counts: Counter[str] = Counter()
    for i, host in enumerate(hosts):
        counts[host] += each + (i < more)
    return {host: count for host, count in counts.items() if count}
