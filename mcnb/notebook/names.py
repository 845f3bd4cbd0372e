"""Give hints on names that processes lack."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable

from mcnb._text import name_processes
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.result import Result
from mcnb.lockstep.advice import IMPORTS
from mcnb.notebook.assistance import PATIENCE_S
from mcnb.worker.introspection import defines

_MAGIC = re.compile(r"\s*(%%\w+)")


def holders(cluster: Cluster, name: str) -> list[int]:
    """Return the processes that have a global variable of a name.

    Processes that run a cell, that do not answer in time, or that raise an error, are left out.
    """
    everyone = range(cluster.options.processes)
    found = cluster.ask_idle(defines, name, processes=everyone, within_s=PATIENCE_S)
    return [k for k, has in sorted(found.items()) if has is True]


def hint_on_name(
    result: Result, notebook: Container[str], has_name: Callable[[str], Iterable[int]]
) -> str:
    """Return a hint if all processes that raised an error lack the same name.

    Args:
        result: The result of the cell.
        notebook: Contains the names that are defined in the notebook kernel.
        has_name: Returns the processes that have a global variable of a name.

    Returns:
        The hint; empty if there is none, or if the errors have one already.

    Example:
        >>> from mcnb.messages import ProcessError, Reply
        >>> error = ProcessError("NameError", "name 'w' is not defined", 2, "", "w", close="v")
        >>> result = Result({0: Reply(error=error), 1: Reply(error=error)}, 2)
        >>> hint_on_name(result, {}, lambda name: [])
        'Hint: did you mean v? If not, first run the %%mcjax cell that defines w'
    """
    errors = result.causes
    found = {error.undefined for error in errors.values()}
    if len(found) != 1 or "" in found:
        return ""
    (name,) = found
    if name in IMPORTS and name not in notebook:  # the error already has a hint
        return ""
    if have := {*has_name(name)} - errors.keys() if result.outcome.intact else set():
        return (
            f"Hint: {name} is defined on {name_processes(sorted(have), result.count)}, and not on "
            f"{name_processes(sorted(errors), result.count)}. Assign it on all processes: under no "
            "condition that depends on the process, and in a cell without -p"
        )
    if len(errors) < len(result.replies):
        return ""
    if name in notebook:
        return (
            f"Hint: {name} is defined in the notebook kernel, but not on these processes. Define "
            f"it in a cell that begins with %%mcjax, or copy it: %mcjax push {name}"
        )
    run = f"first run the %%mcjax cell that defines {name}"
    close = {error.close for error in errors.values()}
    meant = close.pop() if len(close) == 1 else ""
    return f"Hint: did you mean {meant}? If not, {run}" if meant else f"Hint: {run}"


def hint_on_place(name: str, who: str, cell: str) -> str:
    r"""Return a hint for a cell of the notebook kernel that lacks a name of the processes'.

    Args:
        name: The name.
        who: The processes that have it, as they are named in sentences.
        cell: The cell's code, if `%mcjax auto` is on; else an empty text.

    Example:
        >>> print(hint_on_place("w", "process 2", "%%time\nw + 1"))
        Hint: w is defined on process 2, but not in the notebook kernel, where cells that begin
        with %%time run. To use it, begin the cell with %%mcjax
    """
    magic = _MAGIC.match(cell)
    where = f", where cells that begin with {magic[1]} run" if magic else ""
    return (
        f"Hint: {name} is defined on {who}, but not in the notebook kernel{where}. To use it, "
        "begin the cell with %%mcjax"
    )
