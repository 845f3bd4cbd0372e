"""Where in the learner's code a launch is made, and what stands around it."""

from __future__ import annotations

import ast
import linecache
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from mcnb.lockstep.verdicts import Detail

# JAX's own decorator that filters tracebacks stands between a caller and what it calls.
_WRAPPERS = {"reraise_with_filtered_traceback", "inner", "wrapper", "wrapped", "__call__"}
_PROCESS_INDEX = ("process_index", "process_id", "host_id", "is_primary")
_LONGEST_SOURCE = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the learner's code a launch is made.

    Attributes:
        line: The line of the cell, or of the script; None where it has no part in it.
        name: File and line, where it is not the cell itself.
        filename: The file, as code objects have it.
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
        is_learners: Whether a file, given by the name that code objects have, is the learner's.
        label: Returns how a line of a file is called in a message.

    Attributes:
        cell: The file name of the cell that runs; empty for a script.
    """

    is_learners: Callable[[str], bool]
    label: Callable[[str, int], str] = lambda name, line: f"{Path(name).name}:{line}"
    cell: str = ""
    _known: dict[str, bool] = field(default_factory=dict)

    def find(self, frame: FrameType | None) -> tuple[Place, CodeType | None]:
        """Return the learner's place in a stack, and the function that it calls there.

        Args:
            frame: The innermost frame.
        """
        inner: Place | None = None
        called: CodeType | None = None
        outer: CodeType | None = None
        while frame is not None:
            code = frame.f_code
            filename = code.co_filename
            if filename == self.cell:
                at = Place(frame.f_lineno, "", filename, frame.f_lineno)
                return at, called if inner else outer
            if self.runs(filename):
                if inner is None:
                    called = outer
                    line = frame.f_lineno
                    name = self.label(filename, line)
                    inner = Place(None if self.cell else line, name, filename, line)
            elif code.co_name not in _WRAPPERS:
                outer = code
            frame = frame.f_back
        return inner or Place(), called

    def runs(self, filename: str) -> bool:
        """Return whether a file is the learner's."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self.is_learners(filename)
        return known


def is_script(filename: str) -> bool:
    """Return whether a file belongs to a learner's own program rather than to a library.

    Example:
        >>> is_script("train.py"), is_script(ast.__file__), is_script("<frozen runpy>")
        (True, False, False)
    """
    if filename.startswith("<"):
        return False
    paths = sysconfig.get_paths()
    libraries = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    inside = any(filename.startswith(f"{path}/") for path in libraries)
    own = __file__.rpartition("/lockstep/")[0]
    return not (inside or "-packages/" in filename or filename.startswith(f"{own}/"))


def around(filename: str, line: int) -> Detail:
    """Return a line of source with what stands around it.

    Args:
        filename: The file, known to `linecache`.
        line: The line's number.
    """
    lines = linecache.getlines(filename)
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    condition = loop = ""
    tree = _parsed(filename)
    asking = _names_of_the_process(filename)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.If, ast.IfExp, ast.While, ast.For)):
            continue
        if not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if not isinstance(node, ast.For) and asking & _names(node.test):
            test = ast.unparse(node.test)
            chosen = [node.body] if isinstance(node, ast.IfExp) else node.body
            # Of `a if test else b`, on one line, it can't be told which it was.
            holds = _in(chosen, line) or isinstance(node, ast.IfExp)
            condition = test if holds else f"not ({test})"
        if isinstance(node, (ast.For, ast.While)):
            loop = lines[node.lineno - 1].strip()
    return Detail(source[:_LONGEST_SOURCE], condition, loop)


def _in(body: Sequence[ast.AST], line: int) -> bool:
    return any(getattr(s, "lineno", 0) <= line <= (getattr(s, "end_lineno", 0) or 0) for s in body)


def _parsed(filename: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:  # a cell with a magic in it
        return ast.Module([], [])


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
        n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
    }


def _names_of_the_process(filename: str) -> set[str]:
    """Return what the learner calls the process index, here or, in a notebook, in other cells."""
    cells = [name for name in linecache.cache if name.startswith("<In[")]
    found = set(_PROCESS_INDEX)
    for name in {filename, *cells}:
        for node in ast.walk(_parsed(name)):
            if isinstance(node, ast.Assign):
                for target, value in _assigned(node):
                    if isinstance(target, ast.Name) and found & _names(value):
                        found.add(target.id)
    return found


def _assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Return what is assigned to what, with `a, b = c, d` taken apart."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value
