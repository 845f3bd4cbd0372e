"""Index the syntax tree of a file by its functions, classes, calls and names.

The cells of a notebook are one file here, in which what was defined last counts.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field

from mcnb.lockstep.syntax import (
    DEFINITIONS,
    Function,
    assigned_in,
    declares_global,
    first_line,
    of_this_scope,
    parsed,
)


@dataclass
class Nodes:
    """Parts of a file: functions by their first lines and names, classes by names, and calls.

    Of several lambdas on a line, nobody knows which one a code object is: they have None.
    """

    functions: dict[tuple[int, str], Function | None] = field(default_factory=dict)
    classes: dict[str, list[ast.ClassDef]] = field(default_factory=dict)
    calls: list[ast.Call] = field(default_factory=list)


@functools.lru_cache(maxsize=64)
def nodes_of(tree: ast.Module) -> Nodes:
    """Return parts of a file."""
    found = Nodes()
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            key = first_line(node), getattr(node, "name", "<lambda>")
            found.functions[key] = None if key in found.functions else node
        elif isinstance(node, ast.ClassDef):
            found.classes.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Call):
            found.calls.append(node)
    return found


@dataclass
class Index:
    """The names of a module.

    Attributes:
        assigned: What is assigned to each name, and in which file.
        declared: The names that functions assign, too.
        imports: The statement that imports each name, and the name in its own module.
        stars: The statements that import all names of a module.
        functions: The definition of each function, and in which file.
    """

    assigned: MutableMapping[str, tuple[str, list[ast.expr]]] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    imports: MutableMapping[str, tuple[ast.ImportFrom, str]] = field(default_factory=dict)
    stars: list[ast.ImportFrom] = field(default_factory=list)
    functions: MutableMapping[str, tuple[str, Function]] = field(default_factory=dict)


def index_of(filename: str) -> Index:
    """Return the names of a file, or of a notebook's cells; what was defined last counts."""
    if not filename.startswith("<In["):
        return _index(parsed(filename), filename)
    cells = [name for name in list(linecache.cache) if name.startswith("<In[")]
    files = dict.fromkeys([filename, *reversed(cells)])
    return _together(tuple((parsed(name), name) for name in files))


@functools.lru_cache(maxsize=16)
def _together(files: tuple[tuple[ast.Module, str], ...]) -> Index:
    """Return the names of several files as those of one; of each name, what the first has."""
    parts = [_index(tree, filename) for tree, filename in files]
    return Index(
        ChainMap(*(part.assigned for part in parts)),
        set().union(*(part.declared for part in parts)),
        ChainMap(*(part.imports for part in parts)),
        [star for part in parts for star in part.stars],
        ChainMap(*(part.functions for part in parts)),
    )


@functools.lru_cache(maxsize=2048)
def _index(tree: ast.Module, filename: str) -> Index:
    found = Index()
    assigned = [*assigned_in(tree)]
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            for at, value in assigned_in(node):
                if isinstance(at, ast.Name) and declares_global(node, at.id):
                    assigned.append((at, value))
                    found.declared.add(at.id)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if alias.name == "*":
                    found.stars.append(node)
                else:
                    name = alias.asname or alias.name
                    found.imports.setdefault(name, (node, alias.name))
    for at, value in assigned:
        if isinstance(at, ast.Name):
            found.assigned.setdefault(at.id, (filename, []))[1].append(value)
    for node in of_this_scope(tree):
        if isinstance(node, DEFINITIONS[:2]):
            found.functions.setdefault(node.name, (filename, node))
    return found
