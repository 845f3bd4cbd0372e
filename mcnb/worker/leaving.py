"""End a process without Python's own finalization, which takes longer than all that comes before.

Finalization clears all modules, and so touches, and copies, most of the memory that forked
processes share. `multiprocessing` does without it in the processes that it forks, too. What users
rely on happens here as well, in the same order: threads are awaited, `atexit` handlers run, the
user's variables and modules go away with what their finalizers do, and files are written.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, MutableMapping
from types import ModuleType
from typing import Any, NoReturn

from mcnb._text import LIBRARY_PATH

__all__ = ["leave"]

_AT_FIRST = frozenset(sys.modules)


def leave(variables: MutableMapping[str, Any]) -> NoReturn:
    """End this process with the exit code 0.

    Args:
        variables: The variables of the user's cells.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it has arrived
    steps = (
        threading._shutdown,  # type: ignore[attr-defined]  # as multiprocessing does
        atexit._run_exitfuncs,
        lambda: finalize(variables),
        flush_files,
    )
    try:
        for step in steps:
            with contextlib.suppress(Exception):
                step()
    finally:
        os._exit(0)


def finalize(variables: MutableMapping[str, Any]) -> None:
    """Let go of the user's variables, and of what the user's own modules hold."""
    spaces = [variables, *(vars(module) for module in own_modules())]
    for space in spaces:
        for name in [name for name in space if name != "__builtins__"]:
            space[name] = None  # as Python does: functions that still run find their names
    gc.collect()


def own_modules() -> Iterator[ModuleType]:
    """Yield the modules that belong to no library, such as those beside a notebook."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in _AT_FIRST or name.partition(".")[0] == "mcnb" or not isinstance(file, str):
            continue
        if isinstance(module, ModuleType) and not LIBRARY_PATH.match(file):
            yield module


def flush_files() -> None:
    """Write what files hold back that are still open."""
    for file in [one for one in gc.get_objects() if isinstance(one, io.IOBase)]:
        # It may be closed, or its descriptor, or the disk is full.
        with contextlib.suppress(Exception):
            file.flush()
