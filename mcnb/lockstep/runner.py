"""Run a program in this process, as Python would, with its launches checked."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import itertools
import json
import linecache
import os
import runpy
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from mcnb._system import THREADS, die_with_parent, has_reader, threads_for, write_whole_lines
from mcnb._text import error_line
from mcnb.errors import ClusterError, LockstepError, McnbError
from mcnb.lockstep import _jax, rendezvous
from mcnb.lockstep.advice import advice_on
from mcnb.lockstep.caught import CAUGHT
from mcnb.lockstep.checking import check_launches
from mcnb.lockstep.client import Client
from mcnb.lockstep.compiling import compile_alone
from mcnb.lockstep.independent import Tally, tallies_of
from mcnb.lockstep.network import address_for_gloo, bypass_proxy, tolerate_silence
from mcnb.lockstep.ranks import (
    PROCESS,
    PROCESSES,
    Identity,
    identity_by_mcnb,
    identity_of,
    on_this_host,
)
from mcnb.lockstep.rendezvous import RefereeProcess
from mcnb.lockstep.source import Places, is_script
from mcnb.lockstep.threads import interrupt_main, line_at
from mcnb.lockstep.wire import Address

USAGE = """\
usage: python -m mcnb.lockstep [--unchecked] [--values | --no-values] FILE.py [ARGS]
       python -m mcnb.lockstep [--unchecked] [--values | --no-values] -m MODULE [ARGS]

Run a JAX program in one of several processes, with its launches checked: if processes diverge, the
error names the process and the line. Put it in front of the program in the launcher's command:

  srun python -m mcnb.lockstep train.py
  mpirun -np 4 python -m mcnb.lockstep train.py

With --values, replicated arguments are compared bit for bit at every launch, and with --no-values
never. By default, they are compared when a computation is launched for the first time, and then now
and again.

On one machine, mcnb run train.py -n 4 -d 2 starts them, too."""
_OPTIONS = ("--unchecked", "--values", "--no-values")
EXIT_USAGE = 2
REFEREE, COORDINATOR = "MCNB_REFEREE", "MCNB_COORDINATOR"
REPORT = "MCNB_REPORT"
# JAX's own variables for arguments of `jax.distributed.initialize`.
_ADDRESS, _BIND_ADDRESS = "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_BIND_ADDRESS"
EXIT_RAISED, EXIT_INTERRUPTED = 1, 130
# The folder of mcnb's own files.
_OWN = str(Path(__file__).resolve().parents[1])
# A note on JAX's error where it does not know which process this is.
UNKNOWN = (
    "mcnb: neither the arguments of jax.distributed.initialize nor the environment say which "
    "process this is. Start the program with mcnb run FILE -n 4, under srun or mpirun of Open MPI "
    "4, or give the call coordinator_address, num_processes and process_id"
)


def main(words: Sequence[str]) -> int:
    """Run a program in this process; return its exit code, or 2 for a wrong command line."""
    given = [*itertools.takewhile(_OPTIONS.__contains__, words)]
    words = words[len(given) :]
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if words else EXIT_USAGE
    try:
        if words[0] == "-m" and len(words) == 1:
            raise McnbError("-m: the module's name is missing. For example: -m trainer.main")
        is_module = words[0] == "-m"
        program = Program(words[1], is_module=True) if is_module else Program(words[0])
        if words[0].startswith("-") and not is_module:
            raise McnbError(f"{words[0]}: unknown option. Options: {', '.join(_OPTIONS)}")
        if {"--values", "--no-values"} <= {*given}:
            raise McnbError("--values and --no-values contradict each other: give one")
        if not is_module and not Path(program.name).is_file():
            raise McnbError(f"{program.name}: there is no such file")
        identity = identity_by_mcnb(os.environ)
        if identity is not None:
            die_with_parent()
            if REPORT in os.environ and not has_reader(int(os.environ[REPORT])):
                return EXIT_USAGE  # mcnb run ended before die_with_parent took effect
            write_whole_lines()  # mcnb run leaves out Gloo's
    except McnbError as error:
        print(f"python -m mcnb.lockstep: {error}", file=sys.stderr)
        return EXIT_USAGE

    values = True if "--values" in given else False if "--no-values" in given else None
    checked = "--unchecked" not in given
    arguments = words[2:] if is_module else words[1:]
    return run_program(program, arguments, identity, checked=checked, values=values)


def encode_address(address: Address) -> str:
    """Encode an address for the environment of `mcnb run`'s processes."""
    return json.dumps(asdict(address))


def install(values: bool | None = None) -> None:
    """Check this process's launches from its call of `jax.distributed.initialize` on.

    Call it before that, in every process. Processes that diverge raise `LockstepError`. The index
    of this process and the number of processes are those that JAX uses: from the arguments of its
    call, or from the environment of a launcher that JAX knows. The call imports JAX.

    If the program catches a verdict and goes on, a sentence at its exit says so.

    Args:
        values: Whether to compare the values of replicated arguments at each launch, or never; by
            default, at the first launch of a computation, and for a sample of the others.

    Raises:
        ClusterError: Later, by `jax.distributed.initialize`: other users can enter the folder that
            the processes share.

    Example:
        >>> import mcnb.lockstep
        >>> mcnb.lockstep.install()  # doctest: +SKIP
        >>> jax.distributed.initialize("10.0.0.1:1234", 4, rank)  # doctest: +SKIP
    """
    joining = CheckedInitialize(None, checked=True, values=values)
    joining.install()
    atexit.register(_tell_of_caught, joining)
    if sys.excepthook is sys.__excepthook__:  # not that of a notebook, or of the program's own
        sys.excepthook = _print_uncaught
    threading.excepthook = functools.partial(_print_of_thread, threading.excepthook)


class CheckedInitialize:
    """A replacement for `jax.distributed.initialize` that has launches checked.

    Args:
        identity: The identity of this process, if `mcnb run` has started it; None to find it at the
            program's call.
        checked: Whether to check launches.
        values: Whether to compare the values of replicated arguments; see `install`.

    Attributes:
        client: The client that announces this process's launches, once it has joined.
        joined: Whether this process has joined the others.
        processes: The number of processes, once it has.
        interrupted: Whether a verdict in another thread interrupted the main thread.
        referee_process: The referee, if this is process 0 and started one itself.
    """

    def __init__(
        self, identity: Identity | None, *, checked: bool, values: bool | None = None
    ) -> None:
        self.identity = identity
        self.checked = checked
        self.values = values
        self.client: Client | None = None
        self.joined = self.interrupted = False
        self.processes = 0
        # Removed, so that the program's own child processes do not inherit them.
        referee = os.environ.pop(REFEREE, "")
        self._given = Address(**json.loads(referee)) if referee else None
        self._coordinator = os.environ.pop(COORDINATOR, "")
        for name in (PROCESS, PROCESSES):
            os.environ.pop(name, None)
        self.referee_process: RefereeProcess | None = None

    def install(self) -> None:
        """Replace `jax.distributed.initialize`, which imports JAX; the first replacement stays."""
        _jax.replace_initialize(self._initialize)

    def _initialize(self, original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Join the other processes, and check this process's launches from then on."""
        given = inspect.signature(original).bind(*args, **kwargs)
        if self.identity is not None:
            self._complete(self.identity, given.arguments)
        _jax.complete_arguments(given.arguments)
        identity = self.identity or identity_of(given.arguments, os.environ)
        if identity is None:
            try:
                original(*given.args, **given.kwargs)
            except Exception as error:
                error.add_note(UNKNOWN)
                raise
            return
        bound = given.arguments.get("coordinator_bind_address") or os.environ.get(_BIND_ADDRESS)
        address = given.arguments.get("coordinator_address") or ""
        if on_this_host(address) and not bound:
            given.arguments["coordinator_bind_address"] = address  # JAX's default is any address
        if address:
            bypass_proxy(address, os.environ)
            _jax.connect_directly(address_for_gloo(address))
        if self.identity is not None or self.checked:  # mcnb itself detects processes that end
            tolerate_silence(given)
        # Read when JAX makes its devices, which it may not have done before this call.
        os.environ.setdefault(THREADS, str(threads_for(_jax.cpu_devices())))
        if self.checked:
            compile_alone(os.environ, _jax.platforms())
        find = self._prepare(identity) if self.checked else None
        original(*given.args, **given.kwargs)
        self.joined, self.processes = True, identity.processes
        _jax.print_own_blocks()
        if find is not None:
            index, places = _jax.process_index(), Places(is_script)
            self.client = check_launches(
                find(), index, places, interrupt=self._interrupt, values=self.values
            )
            if self.client is not None:
                self.client.main = threading.main_thread().ident

    def _interrupt(self, *_: int) -> None:
        """Interrupt the main thread, which waits for a thread that a verdict has ended."""
        if self.client is not None and self.client.error_of_thread is not None:
            self.interrupted = True
            interrupt_main()

    def verdict_of_thread(self, error: BaseException) -> BaseException:
        """Return the verdict because of which the main thread was interrupted, or the error."""
        verdict = self.client and self.client.error_of_thread
        if not (self.interrupted and verdict and isinstance(error, KeyboardInterrupt)):
            return error
        return verdict.with_traceback(error.__traceback__)

    def _complete(self, identity: Identity, given: dict[str, Any]) -> None:
        """Add arguments that the program leaves to its launcher, and refuse contradictory ones."""
        if not self._coordinator:
            return
        own: dict[str, Any] = {"num_processes": identity.processes, "process_id": identity.process}
        for name, value in own.items():
            if given.get(name) not in (None, value):
                raise ClusterError(
                    f"Process {identity.process} of {identity.processes} called "
                    f"jax.distributed.initialize with {name}={given[name]}; expected {value}. Call "
                    "it without arguments: mcnb run supplies them. If the program reads them from "
                    "its command line, pass {process} and {processes} there"
                )
        own["cluster_detection_method"] = "deactivate"
        numbered = given.get("num_processes") is not None
        theirs = given.get("coordinator_address") or (numbered and os.environ.get(_ADDRESS))
        if not theirs:
            own |= {
                "coordinator_address": self._coordinator,
                "coordinator_bind_address": self._coordinator,
            }
        given.update({name: value for name, value in own.items() if given.get(name) is None})

    def _prepare(self, identity: Identity) -> Callable[[], Address]:
        """Start a referee if necessary; return a function that finds it once all have joined."""
        if (given := self._given) is not None:
            return lambda: given
        path = rendezvous.meeting_point(identity, os.environ)
        if identity.process == 0:
            host = "" if identity.one_host else socket.gethostbyname(socket.gethostname())
            self.referee_process = RefereeProcess(identity.processes, path, host)
        return lambda: rendezvous.find(path)


@dataclass(frozen=True)
class Program:
    """A program, as it is named in a command.

    Attributes:
        name: The path of its file, or the name of its module.
        is_module: Whether it is a module.
    """

    name: str
    is_module: bool = False

    @property
    def short(self) -> str:
        """The name for messages.

        Example:
            >>> Program("jobs/train.py").short, Program("trainer.main", is_module=True).short
            ('train.py', 'trainer.main')
        """
        return self.name if self.is_module else Path(self.name).name

    @property
    def words(self) -> tuple[str, ...]:
        """The words that name it in a command."""
        return ("-m", self.name) if self.is_module else (self.name,)

    def run(self, arguments: Sequence[str]) -> None:
        """Run it in this process, as the main program; a suite of pytest with mcnb's plugin."""
        if self.is_module and self.name == "pytest":
            arguments = ["-p", "mcnb.lockstep.suites", *arguments]
        sys.argv = [self.name, *arguments]
        if self.is_module:  # the current folder comes first in the path already
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            return
        if not sys.flags.safe_path:
            sys.path[0] = str(Path(self.name).resolve().parent)
        runpy.run_path(self.name, run_name="__main__")


@dataclass(frozen=True)
class Ending:
    """A process's own report of how its program ended.

    Attributes:
        kind: `"done"`, `"raised"`, `"diverged"`, `"exit"` for an exit code that is not 0, or
            `"interrupted"`.
        error: The error, in a line.
        place: The file and line of the error.
        code: The exit code.
        joined: Whether it called `jax.distributed.initialize`.
        verdict: The kind of the verdict, if the processes diverged.
        said: What Python prints of the error, which `mcnb run` shows once for all processes.
        tallies: The launches that did not communicate.
    """

    kind: Literal["done", "raised", "diverged", "exit", "interrupted"] = "done"
    error: str = ""
    place: str = ""
    code: int = 0
    joined: bool = True
    verdict: str = ""
    said: str = ""
    tallies: tuple[Tally, ...] = ()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the report that `to_json` made the text of."""
        data = json.loads(text)
        made = ({**one, "processes": tuple(one["processes"])} for one in data.pop("tallies"))
        return cls(**data, tallies=tuple(Tally(**one) for one in made))

    def to_json(self) -> str:
        """Return the report as text."""
        return json.dumps(asdict(self))


_joining: CheckedInitialize | None = None
# Whether `mcnb run` tells of a verdict at the end, once for all processes.
_brief = False


def joined() -> CheckedInitialize | None:
    """Return how the program of this process joins, or has joined, the others; None without one."""
    return _joining


def run_program(
    program: Program,
    arguments: Sequence[str],
    identity: Identity | None,
    *,
    checked: bool,
    values: bool | None = None,
) -> int:
    """Run a program with arguments for its `sys.argv`, and return its exit code."""
    report = os.environ.pop(REPORT, "")
    global _brief
    _brief = bool(report)
    at_the_end = contextlib.ExitStack()
    atexit.register(at_the_end.close)  # registered first, so called last
    global _joining
    joining = _joining = CheckedInitialize(identity, checked=checked, values=values)
    joining.install()
    threading.excepthook = functools.partial(_print_of_thread, threading.excepthook)
    ending = Ending()
    try:
        program.run(arguments)
    except BaseException as raised:
        ending = _ending(joining.verdict_of_thread(raised))
    if not report:
        print(ending.said, end="", file=sys.stderr)
    _flush()
    if caught := ending.kind == "done" and joining.client and joining.client.error:
        # The program ends as if nothing had happened, but its results may be missing or wrong.
        ending = Ending("diverged", str(caught), "", EXIT_RAISED, verdict=caught.kind)
        if not report:  # mcnb run says so
            print(f"python -m mcnb.lockstep: {CAUGHT}{caught}", file=sys.stderr)
    if not (report or joining.joined):
        print(
            f"python -m mcnb.lockstep: {program.short} never joined other processes by "
            "jax.distributed.initialize(), so it was not checked",
            file=sys.stderr,
        )
    _flush()
    if report:
        made = tallies_of(joining.client.records) if joining.client else ()
        ending = replace(ending, joined=joining.joined, tallies=tuple(made))
        with os.fdopen(int(report), "w") as file:
            file.write(ending.to_json())
    if joining.client is not None:
        said = f"{ending.error} ({ending.place})" if ending.place else ending.error
        joining.client.close("" if ending.kind == "done" or caught else said)
    if ending.verdict == "died":
        # At exit, JAX would wait for the dead process. Other processes are waited for, or aborted.
        _jax.leave_alone()
        at_the_end.callback(_end_now, ending.code, joining.referee_process)
    return ending.code


def _tell_of_caught(joining: CheckedInitialize) -> None:
    """Tell of a verdict, at the exit of a program that has caught it; its exit code stays."""
    error = joining.client and joining.client.error
    if error and not hasattr(sys, "last_value"):  # Python has printed no error that ended it
        print(f"mcnb.lockstep: {CAUGHT}{error}", file=sys.stderr)


def _end_now(code: int, referee_process: RefereeProcess | None) -> None:
    """End this process: JAX's objects would wait for computations that never end.

    The process with the referee waits for the others first: JAX's coordinator ends with it, and
    then JAX aborts the others.
    """
    if referee_process is not None:
        referee_process.wait_for_others()
    _flush()
    os._exit(code)


def _flush() -> None:
    """Write what is buffered for the standard streams, unless the program has closed them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):  # as Python does at exit
            stream.flush()


def _ending(error: BaseException) -> Ending:
    place = _place(error)
    line = error_line(error)
    match error:
        case SystemExit(code=None | 0):
            return Ending()
        case SystemExit(code=int() as code):
            return Ending("exit", f"exit code {code}", place, code & 0xFF)
        case SystemExit(code=text):
            return Ending("exit", str(text), place, EXIT_RAISED, said=f"{text}\n")
        case KeyboardInterrupt():
            printed = f"KeyboardInterrupt at {place}\n"
            return Ending("interrupted", line, place, EXIT_INTERRUPTED, said=printed)
        case LockstepError():
            kind = error.kind
            return Ending("diverged", str(error), place, EXIT_RAISED, True, kind, _formatted(error))
    return Ending("raised", line, place, EXIT_RAISED, said=_formatted(error))


def _place(error: BaseException) -> str:
    """Return the innermost place in the program in an error's traceback."""
    if isinstance(error, SyntaxError) and error.filename and is_script(error.filename):
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = [
        f"{Path(frame.f_code.co_filename).name}:{line or line_at(frame.f_code, frame.f_lasti)}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_script(frame.f_code.co_filename)
    ]
    return frames[-1] if frames else ""


def _print_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an error that ends a program which has installed the check itself."""
    if isinstance(error, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        print(_formatted(error), end="", file=sys.stderr)


def _formatted(error: BaseException) -> str:
    """Format an error as Python would, with those that led to it, without mcnb's frames.

    Of a verdict, only the program's own frames are shown: those of libraries explain nothing. A
    hint follows if `mcnb.lockstep.advice` has one.
    """
    linecache.checkcache()
    shown = traceback.TracebackException.from_exception(error)
    pairs: list[tuple[traceback.TracebackException | None, BaseException | None]] = [(shown, error)]
    seen: set[int] = set()
    verdicts: dict[str, str] = {}
    while pairs:
        part, link = pairs.pop()
        if part is None or link is None or id(part) in seen:
            continue
        seen.add(id(part))
        frames = [frame for frame in part.stack if not frame.filename.startswith(f"{_OWN}/")]
        if isinstance(link, LockstepError):
            verdicts[str(link)] = f"{link.kind} (mcnb run tells more at the end)"
            frames = [frame for frame in frames if is_script(frame.filename)]
        elif link is error:  # which has passed the frames that ran the program
            frames = [*itertools.dropwhile(lambda one: not is_script(one.filename), frames)]
        part.stack = traceback.StackSummary.from_list(frames)
        pairs += [(part.__cause__, link.__cause__), (part.__context__, link.__context__)]
        if isinstance(link, BaseExceptionGroup):
            pairs += zip(part.exceptions or (), link.exceptions, strict=False)
    verdict = f"{LockstepError.__module__}.{LockstepError.__qualname__}: "
    said = "".join(shown.format()).replace(verdict, f"{LockstepError.__qualname__}: ")
    for text, short in verdicts.items() if _brief else ():
        said = said.replace(text, short)
    advice = advice_on(error)
    return f"{said}Hint: {advice}\n" if advice else said


def _print_of_thread(
    others: Callable[[threading.ExceptHookArgs], object], raised: threading.ExceptHookArgs
) -> None:
    """Print an error that has ended a thread."""
    if isinstance(raised.exc_value, LockstepError) and raised.thread is not None:
        print(f"Exception in thread {raised.thread.name}:", file=sys.stderr)
        print(_formatted(raised.exc_value), end="", file=sys.stderr)
    else:
        others(raised)
