"""Run `mcnb script`, which writes a lesson as a plain JAX program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mcnb._lessons import ENDINGS, find_lesson, is_lesson, read_notebook
from mcnb._text import plural
from mcnb.errors import McnbError, OptionError
from mcnb.export.write import WRITTEN_BY, export

USAGE = """\
usage: mcnb script LESSON [-o FILE.py]

Write a lesson, or another notebook with %%mcjax cells, as a plain JAX program that needs no mcnb.
It prints what the lesson's cells print. LESSON is a file, .md or .ipynb, or one of the course's own
by its name.

  -o FILE.py   the program's file; without it, or with -o -, the program goes to the terminal

Any launcher starts it; its first lines say how. For example:

  mcnb script 01_hello_controllers.md -o hello.py
  for i in 0 1 2 3; do python hello.py localhost:10000 $i 4 & done; wait
  mpirun -np 4 python hello.py
  srun -n 4 python hello.py

What only a notebook can do stays as a comment, with the reason: cells that run in the notebook
itself, that are meant to fail, or that have the tag no-script, and cells that need what these
define. A lesson that starts its processes anew becomes several programs, FILE.py, FILE_2.py and so
on, which run in this order. A file that mcnb script has not written is never overwritten."""


def main(words: Sequence[str]) -> int:
    """Write a lesson as a program, and return the exit code.

    Args:
        words: The words after `mcnb script`.

    Raises:
        McnbError: The lesson can't be read, or the file can't be written.
        OptionError: The command line is invalid.
    """
    if any(word in ("-h", "--help") for word in words):
        print(USAGE)
        return 0
    lesson, target = _parse(words)
    if target is not None:
        _check(target)
    cells = read_notebook(lesson).cells
    name = f"{lesson.stem}.py" if target is None else target.name
    programs = export(cells, lesson.name, name)
    if target is None:
        if len(programs) > 1:
            raise OptionError(
                f"mcnb script {lesson.name}: it starts its processes {len(programs)} times, and is "
                f"exported as that many programs. Name an output file: mcnb script {lesson.name} "
                f"-o {lesson.stem}.py"
            )
        print(programs[0].text, end="")
        return 0
    paths = [target.with_name(program.name) for program in programs]
    for path in paths:
        _check(path)
    for path, program in zip(paths, programs, strict=True):
        try:
            path.write_text(program.text, encoding="utf-8")
        except OSError as error:
            raise McnbError(f"mcnb script: {path} can't be written: {error.strerror}") from None
        left_out = plural(len(program.left_out), "cell is", "cells are")
        more = f"; {left_out} left out (comments in the file say why)" if program.left_out else ""
        print(f"Wrote {path}, for {program.options.describe()}{more}")
    return 0


def _parse(words: Sequence[str]) -> tuple[Path, Path | None]:
    """Return the lesson and the output file; None for the terminal."""
    given: list[str] = []
    target: str | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-o", "--output"):
            if not equals and not rest:
                raise OptionError(f"mcnb script {name}: a file is missing. Say: -o hello.py")
            target = value if equals else rest.pop(0)
        elif word.startswith("-o") and len(word) > 2:
            target = word[2:]
        elif word.startswith("-"):
            raise OptionError(f"mcnb script {word}: unknown option. Options: -o FILE.py, --help")
        else:
            given.append(word)
    if not given:
        raise OptionError(
            "mcnb script: the lesson is missing. For example: mcnb script 01_hello_controllers.md "
            "-o hello.py"
        )
    if len(given) > 1:
        raise OptionError(
            f"mcnb script {' '.join(given)}: it writes one lesson at a time. Its file follows -o: "
            f"mcnb script {given[0]} -o {given[1]}"
        )
    path = Path(given[0])
    if not path.suffix and not path.is_file():
        # In the folder that mcnb lab made, the learner's own.
        own = path.with_suffix(".ipynb")
        path = own if own.is_file() else path.with_suffix(".md")
    lesson = find_lesson(path, "script")
    if not is_lesson(lesson):
        raise OptionError(
            f"mcnb script {lesson}: it is not a notebook. Expected a file that ends in "
            f"{' or '.join(ENDINGS)}"
        )
    return lesson, None if target in (None, "-") else Path(str(target))


def _check(path: Path) -> None:
    """Check that a path can be written without replacing another program's file."""
    if path.is_dir() or not path.resolve().parent.is_dir():
        what = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise OptionError(f"mcnb script -o {path}: {path} {what}. Name a file: -o hello.py")
    try:
        ours = not path.exists() or WRITTEN_BY in path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise McnbError(f"mcnb script: {path} can't be read: {error.strerror}") from None
    if not ours:
        raise OptionError(
            f"mcnb script -o {path}: {path} already exists and was not written by mcnb script. "
            "Choose another name, or remove it"
        )
