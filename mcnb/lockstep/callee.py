"""Name the function of a library that the learner's code calls, as the learner writes it."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

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
    _, operands = _operands(code, at)
    if len(operands) < 2 or not all(isinstance(one, _NAMES) for one in operands[:2]):
        return None
    return operands[0], operands[1]


def words_of_arguments(
    frame: FrameType | None, given: Mapping[str, Any], *, direct: bool
) -> dict[str, str]:
    """Return the learner's expressions for the arguments of a compiled function.

    JAX names the operands of `*` x and y; the learner's line may have another `y`.

    Example:
        >>> words_of_arguments(None, {"y": 2.0}, direct=True)
        {}

    Args:
        frame: The learner's frame, in which the call is under way.
        given: The arguments by parameter, in order.
        direct: Whether the learner's line calls that function itself.

    Returns:
        The expressions by parameter: all that are variables of the learner's line, and of operators
        and direct calls all but constants and long ones, in backticks if they are more than a name.
    """
    if frame is None:
        return {}
    by_operator, operands = _operands(frame.f_code, frame.f_lasti)
    variables = {**frame.f_globals, **frame.f_locals}
    nothing = object()
    found: dict[str, str] = {}
    for position, (parameter, value) in enumerate(given.items()):
        same = [
            one.id
            for one in operands
            if isinstance(one, ast.Name) and variables.get(one.id, nothing) is value
        ]
        if same:
            found[parameter] = same[0]
        elif (by_operator or direct) and position < len(operands):
            operand = operands[position]
            words = ast.unparse(operand)
            if len(words) <= _LONGEST and not isinstance(operand, ast.Constant):
                found[parameter] = words if isinstance(operand, _NAMES) else f"`{words}`"
    return found


@functools.lru_cache(maxsize=1024)
def _operands(code: CodeType, at: int) -> tuple[bool, tuple[ast.expr, ...]]:
    """Return to what the instruction at an offset applies an operator, or a function otherwise."""
    where = next(itertools.islice(code.co_positions(), at // 2, None), None)
    for node in ast.walk(parsed(code.co_filename)):
        if not isinstance(node, (ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.Compare)):
            continue
        if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) != where:
            continue
        match node:
            case ast.BinOp(left=left, right=right):
                return True, (left, right)
            case ast.AugAssign(target=left, value=right):
                return True, (left, right)
            case ast.UnaryOp(operand=operand):
                return True, (operand,)
            case ast.Compare(left=left, comparators=[right]):
                # Python swaps the operands if the left one can't compare itself.
                return False, (left, right)
    call = call_at(code, at)
    if call is None:
        return False, ()
    named = itertools.takewhile(lambda one: not isinstance(one, ast.Starred), call.args)
    return False, tuple(named)
