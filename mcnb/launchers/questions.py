"""Ask hosts what they are, and whether they reach each other, through a launcher's own command."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from mcnb._system import is_own, outward_address
from mcnb.errors import ClusterError
from mcnb.launchers import probe
from mcnb.launchers.ssh_command import command_on, failure, no_answer

COMMANDS = {"ssh": "ssh", "mpi": "mpiexec", "slurm": "srun"}
HERE = "this machine"
ANSWER_S = 45.0


@dataclass(frozen=True)
class Report:
    """What a host is.

    Attributes:
        asker: The address of this machine at which the host may reach it.
        name: The host's own name.
        named: The address that belongs to this name there; empty if the name is not known.
        address: Its address toward this machine; empty if it has no way here.
        port: The port at which it waits for connections.
        boot_id: The number of its last start, by which XLA tells hosts apart.
        versions: The versions of Python and of packages; empty for those that are missing.
        settings: The settings of JAX and of XLA in its environment.
    """

    asker: str
    name: str
    named: str
    address: str
    port: int
    boot_id: str
    versions: Mapping[str, str]
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Answers:
    """What was heard of a host.

    Attributes:
        host: The host, as it was given.
        error: Why it could not be asked; then there is nothing else.
        report: What it is.
        ahead_s: By how many seconds its clock is ahead of this machine's, at least; below 0 if it
            is behind.
        unreached: Why it can't connect to other hosts: to those to which it can't.
    """

    host: str
    error: str = ""
    report: Report | None = None
    ahead_s: float = 0.0
    unreached: Mapping[str, str] = field(default_factory=dict)


def own_report() -> Report:
    """Return what this machine is."""
    return Report(**probe.report(outward_address(), 0))


def ask(launcher: str, hosts: Sequence[str], words: Sequence[str]) -> list[Answers]:
    """Ask hosts at the same time; nothing stays on them.

    Args:
        launcher: What starts a program on them, of `COMMANDS`.
        hosts: The hosts, each once, in the launcher's words.
        words: More options for the launcher's command.

    Raises:
        ClusterError: The launcher's command is not installed.
    """
    if shutil.which(command := COMMANDS[launcher]) is None:
        raise ClusterError(
            f"--launcher {launcher} needs the command {command}, which is not installed"
        )
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(_listening())
        dialogues = [stack.enter_context(_dialogue(launcher, host, words)) for host in hosts]
        pool = stack.enter_context(ThreadPoolExecutor(len(hosts)))
        reports = dict(zip(hosts, pool.map(_Dialogue.hear, dialogues), strict=True))
        known = {host: _report(told) for host, told in reports.items() if told is not None}
        places = {host: (report.address, report.port) for host, report in known.items()}

        def answers(one: _Dialogue) -> Answers:
            report = known.get(one.host)
            if report is None:
                return Answers(one.host, one.failure())
            others = {HERE: (report.asker, port), **places}
            del others[one.host]
            ahead_s = one.compare_clocks()
            tried = one.put([*others.values()])
            if ahead_s is None or tried is None:
                return Answers(one.host, one.failure())
            unreached = {host: why for host, why in zip(others, tried, strict=True) if why}
            return Answers(one.host, "", report, ahead_s, unreached)

        return [*pool.map(answers, dialogues)]


def _report(told: Mapping[str, Any]) -> Report:
    """Return a host's report; through a gateway, the host does not know this machine's address."""
    report = Report(**told)
    return report if is_own(report.asker) else replace(report, asker=outward_address())


@contextlib.contextmanager
def _listening() -> Iterator[int]:
    """Accept connections at a free port."""
    with socket.create_server(("", 0)) as server:
        threading.Thread(target=probe.accept, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)  # ends the thread's wait


def _command(launcher: str, host: str, words: Sequence[str]) -> list[str]:
    """Return the command line that runs the probe on a host."""
    python = [sys.executable, "-P", "-c", inspect.getsource(probe)]
    match launcher:
        case "ssh":
            return command_on(host, words, shlex.join(python))
        case "mpi":  # Open MPI and MPICH both know these options
            return ["mpiexec", "-n", "1", "-host", host, *words, *python, outward_address()]
    step = ["--nodes=1", "--ntasks=1", "--overlap", f"--nodelist={host}"]
    return ["srun", *step, *words, *python, outward_address()]


class _Dialogue:
    """A probe on a host, whose answers are waited for no longer than `ANSWER_S`.

    Args:
        launcher: What has started it.
        host: The host.
        words: More options for the launcher's command.
        process: The launcher's command.
        errors: Its standard error.
    """

    def __init__(
        self,
        launcher: str,
        host: str,
        words: Sequence[str],
        process: subprocess.Popen[str],
        errors: Any,
    ) -> None:
        self.host = host
        self._launcher = launcher
        self._words = words
        self._process = process
        self._errors = errors
        self._late = False

    def hear(self) -> Any:
        """Return the next answer; None if there is none."""
        assert self._process.stdout is not None

        def give_up() -> None:
            self._late = True
            self._process.kill()

        timer = threading.Timer(ANSWER_S, give_up)
        timer.start()
        try:
            # A shell's start files may print something, too.
            for line in self._process.stdout:
                with contextlib.suppress(ValueError):
                    if not isinstance(said := json.loads(line), (str, int)):
                        return said
            return None
        finally:
            timer.cancel()

    def put(self, question: object) -> Any:
        """Return the answer to a question; None if there is none."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
        except OSError:  # it has ended
            return None
        return self.hear()

    def compare_clocks(self) -> float | None:
        """Return by how many seconds the host's clock is ahead, at least; None if it is unknown."""
        before = time.time()
        told = self.put(probe.TIME)
        after = time.time()
        return None if told is None else max(float(told) - after, 0.0) or min(told - before, 0.0)

    def failure(self) -> str:
        """Return why the host could not be asked, after it has ended."""
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read()
        if self._launcher == "ssh":
            failed = failure(self.host, self._words, code, said)
            return str(no_answer(self.host, self._words) if self._late else failed)
        [last] = said.strip().splitlines()[-1:] or [f"exit code {code}"]
        why = "does not answer" if self._late else f"can't be asked: {last}"
        return f"The host {self.host} {why}"


@contextlib.contextmanager
def _dialogue(launcher: str, host: str, words: Sequence[str]) -> Iterator[_Dialogue]:
    """Start a probe on a host; end it."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            _command(launcher, host, words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ,
        )
        try:
            yield _Dialogue(launcher, host, words, process, errors)
        finally:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # the probe ends with its input
            try:
                process.wait(probe.CONNECT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
