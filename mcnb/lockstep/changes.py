"""Find in source where what a name stands for is changed in place, and under which conditions.

A list grows by `append` and changes its order by `sort`, an iterator goes on by `next`, a global
name is assigned in a function.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence

from mcnb.lockstep.syntax import (
    DEFINITIONS,
    assigned_in,
    declares_global,
    is_name,
    of_this_scope,
    parameters_of,
    parsed,
    whole_of,
)

# Methods that change what a container holds.
_CHANGES = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popleft",
        "remove",
        "reverse",
        "setdefault",
        "update",
    ]
)
_Named = ast.FunctionDef | ast.AsyncFunctionDef


def changed_in(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    r"""Yield the methods by which a scope changes containers and iterators, and their arguments.

    Example:
        >>> tree = ast.parse("names.append(a)\nnext(batches)")
        >>> [(ast.unparse(at), ast.unparse(value)) for at, value in changed_in(tree)]
        [('names.append', '(a,)'), ('batches.__next__', '()')]
    """
    for inner in of_this_scope(node):
        match inner:
            case ast.Call(func=ast.Name(id="next"), args=[iterator, *_]):
                method = ast.copy_location(ast.Attribute(iterator, "__next__"), inner)
                yield method, ast.copy_location(ast.Tuple([]), inner)
            case ast.Call(func=ast.Attribute(attr="shuffle"), args=[container, *_]):
                yield ast.copy_location(ast.Attribute(container, "shuffle"), inner), inner
            case ast.Call(func=ast.Attribute(attr="sort", value=container) as method):
                order = ast.copy_location(ast.Name("sorted"), inner)
                made = ast.Call(order, [container, *inner.args], inner.keywords)
                yield method, ast.copy_location(made, inner)
            case ast.Call(func=ast.Attribute(attr=name) as method) if name in _CHANGES:
                parts = [*inner.args, *(one.value for one in inner.keywords)]
                yield method, ast.copy_location(ast.Tuple(parts), inner)


def conditions_around(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield the conditions under which a block assigns to a name or to a part of its object."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*DEFINITIONS, ast.ClassDef)):
            continue
        if isinstance(child, (ast.If, ast.While)) and any(
            is_name(whole_of(at), name) for at, _ in [*assigned_in(child), *changed_in(child)]
        ):
            yield child.test
        yield from conditions_around(child, name)


def conditions_of_changes(filename: str) -> Mapping[str, Sequence[ast.expr]]:
    """Return the conditions in a file under which its functions change names of the module.

    They are in these functions, or around calls of them.

    Returns:
        The conditions, by name.
    """
    return _conditions_of_changes(parsed(filename))


@functools.lru_cache(maxsize=64)
def _conditions_of_changes(module: ast.Module) -> Mapping[str, Sequence[ast.expr]]:
    functions = [node for node in ast.walk(module) if isinstance(node, _Named)]
    changed: dict[str, set[str]] = {}
    calls: dict[str, set[str]] = {}
    for function in functions:
        changed.setdefault(function.name, set()).update(_changed_names(function, function))
        calls.setdefault(function.name, set()).update(_called_names(function))
    grows = True
    while grows:
        grows = False
        for name, called in calls.items():
            more = _changed_by(called, changed) - changed[name]
            changed[name] |= more
            grows = grows or bool(more)
    found: dict[str, list[ast.expr]] = {}
    for scope in (None, *functions):
        for inner in of_this_scope(scope or module):
            if isinstance(inner, (ast.If, ast.While)):
                names = _changed_by(_called_names(inner), changed)
                for name in names | _changed_names(inner, scope):
                    found.setdefault(name, []).append(inner.test)
    return found


def _changed_by(called: set[str], changed: Mapping[str, set[str]]) -> set[str]:
    return {name for one in called for name in changed.get(one, ())}


def _called_names(node: ast.AST) -> set[str]:
    """Return the names of the functions that a scope calls."""
    calls = (one.func for one in of_this_scope(node) if isinstance(one, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def _changed_names(node: ast.AST, function: _Named | None) -> set[str]:
    """Return the names of the module that a part of a function changes; of no function: all."""
    changed = [*changed_in(node)]
    own: set[str] = set()
    if function is not None:
        assigned = {at.id for at, _ in assigned_in(function) if isinstance(at, ast.Name)}
        own = {n for n in assigned if not declares_global(function, n)} | parameters_of(function)
        changed += assigned_in(node)
    wholes = (whole_of(at) for at, _ in changed)
    return {whole.id for whole in wholes if isinstance(whole, ast.Name)} - own
