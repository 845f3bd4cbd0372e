"""Find where what is launched, or its arguments, begins to differ from process to process."""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from mcnb.lockstep.around import Spot, scopes_of, source_of
from mcnb.lockstep.callee import call_at
from mcnb.lockstep.dependence import Search
from mcnb.lockstep.model import Origin


def origins_of(
    spots: Sequence[Spot], parameters: Sequence[str], name: Callable[[str, int], str]
) -> dict[str, Origin]:
    """Return where arguments of a launch begin to differ, as far as the source tells.

    A value differs if it depends on the process, on the time, or on unseeded random numbers.

    Args:
        spots: The learner's lines on the stack, from the innermost, with their frames.
        parameters: The names of the parameters of the compiled function, if the innermost line
            calls that function itself; otherwise none.
        name: Returns the name of a line of a file in messages.

    Returns:
        Where they do, by parameter. Without parameters, the only argument of the call on the
        innermost line that differs, if there is one, as `""`.
    """
    if not spots or spots[0].frame is None:
        return {}
    frame = spots[0].frame
    call = call_at(frame.f_code, frame.f_lasti)
    if call is None:
        return {}
    scope, found = scopes_of(spots)[0], dict[str, Origin]()
    for parameter, argument in _arguments(call, parameters).items():
        with contextlib.suppress(Exception):  # of any kind: a hint is not worth losing the rest
            if asked := Search(varying=True, arrays=True).expression(argument, scope):
                is_name = isinstance(argument, (ast.Name, ast.Attribute)) or not parameters
                words = ast.unparse(argument) if is_name else parameter
                place = name(asked.filename, asked.line)
                source = source_of(asked.filename, asked.line)
                found[parameter] = Origin(words, place, source, asked.of_elements)
    if parameters:
        return found
    each = [*found.values()]
    return {"": each[0]} if len(each) == 1 else {}


def origin_of_options(spots: Sequence[Spot], name: Callable[[str, int], str]) -> Origin | None:
    """Return where the function that is launched begins to differ, though its source does not.

    That is in an option of `jax.jit`, such as `out_shardings`, if the innermost line compiles the
    function, or calls a name of what `jax.jit` has returned.

    Args:
        spots: The learner's lines on the stack, from the innermost, with their frames.
        name: Returns the name of a line of a file in messages.
    """
    if not spots or spots[0].frame is None:
        return None
    frame = spots[0].frame
    call = call_at(frame.f_code, frame.f_lasti)
    if call is None:
        return None
    options = {"": call.func}
    if isinstance(call.func, ast.Call):
        options = {one.arg: one.value for one in call.func.keywords if one.arg is not None}
    scope = scopes_of(spots)[0]
    for option, value in options.items():
        with contextlib.suppress(Exception):  # of any kind: a hint is not worth losing the rest
            if asked := Search(varying=True, arrays=True).expression(value, scope):
                is_name = not option or isinstance(value, (ast.Name, ast.Attribute))
                words = ast.unparse(value) if is_name else option
                source = source_of(asked.filename, asked.line)
                return Origin(words, name(asked.filename, asked.line), source)
    return None


def origin_inside(function: Any, name: Callable[[str, int], str]) -> Origin | None:
    """Return where what a compiled function computes begins to differ from process to process.

    Args:
        function: The function, or a `functools.partial` of one.
        name: Returns the name of a line of a file in messages.

    Returns:
        Where it does, in the function or in what it uses; None if that is not known.
    """
    with contextlib.suppress(Exception):  # of any kind: a hint is not worth losing the rest
        called = getattr(function, "func", function)
        bound = getattr(called, "__self__", None)
        called = inspect.unwrap(getattr(called, "__func__", called))
        if not isinstance(called, FunctionType):
            return None
        if asked := Search(varying=True).inside(called, bound):
            source = source_of(asked.filename, asked.line)
            words = called.__name__.strip("<>")  # a lambda has no name
            return Origin(words, name(asked.filename, asked.line), source)
    return None


def _arguments(call: ast.Call, parameters: Sequence[str]) -> Mapping[str, ast.expr]:
    """Return the arguments of a call by parameter; by position, if the parameters are not known.

    Arguments that follow `*args` are left out.
    """
    found: dict[str, ast.expr] = {}
    for position, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred) or (parameters and position >= len(parameters)):
            break
        found[parameters[position] if parameters else str(position)] = argument
    found.update({one.arg: one.value for one in call.keywords if one.arg is not None})
    return found
