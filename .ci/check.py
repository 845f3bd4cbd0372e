"""Check the project: `python .ci/check.py`, and `python .ci/check.py --all` for every test.

Each step is a command of its own. All steps run; a summary at the end has their times, the slowest
tests, the skipped ones, and the last output of the steps that failed. The Python that runs this
file is the one that is checked; mcnb must be installed for it with its extra `test`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
# The end of a long log is what one sees: so many bytes of each failed command are told there again.
TOLD_AGAIN = 8000
# The tag of cells that not every machine can execute.
SKIPPED = "nbval-skip"
# The lessons that the short run executes: they use most of what the others use.
FIRST_LESSONS = ("01", "03", "05")
SLOWEST = 15
# Tests run side by side, a file at a time, in the order in which they are found: the slow files of
# tests/integration come first. Two workers keep two cores busy, because tests often wait.
WORKERS = max(2, (os.cpu_count() or 1) // 2)
SIDE_BY_SIDE = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder")
failures: list[str] = []
# The times of tests in seconds, and how many tests were skipped for which reason.
durations: dict[str, float] = {}
skipped: Counter[str] = Counter()


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


def style(everything: bool) -> bool:
    """Ruff's rules and format."""
    del everything
    return module("ruff", "check", ".") and module("ruff", "format", "--check", ".")


def types(everything: bool) -> bool:
    """Types, checked by mypy."""
    del everything
    return module("mypy")


def tests(everything: bool) -> bool:
    """Unit tests, doctests, and tests on real processes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        words = [*SIDE_BY_SIDE, f"--junitxml={report}", *(["--all"] if everything else [])]
        passed = module("pytest", *words)
        if report.exists():
            read_report(report)
    return passed


def read_report(path: Path) -> None:
    """Read the durations of tests, and the reasons for skips, from pytest's report."""
    for case in ElementTree.parse(path).iter("testcase"):  # noqa: S314  (our own file)
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        durations[name] = float(case.get("time", 0))
        for skip in case.iter("skipped"):
            skipped[skip.get("message", "")] += 1


def lessons(everything: bool, folder: Path = ROOT / "notebooks") -> bool:
    """Lessons executed, with the very outputs that are stored."""
    notebooks = sorted(folder.glob("[0-9]*.ipynb"))
    if not everything:
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
    return run(
        *(sys.executable, ROOT / ".ci" / "notebooks.py", "-c", "/dev/null", "--rootdir", folder),
        *("-p", "no:cacheprovider", *notebooks),
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


def wheel(everything: bool) -> bool:
    """The wheel, built, installed in an environment of its own, and asked how it is."""
    del everything
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


def pods(everything: bool) -> bool:
    """Pods on paper, and the lesson that needs them, with the compiler that belongs to this JAX."""
    if not everything:
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
        command = (sys.executable, "-m", "pytest", "--quiet", "tests/unit/pods/test_pod.py")
        tested = run(*command, settings=settings)
        (lesson,) = (ROOT / "notebooks").glob("11_*.ipynb")
        return as_stored([without_skipping(lesson, copies)], settings) and tested


STEPS: tuple[Callable[[bool], bool], ...] = (style, types, tests, lessons, pods, wheel)


def summary(steps: Sequence[tuple[str, bool, float]]) -> str:
    """Return a table of the steps, the slowest tests and the skipped ones.

    Args:
        steps: The name of each step, whether it passed, and its time in seconds.
    """
    lines = ["step      result    time"]
    lines += [
        f"{name:<9} {'passed' if passed else 'FAILED'} {seconds:5.0f} s"
        for name, passed, seconds in steps
    ]
    slowest = sorted(durations.items(), key=lambda item: -item[1])[:SLOWEST]
    if slowest:
        lines += ["", f"the slowest {len(slowest)} of {len(durations)} tests:"]
        lines += [f"{seconds:6.1f} s  {name}" for name, seconds in slowest]
    if skipped:
        lines += ["", "skipped tests, by reason:"]
        lines += [f"{count:6}    {why}" for why, count in skipped.most_common()]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the steps, and return how many failed."""
    parser = argparse.ArgumentParser(description="Check the project.")
    parser.add_argument("--all", action="store_true", help="run every test and lesson")
    everything = parser.parse_args(words).all
    done: list[tuple[str, bool, float]] = []
    for step in STEPS:
        print(f"== {step.__name__}: {step.__doc__}", flush=True)
        began = time.monotonic()
        passed = step(everything)
        done.append((step.__name__, passed, time.monotonic() - began))
    failed = [name for name, passed, _ in done if not passed]
    print(*failures, sep="\n", end="")
    print(summary(done))
    count = f"{len(STEPS) - len(failed)} passed, {len(failed)} failed"
    print(f"{count}: {', '.join(failed)}" if failed else count)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
