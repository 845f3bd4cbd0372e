"""Run test suites of other projects, unchecked and checked: `python tools/guests.py NAME=CHECKOUT`.

    python tools/guests.py netket=~/netket orbax=~/orbax --python ~/venv/bin/python
    python tools/guests.py netket=~/netket --python ~/venv/bin/python --rounds 5
    python tools/guests.py netket=~/netket --python ~/venv/bin/python --diverge

Nothing is fetched or installed: the checkouts are there, and `--python` has what their tests need,
and what mcnb needs. Both sides run under `mcnb run`, so that they differ in the check alone. For
each suite there is a line of a Markdown table; tests whose outcomes differ are listed after it.
With `--values`, the checked side compares replicated arguments at every launch. With `--diverge`,
process 1 makes a launch of its own in the middle of one test of each suite: that test has to fail,
and no other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
MCNB = "from mcnb.cli.main import main; raise SystemExit(main())"
# Plugins of pytest: for suites that expect that somebody has called this before, and for JAX's own,
# whose tests expect the flags of its test runner as well.
JOIN = "import jax\njax.distributed.initialize()\n"
JOIN_JAX = f"""{JOIN}
from absl import flags
from jax._src import test_multiprocess
flags.FLAGS(["pytest", f"--num_processes={{jax.process_count()}}"])
"""
# What `mcnb run` says of processes that never joined: what they did by themselves shows nothing.
ALONE = "never called jax.distributed.initialize()"
# A plugin of pytest: one process makes a launch of its own in a test, the first that is not skipped
# of the second half.
DIVERGE = """\
import pytest
made = []
@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    tests = item.session.items
    if not made and item in tests[len(tests) // 2 :]:
        made.append(item)
    if made == [item] and jax.process_index() == 1:
        each = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "a"), PartitionSpec("a"))
        ones = jax.make_array_from_callback((jax.device_count(),), each, lambda i: np.ones(1))
        jnp.sum(ones)
    return (yield)
"""


@dataclass(frozen=True)
class Suite:
    """A part of a project's tests, as the project itself runs it.

    Attributes:
        name: The name, for the table.
        folder: The working directory.
        tests: The arguments for pytest.
        files: Files of tests each of which processes of its own run, with these arguments. None for
            a suite that is one run.
        processes: The number of processes.
        devices: The number of devices of each process.
        plugin: The source of a plugin of pytest that joins the processes; empty if the tests do.
        variables: Environment variables.
    """

    name: str
    folder: Path
    tests: Sequence[str]
    processes: int = 2
    devices: int = 2
    plugin: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()

    def runs(self) -> list[Suite]:
        """Return the runs of which the suite consists."""
        apart = [replace(self, tests=(*self.tests, name), files=()) for name in self.files]
        return apart or [self]


@dataclass(frozen=True)
class Run:
    """One run of a suite.

    Attributes:
        outcomes: The outcome of each test, by process and test.
        verdicts: The tests that failed with a verdict, by process and test.
        seconds: How long the tests took: those of the process that took longest.
        said: What runs without outcomes printed.
    """

    outcomes: Mapping[tuple[int, str], str]
    verdicts: Mapping[tuple[int, str], str]
    seconds: float
    said: str

    def __str__(self) -> str:
        """The outcomes of the tests, each counted once if it is the same in all processes."""
        tests: dict[str, set[str]] = {}
        for (_, test), outcome in self.outcomes.items():
            tests.setdefault(test, set()).add(outcome)
        counts = Counter(" or ".join(sorted(outcomes)) for outcomes in tests.values())
        return ", ".join(f"{n} {what}" for what, n in counts.most_common()) or "did not run"


def netket(checkout: Path) -> Iterator[Suite]:
    """NetKet: what test_sharding/run_test_sharding_distributed.sh runs.

    Its own option joins the processes in a hook that pytest does not call in a conftest.py.
    """
    files = ("test/sharding/test_sharding.py", "test/logging/test_hdf5_log.py")
    words = (*files, "--jax-distributed", "-p", "no:warnings", "-n", "0")
    sharded = {"NETKET_EXPERIMENTAL_SHARDING": "1"}
    yield Suite("NetKet, sharding and hdf5", checkout, words, plugin=JOIN, variables=sharded)


def orbax(checkout: Path) -> Iterator[Suite]:
    """Orbax: the tests that its own list has for several processes.

    Its own runner has one set of processes for all files. A test that fails on one process leaves
    them apart there, and what follows may hang, without the check; so each file has its own.
    """
    import yaml

    folder = checkout / "checkpoint"
    listed = folder / "orbax/checkpoint/_src/testing/oss/tagged_tests_whole_suite.yaml"
    for key, names in yaml.safe_load(listed.read_text()).items():
        processes = int(key.removeprefix("processes:"))
        files = [name.replace(":", "/") + ".py" for name in names]
        there = [name for name in files if (folder / name).exists()]
        if processes > 1:
            for part, inside in (("v0", False), ("v1", True)):
                of_part = [name for name in there if ("/v1/" in name) == inside]
                words = ("--import-mode=importlib", "-p", "no:warnings")
                name = f"Orbax {part}, {processes} processes"
                paths = {"PYTHONPATH": str(folder)}
                each = 8 // processes
                yield Suite(name, folder, words, processes, each, JOIN, paths, of_part)


def jaxdecomp(checkout: Path) -> Iterator[Suite]:
    """jaxDecomp: all its tests, which join where Slurm has started them.

    Without the coverage that it asks for: the processes would write it to one file.
    """
    words = ("--no-cov", "tests")
    yield Suite("jaxDecomp", checkout, words, 2, 4, variables={"SLURM_JOB_ID": "1"})


def jax(checkout: Path) -> Iterator[Suite]:
    """JAX: its tests of several processes, each file by itself, as its own runner does."""
    files = [str(path) for path in sorted(checkout.glob("tests/multiprocess/*_test.py"))]
    yield Suite("JAX, multiprocess", checkout, (), 4, 1, JOIN_JAX, files=files)


GUESTS: Mapping[str, Callable[[Path], Iterator[Suite]]] = {
    "netket": netket,
    "orbax": orbax,
    "jaxdecomp": jaxdecomp,
    "jax": jax,
}


def outcomes_in(report: Path) -> dict[str, tuple[str, str]]:
    """Return the outcome of each test, and its errors, from a report of pytest's."""
    found: dict[str, tuple[str, str]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314 (our own file)
        test = f"{case.get('classname')}::{case.get('name')}"
        worst = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
        if worst is None:
            found.setdefault(test, ("passed", ""))
        else:
            outcome = {"failure": "failed"}.get(worst.tag, worst.tag)
            before, text = found.get(test, ("passed", ""))
            # One that fails, and at its end, too, is there twice.
            first = outcome if before == "passed" else before
            found[test] = first, f"{text}{worst.get('message')}\n{worst.text}\n"
    return found


def run(
    suite: Suite,
    python: str,
    limit_s: float,
    *,
    checked: bool,
    values: bool = False,
    diverge: bool = False,
) -> Run:
    """Run a suite once; the limit is for each of its runs."""
    parts = []
    for part in suite.runs():
        parts.append(_run(part, python, limit_s, checked=checked, values=values, diverge=diverge))
        how = f"{'checked' if checked else 'unchecked'}: {parts[-1]}, {parts[-1].seconds:.0f} s"
        print(f"{part.name}, {' '.join(part.tests[-1:])}, {how}", file=sys.stderr, flush=True)
    return Run(
        {name: outcome for part in parts for name, outcome in part.outcomes.items()},
        {name: error for part in parts for name, error in part.verdicts.items()},
        sum(part.seconds for part in parts),
        "\n".join(part.said for part in parts if not part.outcomes),
    )


def _run(
    suite: Suite, python: str, limit_s: float, *, checked: bool, values: bool, diverge: bool
) -> Run:
    """Run a suite that is one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "guests_join.py").write_text(suite.plugin)
        (folder / "guests_diverge.py").write_text(DIVERGE)
        words = ["-p", "guests_join"] if suite.plugin else []
        words += ["-p", "guests_diverge"] if diverge else []
        sizes = ["-n", str(suite.processes), "-d", str(suite.devices), "--fold"]
        check = ["--values"] * values if checked else ["--unchecked"]
        report = [f"--junitxml={folder}/{{process}}.xml", "-o", "junit_family=xunit1", "-q"]
        paths = (str(folder), suite.variables.get("PYTHONPATH", ""), str(ROOT))
        variables = {**suite.variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        variables["TEST_TMPDIR"] = f"{folder}/kept"  # absl's, which outlives a run elsewhere
        command = [python, "-c", MCNB, "run", *sizes, *check, "-m", "pytest", *words]
        command += [*report, "-p", "no:cacheprovider", "--color=no", *suite.tests]
        with (folder / "said").open("w") as said:
            process = subprocess.Popen(
                command, cwd=suite.folder, env={**os.environ, **variables}, stdout=said, stderr=said
            )
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()
        outcomes, verdicts, seconds = {}, {}, 0.0
        for k in range(suite.processes):
            path = folder / f"{k}.xml"
            if not path.exists():
                continue
            for test, (outcome, error) in outcomes_in(path).items():
                outcomes[k, test] = outcome
                if "LockstepError" in error:
                    verdicts[k, test] = error
            took = ElementTree.parse(path).getroot().find("testsuite")  # noqa: S314 (our own file)
            seconds = max(seconds, float("nan" if took is None else took.get("time", "nan")))
        output = (folder / "said").read_text()
        if ALONE in output:
            return Run({}, {}, seconds, output)
        return Run(outcomes, verdicts, seconds, "" if outcomes else output)


def differing(one: Run, other: Run) -> dict[tuple[int, str], tuple[str, str]]:
    """Return the tests whose outcomes differ, by process and test."""
    names = sorted({*one.outcomes, *other.outcomes})
    both = {n: (one.outcomes.get(n, "absent"), other.outcomes.get(n, "absent")) for n in names}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


def main(words: Sequence[str]) -> int:
    """Run the suites and print the table; return 0 if checked runs had the same outcomes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("guests", nargs="+", metavar="NAME=CHECKOUT", help=", ".join(GUESTS))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--limit", type=float, default=3600.0, help="seconds for each run of pytest"
    )
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--diverge", action="store_true")
    parser.add_argument("--only", default="", help="a part of the names of suites")
    parser.add_argument("-k", default="", help="for pytest")
    arguments = parser.parse_args(words)
    print("| suite | processes | tests | unchecked | checked | verdicts | time |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    notes: list[str] = []
    for guest in arguments.guests:
        name, _, checkout = guest.partition("=")
        for suite in GUESTS[name](Path(checkout).expanduser().resolve()):
            if arguments.only not in suite.name:
                continue
            notes += _compare(suite, arguments)
    print("\n".join(notes))
    return 1 if notes else 0


def _compare(suite: Suite, arguments: argparse.Namespace) -> list[str]:
    """Print the line of a suite; return what is to be said about it."""
    sides: dict[bool, list[Run]] = {False: [], True: []}
    if arguments.k:
        suite = Suite(**{**vars(suite), "tests": (*suite.tests, "-k", arguments.k)})
    for number in range(arguments.rounds):
        for checked in (False, True) if number % 2 == 0 else (True, False):
            sides[checked].append(
                run(
                    suite,
                    arguments.python,
                    arguments.limit,
                    checked=checked,
                    values=arguments.values,
                    diverge=arguments.diverge and checked,
                )
            )
    plain, checked_run = sides[False][0], sides[True][0]
    medians = [statistics.median(one.seconds for one in sides[side]) for side in (False, True)]
    ratio = medians[1] / medians[0] if medians[0] else float("nan")
    tests = len({test for _, test in checked_run.outcomes})
    print(
        f"| {suite.name} | {suite.processes} x {suite.devices} | {tests} | {plain} | {checked_run} "
        f"| {len({test for _, test in checked_run.verdicts})} "
        f"| {medians[0]:.0f} s, {medians[1]:.0f} s, {ratio:.2f} x |",
        flush=True,
    )
    notes = [
        f"{suite.name}, process {k}, {test}: {one} unchecked, {other} checked"
        for (k, test), (one, other) in differing(plain, checked_run).items()
    ]
    for (k, test), error in sorted(checked_run.verdicts.items()):
        notes.append(f"{suite.name}, process {k}, {test}:\n{error.strip()}")
    for side, runs in sides.items():
        for one in runs:
            if one.said:
                what = "checked" if side else "unchecked"
                notes.append(f"{suite.name}, {what}, said:\n{one.said[-3000:]}")
    return notes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
