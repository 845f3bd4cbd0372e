"""Run a program from a file in this process, as `python FILE` would, with its launches checked."""

from __future__ import annotations

import atexit
import json
import linecache
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

from mcnb.errors import LockstepError
from mcnb.lockstep import jax_hooks
from mcnb.lockstep.frames import line_at
from mcnb.lockstep.places import is_script
from mcnb.scripts.identity import Identity
from mcnb.scripts.joining import Joining
from mcnb.scripts.keeping import Keeper

REPORT = "MCNB_REPORT"
EXIT_RAISED, EXIT_INTERRUPTED = 1, 130


@dataclass(frozen=True)
class Ending:
    """How a program ended in a process, as it says itself.

    Attributes:
        kind: `"done"`; it `"raised"`; its processes `"parted"`; it asked for an `"exit"` code that
            is not 0; it was `"interrupted"`.
        error: How the error reads, in a line.
        place: File and line at which it came up.
        code: The exit code.
        joined: Whether it called `jax.distributed.initialize`.
    """

    kind: Literal["done", "raised", "parted", "exit", "interrupted"] = "done"
    error: str = ""
    place: str = ""
    code: int = 0
    joined: bool = True


def run_program(path: Path, arguments: Sequence[str], identity: Identity, *, checked: bool) -> int:
    """Run a program; return its exit code.

    Args:
        path: The file.
        arguments: What it finds in `sys.argv` after its own name.
        identity: Which process this is.
        checked: Whether its launches are checked.
    """
    report = os.environ.pop(REPORT, "")
    last = _Last()
    atexit.register(last)  # the first to be registered is the last to be called
    joining = Joining(identity, checked=checked)
    joining.install()
    sys.argv = [str(path), *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    ending = Ending()
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        ending = _asked_for(error)
    except BaseException as error:
        ending = _failed(error)
        _print(error)
    sys.stdout.flush()
    sys.stderr.flush()
    if report:
        with os.fdopen(int(report), "w") as file:
            json.dump(asdict(replace(ending, joined=joining.joined)), file)
    if joining.sentry is not None:
        said = f"{ending.error} ({ending.place})" if ending.place else ending.error
        joining.sentry.close("" if ending.kind == "done" else said)
    if ending.kind == "parted" and ending.error.startswith("died: "):
        # At exit, JAX would wait for the dead. Who parted otherwise is waited for, or is aborted.
        jax_hooks.leave_alone()
        last.code, last.keeper = ending.code, joining.keeper
    return ending.code


class _Last:
    """Ends a process that was left by a dead one, when the program's own handlers have run.

    JAX's objects would wait for computations that never end.

    Attributes:
        code: The exit code; None where Python ends the process as always.
        keeper: The referee; with this process, JAX's coordinator ends, and JAX aborts the others.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self.keeper: Keeper | None = None

    def __call__(self) -> None:
        if self.code is not None:
            if self.keeper is not None:
                self.keeper.wait_for_others()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


def _asked_for(error: SystemExit) -> Ending:
    if error.code is None or error.code == 0:
        return Ending()
    if isinstance(error.code, int):
        return Ending("exit", f"exit code {error.code}", _place(error), error.code & 0xFF)
    print(error.code, file=sys.stderr)  # as Python does
    return Ending("exit", str(error.code), _place(error), EXIT_RAISED)


def _failed(error: BaseException) -> Ending:
    said = f"{type(error).__name__}: {error}".removesuffix(": ").splitlines()[0]
    if isinstance(error, KeyboardInterrupt):
        return Ending("interrupted", said, _place(error), EXIT_INTERRUPTED)
    if isinstance(error, LockstepError):
        return Ending("parted", str(error), _place(error), EXIT_RAISED)
    return Ending("raised", said, _place(error), EXIT_RAISED)


def _own(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the program's first frame on."""
    while trace is not None and not is_script(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _place(error: BaseException) -> str:
    """Return the innermost place in the program that an error came through."""
    if isinstance(error, SyntaxError) and error.filename and is_script(error.filename):
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = [
        f"{Path(frame.f_code.co_filename).name}:{line or line_at(frame.f_code, frame.f_lasti)}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_script(frame.f_code.co_filename)
    ]
    return frames[-1] if frames else ""


def _print(error: BaseException) -> None:
    """Print an error as Python would, without the frames that ran the program."""
    linecache.checkcache()
    if isinstance(error, KeyboardInterrupt):
        print(f"KeyboardInterrupt at {_place(error)}", file=sys.stderr)
        return
    trace = _own(error.__traceback__)
    if isinstance(error, LockstepError):  # what JAX and mcnb were doing says nothing
        stack = [f for f in traceback.extract_tb(trace) if is_script(f.filename)]
        print("Traceback (most recent call last):", file=sys.stderr)
        print("".join(traceback.format_list(stack)), end="", file=sys.stderr)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return
    traceback.print_exception(error.with_traceback(trace))
