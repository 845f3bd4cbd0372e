"""Which cells of a lesson become code of a plain program, and why the others don't."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mcnb.export.needs import GIVEN, Names, names_of
from mcnb.export.parse import Cell
from mcnb.export.source import awaits, edited, mcnb_names, only, plain, root, span, without_mcnb


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


# What may be kept of a cell that is meant to fail, where later cells need what it defines.
_DEFINITIONS = (
    ast.Assign,
    ast.AnnAssign,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
)


@dataclass(frozen=True)
class Choice:
    """What becomes of a cell.

    Attributes:
        cell: The cell.
        code: The code that is kept of it; empty if none is.
        why_not: Why it, or some of it, is left out; empty if nothing is.
        errands: What process 0 does in the notebook's place.
    """

    cell: Cell
    code: str = ""
    why_not: str = ""
    errands: tuple[Errand, ...] = ()


@dataclass
class _Piece:
    """A cell, or a statement of one that is meant to fail.

    Attributes:
        names: Its names.
        sources: The pieces that define what it reads, by name.
        used: Whether a cell that is kept needs it.
    """

    names: Names
    sources: dict[str, _Piece] = field(default_factory=dict)
    used: bool = False


def choose(cells: Sequence[Cell], earlier: Sequence[Cell], given: str) -> list[Choice]:
    """Return what becomes of the cells of a part.

    A cell is left out if it reads a name that no cell before it defines in the program: values of
    a cell that is left out, or of one that failed where nobody can tell how far it came.

    Args:
        cells: The part's cells, in order.
        earlier: Those of the parts before it.
        given: A name that each program has.
    """
    lost: dict[int, str] = {}  # by the cell's index: the name that it lacks
    while True:
        view = _View(cells, earlier, lost, given)
        if not view.missing:
            return view.choices()
        lost.update(view.missing)


class _View:
    """The cells of a part, read from the first to the last.

    Args:
        cells: The part's cells.
        earlier: Those of the parts before it.
        lost: The cells that are known to lack a name.
        given: A name that is there from the beginning.

    Attributes:
        missing: More such cells.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        earlier: Sequence[Cell],
        lost: Mapping[int, str],
        given: str,
    ) -> None:
        self.missing: dict[int, str] = {}
        self._cells, self._earlier, self._lost = cells, earlier, lost
        self._defined = {given: _Piece(Names(frozenset(), frozenset(), frozenset({given})))}
        self._ever = dict(self._defined)  # what a function finds when it is called
        self._star = False
        self._kept: dict[int, _Piece] = {}
        self._statements: dict[int, list[_Piece | None]] = {}
        self._errands: dict[int, list[tuple[_Piece, Errand]]] = {}
        for cell in cells:
            self._read(cell)
        for index, piece in self._kept.items():
            if name := self._lacks_later(piece):
                self.missing.setdefault(index, name)
        for pieces in self._statements.values():
            for statement in pieces:
                if statement is not None:
                    self._lacks_later(statement)
        for piece in self._kept.values():
            _use(piece)

    def _read(self, cell: Cell) -> None:
        if not cell.in_processes:
            self._read_errands(cell)
        elif cell.code and not cell.why_not and cell.fails:
            self._read_statements(cell)
        elif cell.code and not cell.why_not and cell.index not in self._lost:
            piece = _Piece(names_of(cell.code))
            if name := self._lacks(piece):
                self.missing[cell.index] = name
            self._kept[cell.index] = piece
            self._define(piece)
        elif cell.code:
            self._forget(names_of(cell.code).defines)

    def _lacks(self, piece: _Piece) -> str:
        """Note where a piece has its names from; return one that nothing defines."""
        for name in sorted(piece.names.needs - GIVEN):
            if name in self._defined:
                piece.sources[name] = self._defined[name]
            elif not self._star:
                return name
        return ""

    def _lacks_later(self, piece: _Piece) -> str:
        """Note where its functions have names from; return one that nothing defines."""
        lacks = ""
        for name in sorted(piece.names.later - GIVEN):
            if name in self._ever:
                piece.sources.setdefault(name, self._ever[name])
            elif not self._star:
                lacks = lacks or name
        return lacks

    def _define(self, piece: _Piece) -> None:
        self._ever |= dict.fromkeys(piece.names.defines, piece)
        self._defined |= dict.fromkeys(piece.names.defines, piece)
        self._star |= piece.names.star

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._defined.pop(name, None)

    def _read_statements(self, cell: Cell) -> None:
        """Read a cell that is meant to fail: what stands before its end was executed."""
        pieces: list[_Piece | None] = []
        body = ast.parse(cell.code).body
        for statement in body:
            piece = _Piece(names_of(ast.unparse(statement)))
            # Of a name that is new, a later cell that reads it proves that it was set.
            unsure = statement is body[-1] and piece.names.defines & self._defined.keys()
            if isinstance(statement, _DEFINITIONS) and not unsure and not self._lacks(piece):
                pieces.append(piece)
                self._define(piece)
            else:
                pieces.append(None)
                self._forget(piece.names.defines)
        self._statements[cell.index] = pieces

    def _read_errands(self, cell: Cell) -> None:
        before = [*self._earlier, *self._cells[: self._cells.index(cell)]]
        for errand in errands_before(cell, before, self._cells):
            piece = _Piece(Names(frozenset(), frozenset(), frozenset({errand.name})))
            self._errands.setdefault(cell.index, []).append((piece, errand))
            self._define(piece)

    def choices(self) -> list[Choice]:
        """Return what becomes of the cells."""
        return [self._choice(cell) for cell in self._cells]

    def _choice(self, cell: Cell) -> Choice:
        if not cell.in_processes:
            errands = tuple(e for piece, e in self._errands.get(cell.index, []) if piece.used)
            return Choice(cell, why_not="it runs in the notebook", errands=errands)
        if cell.why_not:
            return Choice(cell, why_not=cell.why_not)
        if cell.fails:
            kept = [p is not None and p.used for p in self._statements.get(cell.index, [])]
            if any(kept):
                return Choice(cell, only(cell.code, kept), "it is meant to fail")
            return Choice(cell, why_not="it is meant to fail")
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
