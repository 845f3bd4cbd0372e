"""Find the line of the learner's code that makes a launch, and the code around the line."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType

from mcnb.lockstep.model import Detail
from mcnb.lockstep.threads import line_of

_PROCESS_INDEX = ("process_index", "process_id", "host_id", "is_primary")
_LONGEST_SOURCE = 100


def around(filename: str, line: int) -> Detail:
    """Return a line of a file that `linecache` knows, with the code around the line.

    That is the innermost condition that depends on the process, and the innermost loop.
    """
    lines = linecache.getlines(filename)
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    search = _Search(line, lines, _names_of_the_process(filename))
    return search.inside(_parsed(filename), Detail(source[:_LONGEST_SOURCE]))


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches a syntax tree for the code around a line.

    Attributes:
        line: The line.
        lines: All lines of the source.
        asking: The names that depend on the process.
    """

    line: int
    lines: Sequence[str]
    asking: set[str]

    def inside(self, node: ast.AST, found: Detail) -> Detail:
        """Return the code around the line, which is inside a node, given that around the node."""
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branches(test, body, orelse, found)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return self._branches(test, [then], [otherwise], found)
            case ast.While(test=test, body=body):
                if self._on(body):
                    found = self._only_if(ast.unparse(test), [test], found)
                if self._on([test, *body]):
                    found = self._in_loop(node, found)
            case ast.For(body=body) | ast.AsyncFor(body=body) if self._on(body):
                found = self._in_loop(node, found)
            case ast.BoolOp(op=op, values=values):
                return self._operands(op, values, found)
            case ast.match_case(guard=ast.expr() as guard, body=body) if self._on(body):
                found = self._only_if(ast.unparse(guard), [guard], found)
            case ast.Match(subject=subject, cases=cases):
                for case in cases:
                    if self._on(case.body) and not self._on([subject]):
                        words = f"match {ast.unparse(subject)}: case {ast.unparse(case.pattern)}"
                        found = self._only_if(words, [subject], found)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, found)
        return self._children(ast.iter_child_nodes(node), found)

    def _children(self, nodes: Iterable[ast.AST], found: Detail) -> Detail:
        here = [node for node in nodes if self._on([node])]
        # If several nodes are on one line, only those with a call may make a launch.
        here.sort(key=lambda node: not _calls(node))
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
        found: Detail,
    ) -> Detail:
        chosen = [nodes for nodes in (body, orelse) if self._on(nodes)]
        if len(chosen) == 2:  # on one line: choose the branch with a call, if only one has
            calling = [nodes for nodes in chosen if any(map(_calls, nodes))]
            chosen = calling if len(calling) == 1 else []
        if not chosen:
            return self._children([test, *body, *orelse], found)
        words = ast.unparse(test)
        if chosen[0] is orelse:
            simple = isinstance(test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            words = f"not {words}" if simple else f"not ({words})"
        return self._children(chosen[0], self._only_if(words, [test], found))

    def _operands(self, op: ast.boolop, values: Sequence[ast.expr], found: Detail) -> Detail:
        """Return the code around the last operand on the line that has a call."""
        here = [i for i, value in enumerate(values) if self._on([value]) and _calls(value)]
        if not here:
            return found
        before = values[: here[-1]]
        if before:
            words = (" and " if isinstance(op, ast.And) else " or ").join(map(ast.unparse, before))
            if isinstance(op, ast.Or):
                words = f"not ({words})"
            found = self._only_if(words, before, found)
        return self._children([values[here[-1]]], found)

    def _comprehension(
        self,
        node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp,
        found: Detail,
    ) -> Detail:
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        if not (self._on(results) and any(map(_calls, results))):
            return self._children(ast.iter_child_nodes(node), found)
        for generator in node.generators:
            words = f"for {ast.unparse(generator.target)} in {ast.unparse(generator.iter)}"
            found = replace(found, loop=words, skip="")
            for test in generator.ifs:
                found = self._only_if(ast.unparse(test), [test], found)
        return self._children(results, found)

    def _only_if(self, words: str, tests: Sequence[ast.expr], found: Detail) -> Detail:
        """Add a condition if it depends on the process."""
        asks = any(self.asking & _names(test) for test in tests)
        return replace(found, condition=words) if asks else found

    def _on(self, nodes: Sequence[ast.AST]) -> bool:
        return any(_first(node) <= self.line <= _last(node) for node in nodes)

    def _in_loop(self, loop: ast.For | ast.AsyncFor | ast.While, found: Detail) -> Detail:
        """Add a loop, and the first line of its body that may skip the line, if one does."""
        found = replace(found, loop=self.lines[loop.lineno - 1].strip(), skip="")
        for node in itertools.chain.from_iterable(map(_of_this_loop, loop.body)):
            leaves = isinstance(node, (ast.Break, ast.Continue, ast.Return, ast.Raise))
            around_it = isinstance(node, ast.If) and self._on([*node.body, *node.orelse])
            if leaves or around_it:
                return replace(found, skip=self.lines[_first(node) - 1].strip())
        return found


def _of_this_loop(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, but not the content of functions and loops."""
    yield node
    if not isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _of_this_loop(child)


def _first(node: ast.AST) -> int:
    lines = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    return min([*lines, *_spans(node, "lineno")], default=1 << 60)


def _last(node: ast.AST) -> int:
    return max(_spans(node, "end_lineno"), default=-1)


def _spans(node: ast.AST, which: str) -> list[int]:
    own = getattr(node, which, None)
    if own is not None:
        return [own]
    # The cases of a match and the arguments of a function have no line numbers.
    return [line for child in ast.iter_child_nodes(node) for line in _spans(child, which)]


def _calls(node: ast.AST) -> bool:
    """Return whether a node may make a launch, as calls and operators may."""
    kinds = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Await)
    return any(isinstance(inner, kinds) for inner in ast.walk(node))


def _parsed(filename: str) -> ast.Module:
    try:
        # Warnings about the learner's code were shown when the code was compiled.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:  # a cell with a magic in it
        return ast.Module([], [])


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
        n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
    }


def _names_of_the_process(filename: str) -> set[str]:
    """Return the names of the process index in a file and, for a notebook, in other cells."""
    cells = [name for name in list(linecache.cache) if name.startswith("<In[")]
    assigned = [
        (target.id, _names(value))
        for name in dict.fromkeys([filename, *cells])
        for node in ast.walk(_parsed(name))
        for target, value in _assigned(node)
        if isinstance(target, ast.Name)
    ]
    found = set(_PROCESS_INDEX)
    while more := {name for name, names in assigned if found & names} - found:
        found |= more
    return found


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets and values of an assignment; `a, b = c, d` yields two pairs."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    yield from zip(target.elts, value.elts, strict=False)
                else:
                    yield target, value
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() if node.value is not None:
            yield node.target, node.value


# JAX's decorator that filters tracebacks adds a frame between a caller and its callee.
_WRAPPERS = {"reraise_with_filtered_traceback", "inner", "wrapper", "wrapped", "__call__"}


@dataclass(frozen=True, slots=True)
class Place:
    """The place in the learner's code that makes a launch.

    Attributes:
        line: The line of the cell, or of the script; None if it is not on the stack.
        name: File and line, if the place is not in the cell itself.
        filename: The file, by its name in code objects.
        file_line: The line of that file.
    """

    line: int | None = None
    name: str = ""
    filename: str = ""
    file_line: int = 0


@dataclass
class Places:
    """Finds the learner's lines in a stack.

    Args:
        is_learners: Returns whether a file, by its name in code objects, is the learner's.
        label: Returns the label of a line of a file in messages.

    Attributes:
        cell: The file name of the cell that runs; empty for a script.
        runs: `is_learners`, with its results kept.
    """

    is_learners: Callable[[str], bool]
    label: Callable[[str, int], str] = lambda name, line: f"{Path(name).name}:{line}"
    cell: str = ""

    def __post_init__(self) -> None:
        self.runs = functools.cache(self.is_learners)

    def name(self, filename: str, line: int) -> str:
        """Return the name of a line of the learner's in messages."""
        return f"line {line}" if filename == self.cell else self.label(filename, line)

    def find(self, frame: FrameType | None) -> tuple[Place, CodeType | None]:
        """Return the learner's place in a stack, and the function that it calls there."""
        inner: Place | None = None
        called: CodeType | None = None
        outer: CodeType | None = None
        while frame is not None:
            code = frame.f_code
            filename = code.co_filename
            if filename == self.cell:
                line = line_of(frame)
                at = Place(line, "", filename, line)
                return at, called if inner else outer
            if self.runs(filename):
                if inner is None:
                    called = outer
                    line = line_of(frame)
                    name = self.label(filename, line)
                    inner = Place(None if self.cell else line, name, filename, line)
            elif code.co_name not in _WRAPPERS:
                outer = code
            frame = frame.f_back
        return inner or Place(), called


def is_script(filename: str) -> bool:
    """Return whether a file belongs to a learner's own program rather than to a library.

    Example:
        >>> is_script("train.py"), is_script(sysconfig.__file__), is_script("<frozen runpy>")
        (True, False, False)
    """
    if filename.startswith("<"):
        return False
    paths = sysconfig.get_paths()
    libraries = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    inside = any(filename.startswith(f"{path}/") for path in libraries)
    own = __file__.rpartition("/lockstep/")[0]
    return not (inside or "-packages/" in filename or filename.startswith(f"{own}/"))
