"""Run `mcnb run`: a program in n processes of this machine, checked and ended together."""

from __future__ import annotations

import codecs
import contextlib
import difflib
import itertools
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any

from mcnb._lessons import (
    find_lesson,
    is_lesson,
    is_notebook_of_one_process,
    read_notebook,
    starts_processes,
)
from mcnb._system import reserved_port
from mcnb._text import filled, label, name_processes
from mcnb.cli.cause import Ended, capital, find_cause, without_devices
from mcnb.cli.groups import Guard, signal_group
from mcnb.errors import OptionError
from mcnb.launchers.base import process_environment
from mcnb.lockstep.independent import different_programs
from mcnb.lockstep.messages import in_two_orders, other_places, unequal_inputs
from mcnb.lockstep.model import ExitSource, ProcessExit
from mcnb.lockstep.ranks import PROCESS, PROCESSES
from mcnb.lockstep.runner import (
    COORDINATOR,
    REFEREE,
    REPORT,
    Ending,
    Program,
    encode_address,
)
from mcnb.lockstep.server import Server
from mcnb.messages import STREAMS, Stream, Text
from mcnb.options import RUN, Options, field_values, options_of, usage
from mcnb.output.fold import fold_events
from mcnb.output.text import entries, text_of
from mcnb.output.tracebacks import fold_tracebacks
from mcnb.worker.capture import GlooFilter
from mcnb.worker.gpus import VISIBLE, share, visible_gpus

TICK_S, MOST_BYTES = 0.05, 1 << 16
# After a failure: how long the other processes have to end alone, and then to obey a signal. These
# times are measured by `Patience`.
ALONE_S, OBEY_S = 1.0, 5.0
# How long processes have to end after Ctrl-C, in all, before they are killed.
INTERRUPTED_S = 3.0
# On a busy machine, such times are at most so many times longer.
SLOWEST = 10
# How long the system may take to report how a process ended.
REAPED_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Lines:
    r"""One stream of one process, split into lines.

    Gloo's connection notes are left out, on stderr, too: programs of `mcnb script` have them there.

    Example:
        >>> lines = Lines()
        >>> lines.feed(b"step 1\nst"), lines.feed(b"ep 2\n"), lines.feed(b"end", final=True)
        (['step 1'], ['step 2'], ['end'])
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._gloo = GlooFilter()
        self._rest = ""

    def feed(self, data: bytes, final: bool = False) -> list[str]:
        """Return the complete lines, without their ends.

        Args:
            data: The new bytes.
            final: Whether the stream ends here; then the last line needs no end.
        """
        text = self._gloo.feed(self._decoder.decode(data, final), final)
        *lines, self._rest = (self._rest + text).split("\n")
        return [*lines, self._rest] if final and self._rest else lines


def labelled(processes: Sequence[int], count: int, line: str) -> str:
    """Return a line labelled with its processes.

    Example:
        >>> labelled([3], 16, "loss 0.7"), labelled([1, 2, 3], 16, "ValueError")
        ('[3]  loss 0.7', '[1-3] ValueError')
    """
    width = len(f"[{count - 1}]")
    # For a progress bar, only the last text that a terminal would have shown.
    shown = line.rstrip("\r").rpartition("\r")[2]
    return f"{label(processes, count):<{width}} {shown}".rstrip()


# The first flag of each option: longer ones, such as --processes, may be the program's.
_KNOWN = {option.flags[0]: option for option in options_of(RUN)}
_OPTIONS = "\n".join(option.explain([flag]) for flag, option in _KNOWN.items())
USAGE = f"""\
{usage("usage: mcnb run FILE.py", RUN, "[ARGS]")}
       mcnb run [OPTIONS] -m MODULE [ARGS]
       mcnb run [OPTIONS] NOTEBOOK.ipynb [ARGS]

Run a JAX program in several processes of this machine, with its launches checked. The first failure
ends all of them, and the root cause is told last.

{_OPTIONS}

Options of mcnb end at the first word after FILE that is not listed above, or at --; none follow
-m MODULE. The rest are ARGS, the program's own arguments. In them, and in the values of --env,
{{process}} and {{processes}} stand for a process's index and the number of processes. A program
that calls jax.distributed.initialize() without arguments needs no more. For example:

  mcnb run train.py -n 4 -d 2 --steps 100
  mcnb run toy.py -n 4 -d 2 {{process}} {{processes}}

A notebook is executed from top to bottom: an .ipynb file, Markdown, or Python with a cell after
each "# %%", unless ARGS or -- follow it or it calls jax.distributed.initialize. If it was written
for one process, its cells run on all processes, and their output is folded; at the end, mcnb says
which cells failed. If it uses %%mcjax, as lessons do, it starts its own processes:

  mcnb run training.ipynb -n 4 -d 2
  mcnb run 05_lockstep.md"""


@dataclass(frozen=True)
class Command:
    """The parsed command line of `mcnb run`.

    Attributes:
        program: The program.
        arguments: The program's arguments.
        options: The options of the processes.
        fold: Whether to fold the output.
        notebook: The notebook, as nbformat reads it, if the program is one.
    """

    program: Program
    arguments: tuple[str, ...]
    options: Options
    fold: bool
    notebook: Any = None


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
    name: str | None = None
    rest = list(words)
    while rest:
        flag, equals, value = rest[0].partition("=")
        option = _KNOWN.get(flag)
        if option is not None and not option.metavar and not equals:
            given[option.name] = True
            rest.pop(0)
        elif option is not None and option.metavar:
            rest.pop(0)
            if not equals and not rest:
                raise OptionError(f"mcnb run {flag}: a value is missing. See mcnb run --help")
            value = value if equals else rest.pop(0)
            if option.repeatable:
                given.setdefault(option.name, []).append(value)
            else:
                given[option.name] = value
        elif name is None and rest[0] == "-m":
            if len(rest) == 1:
                raise OptionError(
                    "mcnb run -m: the module's name is missing. For example: mcnb run -n 4 -m "
                    "trainer.main"
                )
            return _command(Program(rest[1], is_module=True), rest[2:], given)
        elif name is None and not rest[0].startswith("-"):
            name = rest.pop(0)
        elif name is None:
            raise OptionError(_no_such_option(rest[0]))
        else:
            break
    ended = rest[:1] == ["--"]
    if ended:
        rest.pop(0)
    if name is None:
        raise OptionError(
            "mcnb run: the program's file is missing. For example: mcnb run train.py -n 4 -d 2"
        )
    path = Path(name)
    if is_lesson(path):
        path = find_lesson(path)
    elif path.is_dir():
        raise OptionError(
            f"mcnb run {path}: it is a folder. A program's file is needed: mcnb run train.py -n 4 "
            "-d 2"
        )
    elif not path.is_file():
        raise OptionError(f"mcnb run {path}: there is no such file")
    elif ended or rest or not is_notebook_of_one_process(path):
        return _command(Program(name), rest, given)
    notebook = read_notebook(path)
    if not starts_processes(notebook):
        return replace(_command(Program(str(path)), rest, given), notebook=notebook)
    if given or rest:
        raise OptionError(
            f"mcnb run {name}: a lesson starts its own processes, so no other arguments are "
            f"allowed: mcnb run {name}"
        )
    return Command(Program(str(path)), (), Options(), fold=False, notebook=notebook)


def _command(program: Program, arguments: Sequence[str], given: dict[str, Any]) -> Command:
    options = Options(**field_values(RUN, given))
    return Command(program, tuple(arguments), options, "fold" in given)


def _no_such_option(word: str) -> str:
    close = difflib.get_close_matches(word, _KNOWN, n=1)
    return (
        f"mcnb run {word}: unknown option. Options: {', '.join(_KNOWN)}. The program's "
        "own options follow its file" + (f". Did you mean {close[0]}?" if close else "")
    )


def main(words: Sequence[str]) -> int:
    """Run a program or a notebook, and return the exit code.

    Raises:
        OptionError: The command line is invalid.
    """
    if any(word in ("-h", "--help") for word in words[:1]):
        print(USAGE)
        return 0
    command = parse(words)
    path = Path(command.program.name)
    if command.notebook is None:
        return Running(command).run()
    # Programs, which are most of what is run, begin without these.
    if starts_processes(command.notebook):
        from mcnb.export.parse import run_lesson

        return run_lesson(path, command.notebook)
    from mcnb.cli.notebook import run_on_processes

    options = replace(command.options, arguments=command.arguments)
    return run_on_processes(path, command.notebook, options)


class Patience:
    """Measures how long processes have had to do something, as if each had a core of its own.

    While a thread waits for a core, time passes as slowly as that thread makes progress. Where the
    system does not report the states of threads, time passes as on the clock.

    Attributes:
        passed_s: The time since the start, in seconds.
    """

    def __init__(self) -> None:
        self.passed_s = 0.0
        self._last = time.monotonic()
        self._ready: dict[Path, float] = {}  # the processor time of threads that were ready to run

    def tick(self, processes: Iterable[int]) -> None:
        """Let the time since the last tick pass.

        Args:
            processes: The ids of the processes that still have something to do.
        """
        now = time.monotonic()
        # A late tick means that this thread had no core, and looked at nothing.
        on_clock, self._last = min(now - self._last, 2 * TICK_S), now
        own = str(threading.get_native_id())
        ready = {}
        for process in (os.getpid(), *processes):  # mcnb itself has the referee
            for task in Path(f"/proc/{process}/task").glob("*"):
                with contextlib.suppress(OSError):  # ended meanwhile
                    state, used = _state_of(task)
                    if state == "R" and task.name != own:
                        ready[task] = used
        progress = (used - self._ready[task] for task, used in ready.items() if task in self._ready)
        slowest = min(progress, default=on_clock)
        self._ready = ready
        self.passed_s += max(min(slowest, on_clock), on_clock / SLOWEST)


def _state_of(task: Path) -> tuple[str, float]:
    """Return the letter for the state of a thread, and its processor time in seconds; proc(5)."""
    words = (task / "stat").read_text().rpartition(")")[2].split()
    return words[0], (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class _Process:
    """A process of the program.

    Attributes:
        index: The index of the process.
        popen: The process itself.
        pipe: The pipe of the process's report on its end, which does not block.
        report: The part of the report that has been read.
        ending: The report, once it is complete.
        shown: Whether the error in the report was printed.
        said: The output, if it is folded at the end.
        told: Whether mcnb has signalled the process to end.
        killed: Whether mcnb killed the process because it did not end after Ctrl-C.
        ended: Whether the process has ended.
    """

    index: int
    popen: subprocess.Popen[bytes]
    pipe: FileIO
    report: bytes = b""
    ending: Ending | None = None
    shown: bool = False
    said: list[Text] = field(default_factory=list)
    told: bool = False
    killed: bool = False
    ended: bool = False

    def read_report(self) -> None:
        """Read what there is of the report."""
        data = self.pipe.read()  # None while there is nothing new, and empty at the end
        self.report += data or b""
        # A child process may keep the pipe open.
        if self.report and self.ending is None and (data == b"" or self.ended):
            self.ending = Ending.from_json(self.report)


class Running:
    """A program that runs in several processes.

    Args:
        command: The program, and the options of its processes.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._count = command.options.processes
        self._processes: list[_Process] = []
        self._ended: list[Ended] = []
        self._selector = selectors.DefaultSelector()
        self._signalled: int | None = None

    def run(self) -> int:
        """Run the program; return 0, or the exit code of the process that failed first."""
        options, count = self._command.options, self._count
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Server(count, how=self._how))
            port = stack.enter_context(reserved_port())
            self._guard = stack.enter_context(contextlib.closing(Guard()))
            for number in _SIGNALS:
                stack.callback(signal.signal, number, signal.signal(number, self._pass_on))
            stack.callback(self._end_all)
            environment = process_environment(options, os.environ) | {
                PROCESSES: str(count),
                REFEREE: encode_address(server.address),
                COORDINATOR: f"127.0.0.1:{port}",
                "PYTHONUNBUFFERED": "1",
            }
            if "MPLBACKEND" not in options.env:  # a notebook's backend does not suit a program
                del environment["MPLBACKEND"]
                environment |= {k: v for k, v in os.environ.items() if k == "MPLBACKEND"}
            gpus: list[tuple[str, ...]] = []
            if options.platform == "cuda":
                here = socket.gethostname(), visible_gpus({**os.environ, **options.env})
                gpus = share([here] * count, options.devices_per_process)
            for k in range(count):
                self._start(k, environment | ({VISIBLE: ",".join(gpus[k])} if gpus else {}))
            self._watch()
            ends = [
                one if one.ending else replace(one, last=server.last_launch(one.process))
                for one in self._ended
            ]
            sentence, code = find_cause(ends, count, server.verdicts)
            noted = server.noted
            unequal = code == 0 or not server.verdicts  # else the verdict says enough
            notes = [unequal_inputs(noted.inputs, count)] if unequal else []
            if code == 0:
                ended = {one.index: one.ending for one in self._processes}
                made = {k: end.tallies if end else () for k, end in ended.items()}
                notes = [
                    other_places(noted.meetings, count),
                    in_two_orders(noted.races, count),
                    different_programs(made, count),
                    *notes,
                ]
        return self._conclude(sentence, code, [note for note in notes if note])

    def _conclude(self, sentence: str, code: int, notes: Sequence[str]) -> int:
        """Print why the program ended, and return the exit code of `mcnb run`."""
        if self._command.fold:
            blocks = fold_events({process.index: process.said for process in self._processes})
            folded = "".join(entry.text for entry in entries(blocks, self._count))
            print(folded, end="", flush=True)
        if self._signalled is not None:
            killed = [process.index for process in self._processes if process.killed]
            name = capital(name_processes(killed, self._count)) if killed else ""
            note = f". {name} did not end and {_were(killed)} killed" if killed else ""
            signalled = f"ended by {signal.Signals(self._signalled).name}"
            said = "interrupted" if self._signalled == signal.SIGINT else signalled
            print(f"mcnb run: {said}{note}", file=sys.stderr)
            return 128 + self._signalled
        endings = [process.ending for process in self._processes if process.ending is not None]
        if sentence:
            told = sorted(one.process for one in self._ended if one.ended_by_us)
            ended = f". Then mcnb ended {name_processes(told)}" if told else ""
            print(f"mcnb run: {sentence}{ended}", file=sys.stderr)
        for note in notes:
            print(f"mcnb run: {capital(note)}", file=sys.stderr)
        apart = len(endings) > 1 and not any(ending.joined for ending in endings)
        # One that fails may not have come to the call.
        if apart and not notes and (code == 0 or not self._may_join()):
            print(
                f"mcnb run: {self._command.program.short} never called "
                f"jax.distributed.initialize(), so its {len(endings)} processes ran independently",
                file=sys.stderr,
            )
        return code

    def _may_join(self) -> bool:
        """Return whether the program's own file has code that may connect its processes."""
        program = self._command.program
        try:
            return program.is_module or "distributed" in Path(program.name).read_text()
        except (OSError, ValueError):
            return True

    def _start(self, k: int, environment: dict[str, str]) -> None:
        read, report = os.pipe()
        os.set_blocking(read, False)
        options = self._command.options

        words = [filled(word, k, self._count) for word in self._command.arguments]
        # Without braces, they are in the environment, where GPUs may have been shared since.
        given = {
            name: filled(value, k, self._count)
            for name, value in options.env.items()
            if "{" in value
        }
        flags = [] if options.checked else ["--unchecked"]
        if options.values is not None:
            flags.append("--values" if options.values else "--no-values")
        popen = subprocess.Popen(
            [sys.executable, "-m", "mcnb.lockstep", *flags, *self._command.program.words, *words],
            env={**environment, **given, PROCESS: str(k), REPORT: str(report)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[report],
            process_group=0,  # mcnb run passes on Ctrl-C, once
        )
        os.close(report)
        self._guard.add(popen.pid)
        process = _Process(k, popen, FileIO(read))
        self._processes.append(process)
        for stream in STREAMS:
            reader = (process, stream, Lines())
            self._selector.register(getattr(popen, stream), selectors.EVENT_READ, reader)

    def _left(self) -> list[_Process]:
        """Return the processes that are not known to have ended.

        Process 0 is the last: when JAX's coordinator is killed, JAX aborts the others with errors.
        """
        return [process for process in reversed(self._processes) if not process.ended]

    def _watch(self) -> None:
        """Pass on the output of the processes until all have ended."""
        patience: Patience | None = None
        # When all have ended, a child process of theirs may keep a stream open.
        while self._left() or self._selector.select(0):
            reported = [one for one in self._processes if one.ending is not None]
            self._pass_on_output(TICK_S)
            # What these had written, a pipe's size at most, was read before their errors are shown.
            if len(reported) == self._count:
                self._show_errors(reported)
            elif patience is not None and patience.passed_s > ALONE_S:
                # Those that mcnb ends are told at the end, together.
                own = (o for o in reported if o.ending and o.ending.kind != "interrupted")
                self._show_errors(own)
            self._reap()
            if patience is None and self._has_failed():
                patience = Patience()
            if patience is not None:
                patience.tick(process.popen.pid for process in self._left())
                self._end_others(patience.passed_s)
        self._show_errors(self._processes)

    def _pass_on_output(self, wait_s: float) -> None:
        """Show what the processes have written; wait for it for at most some seconds."""
        for key, _ in self._selector.select(wait_s):
            data = os.read(key.fd, MOST_BYTES)
            process, stream, lines = key.data
            self._show(process, stream, lines.feed(data, final=not data))
            if not data:
                self._selector.unregister(key.fileobj)

    def _show_errors(self, processes: Iterable[_Process]) -> None:
        """Print the errors that ended the program, each once for all processes that raised it."""
        groups: dict[str, list[_Process]] = {}
        for process in processes:
            if process.ending is not None and process.ending.said and not process.shown:
                groups.setdefault(without_devices(process.ending.said), []).append(process)
                process.shown = True
        raised: list[tuple[list[int], str]] = []
        for group in groups.values():
            first = group[0].ending
            assert first is not None
            said = first.said.removesuffix("\n")
            if self._command.fold:
                for process in group:
                    process.said += [Text("stderr", f"{line}\n") for line in said.split("\n")]
            else:
                raised.append(([process.index for process in group], said))
        for block in itertools.chain.from_iterable(fold_tracebacks(raised)):
            for item in block.items:
                line = text_of(item).removesuffix("\n")
                print(labelled(block.processes, self._count, line), file=sys.stderr)

    def _show(self, process: _Process, stream: Stream, lines: Sequence[str]) -> None:
        """Print lines of a process, or keep them to be folded."""
        if self._command.fold:
            process.said += [Text(stream, f"{line}\n") for line in lines]
            return
        file = getattr(sys, stream)
        for line in lines:
            print(labelled([process.index], self._count, line), file=file)
        if lines:
            file.flush()

    def _reap(self) -> None:
        for process in reversed(self._left()):
            status = process.popen.poll()
            process.ended = status is not None
            process.read_report()
            if status is not None:
                ending = process.ending
                by_us = process.told and (ending is None or ending.kind == "interrupted")
                if ending is not None and status < 0:
                    status = ending.code  # mcnb killed it at its end
                self._ended.append(Ended(process.index, status, ending, by_us))
                if status == 0:
                    self._guard.remove(process.popen.pid)

    def _has_failed(self) -> bool:
        said = any(one.ending is not None and one.ending.kind != "done" for one in self._processes)
        return said or self._signalled is not None or any(one.failed for one in self._ended)

    def _end_others(self, since: float) -> None:
        """End the processes that still run, some seconds after a failure."""
        left = self._left()
        if since < ALONE_S:
            return
        if self._signalled == signal.SIGINT and since > INTERRUPTED_S:
            self._kill(left)
            return
        # Finished processes wait for each other when JAX shuts down, some of them for ever.
        through = all(process.ending is not None for process in left)
        for process in left:
            if through or since > ALONE_S + OBEY_S:
                self._kill([process])
            elif not process.told and process.ending is None and self._signalled is None:
                process.told = True
                process.popen.send_signal(signal.SIGINT)  # JAX handles SIGTERM itself

    def _kill(self, processes: Iterable[_Process]) -> None:
        """Kill processes that do not end, with all processes that they started."""
        for process in processes:
            process.killed |= process.ending is None  # a finished one waits in JAX's shutdown
            process.told |= process.ending is None
            signal_group(process.popen.pid, signal.SIGKILL)

    def _how(self, k: int) -> ProcessExit:
        """Return how a process ended that left no report."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return ProcessExit(ExitSource.OBSERVED, self._processes[k].popen.wait(REAPED_S))
        return ProcessExit()

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._signalled is not None:  # a second signal kills
            self._kill(self._left())
            return
        self._signalled = number
        name = name_processes(range(self._count), self._count)
        it = "it" if self._count == 1 else "them"
        said = f"ending {name}, because of {signal.Signals(number).name}"
        if number == signal.SIGINT:
            said = f"interrupting {name}. To kill {it}: Ctrl-C once more"
        # Unbuffered, because this handler may have interrupted a write to the buffer.
        os.write(2, f"mcnb run: {said}\n".encode())
        for process in self._left():
            if number == signal.SIGINT:
                signal_group(process.popen.pid, number)  # its children, too, as a terminal would
            else:
                process.popen.send_signal(number)

    def _end_all(self) -> None:
        """End what is left: where all went well, nothing but children that were meant to stay."""
        through = len(self._ended) == self._count and not self._has_failed()
        for process in reversed(self._processes):
            if not through:
                signal_group(process.popen.pid, signal.SIGKILL)
            process.popen.wait()
            process.pipe.close()


def _were(processes: Sequence[int]) -> str:
    return "was" if len(processes) == 1 else "were"
