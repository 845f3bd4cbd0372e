"""Read the syntax trees of source files: of scripts and modules, and of a notebook's cells.

Nothing here knows what a program means; `dependence`, `around` and `variables` do.
"""

from __future__ import annotations

import ast
import functools
import linecache
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


# The lines of each file as `linecache` had them, which replaces them as a whole, and their tree.
_trees: dict[str, tuple[list[str], ast.Module]] = {}


def parsed(filename: str) -> ast.Module:
    """Return the syntax tree of a file that `linecache` knows; an empty one if it has none."""
    # A search in a notebook asks for the trees of all its cells, for each name.
    lines = linecache.getlines(filename)
    known = _trees.get(filename)
    if known is None or known[0] is not lines:
        known = _trees[filename] = lines, _parse("".join(lines))
    return known[1]


@functools.lru_cache(maxsize=2048)
def _parse(source: str) -> ast.Module:
    try:
        # Warnings about the learner's code were shown when the code was compiled.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError):  # a cell with a magic in it, or a file that is no text
        return ast.Module([], [])


def first_line(node: ast.AST) -> int:
    """Return the first line of a node, with its decorators."""
    lines = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    return min([*lines, *_spans(node, "lineno")], default=1 << 60)


def last_line(node: ast.AST) -> int:
    """Return the last line of a node."""
    return max(_spans(node, "end_lineno"), default=-1)


def _spans(node: ast.AST, which: str) -> list[int]:
    own = getattr(node, which, None)
    if own is not None:
        return [own]
    # The cases of a match and the arguments of a function have no line numbers.
    return [line for child in ast.iter_child_nodes(node) for line in _spans(child, which)]


def negated(test: ast.expr) -> str:
    """Return the source of a condition that holds where another one does not.

    Comparisons by `<` and its relatives are not turned around, because NaN is neither.

    Example:
        >>> [negated(ast.parse(test, mode="eval").body) for test in ("k == 0", "k != 0", "not k")]
        ['not (k == 0)', 'k == 0', 'k']
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ast.unparse(operand)
        case ast.Compare(ops=[ast.NotEq() | ast.IsNot() | ast.NotIn() as op]):
            opposite = _OPPOSITES[type(op)]()
            return ast.unparse(ast.Compare(test.left, [opposite], test.comparators))
        case ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript():
            return f"not {ast.unparse(test)}"
    return f"not ({ast.unparse(test)})"


def leaves(statements: Sequence[ast.AST]) -> str:
    """Return how statements end, if they do not go on to the next one.

    That is "return" if they return from the function, "exit" if they end the program, and "" if
    they do neither.

    Example:
        >>> leaves(ast.parse("log(x); exit()").body), leaves(ast.parse("log(x)").body)
        ('exit', '')
    """
    last = statements[-1] if statements else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return "exit" if last_name(last.value.func) in ("exit", "_exit", "quit") else ""
    return "return" if isinstance(last, ast.Return) else ""


def whole_of(target: ast.expr) -> ast.expr:
    """Return `w` for `w[0].a`."""
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    return target


def is_name(target: ast.AST, name: str) -> bool:
    """Return whether an expression is a name, and this one."""
    return isinstance(target, ast.Name) and target.id == name


def declares_global(function: ast.AST, name: str) -> bool:
    """Return whether a function declares a name to be its module's."""
    return name in _declared(function)


@functools.lru_cache(maxsize=4096)
def _declared(function: ast.AST) -> frozenset[str]:
    inside = (node for node in of_this_scope(function) if isinstance(node, ast.Global))
    return frozenset(name for node in inside for name in node.names)


def last_name(node: ast.expr) -> str:
    """Return `c` for `c` and for `a.b.c`, and an empty string for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def parameters_of(function: Function) -> set[str]:
    """Return the names of a function's parameters."""
    given = function.args
    extra = [one for one in (given.vararg, given.kwarg) if one is not None]
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)}


def of_this_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the descendants of a node, without the content of functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*DEFINITIONS, ast.ClassDef)):
            yield from of_this_scope(child)


def looped_over(scope: ast.AST) -> set[str]:
    r"""Return the names that stand for one of several in a scope, in its loops and comprehensions.

    Example:
        >>> sorted(looped_over(ast.parse("for d, i in a:\n    b = [c for c in d]")))
        ['c', 'd', 'i']
    """
    loops = (ast.For, ast.AsyncFor, ast.comprehension)
    targets = (node.target for node in of_this_scope(scope) if isinstance(node, loops))
    return {part.id for at in targets for part in ast.walk(at) if isinstance(part, ast.Name)}


# A search asks for those of a module once for each name.
@functools.lru_cache(maxsize=4096)
def assigned_in(node: ast.AST) -> Sequence[tuple[ast.expr, ast.expr]]:
    """Return the targets and values of all assignments in a scope, without those of inner ones."""
    return [pair for inner in of_this_scope(node) for pair in assignments(inner)]


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets and values of an assignment; `a, b = c, d` yields two pairs.

    The value of `a += b` is `a + b`. A loop and a `with` assign, too; their value is the constant
    `...`, because nobody knows it.
    """
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    yield from zip(target.elts, value.elts, strict=False)
                else:
                    yield target, value
        case ast.AugAssign(target=target, op=op, value=value):
            yield target, ast.copy_location(ast.BinOp(target, op, value), node)
        case ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
            yield node.target, node.value
        case ast.For(target=target) | ast.AsyncFor(target=target):
            yield from _unknown(target)
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _unknown(target)


def _unknown(target: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    for part in parts:
        yield part, ast.copy_location(ast.Constant(...), target)


def reaching(scope: ast.AST, name: str, line: int) -> tuple[int, int]:
    r"""Return the first and the last line of the assignments to a name that may reach a use of it.

    Before these lines, the value is assigned again on each way to the use, without a need of the
    one before. After them, an assignment comes too late, unless a loop leads back.

    Args:
        scope: The function or the module that uses the name, itself and not in an inner function.
        name: The name.
        line: The line of the use.

    Example:
        >>> tree = ast.parse("x = 1\nif a:\n    x = 2\nx = 3\nfor y in z:\n    x += f(x)\nx = 4")
        >>> [reaching(tree, "x", line) for line in (3, 4, 6)]
        [(1, 3), (1, 4), (4, 6)]
    """
    first, last, block = 0, line, _block_of(scope, line)
    while block:
        around: ast.AST | None = None
        for node in block:
            if last_line(node) >= line:
                around = node
                break
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and any(
                is_name(at, name) and not any(is_name(part, name) for part in ast.walk(value))
                for at, value in assignments(node)
            ):
                first, last = node.lineno, line  # the loops around both pass it each time
        if isinstance(around, (ast.For, ast.AsyncFor, ast.While)):
            last = max(last, last_line(around))
        if around is not None and first_line(around) < line and _rebinds(around, name):
            first = first_line(around)
        block = _block_of(around, line)
    return first, last


def _rebinds(node: ast.AST, name: str) -> bool:
    """Return whether each round of a loop assigns to a name before its body."""
    if not isinstance(node, (ast.For, ast.AsyncFor)):
        return False
    return any(is_name(at, name) for at, _ in assignments(node))


def _block_of(node: ast.AST | None, line: int) -> Sequence[ast.AST]:
    """Return the statements in a node that include a line; its branches, if it has several."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        block = getattr(node, part, None)
        if (
            isinstance(block, list)
            and block
            and first_line(block[0]) <= line <= last_line(block[-1])
        ):
            return block
    return ()


def set_attributes(filename: str, name: str) -> Sequence[ast.expr]:
    """Return what a file assigns to attributes of a name, of whatever objects."""
    return _set_attributes(parsed(filename)).get(name, ())


@functools.lru_cache(maxsize=64)
def _set_attributes(tree: ast.Module) -> Mapping[str, Sequence[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        for at, value in assignments(node):
            if isinstance(at, ast.Attribute):
                found.setdefault(at.attr, []).append(value)
    return found


def deciding(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield what a function returns, and the conditions for returning."""
    for statement in statements:
        if isinstance(statement, (*DEFINITIONS, ast.ClassDef)):
            continue
        if isinstance(statement, ast.Return):
            if statement.value is not None:
                yield statement.value
            continue
        if any(isinstance(node, ast.Return) for node in of_this_scope(statement)):
            if isinstance(statement, (ast.If, ast.While)):
                yield statement.test
            elif isinstance(statement, ast.Match):
                yield statement.subject
        kinds = (ast.stmt, ast.ExceptHandler, ast.match_case)
        yield from deciding(
            one for one in ast.iter_child_nodes(statement) if isinstance(one, kinds)
        )


# Functions that call back into Python, outside of the program that is compiled.
_CALLBACKS = ("callback", "pure_callback", "io_callback")
# Functions that only tell something; those of JAX of these names are a part of the program.
_TELLS = frozenset(("print", "debug", "info", "warning", "warn", "error", "log", "write"))


def used_in(function: Function) -> Iterator[ast.Name | ast.Attribute | Function]:
    """Yield the functions inside a function, and the names from around it that it uses.

    What it binds itself is left out, and what it passes to callbacks, which run outside of a
    compiled program.
    """
    own = {*parameters_of(function)}
    own |= {at.id for at, _ in assigned_in(function) if isinstance(at, ast.Name)}
    ahead: list[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else [*function.body]
    while ahead:
        node = ahead.pop(0)
        if isinstance(node, DEFINITIONS):
            yield node
        elif isinstance(node, ast.Call) and last_name(node.func) in _CALLBACKS:
            continue
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            whole: ast.expr = node
            while isinstance(whole, ast.Attribute):
                whole = whole.value
            if isinstance(whole, ast.Name) and whole.id not in own:
                yield node
        if not isinstance(node, (*DEFINITIONS, ast.ClassDef)):
            ahead += ast.iter_child_nodes(node)


def branches(function: Function) -> Iterator[ast.expr]:
    """Yield the tests of a function's branches, but for those in which it only tells something."""
    if isinstance(function, ast.Lambda):
        return
    for statement in function.body:
        for node in (statement, *of_this_scope(statement)):
            if isinstance(node, (ast.If, ast.While)) and not all(map(_tells, _within(node))):
                yield node.test


def _within(node: ast.If | ast.While) -> Iterator[ast.stmt]:
    for one in (*node.body, *node.orelse):
        if isinstance(one, ast.If):
            yield from _within(one)
        else:
            yield one


def _tells(statement: ast.stmt) -> bool:
    """Return whether a statement only tells something, or does nothing."""
    if isinstance(statement, (ast.Pass, ast.Import, ast.ImportFrom)):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Constant):
        return True
    if not isinstance(call, ast.Call) or last_name(call.func) not in _TELLS:
        return False
    whole = call.func
    while isinstance(whole, ast.Attribute):
        whole = whole.value
    return not (isinstance(whole, ast.Name) and whole.id == "jax")


# A program that reads more is about something else.
_MOST_ARGUMENTS = 10
# In the name of a number that a program reads: it counts the processes.
_COUNTS = ("num", "count", "size", "world", "procs", "total")


def arguments_read(tree: ast.AST) -> list[str]:
    r"""Return what a program reads from its arguments, in their order.

    Args:
        tree: The program, which reads `sys.argv[1]` and so on.

    Returns:
        For each argument `"process"` for a process index, `"processes"` for their number, or an
        example of an address or a port. Without such reads, the index and the number.

    Example:
        >>> arguments_read(ast.parse("n = int(sys.argv[2])\naddress = sys.argv[1]"))
        ['localhost:1234', 'process']
        >>> arguments_read(ast.parse("rank, size = map(int, sys.argv[1:])"))
        ['process', 'processes']
    """
    found: dict[int, str] = {}
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
            continue
        targets = [ast.unparse(at).lower() for at, _ in assignments(statement)]
        counts = any(word in target for target in targets for word in _COUNTS)
        number = "processes" if counts else "process"
        for node in ast.walk(statement):
            for inner in ast.iter_child_nodes(node):
                match inner:
                    case ast.Subscript(value=argv, slice=ast.Constant(value=int(at))) if (
                        last_name(argv) == "argv" and 0 < at < _MOST_ARGUMENTS
                    ):
                        is_number = isinstance(node, ast.Call) and last_name(node.func) == "int"
                        other = "1234" if isinstance(node, ast.FormattedValue) else "localhost:1234"
                        found.setdefault(at, number if is_number else other)
    if not found:
        return ["process", "processes"]
    return [found.get(at, "process") for at in range(1, max(found) + 1)]
