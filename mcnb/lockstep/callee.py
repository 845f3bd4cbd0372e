"""Name the function of a library that the learner's code calls, as the learner writes it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from types import CodeType, FrameType

from mcnb.lockstep.source import WRAPPERS
from mcnb.lockstep.syntax import parsed

# A longer expression says less than the name of the function.
_LONGEST = 40
_NAMES = (ast.Name, ast.Attribute)
# The special methods that a call calls; Python calls the others for a statement or an operator.
_CALLED = frozenset(("__call__", "__init__", "__new__"))


def called_by(frame: FrameType | None, functions: Sequence[CodeType]) -> str:
    """Return the name of the function of a library that a frame of the learner's calls.

    That is the expression in the call, such as `nk.stats.mean`: a library may define the function
    under another name, and in another module, than its users know. If the learner's line has no
    call, because it iterates or adds, or if its source is unknown, the name is the function's own.

    Example:
        >>> called_by(None, [ast.NodeVisitor.visit.__code__])
        'NodeVisitor.visit'

    Args:
        frame: The learner's frame, in which the call is under way.
        functions: The library's functions on the stack, from the innermost.

    Returns:
        The name; empty if there are no functions.
    """
    if not functions:
        return ""
    outer = [one for one in functions if one.co_name not in WRAPPERS] or functions
    name = outer[-1].co_name
    implicit = name.startswith("__") and name not in _CALLED
    if frame is not None and not implicit and (called := call_at(frame.f_code, frame.f_lasti)):
        words = ast.unparse(called.func)
        if len(words) <= _LONGEST:
            return words
        if isinstance(called.func, ast.Attribute):
            return called.func.attr
    return outer[-1].co_qualname.rpartition("<locals>.")[2]


def call_at(code: CodeType, at: int) -> ast.Call | None:
    """Return the call in a source that the instruction at an offset makes; None if it is none."""
    _, end_line, _, end = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
    calls = (node for node in ast.walk(parsed(code.co_filename)) if isinstance(node, ast.Call))
    # Its beginning is not compared: where it is depends on the version of Python.
    return next((c for c in calls if (c.end_lineno, c.end_col_offset) == (end_line, end)), None)


def operands_at(code: CodeType, at: int) -> tuple[ast.expr, ast.expr] | None:
    """Return the names to which the instruction at an offset applies an operator or a function.

    Returns:
        The two operands, or the first two arguments; None if these are not names, or attributes.
    """
    where = next(itertools.islice(code.co_positions(), at // 2, None), None)
    found: ast.AST | None = call_at(code, at)
    for node in ast.walk(parsed(code.co_filename)):
        if isinstance(node, ast.BinOp):
            place = node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
            found = node if place == where else found
    match found:
        case ast.BinOp(left=left, right=right) | ast.Call(args=[left, right, *_]):
            names = isinstance(left, _NAMES) and isinstance(right, _NAMES)
            return (left, right) if names else None
    return None
