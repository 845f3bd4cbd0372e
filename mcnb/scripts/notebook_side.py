"""What the notebook itself does for the processes, so that process 0 can do it in its place.

That is `mcnb.current_cluster().push({"name": value})`, and the cells that the value is made in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcnb.scripts.cells_of_lessons import Cell
from mcnb.scripts.cells_to_code import awaits, mcnb_names, plain, root, without_mcnb
from mcnb.scripts.editing import edited, span
from mcnb.scripts.needs import GIVEN, names_of


@dataclass(frozen=True)
class Errand:
    """A variable that the notebook sets in the processes.

    Attributes:
        name: Its name.
        value: The expression of its value.
        before: The notebook's cells in which that value is made, as plain code, by their indices.
    """

    name: str
    value: str
    before: tuple[tuple[int, str], ...]


def errands_before(
    cell: Cell, before: Sequence[Cell], processes: Sequence[Cell]
) -> Iterator[Errand]:
    """Yield the variables that a cell of the notebook sets in the processes.

    Those whose values process 0 can't make in the notebook's place are left out: where they need
    mcnb, or where the notebook gives names to its own values that the processes have, too.

    Args:
        cell: The cell.
        before: All cells before it.
        processes: The cells of its part, of which those in the processes count.
    """
    taken: set[str] = set()
    for one in processes:
        if one.in_processes and one.code:
            taken |= names_of(one.code).defines - _imports(one.code)
    for name, value in pushed(cell.source):
        needs = names_of(value).needs
        made = _made(needs, [*before, cell])
        if made is not None and not taken & {n for _, code in made for n in _own(code)}:
            yield Errand(name, value, tuple(made))


def pushed(source: str) -> list[tuple[str, str]]:
    """Return the variables that a cell's code pushes to all processes, and their values.

    Example:
        >>> pushed("mcnb.current_cluster().push({'n': 2 * m})")
        [('n', '2 * m')]
    """
    try:
        body = ast.parse(plain(source)).body
    except SyntaxError:
        return []
    found = []
    for statement in body:
        match statement:
            case ast.Expr(
                ast.Call(
                    ast.Attribute(ast.Call(), "push") as function,
                    [ast.Dict(keys=keys, values=values)],
                    [],
                )
            ) if root(function) in ("mcnb", "current_cluster"):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        found.append((key.value, ast.unparse(value)))
    return found


def _made(needs: frozenset[str], cells: Sequence[Cell]) -> list[tuple[int, str]] | None:
    """Return the cells of the notebook that define names, and what these need; None if none do."""
    made: dict[int, str] = {}
    wanted = [(name, len(cells)) for name in needs - GIVEN]
    while wanted:
        name, end = wanted.pop()
        for position in reversed(range(end)):
            cell = cells[position]
            if cell.in_processes or (code := _plain(cell.source)) is None:
                continue
            names = names_of(code)
            if name in names.defines:
                if cell.index not in made:
                    made[cell.index] = code
                    wanted += [(n, position) for n in (names.needs | names.later) - GIVEN]
                break
        else:
            return None
    return sorted(made.items())


def _plain(source: str) -> str | None:
    """Return a cell of the notebook as plain code without mcnb; None if it can't be."""
    try:
        code = plain(source)
        ours = mcnb_names(code) | {"mcnb"}
        code = without_mcnb(code, ours)
        if awaits(code) or names_of(code).needs & ours:
            return None
    except SyntaxError:
        return None
    return code.strip("\n")


def _imports(code: str) -> set[str]:
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(code))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _own(code: str) -> set[str]:
    return set(names_of(code).defines) - _imports(code)


def folder_numbers(cells: Sequence[Cell]) -> dict[int, int]:
    """Return the number of the first temporary folder that each cell of the notebook makes."""
    numbers = {}
    count = 0
    for cell in cells:
        code = None if cell.in_processes else _plain(cell.source)
        if code is not None:
            numbers[cell.index] = count
            count += len(_folders(code))
    return numbers


def with_lasting_folders(code: str, number: int, *, new: bool) -> str:
    """Return code whose temporary folders last, and have numbers, so that they are found again.

    Args:
        code: The code.
        number: The number of the first of them.
        new: Whether they are to be empty.

    Example:
        >>> with_lasting_folders("disk = tempfile.TemporaryDirectory()", 0, new=True)
        'disk = lasting_folder(0, new=True)'
    """
    more = ", new=True" if new else ""
    places = enumerate(_folders(code), number)
    return edited(code, [(*span(code, node), f"lasting_folder({k}{more})") for k, node in places])


def _folders(code: str) -> list[ast.Call]:
    """Return the calls that make a temporary folder."""
    return [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and not (node.args or node.keywords)
        and isinstance(node.func, (ast.Attribute, ast.Name))
        and (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id)
        == "TemporaryDirectory"
    ]
