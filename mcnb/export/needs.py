"""Find the global names that a piece of code defines and needs, without running the code."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Sequence
from dataclasses import dataclass

# Names that every module has.
GIVEN = frozenset((*dir(builtins), "__name__", "__file__", "__doc__"))
_COMPREHENSIONS = ("listcomp", "setcomp", "dictcomp", "genexpr")


@dataclass(frozen=True)
class Names:
    """The global names of a piece of code.

    Attributes:
        needs: The names that the code reads before it defines them.
        later: The names that its functions read when they are called.
        defines: The names that the code defines.
        star: Whether the code also defines unknown names, by `from x import *`.
    """

    needs: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()
    defines: frozenset[str] = frozenset()
    star: bool = False


def names_of(code: str) -> Names:
    r"""Return the global names of code at module level.

    Both branches of an `if` count as taken, because each may define names.

    Raises:
        SyntaxError: The code is not valid Python.

    Example:
        >>> names = names_of("total = sum(x) + total\ndef f(v): return v @ w")
        >>> sorted(names.needs), sorted(names.later), sorted(names.defines)
        (['sum', 'total', 'x'], ['w'], ['f', 'total'])
    """
    walk = _Walk()
    walk.visit(ast.parse(code))
    later: set[str] = set()
    _functions(symtable.symtable(code, "<cell>", "exec"), later, walk.defines, inside=False)
    return Names(frozenset(walk.needs), frozenset(later), frozenset(walk.defines), walk.star)


def _functions(
    table: symtable.SymbolTable, later: set[str], defines: set[str], *, inside: bool
) -> None:
    """Collect the global names that functions read and assign."""
    for child in table.get_children():
        is_function = isinstance(child, symtable.Function)
        deferred = inside or (is_function and child.get_name() not in _COMPREHENSIONS)
        if deferred:
            for symbol in child.get_symbols():
                if symbol.is_global() and symbol.is_referenced():
                    later.add(symbol.get_name())
                if symbol.is_declared_global() and symbol.is_assigned():
                    defines.add(symbol.get_name())
        _functions(child, later, defines, inside=deferred)


def bound(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


class _Walk(ast.NodeVisitor):
    """Visits statements in the order of execution, and collects their global names."""

    def __init__(self) -> None:
        self.needs: set[str] = set()
        self.defines: set[str] = set()
        self.star = False
        self._scopes: list[set[str]] = []  # of comprehensions and classes, innermost last

    def _bind(self, name: str | None) -> None:
        if name is not None:
            (self._scopes[-1] if self._scopes else self.defines).add(name)

    def _visit_all(self, nodes: Sequence[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        elif not self.star and not any(node.id in n for n in (self.defines, *self._scopes)):
            self.needs.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._visit_all([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_all([node.annotation, node.value])
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit_Name(ast.Name(node.target.id, ast.Load()))
        self._visit_all([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.defines.add(node.target.id)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._visit_all([node.iter, node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._visit_all([node.iter, node.target, *node.ifs])

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        self._scopes.append(set())
        self._visit_all(node.generators)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._visit_all(parts)
        self._scopes.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = (  # noqa: N815
        _visit_comprehension
    )

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all([*node.decorator_list, node.args, node.returns])
        self._bind(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._scopes.append(set())
        self._visit_all(node.body)
        self._scopes.pop()
        self._bind(node.name)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self.star = True
            else:
                self._bind(bound(alias))

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._visit_all([node.type])
        self._bind(node.name)
        self._visit_all(node.body)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> None:
        self.generic_visit(node)
        self._bind(node.rest if isinstance(node, ast.MatchMapping) else node.name)

    visit_MatchStar = visit_MatchMapping = visit_MatchAs  # noqa: N815
