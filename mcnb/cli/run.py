"""Run `mcnb run`: a program in n processes of this machine, checked and ended together."""

from __future__ import annotations

import codecs
import contextlib
import difflib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeAlias

from mcnb._system import reserved_port
from mcnb._text import name_processes
from mcnb.errors import OptionError
from mcnb.export.parse import find_lesson, is_lesson, run_lesson
from mcnb.launchers.base import process_environment
from mcnb.lockstep.messages import exit_text, explain, left_waiting
from mcnb.lockstep.model import ExitSource, ProcessExit, Verdict
from mcnb.lockstep.ranks import PROCESS, PROCESSES
from mcnb.lockstep.runner import (
    COORDINATOR,
    EXIT_INTERRUPTED,
    REFEREE,
    REPORT,
    Ending,
    encode_address,
)
from mcnb.lockstep.server import Server
from mcnb.messages import Text
from mcnb.options import RUN, Options, field_values, options_of, usage
from mcnb.output.fold import fold_events
from mcnb.output.text import entries
from mcnb.worker.capture import GlooFilter
from mcnb.worker.gpus import VISIBLE, share, visible_gpus

TICK_S, MOST_BYTES = 0.05, 1 << 16
# After a failure: how long the other processes have to end alone, and then to obey a signal.
ALONE_S, OBEY_S = 1.0, 5.0
# How long processes have to end after Ctrl-C, in all, before they are killed.
INTERRUPTED_S = 3.0
# How long the system may take to report how a process ended.
REAPED_S = 2.0
_StreamName: TypeAlias = Literal["stdout", "stderr"]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Lines:
    r"""One stream of one process, split into lines.

    Args:
        hide_gloo: Whether to leave out Gloo's connection notes.

    Example:
        >>> lines = Lines()
        >>> lines.feed(b"step 1\nst"), lines.feed(b"ep 2\n"), lines.feed(b"end", final=True)
        (['step 1'], ['step 2'], ['end'])
    """

    def __init__(self, hide_gloo: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._gloo = GlooFilter() if hide_gloo else None
        self._rest = ""

    def feed(self, data: bytes, final: bool = False) -> list[str]:
        """Return the complete lines, without their ends.

        Args:
            data: The new bytes.
            final: Whether the stream ends here; then the last line needs no end.
        """
        text = self._decoder.decode(data, final)
        if self._gloo is not None:
            text = self._gloo.feed(text, final)
        *lines, self._rest = (self._rest + text).split("\n")
        if final and self._rest:
            lines.append(self._rest)
            self._rest = ""
        return lines


def labelled(process: int, count: int, line: str) -> str:
    """Return a line labelled with its process.

    Example:
        >>> labelled(3, 16, "loss 0.7")
        '[3]  loss 0.7'
    """
    width = len(f"[{count - 1}]")
    # For a progress bar, only the last text that a terminal would have shown.
    shown = line.rstrip("\r").rpartition("\r")[2]
    return f"{f'[{process}]':<{width}} {shown}".rstrip()


def folded(said: dict[int, list[Text]], count: int) -> str:
    """Fold the output of processes, as in a notebook.

    Args:
        said: The output of each process, by process index.
        count: The number of processes.
    """
    return "".join(entry.text for entry in entries(fold_events(said), count))


@dataclass(frozen=True)
class Ended:
    """The end of a process.

    Attributes:
        process: The index of the process.
        status: The exit code, or minus the signal that killed the process.
        ending: The process's own report; None if it sent none.
        ended_by_us: Whether mcnb ended it because another process had failed.
    """

    process: int
    status: int
    ending: Ending | None
    ended_by_us: bool = False

    @property
    def failed(self) -> bool:
        """Whether the process failed by itself."""
        return not self.ended_by_us and self.status != 0


@dataclass(frozen=True)
class Cause:
    """The cause of a program's failure.

    Attributes:
        sentence: The cause in words; empty if nothing failed.
        code: The exit code of `mcnb run`.
    """

    sentence: str = ""
    code: int = 0


def find_cause(ended: Sequence[Ended], count: int, verdict: Verdict | None) -> Cause:
    """Find the cause of a program's failure.

    Args:
        ended: The ends of the processes, in order of time.
        count: The number of processes.
        verdict: The verdict, if the processes diverged.

    Example:
        >>> find_cause([Ended(1, 1, Ending("raised", "OSError: full", "train.py:7", 1))], 4, None)
        Cause(sentence='process 1 raised OSError: full (train.py:7)', code=1)
    """
    failed = [one for one in ended if one.failed]
    if not failed:
        return Cause()
    # A process that was killed, or raised its own error, comes before those it left waiting.
    own = [one for one in failed if one.ending is None or one.ending.kind in ("raised", "exit")]
    if own:
        first = _first(own)
        alike = sorted(one.process for one in own if _said(one) == _said(first))
        said = f"{name_processes(alike, count)} {_said(first, plural=len(alike) > 1)}"
        waited = left_waiting(verdict.states, count) if verdict is not None else ""
        sentence = f"{said}. {waited[0].upper()}{waited[1:]}" if waited else said
        return Cause(sentence, _code(first))
    if verdict is not None and any(one.ending and one.ending.kind == "diverged" for one in failed):
        return Cause(explain(verdict, count).sentence, 1)
    return Cause("interrupted", EXIT_INTERRUPTED)


def _first(own: Sequence[Ended]) -> Ended:
    """Return the process that failed first.

    When process 0 is gone, JAX aborts all others: their errors about that are no cause.
    """
    told = [one for one in own if one.ending is not None or one.status != -signal.SIGABRT]
    return (told or own)[0]


def _said(one: Ended, *, plural: bool = False) -> str:
    if one.ending is None:
        return exit_text(ProcessExit(ExitSource.OBSERVED, one.status), plural=plural)
    place = f" ({one.ending.place})" if one.ending.place else ""
    if one.ending.kind == "exit":
        return f"ended with {one.ending.error}{place}"
    return f"raised {one.ending.error}{place}"


def _code(one: Ended) -> int:
    return one.status if one.status >= 0 else 128 - one.status


def never_joined(endings: Mapping[int, Ending]) -> bool:
    """Return whether several processes finished without ever joining each other."""
    return len(endings) > 1 and not any(ending.joined for ending in endings.values())


# The first flag of each option: longer ones, such as --processes, may be the program's.
_KNOWN = {option.flags[0]: option for option in options_of(RUN)}
_OPTIONS = "\n".join(option.explain([flag]) for flag, option in _KNOWN.items())
USAGE = f"""\
{usage("usage: mcnb run FILE.py", RUN, "[ARGS]")}
       mcnb run LESSON.md

Run a JAX program in several processes of this machine, with its launches checked. The first failure
ends all of them, and the root cause is told last.

{_OPTIONS}

Options of mcnb end at the first word after FILE that is not listed above, or at --. The rest are
ARGS, the program's own arguments. In them, {{process}} and {{processes}} stand for a process's
index and the number of processes. A program that calls jax.distributed.initialize() without
arguments needs no more. For example:

  mcnb run train.py -n 4 -d 2 --steps 100
  mcnb run toy.py -n 4 -d 2 {{process}} {{processes}}

A lesson, or another notebook, is executed from top to bottom: mcnb run 05_lockstep.md"""


@dataclass(frozen=True)
class Command:
    """The parsed command line of `mcnb run`.

    Attributes:
        path: The program's file.
        arguments: The program's arguments.
        options: The options of the processes.
        fold: Whether to fold the output.
    """

    path: Path
    arguments: tuple[str, ...]
    options: Options
    fold: bool


def parse(words: Sequence[str]) -> Command:
    """Parse a command line.

    Args:
        words: The words after `mcnb run`.

    Raises:
        OptionError: The command line is invalid.

    Example:
        >>> command = parse(["-d", "1", __file__, "-n", "2", "--lr", "0.1", "-n", "3"])
        >>> command.arguments, command.options.describe()
        (('--lr', '0.1', '-n', '3'), '2 processes x 1 CPU device')
    """
    given: dict[str, Any] = {}
    path: Path | None = None
    rest = list(words)
    while rest:
        name, equals, value = rest[0].partition("=")
        option = _KNOWN.get(name)
        if option is not None and not option.metavar and not equals:
            given[option.name] = True
            rest.pop(0)
        elif option is not None and option.metavar:
            rest.pop(0)
            if not equals:
                if not rest:
                    raise OptionError(f"mcnb run {name}: a value is missing. See mcnb run --help")
                value = rest.pop(0)
            if option.repeatable:
                given.setdefault(option.name, []).append(value)
            else:
                given[option.name] = value
        elif path is None and not rest[0].startswith("-"):
            path = Path(rest.pop(0))
        elif path is None:
            raise OptionError(_no_such_option(rest[0]))
        else:
            break
    if rest[:1] == ["--"]:
        rest.pop(0)
    if path is None:
        raise OptionError(
            "mcnb run: the program's file is missing. For example: mcnb run train.py -n 4 -d 2"
        )
    if is_lesson(path):
        if given or rest:
            raise OptionError(
                f"mcnb run {path}: a lesson starts its own processes, so no other arguments are "
                f"allowed: mcnb run {path}"
            )
        return Command(find_lesson(path), (), Options(), fold=False)
    if not path.is_file():
        raise OptionError(f"mcnb run {path}: there is no such file")
    return Command(path, tuple(rest), Options(**field_values(RUN, given)), "fold" in given)


def _no_such_option(word: str) -> str:
    close = difflib.get_close_matches(word, _KNOWN, n=1)
    return (
        f"mcnb run {word}: unknown option. Options: {', '.join(_KNOWN)}. The program's "
        "own options follow its file" + (f". Did you mean {close[0]}?" if close else "")
    )


def main(words: Sequence[str]) -> int:
    """Run a program or a lesson, and return the exit code.

    Raises:
        OptionError: The command line is invalid.
    """
    if any(word in ("-h", "--help") for word in words[:1]):
        print(USAGE)
        return 0
    command = parse(words)
    if is_lesson(command.path):
        return run_lesson(command.path)

    running = Running(command.path, command.arguments, command.options, fold=command.fold)
    return running.run()


class Running:
    """A program that runs in several processes.

    Args:
        path: The program's file.
        arguments: Its arguments; `{process}` and `{processes}` stand for the index of each process
            and for their number.
        options: The options of the processes.
        fold: Whether to fold the output and show it at the end, instead of line by line.
    """

    def __init__(
        self, path: Path, arguments: Sequence[str], options: Options, *, fold: bool = False
    ) -> None:
        self.options = options
        self._path = path
        self._arguments = arguments
        self._fold = fold
        self._processes: list[subprocess.Popen[bytes]] = []
        self._selector = selectors.DefaultSelector()
        self._said: dict[int, list[Text]] = {k: [] for k in range(options.processes)}
        self._endings: dict[int, Ending] = {}
        self._ended: list[Ended] = []
        self._signalled: int | None = None
        self._told: set[int] = set()  # processes that mcnb has signalled to end
        self._killed: set[int] = set()  # processes that did not end after Ctrl-C

    def run(self) -> int:
        """Run the program; return 0, or the exit code of the process that failed first."""
        count = self.options.processes
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Server(count, how=self._how))
            port = stack.enter_context(reserved_port())
            stack.enter_context(_handling(self._pass_on))
            stack.callback(self._end_all)
            gpus: list[tuple[str, ...]] = []
            if self.options.platform == "cuda":
                here = socket.gethostname(), visible_gpus({**os.environ, **self.options.env})
                gpus = share([here] * count, self.options.devices_per_process)
            for k in range(count):
                own = {VISIBLE: ",".join(gpus[k])} if gpus else {}
                self._start(k, server, f"127.0.0.1:{port}", own)
            self._watch()
            cause = find_cause(self._ended, count, server.verdict)
        return self._conclude(cause)

    def _conclude(self, cause: Cause) -> int:
        if self._fold:
            print(folded(self._said, self.options.processes), end="", flush=True)
        code = cause.code if self._signalled is None else 128 + self._signalled
        if self._signalled == signal.SIGINT:
            killed = sorted(self._killed)
            name = _capital(name_processes(killed, self.options.processes)) if killed else ""
            note = f". {name} did not end and {_were(killed)} killed" if killed else ""
            print(f"mcnb run: interrupted{note}", file=sys.stderr)
        if cause.sentence and self._signalled is None:
            told = sorted(one.process for one in self._ended if one.ended_by_us)
            ended = f". {_capital(name_processes(told))} {_were(told)} ended" if told else ""
            print(f"mcnb run: {cause.sentence}{ended}", file=sys.stderr)
        elif code == 0 and never_joined(self._endings):
            print(
                f"mcnb run: {self._path.name} never called jax.distributed.initialize(), so its "
                f"{len(self._endings)} processes ran independently",
                file=sys.stderr,
            )
        return code

    def _start(self, k: int, server: Server, coordinator: str, own: dict[str, str]) -> None:
        count = self.options.processes
        read, report = os.pipe()
        os.set_blocking(read, False)
        environment = process_environment(self.options, os.environ) | {
            PROCESS: str(k),
            PROCESSES: str(count),
            REFEREE: encode_address(server.address),
            COORDINATOR: coordinator,
            REPORT: str(report),
            "PYTHONUNBUFFERED": "1",
            **own,
        }
        if "MPLBACKEND" not in self.options.env:  # a notebook's backend does not suit a program
            environment.pop("MPLBACKEND", None)
            environment |= {k: v for k, v in os.environ.items() if k == "MPLBACKEND"}
        words = [word.replace("{processes}", str(count)) for word in self._arguments]
        words = [word.replace("{process}", str(k)) for word in words]
        unchecked = [] if self.options.checked else ["--unchecked"]
        process = subprocess.Popen(
            [sys.executable, "-m", "mcnb.lockstep", *unchecked, str(self._path), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[report],
            process_group=0,  # mcnb run passes on Ctrl-C, once
        )
        os.close(report)
        self._processes.append(process)
        assert process.stdout
        assert process.stderr
        out, err = _Stream(self, k, "stdout"), _Stream(self, k, "stderr")
        self._selector.register(process.stdout.fileno(), selectors.EVENT_READ, out)
        self._selector.register(process.stderr.fileno(), selectors.EVENT_READ, err)
        self._selector.register(read, selectors.EVENT_READ, _Report(self, k))

    def _watch(self) -> None:
        """Pass on the output of the processes until all have ended."""
        failed_at: float | None = None
        while len(self._ended) < len(self._processes) or self._selector.get_map():
            for key, _ in self._selector.select(TICK_S):
                data = os.read(key.fd, MOST_BYTES)
                key.data.feed(data)
                if not data:
                    self._forget(key.fd, key.data)
            self._reap()
            if failed_at is None and self._has_failed():
                failed_at = time.monotonic()
            if failed_at is not None:
                self._end_others(time.monotonic() - failed_at)
            if len(self._ended) == len(self._processes) and not self._wait_for_output():
                break

    def _wait_for_output(self) -> bool:
        """Return whether there is output left to read: a child process may keep a stream open."""
        return bool(self._selector.select(0)) and bool(self._selector.get_map())

    def _reap(self) -> None:
        known = {one.process for one in self._ended}
        for k, process in enumerate(self._processes):
            if k not in known and (status := process.poll()) is not None:
                self._drain(k)
                ending = self._endings.get(k)
                by_us = k in self._told and (ending is None or ending.kind == "interrupted")
                if ending is not None and status < 0:
                    status = ending.code  # mcnb killed it at its end
                self._ended.append(Ended(k, status, ending, by_us))

    def _drain(self, k: int) -> None:
        """Read the rest of a report, from a process that has ended."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Report) and key.data.process == k:
                with contextlib.suppress(BlockingIOError):  # its child process may keep it open
                    while data := os.read(key.fd, MOST_BYTES):
                        key.data.feed(data)
                key.data.feed(b"")
                self._forget(key.fd, key.data)

    def _forget(self, file: int, data: _Stream | _Report) -> None:
        self._selector.unregister(file)
        if isinstance(data, _Report):
            os.close(file)

    def _has_failed(self) -> bool:
        said = any(ending.kind != "done" for ending in self._endings.values())
        return said or self._signalled is not None or any(one.failed for one in self._ended)

    def _end_others(self, since: float) -> None:
        """End the processes that still run, some time after a failure."""
        known = {one.process for one in self._ended}
        left = {k: p for k, p in enumerate(self._processes) if k not in known}
        if since < ALONE_S:
            return
        if self._signalled == signal.SIGINT and since > INTERRUPTED_S:
            self._kill(left)
            return
        # Finished processes wait for each other when JAX shuts down, some of them for ever.
        through = left.keys() <= self._endings.keys()
        for k, process in left.items():
            if through or since > ALONE_S + OBEY_S:
                if k not in self._endings:
                    self._told.add(k)
                process.kill()
            elif k not in self._told | self._endings.keys() and self._signalled is None:
                self._told.add(k)
                process.send_signal(signal.SIGINT)  # JAX handles SIGTERM itself

    def _kill(self, processes: Iterable[int]) -> None:
        """Kill processes that do not end, with all processes that they started."""
        for k in processes:
            if k not in self._endings:  # a finished process waits in JAX's shutdown
                self._killed.add(k)
            self._told.add(k)
            _signal_group(self._processes[k], signal.SIGKILL)

    def _how(self, k: int) -> ProcessExit:
        """Return how a process ended that left no report."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return ProcessExit(ExitSource.OBSERVED, self._processes[k].wait(REAPED_S))
        return ProcessExit()

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._signalled is not None:  # a second signal kills
            known = {one.process for one in self._ended}
            self._kill(k for k in range(len(self._processes)) if k not in known)
            return
        self._signalled = number
        if number == signal.SIGINT:
            name = name_processes(range(self.options.processes), self.options.processes)
            # Unbuffered, because this handler may have interrupted a write to the buffer.
            said = f"mcnb run: interrupting {name}. To kill: Ctrl-C once more\n"
            os.write(
                2,
                said.replace(
                    "kill:", "kill it:" if self.options.processes == 1 else "kill them:"
                ).encode(),
            )
        for process in self._processes:
            if number == signal.SIGINT:
                _signal_group(process, number)  # its children, too, as a terminal would
            elif process.poll() is None:
                process.send_signal(number)

    def _end_all(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def say(self, k: int, stream: _StreamName, lines: Sequence[str]) -> None:
        """Print lines of a process, or keep them to be folded."""
        if self._fold:
            self._said[k] += [Text(stream, f"{line}\n") for line in lines]
            return
        file = sys.stdout if stream == "stdout" else sys.stderr
        for line in lines:
            print(labelled(k, self.options.processes, line), file=file)
        if lines:
            file.flush()

    def hear(self, k: int, ending: Ending) -> None:
        """Store a process's report on its end."""
        self._endings[k] = ending


class _Stream:
    """A reader of one of a process's two streams."""

    def __init__(self, running: Running, process: int, stream: _StreamName) -> None:
        self.process = process
        self._running, self._stream = running, stream
        # Also on stderr, where programs of `mcnb script` have Gloo's notes.
        self._lines = Lines(hide_gloo=True)

    def feed(self, data: bytes) -> None:
        self._running.say(self.process, self._stream, self._lines.feed(data, final=not data))


class _Report:
    """A reader of a process's report on its end."""

    def __init__(self, running: Running, process: int) -> None:
        self.process = process
        self._running = running
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data += data
        if not data and self._data:
            self._running.hear(self.process, Ending(**json.loads(self._data)))
            self._data = b""


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process, the leader of its own group, and to its children."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _were(processes: Sequence[int]) -> str:
    return "was" if len(processes) == 1 else "were"


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
