"""Find the conditions and loops around a launch: at its line, and at the lines that call it."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import linecache
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import TypeAlias

from mcnb.lockstep.dependence import Asked, Scope, Search, scope_of
from mcnb.lockstep.model import Condition, Detail, Origin
from mcnb.lockstep.source import Place
from mcnb.lockstep.syntax import first_line, last_line, leaves, negated, parsed
from mcnb.lockstep.threads import line_at

_LONGEST_SOURCE = 100
# Where a part of the source begins and ends: lines from 1, and columns in bytes of UTF-8 from 0.
Span: TypeAlias = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Spot:
    """A line of the learner's that is under way.

    Attributes:
        filename: The file, by its name in code objects.
        line: The line.
        frame: Its frame, if it is known.
        direct: Whether it calls the next inner spot, or makes the launch, without a library between
            them, which may have loops and conditions of its own.
        span: The expression of the line that is under way, if it is known.
    """

    filename: str
    line: int
    frame: FrameType | None = None
    direct: bool = True
    span: Span | None = None

    def is_at(self, place: Place) -> bool:
        """Return whether this is the line of a place."""
        return (self.filename, self.line) == (place.filename, place.file_line)


def span_at(code: CodeType, instruction: int) -> Span | None:
    """Return the expression of which an instruction is a part; None if CPython does not know it.

    The instruction is an offset in the code object, such as `frame.f_lasti`.

    Example:
        >>> code = compile("f(x) if k else g(x)", "", "eval")
        >>> spans = {span_at(code, at) for at in range(0, len(code.co_code), 2)}
        >>> ((1, 0), (1, 4)) in spans, ((1, 15), (1, 19)) in spans
        (True, True)
    """
    if instruction < 0:
        return None
    line, last, column, end = next(
        itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4
    )
    if line is None or last is None or column is None or end is None:
        return None
    return (line, column), (last, end)


@dataclass(frozen=True, slots=True)
class _If:
    """A condition that depends on the process, around a line; see `Condition`."""

    words: str
    line: int
    asked: Asked
    part: str
    leaves: str


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop around a line, and the first line of its body that may skip the line; see `Detail`.

    Attributes:
        rounds: What decides how often the line runs, in Python; see `Origin.name`.
        asked: Where that begins to differ from process to process, if it does, on another line.
    """

    words: str
    line: int
    skip: str = ""
    skip_line: int = 0
    skip_ends: bool = False
    rounds: str = ""
    asked: Asked | None = None


_Found: TypeAlias = tuple[_If | _Loop, ...]


def around(filename: str, line: int) -> Detail:
    """Return a line of a file that `linecache` knows, with the code around the line.

    That is the conditions that depend on the process, and the loops.
    """
    return along([Spot(filename, line)], lambda _, number: f"line {number}")


def conditions_of(place: Place, name: Callable[[str, int], str]) -> tuple[Condition, ...]:
    """Return the conditions around the lines on the stack of an earlier launch."""
    spots = [
        Spot(code.co_filename, line_at(code, at), span=span_at(code, at))
        for code, at in place.stack
    ]
    return along(spots, name, None).conditions if spots else ()


def along(spots: Sequence[Spot], name: Callable[[str, int], str], own: int | None = 0) -> Detail:
    """Return the line of a launch, with the code around it, around its callers and what it calls.

    Args:
        spots: The learner's lines on the stack, from the innermost.
        name: Returns the name of a line of a file in messages.
        own: The position of the line that counts as the launch's own: in a notebook, that of the
            cell, which may call a function of another file. None for none of them.
    """
    conditions: list[Condition] = []
    loops: list[_Loop] = []
    loops_at: list[str] = []
    skip_at = ""
    # A comprehension has a frame of its own in older versions of Python, and recursion has many.
    seen: set[tuple[str, str, int]] = set()
    for i, (spot, scope) in enumerate(zip(spots, scopes_of(spots), strict=True)):
        search = _Search(spot.line, linecache.getlines(spot.filename), scope, spot.span)
        for one in reversed(search.inside(parsed(spot.filename), ())):
            key = spot.filename, one.words, one.line
            if key in seen:
                continue
            seen.add(key)
            place, near = name(spot.filename, one.line), 0 <= spot.line - one.line <= 1
            if isinstance(one, _Loop):
                loops.append(one)
                loops_at.append("" if near else place)
                if len(loops) == 1 and one.skip:
                    skip_at = name(spot.filename, one.skip_line)
                continue
            asked = one.asked
            conditions.append(
                Condition(
                    one.words,
                    place,
                    "" if i == own else name(spot.filename, spot.line),
                    name(asked.filename, asked.line) if asked.far else "",
                    len(loops),
                    near,
                    one.part,
                    one.leaves,
                    own is not None and i < own,
                )
            )
    if own is None:
        return Detail(conditions=tuple(conditions))
    first = spots[own]
    lines = linecache.getlines(first.filename)
    source = lines[first.line - 1].strip() if 0 < first.line <= len(lines) else ""
    return Detail(
        shortened(source),
        tuple(conditions),
        tuple(loop.words for loop in loops),
        loops[0].skip if loops else "",
        direct=all(spot.direct for spot in spots),
        loops_at=tuple(loops_at),
        loops_from=tuple(_origin_of(loop, name) for loop in loops),
        skip_at=skip_at,
        skip_ends=bool(loops) and loops[0].skip_ends,
    )


def _origin_of(loop: _Loop, name: Callable[[str, int], str]) -> Origin | None:
    if loop.asked is None:
        return None
    filename, line = loop.asked.filename, loop.asked.line
    return Origin(loop.rounds, name(filename, line), source_of(filename, line))


def scopes_of(spots: Sequence[Spot]) -> list[Scope]:
    """Return the scope of each line of a stack, which knows that of its caller."""
    scopes: list[Scope] = []
    for i, spot in reversed([*enumerate(spots)]):
        scope = scope_of(spot.filename, spot.line, spot.frame)
        if scopes:
            scope = replace(scope, caller=(scopes[-1], spots[i + 1].line))
        scopes.append(scope)
    return scopes[::-1]


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches a syntax tree for the code around a line.

    Attributes:
        line: The line.
        lines: All lines of the source.
        scope: Where names on the line are looked up.
        span: The expression of the line that is under way, if it is known.
    """

    line: int
    lines: Sequence[str]
    scope: Scope
    span: Span | None = None

    def inside(self, node: ast.AST, found: _Found) -> _Found:
        """Return what is around the line, which is inside a node, given what is around the node.

        What is outermost comes first.
        """
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branches(test, body, orelse, found)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return self._branches(test, [then], [otherwise], found)
            case ast.While(test=test, body=body):
                # The loop is inside its condition: who ran it before ran it less often.
                if self._on(body):
                    found = self._only_if(ast.unparse(test), test, found)
                if self._on([test, *body]):
                    found = self._in_loop(node, found)
            case ast.For(body=body) | ast.AsyncFor(body=body) if self._on(body):
                found = self._in_loop(node, found)
            case ast.BoolOp(op=op, values=values):
                return self._operands(op, values, found)
            case ast.match_case(guard=ast.expr() as guard, body=body) if self._on(body):
                found = self._only_if(ast.unparse(guard), guard, found)
            case ast.Match(subject=subject, cases=cases):
                for case in cases:
                    if self._on(case.body) and not self._on([subject]):
                        words = f"match {ast.unparse(subject)}: case {ast.unparse(case.pattern)}"
                        found = self._only_if(words, subject, found)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, found)
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and self._on(block):
                found = self._after(block, found)
        return self._children(ast.iter_child_nodes(node), found)

    def _after(self, block: Sequence[ast.AST], found: _Found) -> _Found:
        """Add the conditions of a block's earlier statements for leaving before the line."""
        for statement in itertools.takewhile(lambda one: not self._on([one]), block):
            if not isinstance(statement, ast.If):
                continue
            test, then, otherwise = statement.test, *map(leaves, (statement.body, statement.orelse))
            if bool(then) != bool(otherwise):
                words = negated(test) if then else ast.unparse(test)
                found = self._only_if(words, test, found, then or otherwise)
        return found

    def _children(self, nodes: Iterable[ast.AST], found: _Found) -> _Found:
        here = [node for node in nodes if self._on([node])]
        # If several nodes are on one line, only those with a call may make a launch.
        here.sort(key=lambda node: not _calls(node))
        here = [node for node in here if self._has_span([node])] or here
        for node in here:
            inner = self.inside(node, found)
            if inner != found:
                return inner
        return found

    def _branches(
        self,
        test: ast.expr,
        body: Sequence[ast.AST],
        orelse: Sequence[ast.AST],
        found: _Found,
    ) -> _Found:
        chosen = [nodes for nodes in (body, orelse) if self._on(nodes)]
        if self._has_span([test]):
            chosen = []
        elif len(chosen) == 2:  # on one line: choose the branch with a call, if only one has
            calling = [nodes for nodes in chosen if any(map(_calls, nodes))]
            chosen = [nodes for nodes in chosen if self._has_span(nodes)] or calling
            chosen = chosen if len(chosen) == 1 else []
        if not chosen:
            return self._children([test, *body, *orelse], found)
        words = ast.unparse(test)
        if chosen[0] is orelse:
            words = negated(test)
        found = self._only_if(words, test, found)
        return self._children(chosen[0], self._after(chosen[0], found))

    def _operands(self, op: ast.boolop, values: Sequence[ast.expr], found: _Found) -> _Found:
        """Return the code around the operand under way; if unknown, around the last with a call."""
        here = [i for i, value in enumerate(values) if self._on([value]) and _calls(value)]
        here = [i for i in here if self._has_span([values[i]])] or here
        if not here:
            return found
        before = values[: here[-1]]
        if before:
            test = before[0] if len(before) == 1 else _joined(op, before)
            words = ast.unparse(test)
            if isinstance(op, ast.Or):
                words = f"not ({words})"
            found = self._only_if(words, test, found)
        return self._children([values[here[-1]]], found)

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
        found: _Found,
    ) -> _Found:
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        if not (self._on(results) and any(map(_calls, results))):
            return self._children(ast.iter_child_nodes(node), found)
        for generator in node.generators:
            words = f"for {ast.unparse(generator.target)} in {ast.unparse(generator.iter)}"
            loop = _Loop(words, generator.target.lineno)
            found = (*found, self._with_origin(loop, generator.iter))
            for test in generator.ifs:
                found = self._only_if(ast.unparse(test), test, found)
        return self._children(results, found)

    def _only_if(self, words: str, test: ast.expr, found: _Found, leaves: str = "") -> _Found:
        """Add a condition if it depends on the process; `leaves` is how others leave before it."""
        scope, asked, part = self._scope_at(test), None, ""
        with contextlib.suppress(Exception):  # of any kind: a hint is not worth losing the rest
            asked = Search().expression(test, scope)
            part = "" if asked is None else _part(test, scope)
        return found if asked is None else (*found, _If(words, test.lineno, asked, part, leaves))

    def _scope_at(self, node: ast.expr) -> Scope:
        """Return the scope of an expression around the line."""
        at = node.lineno  # maybe around the definition of a function that has the line
        within = [f for f in self.scope.functions if first_line(f) <= at <= last_line(f)]
        same = len(within) == len(self.scope.functions)
        return replace(
            self.scope, functions=tuple(within), caller=self.scope.caller if same else None
        )

    def _with_origin(self, loop: _Loop, rounds: ast.expr) -> _Loop:
        """Return a loop with where what decides about its rounds begins to differ, if it does."""
        asked = self._differs(rounds)
        if asked is None or (asked.filename, asked.line) in (
            (self.scope.filename, line) for line in (loop.line, loop.skip_line, rounds.lineno)
        ):
            return loop  # the loop's lines are shown in any case
        return replace(loop, rounds=ast.unparse(rounds)[:_LONGEST_SOURCE], asked=asked)

    def _differs(self, node: ast.expr) -> Asked | None:
        """Return where an expression begins to differ from process to process, if it does."""
        with contextlib.suppress(Exception):  # as in `_only_if`
            return Search(varying=True).expression(node, self._scope_at(node))
        return None

    def _on(self, nodes: Sequence[ast.AST]) -> bool:
        return any(first_line(node) <= self.line <= last_line(node) for node in nodes)

    def _has_span(self, nodes: Sequence[ast.AST]) -> bool:
        """Return whether what is under way is known to be in one of the nodes."""
        if self.span is None:
            return False
        begins, ends = self.span
        return any(
            (node.lineno, node.col_offset) <= begins
            and ends <= (node.end_lineno or node.lineno, node.end_col_offset or 0)
            for node in nodes
            if isinstance(node, (ast.expr, ast.stmt))
        )

    def _in_loop(self, loop: ast.For | ast.AsyncFor | ast.While, found: _Found) -> _Found:
        """Add a loop, and a line of its body that may skip the line, if one does.

        It is the first one that depends on the process. If none does, and how often the loop runs
        does not either, it is the first one.
        """
        words = _without_comment(self.lines[loop.lineno - 1])
        first: _Loop | None = None
        for node, condition in itertools.chain.from_iterable(map(_of_this_loop, loop.body)):
            ends = isinstance(node, (ast.Break, ast.Return, ast.Raise))
            skips = isinstance(node, ast.Continue) and first_line(node) <= self.line
            around_it = isinstance(node, ast.If) and self._on([*node.body, *node.orelse])
            if ends or skips or around_it:
                line = first_line(node if condition is None else condition)
                skip = _without_comment(self.lines[line - 1])
                skipping = _Loop(words, loop.lineno, skip, line, ends)
                test = condition.test if isinstance(condition, ast.If) else None
                first = first or (skipping if test is None else self._with_origin(skipping, test))
                if test is not None and self._differs(test) is not None:
                    return (*found, self._with_origin(skipping, test))
        rounds = loop.test if isinstance(loop, ast.While) else loop.iter
        if first is not None and self._differs(rounds) is None:
            return (*found, first)
        return (*found, self._with_origin(_Loop(words, loop.lineno), rounds))


def _joined(op: ast.boolop, values: Sequence[ast.expr]) -> ast.BoolOp:
    return ast.copy_location(ast.BoolOp(op, list(values)), values[0])


def _part(test: ast.expr, scope: Scope) -> str:
    """Return the part of a condition that depends on the process; empty if all of it does."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if not isinstance(test, ast.BoolOp):
        return ""
    part = [one for one in test.values if Search().expression(one, scope) is not None]
    if not 0 < len(part) < len(test.values):
        return ""
    return ast.unparse(part[0] if len(part) == 1 else _joined(test.op, part))


def _of_this_loop(
    node: ast.AST, condition: ast.If | ast.ExceptHandler | None = None
) -> Iterator[tuple[ast.AST, ast.If | ast.ExceptHandler | None]]:
    """Yield a node and its descendants, each with the innermost `if` or `except` around it.

    The content of functions and of loops is left out.
    """
    yield node, condition
    if not isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.Lambda)):
        inner = node if isinstance(node, (ast.If, ast.ExceptHandler)) else condition
        for child in ast.iter_child_nodes(node):
            yield from _of_this_loop(child, inner)


def _calls(node: ast.AST) -> bool:
    """Return whether a node may make a launch, as calls and operators may."""
    kinds = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Await)
    return any(isinstance(inner, kinds) for inner in ast.walk(node))


def source_of(filename: str, line: int) -> str:
    """Return a line of a file that `linecache` knows, without its comment, to be quoted."""
    return shortened(_without_comment(linecache.getline(filename, line)))


def shortened(source: str) -> str:
    """Return a line of source, with an ellipsis if it is too long to be quoted.

    Example:
        >>> shortened("x = f(x)"), len(shortened("x" * 200))
        ('x = f(x)', 100)
    """
    return source if len(source) <= _LONGEST_SOURCE else f"{source[: _LONGEST_SOURCE - 2]} …"


def _without_comment(line: str) -> str:
    """Return a line of source without its indentation and its comment."""
    line = line.strip()
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # part of a longer statement
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]].rstrip()
    return line
