"""Describe what the names on a line refer to, so that processes can be compared."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from mcnb._text import a_or_an
from mcnb.lockstep.around import Spot, scopes_of
from mcnb.lockstep.dependence import Search
from mcnb.lockstep.model import Variable
from mcnb.lockstep.syntax import first_line, last_line, parsed

# The longest description of a value, and the most variables that a process describes.
_LONGEST, _MOST = 60, 40


def variables_at(spots: Sequence[Spot], name: Callable[[str, int], str]) -> tuple[Variable, ...]:
    """Return what the names on some lines refer to.

    No code of the program is called: attributes are looked up in an object's own dictionary. Arrays
    and modules are left out.

    Args:
        spots: The learner's lines on the stack, from the innermost, with their frames.
        name: Returns the name of a line of a file in messages.
    """
    found: list[Variable] = []
    for spot, scope in zip(spots, scopes_of(spots), strict=True):
        if spot.frame is None or len(found) >= _MOST:
            continue
        place = name(spot.filename, spot.line)
        for node in _operands(parsed(spot.filename), spot.line):
            with contextlib.suppress(Exception):  # of any kind: a hint is not worth an error
                said, words = described(_value_of(node, spot.frame)), ast.unparse(node)
                if said and all((one.place, one.name) != (place, words) for one in found):
                    asked = Search().expression(node, scope)
                    asks = name(asked.filename, asked.line) if asked else ""
                    found.append(Variable(place, words, said, asks))
    return tuple(found[:_MOST])


def described(value: Any) -> str:
    """Describe a value in a few words; empty if that says nothing.

    Example:
        >>> described(True), described("adam"), described([1, 2]), described(len)
        ('True', "'adam'", 'a list', 'the function len')
    """
    match value:
        case None | bool() | int() | float() | str():
            text = repr(value)
            return text if len(text) <= _LONGEST else ""
        case Enum():
            return str(value)
        case FunctionType() | MethodType() | BuiltinFunctionType():
            return f"the function {value.__qualname__}"
        case functools.partial():
            return described(value.func)
        case type():
            return f"the class {value.__qualname__}"
        case ModuleType():
            return ""
    if hasattr(type(value), "__array__"):
        return ""
    if hasattr(type(value), "__wrapped__") or "__wrapped__" in getattr(value, "__dict__", {}):
        return described(value.__wrapped__)  # as jax.jit's
    article, _, noun = a_or_an(type(value).__qualname__).partition(" ")
    return f"{article.lower()} {noun}"


def _value_of(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Name):
        local = frame.f_locals
        return local[node.id] if node.id in local else frame.f_globals[node.id]
    assert isinstance(node, ast.Attribute)
    owner = _value_of(node.value, frame)
    return object.__getattribute__(owner, "__dict__")[node.attr]


def _operands(tree: ast.AST, line: int) -> Iterator[ast.expr]:
    """Yield the names on a line and their attributes, without what is inside a compound block."""
    for statement in ast.walk(tree):
        if not (isinstance(statement, ast.stmt) and _covers(statement, line)):
            continue
        parts: list[ast.AST] = [statement]
        if isinstance(getattr(statement, "body", None), list):
            blocks = ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list")
            parts = [
                part
                for field, content in ast.iter_fields(statement)
                if field not in blocks
                for part in (content if isinstance(content, list) else [content])
                if isinstance(part, ast.AST) and _covers(part, line)
            ]
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                parts = []
        for part in parts:
            yield from _loads(part)


def _covers(node: ast.AST, line: int) -> bool:
    return first_line(node) <= line <= last_line(node)


def _loads(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Lambda, ast.FunctionDef)):
        return
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield node
    for child in ast.iter_child_nodes(node):
        yield from _loads(child)
