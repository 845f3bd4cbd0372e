"""A learner's program, with a library that looks where it is called from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from mcnb.lockstep.source import Place, Places
from mcnb.worker.cellcode import CellCompiler

LIBRARY = """
def launch(x=None, *more):
    execute()
    return x

def execute():
    look()

def decorated(x):
    return reraise_with_filtered_traceback(x)

def reraise_with_filtered_traceback(x):
    return launch(x)

def call(function, *args):
    return function(*args)
"""


Found = tuple[Place, CodeType | None]


class Program:
    """A learner's program, with a library that looks where it is called from.

    Args:
        folder: Where its files are.
        places: What finds the learner's lines.
    """

    def __init__(self, folder: Path, places: Places) -> None:
        self.folder = folder
        self.places = places
        self.found: list[Found] = []
        (folder / "site-packages").mkdir()
        self.library = self.module("site-packages/library.py", LIBRARY, {"look": self.look})

    def look(self) -> None:
        self.found.append(self.places.find(sys._getframe(1)))

    def module(self, name: str, source: str, names: Mapping[str, Any] | None = None) -> Any:
        """Run a file, and return its names."""
        path = self.folder / name
        path.write_text(source)
        namespace = dict(names or {})
        exec(compile(source, str(path), "exec"), namespace)
        return namespace

    def names(self) -> dict[str, Any]:
        return {**self.library, "process_index": lambda: 0, "x": 1}

    def script(self, source: str) -> Place:
        """Run a script that launches once or more at one place, and return the place."""
        self.module("train.py", source, self.names())
        [place] = {place for place, _ in self.found}
        return place

    def cell(self, label: str, source: str, first_line: int = 1, **names: Any) -> dict[str, Any]:
        """Run a cell, and return its names."""
        compiler = CellCompiler()
        compiler.label, compiler.first_line = label, first_line
        name = compiler.cache(source)
        namespace = {**self.names(), **names}
        self.places.cell = name
        exec(compiler(compiler.ast_parse(source, name), name, "exec"), namespace)
        return namespace
