"""Choose the cells, pushed variables and temporary folders of a lesson that a program keeps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mcnb.export.needs import GIVEN, Names, bound, names_of
from mcnb.export.parse import Cell
from mcnb.export.source import awaits, edited, mcnb_names, only, plain, root, span, without_mcnb

# The line by which a cell of the notebook kernel copies variables to the processes.
_PUSH = re.compile(r"^[ \t]*%mcjax[ \t]+push[ \t]+(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Errand:
    """A variable that the notebook kernel pushes to the processes.

    Attributes:
        name: The variable's name.
        value: The expression of its value.
        before: Index and plain code of each kernel cell that the value depends on.
    """

    name: str
    value: str
    before: tuple[tuple[int, str], ...]


def pushed(source: str) -> list[tuple[str, str]]:
    r"""Return the variables that a cell's code pushes to all processes, and their values.

    Example:
        >>> pushed("mcnb.current_cluster().push({'n': 2 * m})")
        [('n', '2 * m')]
        >>> pushed("rate = 0.1\n%mcjax push rate, batch")
        [('rate', 'rate'), ('batch', 'batch')]
    """
    try:
        body = ast.parse(plain(source)).body
    except SyntaxError:
        return []
    found = []
    for call in (statement.value for statement in body if isinstance(statement, ast.Expr)):
        match call:
            case ast.Call(ast.Attribute(ast.Call(), "push"), [ast.Dict() as given], []):
                if root(call) in ("mcnb", "current_cluster"):
                    for key, value in zip(given.keys, given.values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            found.append((key.value, ast.unparse(value)))
    names = " ".join(_PUSH.findall(source)).replace(",", " ").split()
    return [*found, *((name, name) for name in names if name.isidentifier())]


def _made(needs: frozenset[str], cells: Sequence[Cell]) -> list[tuple[int, str]] | None:
    """Return the kernel cells that names depend on, in order; None if a name has no definition."""
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
    """Return a kernel cell as plain code without mcnb; None if that is impossible."""
    try:
        code = plain(source)
        ours = mcnb_names(code) | {"mcnb"}
        code = without_mcnb(code, ours)
        if awaits(code) or names_of(code).needs & ours:
            return None
    except SyntaxError:
        return None
    return code.strip("\n")


def _own(code: str) -> frozenset[str]:
    """Return the names that code defines otherwise than by imports."""
    return names_of(code).defines - {
        bound(alias)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def folder_numbers(cells: Sequence[Cell]) -> dict[int, int]:
    """Return the number of the first temporary folder that each kernel cell creates."""
    numbers = {}
    count = 0
    for cell in cells:
        code = None if cell.in_processes else _plain(cell.source)
        if code is not None:
            numbers[cell.index] = count
            count += len(_folders(code))
    return numbers


def with_lasting_folders(code: str, number: int, *, new: bool) -> str:
    """Replace temporary folders in code with numbered, lasting ones that later parts can find.

    Args:
        code: The code.
        number: The number of the first folder.
        new: Whether to empty the folders first.

    Example:
        >>> with_lasting_folders("disk = tempfile.TemporaryDirectory()", 0, new=True)
        'disk = lasting_folder(0, new=True)'
    """
    more = ", new=True" if new else ""
    places = enumerate(_folders(code), number)
    return edited(code, [(*span(code, node), f"lasting_folder({k}{more})") for k, node in places])


def _folders(code: str) -> list[ast.Call]:
    """Return the calls that create a temporary folder."""
    found = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name), [], []):
                if name == "TemporaryDirectory":
                    found.append(node)
    return found


# Statements of a cell that is expected to fail are kept if later cells need their names.
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
_DEFINITIONS = (*_ASSIGNMENTS, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Choice:
    """A cell with the code that the program keeps of it.

    Attributes:
        cell: The cell.
        code: The code that is kept; empty if none is.
        why_not: Why the cell, or part of it, is left out; empty if nothing is left out.
        errands: The variables that process 0 computes in place of the notebook kernel.
    """

    cell: Cell
    code: str = ""
    why_not: str = ""
    errands: tuple[Errand, ...] = ()


@dataclass
class _Piece:
    """A cell, or one statement of a cell that is expected to fail."""

    names: Names
    sources: dict[str, _Piece] = field(default_factory=dict)  # that define the names it reads
    used: bool = False  # by a cell that is kept


def choose(cells: Sequence[Cell], earlier: Sequence[Cell], given: str) -> list[Choice]:
    """Choose the code that the program keeps of each cell of a part.

    A cell is left out if it reads a name that no earlier cell of the program defines, because the
    defining cell is left out, or failed at an unknown statement.

    Args:
        cells: The part's cells, in order.
        earlier: The cells of earlier parts.
        given: A name that each program defines.
    """
    lost: dict[int, str] = {}  # cell index -> the name that the cell lacks
    while True:
        view = _View(cells, earlier, lost, given)
        if not view.missing:
            return [view.choice(cell) for cell in cells]
        lost.update(view.missing)


class _View:
    """Reads the cells of a part in order, and resolves the names that they read."""

    def __init__(
        self, cells: Sequence[Cell], earlier: Sequence[Cell], lost: Mapping[int, str], given: str
    ) -> None:
        self.missing: dict[int, str] = {}  # as lost: more cells that lack a name
        self._cells, self._earlier, self._lost = cells, earlier, lost
        self._defined = {given: _Piece(Names(defines=frozenset({given})))}
        self._ever = dict(self._defined)  # the names that a function finds when it is called
        self._star = False
        self._kept: dict[int, _Piece] = {}
        self._statements: dict[int, list[_Piece | None]] = {}
        self._errands: dict[int, list[tuple[_Piece, Errand]]] = {}
        for cell in cells:
            self._read(cell)
        for index, piece in self._kept.items():
            if name := self._lacks(piece, piece.names.later, self._ever):
                self.missing.setdefault(index, name)
        for pieces in self._statements.values():
            for statement in pieces:
                if statement is not None:
                    self._lacks(statement, statement.names.later, self._ever)
        for piece in self._kept.values():
            _use(piece)

    def _read(self, cell: Cell) -> None:
        if not cell.in_processes:
            self._read_errands(cell)
        elif cell.code and not cell.why_not and cell.fails:
            self._read_statements(cell)
        elif cell.code and not cell.why_not and cell.index not in self._lost:
            piece = _Piece(names_of(cell.code))
            if name := self._lacks(piece, piece.names.needs, self._defined):
                self.missing[cell.index] = name
            self._kept[cell.index] = piece
            self._define(piece)
        elif cell.code:
            self._forget(names_of(cell.code).defines)

    def _lacks(self, piece: _Piece, names: frozenset[str], known: Mapping[str, _Piece]) -> str:
        """Record the sources of names that a piece reads; return the first name that has none."""
        for name in names & known.keys() - GIVEN:
            piece.sources.setdefault(name, known[name])
        return "" if self._star else min(names - known.keys() - GIVEN, default="")

    def _define(self, piece: _Piece) -> None:
        self._ever |= dict.fromkeys(piece.names.defines, piece)
        self._defined |= dict.fromkeys(piece.names.defines, piece)
        self._star |= piece.names.star

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._defined.pop(name, None)

    def _read_statements(self, cell: Cell) -> None:
        """Read a cell that is expected to fail: all statements before its last were executed."""
        pieces: list[_Piece | None] = []
        body = ast.parse(cell.code).body
        for statement in body:
            piece = _Piece(names_of(ast.unparse(statement)))
            # A new name was certainly set if a later cell reads the name.
            unsure = statement is body[-1] and piece.names.defines & self._defined.keys()
            is_definition = isinstance(statement, _DEFINITIONS) and not unsure
            if is_definition and not self._lacks(piece, piece.names.needs, self._defined):
                pieces.append(piece)
                self._define(piece)
            else:
                pieces.append(None)
                self._forget(piece.names.defines)
        self._statements[cell.index] = pieces

    def _read_errands(self, cell: Cell) -> None:
        """Read the variables that a kernel cell pushes, if process 0 can compute their values.

        Process 0 can't compute a value that needs mcnb, or whose code in the notebook kernel
        defines a name that the processes define, too.
        """
        ahead = [*self._earlier, *self._cells[: self._cells.index(cell) + 1]]
        taken = {name for one in self._cells if one.in_processes for name in _own(one.code)}
        for name, value in pushed(cell.source):
            made = _made(names_of(value).needs, ahead)
            if made is not None and not any(taken & _own(code) for _, code in made):
                piece = _Piece(Names(defines=frozenset({name})))
                errand = Errand(name, value, tuple(made))
                self._errands.setdefault(cell.index, []).append((piece, errand))
                self._define(piece)

    def choice(self, cell: Cell) -> Choice:
        """Return what is kept of a cell, once no cell lacks a name."""
        if not cell.in_processes:
            errands = tuple(e for piece, e in self._errands.get(cell.index, []) if piece.used)
            return Choice(cell, why_not="it runs in the notebook", errands=errands)
        if cell.why_not:
            return Choice(cell, why_not=cell.why_not)
        if cell.fails:
            kept = [p is not None and p.used for p in self._statements.get(cell.index, [])]
            code = only(cell.code, kept) if any(kept) else ""
            return Choice(cell, code, "it is meant to fail")
        if cell.index in self._lost:
            name = self._lost[cell.index]
            more = "" if name == "mcnb" else ", which nothing before it sets"
            return Choice(cell, why_not=f"it needs {name}{more}")
        return Choice(cell, cell.code)


def _use(piece: _Piece) -> None:
    if not piece.used:
        piece.used = True
        for source in piece.sources.values():
            _use(source)
