"""Check the project: `python .ci/check.py`, and `python .ci/check.py --all` for every test.

Each step is a command of its own. All steps run; the end of the output has their times, the last
output of those that failed, and the unsteady tests (see `second_chance.py`). The Python that runs
this file is the one that is checked; mcnb must be installed for it with its extra `test`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

from second_chance import Run, Unsteady, passed_on
from second_chance import run as run_pytest

ROOT = Path(__file__).resolve().parent.parent
# The tag of cells that not every machine can execute.
SKIPPED = "nbval-skip"
# The lessons that the short run executes: they use most of what the others use.
FIRST_LESSONS = ("01", "03", "05")
# Tests and lessons run side by side, a file at a time, in the order in which they are found: the
# slow files of tests/integration come first. Two workers keep two cores busy, because tests often
# wait.
WORKERS = max(2, (os.cpu_count() or 1) // 2)
SIDE_BY_SIDE = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder")
# One more for the thorough tests, of which more wait: with two, a seventh of two cores was idle.
MORE_SIDE_BY_SIDE = ("-n", str(WORKERS + 1))
failures: list[str] = []
unsteady: list[Unsteady] = []


@dataclass(frozen=True)
class Extent:
    """How much is checked.

    Args:
        more: Every lesson, not only the first ones; and of the tests on real processes all that do
            not take long, not only those of what the README promises.
        thorough: Everything.
    """

    more: bool = False
    thorough: bool = False


def run(*command: str | Path, cwd: Path = ROOT) -> bool:
    """Run a command, with its output passed on; return whether it succeeded."""
    code, told = passed_on(command, cwd)
    return note(Run(code == 0, (), told), *command)


def note(done: Run, *command: str | Path) -> bool:
    """Keep what the end of the whole check says of a command; return whether it passed."""
    unsteady.extend(done.unsteady)
    if not done.passed:
        name = " ".join(Path(word).name for word in command[:3])
        failures.append(f"-- the end of what {name} said:\n{done.told}")
    return done.passed


def module(*words: str | Path) -> bool:
    """Run a module of this Python."""
    return run(sys.executable, "-m", *words)


def style(extent: Extent) -> bool:
    """Ruff's rules and format."""
    del extent
    return module("ruff", "check", ".") and module("ruff", "format", "--check", ".")


def types(extent: Extent) -> bool:
    """Types, checked by mypy."""
    del extent
    return module("mypy")


def tests(extent: Extent) -> bool:
    """Unit tests, doctests, and tests on real processes."""
    command = [sys.executable, "-m", "pytest"]
    options = SIDE_BY_SIDE
    if extent.thorough:
        command += ["--all", "--durations=100"]
        options += MORE_SIDE_BY_SIDE
    else:
        command += ["--promises"] * (not extent.more) + ["--durations=15"]
    return note(run_pytest(command, side_by_side=options, cwd=ROOT), *command)


def lessons(extent: Extent, folder: Path = ROOT / "notebooks") -> bool:
    """Lessons executed, with the very outputs that are stored."""
    notebooks = sorted(folder.glob("[0-9]*.ipynb"))
    if not (extent.more or extent.thorough):
        notebooks = [path for path in notebooks if path.name.startswith(FIRST_LESSONS)]
    if not notebooks:
        print(f"no lessons in {folder.name}")
        return False
    faults = [fault for path in notebooks for fault in unfit(path)]
    print(*faults, sep="\n", end="\n" if faults else "")
    return as_stored(notebooks) and not faults


def unfit(notebook: Path) -> list[str]:
    """Return which stored outputs a comparison must not pass, whatever it compares them with.

    nbval alone is not enough: it takes a magic that is missing, whose message goes to stderr, for
    a cell that ran, and does not look at the outputs of a cell that has never run.
    """
    faults = []
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        if cell["cell_type"] != "code":
            continue
        outputs = cell["outputs"]
        must_fail = "raises-exception" in cell["metadata"].get("tags", [])
        fails = any(output["output_type"] == "error" for output in outputs)
        whys = {
            "has not run": not cell["execution_count"],
            "writes to stderr": any(output.get("name") == "stderr" for output in outputs),
            "must fail, and does not": must_fail and not fails,
            "fails, without the tag raises-exception": fails and not must_fail,
        }
        faults += [f"{notebook.name}, cell {number}: {why}" for why, is_so in whys.items() if is_so]
    return faults


def as_stored(notebooks: Sequence[Path], settings: Mapping[str, str] | None = None) -> bool:
    """Execute notebooks of one folder; return whether their outputs are those that are stored."""
    folder = notebooks[0].parent
    # None of pyproject's options: they are for the unit tests.
    command = [
        *(sys.executable, ROOT / ".ci" / "notebooks.py", "-c", "/dev/null", "--rootdir", folder),
        *("-p", "no:cacheprovider"),
    ]
    names = [path.name for path in notebooks]
    done = run_pytest(command, names, side_by_side=SIDE_BY_SIDE, cwd=folder, settings=settings)
    return note(done, *command)


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


def wheel(extent: Extent) -> bool:
    """The wheel, built, installed in an environment of its own, and asked how it is."""
    del extent
    if os.environ.get("MCNB_ONCE") == "done":
        print("left out: done with another version of Python, for which it is the same wheel")
        return True
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


def pods(extent: Extent) -> bool:
    """Pods on paper, and the lesson that needs them, with the compiler that belongs to this JAX."""
    if not extent.thorough:
        print("left out: only with --all, because the compiler is a large download")
        return True
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
        command = [sys.executable, "-m", "pytest", "--quiet"]
        tested = note(
            run_pytest(command, ["tests/unit/pods/test_pod.py"], cwd=ROOT, settings=settings),
            *command,
        )
        (lesson,) = (ROOT / "notebooks").glob("11_*.ipynb")
        return as_stored([without_skipping(lesson, copies)], settings) and tested


STEPS: tuple[Callable[[Extent], bool], ...] = (style, types, tests, lessons, pods, wheel)


def summary(steps: Sequence[tuple[str, bool, float]]) -> str:
    """Return a table of the steps, and the unsteady tests.

    Args:
        steps: The name of each step, whether it passed, and its time in seconds.
    """
    lines = ["step      result    time"]
    lines += [
        f"{name:<9} {'passed' if passed else 'FAILED'} {seconds:5.0f} s"
        for name, passed, seconds in steps
    ]
    if unsteady:
        lines += ["", "unsteady: failed, and passed when run again, alone"]
        lines += [text_of(one) for one in unsteady]
    return "\n".join(lines)


def text_of(one: Unsteady) -> str:
    """Return a test that is unsteady, and its first error."""
    return f"  {one.test}\n      {one.error}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps, and return how many failed."""
    parser = argparse.ArgumentParser(description="Check the project.")
    parser.add_argument(
        "steps", nargs="*", choices=[[], *(step.__name__ for step in STEPS)], metavar="STEP"
    )
    parser.add_argument(
        "--more", action="store_true", help="run every lesson, and all tests that do not take long"
    )
    parser.add_argument("--all", action="store_true", help="run every test and lesson")
    parser.add_argument("--unsteady", type=Path, help="a file: unsteady tests are added to it")
    arguments = parser.parse_args(words)
    extent = Extent(arguments.more, arguments.all)
    done: list[tuple[str, bool, float]] = []
    for step in STEPS:
        if arguments.steps and step.__name__ not in arguments.steps:
            continue
        print(f"== {step.__name__}: {step.__doc__}", flush=True)
        began = time.monotonic()
        passed = step(extent)
        done.append((step.__name__, passed, time.monotonic() - began))
    failed = [name for name, passed, _ in done if not passed]
    print(*failures, sep="\n", end="")
    print(summary(done))
    if arguments.unsteady:
        with arguments.unsteady.open("a") as file:
            file.writelines(f"{text_of(one)}\n" for one in unsteady)
    count = f"{len(done) - len(failed)} passed, {len(failed)} failed"
    print(f"{count}: {', '.join(failed)}" if failed else count)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
