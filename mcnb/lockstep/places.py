"""Where in the learner's code a launch is made."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from mcnb.lockstep.frames import line_of

# JAX's own decorator that filters tracebacks stands between a caller and what it calls.
_WRAPPERS = {"reraise_with_filtered_traceback", "inner", "wrapper", "wrapped", "__call__"}


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

    def runs(self, filename: str) -> bool:
        """Return whether a file is the learner's."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self.is_learners(filename)
        return known


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
