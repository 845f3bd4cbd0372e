"""All checks of the project, in one run: `python .ci/check.py`.

Each step is a command of its own; all run, and those that failed are named at the end, with what
they said last. The Python that runs this is the one that is checked; mcnb must be installed for it
with its extra `test`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The end of a long log is what one sees: so many bytes of each failed command are told there again.
TOLD_AGAIN = 8000
# The tag of cells that not every machine can execute.
SKIPPED = "nbval-skip"
failures: list[str] = []


def run(*command: str | Path, cwd: Path = ROOT, settings: Mapping[str, str] | None = None) -> bool:
    """Run a command, with its output passed on; return whether it succeeded."""
    last = b""
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(settings or {}), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout
        # Not by lines: of a test that hangs, the beginning of the line is all there is.
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            print(chunk.decode(errors="replace"), end="", flush=True)
            last = (last + chunk)[-TOLD_AGAIN:]
    if process.returncode:
        name = " ".join(Path(word).name for word in command[:3])
        failures.append(f"-- the end of what {name} said:\n{last.decode(errors='replace')}")
    return process.returncode == 0


def module(*words: str | Path) -> bool:
    """Run a module of this Python."""
    return run(sys.executable, "-m", *words)


def style() -> bool:
    """Ruff's rules and format."""
    return module("ruff", "check", ".") and module("ruff", "format", "--check", ".")


def types() -> bool:
    """Types, checked by mypy."""
    return module("mypy")


def tests() -> bool:
    """Unit tests, doctests, and the magics on real processes."""
    return module("pytest", "--durations=10")


def lessons(folder: Path = ROOT / "notebooks") -> bool:
    """Every lesson executed: to the end, and with the very outputs that are stored.

    nbval alone is not enough: it takes a magic that is missing, whose message goes to stderr, for
    a cell that ran. nbclient alone is not either: it does not compare outputs.
    """
    notebooks = sorted(folder.glob("[0-9]*.ipynb"))
    if not notebooks:
        print(f"no lessons in {folder.name}")
        return False
    # Whether a cell's magic is there has been seen where CI has done this with another Python.
    once = os.environ.get("MCNB_ONCE") == "done"
    to_the_end = once or run(sys.executable, ROOT / "tools" / "lessons.py", "--check", *notebooks)
    return as_stored(notebooks) and to_the_end


def as_stored(notebooks: Sequence[Path], settings: Mapping[str, str] | None = None) -> bool:
    """Execute notebooks of one folder; return whether their outputs are those that are stored."""
    folder = notebooks[0].parent
    # None of pyproject's options: they are for the unit tests.
    return run(
        *(sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", folder),
        *("-p", "no:cacheprovider", "--nbval", "--nbval-current-env", *notebooks),
        cwd=folder,
        settings=settings,
    )


def without_skipping(notebook: Path, folder: Path) -> Path:
    """Copy a notebook into a folder, without the tag by which nbval leaves out cells."""
    copied = json.loads(notebook.read_text())
    for cell in copied["cells"]:
        tags = cell["metadata"].get("tags", [])
        if SKIPPED in tags:
            tags.remove(SKIPPED)
    path = folder / notebook.name
    path.write_text(json.dumps(copied))
    return path


def wheel() -> bool:
    """The wheel, built, installed in an environment of its own, and asked how it is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not module("build", "--wheel", "--outdir", folder):
            return False
        (built,) = folder.glob("*.whl")
        venv.create(folder / "env", with_pip=True)
        scripts = folder / "env" / "bin"
        return (
            run(scripts / "python", "-m", "pip", "install", "--quiet", f"{built}[lab]", cwd=folder)
            and run(scripts / "mcnb", "doctor", cwd=folder)
            and run(scripts / "mcnb", "--version", cwd=folder)
        )


def pods() -> bool:
    """Pods on paper, and the lesson that needs them, with the compiler that belongs to this JAX."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print("no compiler for TPUs on this machine")
        return True
    required = next(line for line in requires("jax") or [] if line.startswith("libtpu"))
    with tempfile.TemporaryDirectory() as folder:
        # Beside everything else: where it is installed, JAX looks for TPUs.
        libraries, copies = Path(folder, "libraries"), Path(folder, "copies")
        copies.mkdir()
        pip = ("pip", "install", "--quiet", "--no-deps", "--target", libraries)
        if not module(*pip, required.partition(";")[0]):
            return False
        settings = {"PYTHONPATH": str(libraries)}
        command = (sys.executable, "-m", "pytest", "--quiet", "tests/unit/pods/test_pod.py")
        tested = run(*command, settings=settings)
        (lesson,) = (ROOT / "notebooks").glob("11_*.ipynb")
        return as_stored([without_skipping(lesson, copies)], settings) and tested


STEPS: tuple[Callable[[], bool], ...] = (style, types, tests, lessons, pods, wheel)


def main() -> int:
    """Run all steps and say how they went."""
    failed = []
    for step in STEPS:
        print(f"== {step.__name__}: {step.__doc__}", flush=True)
        began = time.monotonic()
        good = step()
        failed += [] if good else [step.__name__]
        verdict = "passed" if good else "FAILED"
        print(f"== {step.__name__} {verdict} in {time.monotonic() - began:.0f} s", flush=True)
    print(*failures, sep="\n", end="")
    passed = f"{len(STEPS) - len(failed)} passed, {len(failed)} failed"
    print(f"{passed}: {', '.join(failed)}" if failed else passed)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
