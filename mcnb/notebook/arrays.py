"""Give a hint if a variable is a process-local array on some processes.

A computation with process-local arrays launches nothing that spans processes, and the referee is
not notified of it: its verdict can only say that the process did not reach the line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from mcnb._text import name_processes
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.result import Result
from mcnb.lockstep.hints import WITHOUT_CAUSE
from mcnb.lockstep.syntax import DEFINITIONS, first_line, last_line, of_this_scope
from mcnb.messages import ProcessError
from mcnb.notebook.assistance import PATIENCE_S
from mcnb.worker.introspection import spans_processes


def spans(cluster: Cluster, name: str) -> dict[int, bool | None]:
    """Return, by process, whether the arrays of a global variable span processes.

    A process without such a variable, or without arrays in it, has None. Processes that do not
    answer in time, or that raise an error, are left out.
    """
    everyone = range(cluster.options.processes)
    found = cluster.ask_idle(spans_processes, name, processes=everyone, within_s=PATIENCE_S)
    return {k: one for k, one in found.items() if not isinstance(one, ProcessError)}


def hint_on_array(
    result: Result, cell: str, first_line: int, spans: Callable[[str], Mapping[int, bool | None]]
) -> str:
    """Return a hint if a name on the line where processes wait is process-local on others.

    Args:
        result: The result of the cell.
        cell: The cell's code.
        first_line: The number of its first line.
        spans: Returns, by process, whether the arrays of a global variable span processes.

    Returns:
        The hint; empty if there is none, or if the verdict has one that names a cause.
    """
    verdict = result.verdict
    error = result.error()
    if verdict is None or verdict.kind not in ("missing", "mismatch") or not result.outcome.intact:
        return ""
    if error is None or ("Hint: " in str(error) and not any(map(str(error).count, WITHOUT_CAUSE))):
        return ""
    at = {
        k: state.line
        for k, state in sorted(verdict.states.items())
        if state.doing in ("waits", "finished") and state.exit is None and not state.place
    }
    for line in dict.fromkeys(at.values()):
        waiting = [k for k, other in at.items() if other == line]
        others = [k for k in at if k not in waiting]
        if line is None or not others:
            continue
        for name in _names(cell, line - first_line + 1):
            found = spans(name)
            own = [k for k in others if found.get(k) is False]
            if own and all(found.get(k) for k in waiting):
                return (
                    f"Hint: `{name}` is a process-local array on "
                    f"{name_processes(own, result.count)}, where a computation with it involves no "
                    f"other process; on {name_processes(waiting, result.count)}, it spans "
                    f"processes. Create `{name}` in the same way on all processes"
                )
    return ""


def with_hint(lines: Sequence[str], hint: str, consequence: str = "") -> list[str]:
    """Return an error's lines with a hint, in the place of one that leaves the cause open.

    Args:
        lines: The lines.
        hint: The hint.
        consequence: What a verdict ends with, on its last line: the hint precedes that line, as
            the hints of verdicts do.

    Example:
        >>> with_hint(["KeyError: 'w'"], "Hint: define w")
        ["KeyError: 'w'", '', 'Hint: define w']
    """
    vague = [f"Hint: {one}" for one in WITHOUT_CAUSE]
    if any(line in vague for line in lines):
        return [hint if line in vague else line for line in lines]
    if consequence and lines and lines[-1].endswith(consequence):
        return [*lines[:-1], hint, lines[-1]]
    return [*lines, "", hint]


def _names(cell: str, line: int) -> list[str]:
    """Return the names that the statement on a line of a cell reads and that keep their values.

    Names in a function have other values there, and those that the cell assigns at that statement,
    or in or after what it stands in, may have had other values than they have now.
    """
    try:
        tree = ast.parse(cell)
    except SyntaxError:  # IPython's own syntax
        return []
    outer = [one for one in tree.body if first_line(one) <= line <= last_line(one)]
    inner = _innermost(outer, line)
    if not outer or inner is None:
        return []
    stored = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and not isinstance(node.ctx, ast.Load)
        and node.lineno >= first_line(outer[0])
    }
    names = dict.fromkeys(
        node.id
        for node in of_this_scope(inner)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    return [name for name in names if name not in stored]


def _innermost(statements: Sequence[ast.stmt], line: int) -> ast.stmt | None:
    """Return the innermost statement on a line; None if it is in a function or in none of them."""
    for one in statements:
        if not first_line(one) <= line <= last_line(one):
            continue
        if isinstance(one, (*DEFINITIONS, ast.ClassDef)):
            return None
        blocks = [getattr(one, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [handler.body for handler in getattr(one, "handlers", [])]
        if not any(blocks):
            return one
        return next((found for part in blocks if (found := _innermost(part, line))), None)
    return None
