"""Run what one does here: `python tools/dev.py`, which lists the commands.

    python tools/dev.py test                 the tests of what has changed since the last commit
    python tools/dev.py test --since main    the same, since another commit
    python tools/dev.py coverage             which lines the first tests run; of all tests: --all
    python tools/dev.py lesson 05            execute a lesson and store its outputs
    python tools/dev.py gallery              draw the pictures of notebooks/gallery.md again
    python tools/dev.py screenshots          run the lessons in JupyterLab, and photograph them
    python tools/dev.py recording            record the moving picture of the README
    python tools/dev.py bench start          a benchmark: start, lockstep, hosts, stopping, training
    python tools/dev.py guests jax=CHECKOUT  other projects' tests, with the check and without it
    python tools/dev.py pages PAGE...        pages of documentation, on one process and on several
    python tools/dev.py release PYTHON...    the wheel, with the oldest and newest dependencies
    python tools/dev.py docs                 build the site of the documentation, in build/site
    python tools/dev.py pin                  pin what CI installs to today's newest releases

What all of it checks: python .ci/check.py, and python .ci/check.py --all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def affected_tests(changed: Iterable[str]) -> list[str]:
    """Return the paths to give to pytest for changed files.

    Args:
        changed: Paths of files, relative to the project's root.

    Returns:
        Changed tests, and for a changed module its doctests and its unit tests. If there is no unit
        test of that name, those of its package.

    Example:
        >>> affected_tests(["mcnb/output/fold.py", "tests/unit/output/test_log.py", "README.md"])
        ['mcnb/output/fold.py', 'tests/unit/output/test_fold.py', 'tests/unit/output/test_log.py']
    """
    found: set[str] = set()
    for name in changed:
        path = Path(name)
        if path.suffix != ".py" or not (ROOT / path).exists():
            continue
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            found.add(name)
        elif path.parts[0] == "mcnb":
            found.add(name)
            folder = ROOT / "tests" / "unit" / Path(*path.parts[1:-1])
            own = sorted(folder.glob(f"test_{path.stem.strip('_')}*.py"))
            found |= {str((one).relative_to(ROOT)) for one in own or [folder] if one.exists()}
    return sorted(found)


def changed_files(since: str) -> list[str]:
    """Return the files that differ from a commit, new ones included."""
    told = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for words in (
            ["diff", "--name-only", since],
            ["ls-files", "--others", "--exclude-standard"],
        )
    ]
    return "".join(told).splitlines()


def command_line(words: Sequence[str]) -> list[str]:
    """Return the command line that a command stands for; empty if there is nothing to do."""
    parser = argparse.ArgumentParser(
        prog="python tools/dev.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    test = commands.add_parser("test")
    test.add_argument("--since", default="HEAD")
    coverage = commands.add_parser("coverage")
    coverage.add_argument("--all", action="append_const", const="--all", default=[])
    lesson = commands.add_parser("lesson")
    lesson.add_argument("numbers", nargs="+")
    commands.add_parser("gallery")
    commands.add_parser("screenshots")
    commands.add_parser("recording")
    commands.add_parser("docs")
    commands.add_parser("pin")
    for name in ("guests", "pages", "release"):
        own = commands.add_parser(name, add_help=False)
        own.add_argument("words", nargs=argparse.REMAINDER)
    bench = commands.add_parser("bench")
    bench.add_argument("name", choices=sorted(p.stem[6:] for p in TOOLS.glob("bench_*.py")))
    arguments = parser.parse_args(words)
    if arguments.command == "test":
        paths = affected_tests(changed_files(arguments.since))
        return [sys.executable, "-m", "pytest", *paths] if paths else []
    if arguments.command == "lesson":
        paths = [str(p) for n in arguments.numbers for p in (ROOT / "notebooks").glob(f"{n}_*.md")]
        return [sys.executable, str(TOOLS / "lessons.py"), *paths] if paths else []
    if arguments.command == "coverage":
        return [sys.executable, "-m", "pytest", "--cov", "--cov-report=term", *arguments.all]
    if arguments.command == "bench":
        return [sys.executable, "-m", f"tools.bench_{arguments.name}"]
    if arguments.command is None:
        parser.print_help()
        return []
    words = vars(arguments).get("words", [])
    return [sys.executable, str(TOOLS / f"{arguments.command}.py"), *words]


if __name__ == "__main__":
    command = command_line(sys.argv[1:])
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode if command else 0)
