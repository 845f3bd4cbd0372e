"""Which cells of a lesson become code of a plain program, and why the others don't."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mcnb.scripts.cells_of_lessons import Cell
from mcnb.scripts.editing import only
from mcnb.scripts.needs import GIVEN, Names, names_of
from mcnb.scripts.notebook_side import Errand, errands_before

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
