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


# A search asks for the changes of a module once for each name.
@functools.lru_cache(maxsize=4096)
def changed_in(node: ast.AST) -> Sequence[tuple[ast.expr, ast.expr]]:
    r"""Return the methods by which a scope changes containers and iterators, and their arguments.

    Example:
        >>> tree = ast.parse("names.append(a)\nnext(batches)")
        >>> [(ast.unparse(at), ast.unparse(value)) for at, value in changed_in(tree)]
        [('names.append', '(a,)'), ('batches.__next__', '()')]
    """
    return [pair for inner in of_this_scope(node) for pair in _change(inner)]


def _change(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[iterator, *_]):
            method = ast.copy_location(ast.Attribute(iterator, "__next__"), node)
            yield method, ast.copy_location(ast.Tuple([]), node)
        case ast.Call(func=ast.Attribute(attr="shuffle"), args=[container, *_]):
            yield ast.copy_location(ast.Attribute(container, "shuffle"), node), node
        case ast.Call(func=ast.Attribute(attr="sort", value=container) as method):
            order = ast.copy_location(ast.Name("sorted"), node)
            made = ast.Call(order, [container, *node.args], node.keywords)
            yield method, ast.copy_location(made, node)
        case ast.Call(func=ast.Attribute(attr=name) as method) if name in _CHANGES:
            parts = [*node.args, *(one.value for one in node.keywords)]
            yield method, ast.copy_location(ast.Tuple(parts), node)


def changes_of(node: ast.AST, name: str) -> Sequence[ast.expr]:
    r"""Return what an object depends on that a scope knows by a name, apart from assignments to it.

    That is what is assigned to its parts, the arguments of methods that change it, and the
    conditions under which a block changes it, or assigns to the name.

    Example:
        >>> tree = ast.parse("w[0] = a\nif b:\n    w = c\nw.append(d)")
        >>> [ast.unparse(one) for one in changes_of(tree, "w")]
        ['a', '(d,)', 'b']
    """
    return _changes(node).get(name, ())


@functools.lru_cache(maxsize=1024)
def _changes(node: ast.AST) -> Mapping[str, Sequence[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for at, value in [*assigned_in(node), *changed_in(node)]:
        whole = whole_of(at)
        if isinstance(whole, ast.Name) and whole is not at:
            found.setdefault(whole.id, []).append(value)
    for test, names in _conditions(node):
        for name in names:
            found.setdefault(name, []).append(test)
    return found


def _conditions(node: ast.AST) -> Iterator[tuple[ast.expr, set[str]]]:
    """Yield the conditions in a scope, and the names that it changes or assigns under each."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*DEFINITIONS, ast.ClassDef)):
            continue
        if isinstance(child, (ast.If, ast.While)):
            wholes = (whole_of(at) for at, _ in [*assigned_in(child), *changed_in(child)])
            yield child.test, {whole.id for whole in wholes if isinstance(whole, ast.Name)}
        yield from _conditions(child)


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
