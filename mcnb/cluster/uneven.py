"""Find variables that processes have assigned a different number of times in a cell.

If processes diverge in a loop, some of them are a step ahead. What they assigned there is kept, and
the parts of an array may then belong to different steps, which nothing tells in the cells to come.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mcnb._text import grouped, name_processes
from mcnb.lockstep.model import MOST_RECORDS, LaunchRecord
from mcnb.lockstep.syntax import first_line, last_line, of_this_scope, whole_of

# More different numbers are told by the smallest and the largest.
_MOST_GROUPS = 3


def uneven_assignments(
    source: str, begins_at: int, launches: Mapping[int, Sequence[LaunchRecord]], count: int
) -> str:
    r"""Name the variables that may not be in the same step on all processes; empty without any.

    A line that assigns a variable has run as often as its last launch was made. Assignments in
    functions are left out, as are those that only some processes have made, unless the variable
    existed before: others may not be meant to have it.

    Args:
        source: The code of the cell.
        begins_at: The number of its first line.
        launches: The launches of each process that ran the cell, by process index.
        count: The number of processes in the cluster.

    Example:
        >>> from mcnb.lockstep.model import Launch
        >>> add = Launch("add", "1", (0,))
        >>> made = {k: [LaunchRecord(k, add, 3, 0.0, 0.0)] * (3 - k) for k in range(2)}
        >>> uneven_assignments("for batch in batches:\n    x = x + batch", 2, made, 2)[:69]
        '`x` may not be in the same step on all processes: line 3 ran 3 times '
    """
    if any(len(each) >= MOST_RECORDS for each in launches.values()):
        return ""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # magics, for example
        return ""
    lines: dict[int, dict[int, list[LaunchRecord]]] = {}
    for k, each in launches.items():
        for record in each:
            if record.line is not None and not record.place:
                at = record.line - begins_at + 1
                lines.setdefault(at, {}).setdefault(k, []).append(record)
    found: dict[str, tuple[int, dict[int, int]]] = {}
    for names, existed, node in _assigned(tree):
        line, made = _runs(node, lines, launches)
        if len({*made.values()}) < 2:
            continue
        for name in names:
            if name in existed or all(made.values()):
                found.setdefault(name, (line, made))
    if not found:
        return ""
    line, made = next(iter(found.values()))
    groups = grouped(made)
    ran = "; ".join(f"{_times(n)} on {name_processes(ks, count)}" for n, ks in groups)
    if len(groups) > _MOST_GROUPS:
        ran = f"{min(made.values())} to {max(made.values())} times, depending on the process"
    names = [f"`{name}`" for name in found]
    it = names[0] if len(names) == 1 else "them"
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return (
        f"{listed} may not be in the same step on all processes: line {line} ran {ran}. "
        f"Assign {it} anew before use"
    )


def _runs(
    node: ast.AST, lines: Mapping[int, Mapping[int, Sequence[LaunchRecord]]], ks: Iterable[int]
) -> tuple[int, dict[int, int]]:
    """Return the line of a statement's last launch, and how often each process has made it.

    If a launch of the statement was refused, the statement has assigned nothing in that round.
    """
    own = [lines[at] for at in range(first_line(node), last_line(node) + 1) if at in lines]
    here = {k: [record for line in own for record in line.get(k, ())] for k in ks}
    most = max(here.values(), key=len, default=[])
    if not most:
        return 0, {}
    last = sorted(most, key=lambda record: record.announced)[-1]  # of equal ones, the last
    made = {
        k: sum(one.began is not None and one.launch.name == last.launch.name for one in each)
        for k, each in here.items()
    }
    return last.line or 0, made


def _assigned(tree: ast.Module) -> Iterator[tuple[list[str], set[str], ast.AST]]:
    """Yield the names of each assignment outside functions, those that it reads, and its node."""
    for node in of_this_scope(tree):
        match node:
            case ast.Assign(targets=targets):
                names = [name for target in targets for name in _names(target)]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                names = [*_names(target)]
            case ast.NamedExpr(target=target):
                names = [target.id]
            case _:
                continue
        reads = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and _is_read(one)}
        yield names, reads | ({*names} if isinstance(node, ast.AugAssign) else set()), node


def _names(target: ast.expr) -> Iterator[str]:
    """Yield the names of what an assignment assigns, or changes a part of."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _names(part)
    elif isinstance(target, ast.Starred):
        yield from _names(target.value)
    elif isinstance(whole := whole_of(target), ast.Name):
        yield whole.id


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")
