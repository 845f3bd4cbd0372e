"""Find the lines of the learner's code that make a launch."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from mcnb.lockstep.threads import line_at, line_of

# JAX's decorator that filters tracebacks adds a frame between a caller and its callee.
WRAPPERS = {"reraise_with_filtered_traceback", "inner", "wrapper", "wrapped", "__call__"}


@dataclass(frozen=True, slots=True)
class Place:
    """The place in the learner's code that makes a launch.

    Attributes:
        line: The line of the cell, or of the script; None if it is not on the stack.
        name: File and line, if the place is not in the cell itself.
        filename: The file, by its name in code objects.
        file_line: The line of that file.
        stack: The learner's functions on the stack, from the innermost, each with the offset of the
            instruction that is under way.
        ended: How the test of a suite ended after which the process waits, as the end of a sentence
            about the test; empty if it passed.
    """

    line: int | None = None
    name: str = ""
    filename: str = ""
    file_line: int = 0
    stack: tuple[tuple[CodeType, int], ...] = field(default=(), compare=False, repr=False)
    ended: str = field(default="", compare=False)


@functools.cache
def is_library(filename: str) -> bool:
    """Return whether a file belongs to an installed library other than JAX and mcnb.

    Example:
        >>> import numpy, jax
        >>> is_library(numpy.__file__), is_library(jax.__file__), is_library(sysconfig.__file__)
        (True, False, False)
    """
    return is_installed(filename) and not filename.startswith(_own())


@functools.cache
def is_of_jax(filename: str) -> bool:
    """Return whether a file belongs to JAX, or to mcnb, whose hooks JAX calls.

    Example:
        >>> import numpy, jax
        >>> is_of_jax(numpy.__file__), is_of_jax(jax.__file__), is_of_jax(__file__)
        (False, True, True)
    """
    return filename.startswith(_own())


def is_installed(filename: str) -> bool:
    """Return whether a file belongs to an installed package."""
    folders = *_folders("purelib", "platlib"), *_targets(tuple(sys.path))
    return "-packages/" in filename or filename.startswith(folders)


@functools.cache
def _targets(path: Sequence[str]) -> tuple[str, ...]:
    """Return the folders of a path that have installed packages, as `pip install --target` has."""
    found = []
    for folder in filter(None, path):
        with contextlib.suppress(OSError):
            if any(Path(folder).glob("*.dist-info")):
                found.append(f"{folder}/")
    return tuple(found)


def _standard() -> tuple[str, ...]:
    return _folders("stdlib", "platstdlib")


@functools.cache
def _folders(*names: str) -> tuple[str, ...]:
    return tuple({f"{sysconfig.get_paths()[name]}/" for name in names})


@functools.cache
def _own() -> tuple[str, ...]:
    """Return the folders of mcnb and JAX."""
    found = [importlib.util.find_spec(name) for name in ("jax", "jaxlib")]
    folders = [folder for spec in found if spec for folder in spec.submodule_search_locations or ()]
    return (f"{__file__.rpartition('/lockstep/')[0]}/", *(f"{folder}/" for folder in folders))


@dataclass
class Places:
    """Finds the learner's lines in a stack.

    Args:
        is_learners: Returns whether a file, by its name in code objects, is the learner's.
        label: Returns the label of a line of a file in messages.
        in_library: Returns whether a file, by that name, belongs to a library other than JAX.

    Attributes:
        cell: The file name of the cell that runs; empty for a script.
        runs: `is_learners`, with its results kept.
    """

    is_learners: Callable[[str], bool]
    label: Callable[[str, int], str] = lambda name, line: f"{Path(name).name}:{line}"
    in_library: Callable[[str], bool] = field(default=lambda name: is_library(name))
    cell: str = ""

    def __post_init__(self) -> None:
        self.runs = functools.cache(self.is_learners)

    def name(self, filename: str, line: int) -> str:
        """Return the name of a line of the learner's in messages."""
        return f"line {line}" if filename == self.cell else self.label(filename, line)

    def find(self, frame: FrameType | None) -> tuple[Place, CodeType | None]:
        """Return the learner's place in a stack, and the function of JAX that is called there.

        The function is the one that the learner calls, or a library of others, for the learner.
        """
        inner: FrameType | None = None
        own: FrameType | None = None
        called: CodeType | None = None
        outer: CodeType | None = None
        by_library = False
        stack: list[tuple[CodeType, int]] = []
        while frame is not None:
            code = frame.f_code
            filename = code.co_filename
            if filename == self.cell or self.runs(filename):
                stack.append((code, frame.f_lasti))
                if inner is None:
                    inner, called = frame, outer
                if filename == self.cell:
                    own = own or frame
                    if code.co_name == "<module>":
                        break  # the notebook's frames follow
            elif inner is None and not by_library:
                if self.in_library(filename):
                    by_library = True
                elif code.co_name not in WRAPPERS:
                    outer = code
            frame = frame.f_back
        if inner is None:
            return Place(), None
        at = own or inner
        filename, line = at.f_code.co_filename, line_of(at)
        name = "" if own else self.label(filename, line)
        shown = line if own or not self.cell else None
        return Place(shown, name, filename, line, tuple(stack)), called

    def lines(self, place: Place) -> tuple[str, ...]:
        """Return the names of the lines on the stack of a place, from the outermost."""
        return tuple(
            self.name(code.co_filename, line_at(code, at)) for code, at in reversed(place.stack)
        )


def is_script(filename: str) -> bool:
    """Return whether a file belongs to a learner's own program rather than to a library.

    Example:
        >>> is_script("train.py"), is_script(sysconfig.__file__), is_script("<frozen runpy>")
        (True, False, False)
    """
    if filename.startswith("<"):
        return False
    return not (is_installed(filename) or filename.startswith((*_standard(), *_own())))
