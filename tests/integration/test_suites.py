"""Suites of other people: `mcnb run -m pytest`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import once
from tests.support.command import MCNB

pytestmark = pytest.mark.thorough("suites, each in new processes")

# Only ends what hangs, on however busy a machine.
HANG_S = 240
CONFTEST = "import jax\njax.distributed.initialize()\n"
BEGIN = """\
import jax, jax.numpy as jnp, numpy as np, pytest
from jax.sharding import NamedSharding, PartitionSpec as P
import mcnb
k, mesh = jax.process_index(), jax.make_mesh((jax.device_count(),), ("a",))
x = jax.device_put(np.arange(12.0), NamedSharding(mesh, P("a")))
def test_before(): assert float(jnp.sum(x)) == 66
"""
AT = BEGIN.count("\n") + 1  # the line after it
END = "def test_after(): assert float(jnp.min(x) + jnp.sum(x)) == 66\n"


def run(
    folder: Path, tests: str, *words: str, conftest: str = CONFTEST, end: str = END
) -> tuple[int, dict[int, list[str]], list[str]]:
    """Run a suite on three processes; return the exit code, what each says, and mcnb's words."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(f"{BEGIN}{tests}{end}")
    options = ("run", "-n", "3", "-d", "1", "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q")
    ran = subprocess.run(
        [*MCNB, *options, "--no-header", *words],
        cwd=folder,
        # Importing the plugins of these tests would take longer than all the rest.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    said = {
        k: [line.removeprefix(f"[{k}] ") for line in ran.stdout.splitlines() if f"[{k}]" in line]
        for k in range(3)
    }
    return ran.returncode, said, ran.stderr.splitlines()


def outcomes(lines: list[str]) -> list[str]:
    """Return the outcome of each test, from pytest's summary."""
    found = [
        re.match(r"(PASSED|FAILED|ERROR|SKIPPED) (?:\[1\] )?\S+?(?:::(\w+)|:\d+)", line)
        for line in lines
    ]
    return [f"{one[1]} {one[2] or ''}".strip() for one in found if one]


def test_a_suite_that_passes(tmp_path: Path) -> None:
    code, said, err = run(tmp_path, "")
    assert (code, err) == (0, [])
    for lines in said.values():
        assert outcomes(lines) == ["PASSED test_before", "PASSED test_after"]


VERDICT = (
    "mismatch: processes 0,2 are waiting in pytest, after test_it, test_it.py:{0}; process 1 is "
    "waiting in max f32[12], test_it.py:{1}. Hint: test_it.py:{1} runs only if `k == 1`. A "
    "collective must run on every participating process: move it out of the condition, and keep "
    "only local work such as printing inside"
)


def test_a_divergence_fails_its_test_and_no_other(tmp_path: Path) -> None:
    tests = "def test_it():\n    if k == 1:\n        jnp.max(x)\n"
    code, said, err = run(tmp_path, tests)
    assert (code, err) == (1, ["mcnb run: all 3 processes ended with exit code 1"])
    verdict = VERDICT.format(AT, AT + 2)
    for k, lines in said.items():
        passed = [
            "PASSED test_before",
            *(["PASSED test_it"] if k != 1 else []),
            "PASSED test_after",
        ]
        assert outcomes(lines) == [*passed, "FAILED test_it" if k == 1 else "ERROR test_it"]
        assert any(line.endswith(f"LockstepError: {verdict}") for line in lines)
        assert not [line for line in lines if "lockstep/" in line or "site-packages" in line]


def test_each_of_two_divergences_has_its_own_verdict(tmp_path: Path) -> None:
    tests = (
        "def test_it():\n    if k == 1:\n        jnp.max(x)\n"
        "def test_other():\n    if k == 2:\n        jnp.prod(x)\n"
    )
    code, said, _ = run(tmp_path, tests)
    assert code == 1
    assert outcomes(said[1])[-2:] == ["ERROR test_other", "FAILED test_it"]
    other = next(line for line in said[2] if "prod" in line and line.startswith("E "))
    assert "process 2 is waiting in prod f32[12], test_it.py:" in other
    assert "diverged earlier" not in other


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        # What fails on one process fails there alone, and the others wait for it.
        ("assert k != 1", ["PASSED", "FAILED", "PASSED"]),
        ("if k == 1: pytest.skip('not here')", ["PASSED", "SKIPPED", "PASSED"]),
        # A test that expects the verdict on all processes gets it, and passes.
        (
            "with pytest.raises(mcnb.LockstepError): (jnp.max if k == 1 else jnp.sum)(x)",
            ["PASSED", "PASSED", "PASSED"],
        ),
        # One that goes on after each verdict does not take the next test with it.
        pytest.param(
            "for _ in range(5 * (k == 1)):\n        try: jnp.max(x)\n        except "
            "mcnb.LockstepError: pass",
            ["ERROR", "PASSED", "ERROR"],
            marks=once,
        ),
    ],
    ids=["fails", "skips", "expects", "repeats"],
)
def test_a_test_that_differs_without_harm_to_the_next(
    tmp_path: Path, test: str, expected: list[str]
) -> None:
    code, said, _ = run(tmp_path, f"def test_it():\n    {test}\n")
    assert code == int("FAILED" in expected or "ERROR" in expected)
    for k, lines in said.items():
        found = outcomes(lines)
        assert {"PASSED test_before", "PASSED test_after"} <= {*found}
        assert any(one.startswith(expected[k]) and "before" not in one for one in found), found


# Tests that end before their launch on process 1, and how; the last one passes when run once more.
ENDING = """\
def test_fails():
    if k == 1:
        raise OSError("\\ndisk full\\nor so")
    jnp.max(x)
def test_asserts():
    assert k != 1
    jnp.max(x)
def test_skips():
    if k == 1:
        pytest.skip("not here")
    jnp.max(x)
class TestOfUnittest(unittest.TestCase):
    def setUp(self):
        if k == 1:
            self.skipTest("not here")
        jnp.max(x)
    def test_it(self): pass
@pytest.fixture
def given():
    if k == 1: int("one")
def test_with_a_fixture(given):
    jnp.max(x)
@pytest.fixture
def taken():
    yield
    if k == 1: int("one")
    jnp.max(x)
def test_with_an_end(taken): pass
"""
HOW = {
    "test_fails": (1, 4, "failed with OSError: disk full (test_it.py:{})", 3),
    "test_asserts": (5, 7, "failed with AssertionError: assert 1 != 1 (test_it.py:{})", 6),
    "test_skips": (8, 11, "was skipped: not here (test_it.py:{})", 10),
    "TestOfUnittest.test_it": (17, 16, "was skipped: not here", 0),
    "test_with_a_fixture": (
        21,
        22,
        "failed with ValueError: invalid literal for int() with base 10: 'one' (test_it.py:{})",
        20,
    ),
    "test_with_an_end": (
        28,
        27,
        "failed with ValueError: invalid literal for int() with base 10: 'one' (test_it.py:{})",
        26,
    ),
}


def test_how_a_test_ended_on_the_process_that_makes_no_launch(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, f"import unittest\n{ENDING}")
    assert code == 1
    for name, (test, launch, how, line) in HOW.items():
        one = (
            f"process 1 is waiting in pytest, after {name}, test_it.py:{AT + test}, which "
            f"{how.format(AT + line)}"
        )
        waiting = (
            rf"(processes 0,2 are|process [02] is) waiting in max f32\[12\], "
            rf"test_it.py:{AT + launch}"
        )
        verdict = (
            rf"LockstepError: mismatch: ({waiting}; {re.escape(one)}|{re.escape(one)}; {waiting})"
            r"(; process [02] had not reached it yet)?\. Hint: a test that fails or is skipped on "
            "one process makes none of its other launches there, and the other processes wait for "
            "them\\. Find out why that happened on process 1"
        )
        for k, lines in said.items():
            found = [line for line in lines if re.search(rf"{verdict}$", line)]
            # Where the end of the test failed, its report has that error alone.
            assert bool(found) == ((k, name) != (1, "test_with_an_end")), (name, lines)
    for lines in said.values():
        assert not [line for line in lines if "lockstep/" in line or "site-packages" in line]


RERUN = """
import jax, pytest
from _pytest.runner import runtestprotocol
jax.distributed.initialize()
def pytest_runtest_protocol(item):
    if item.name == "test_once_more":
        runtestprotocol(item, log=False)
"""


def test_a_test_that_is_run_once_more_begins_anew(tmp_path: Path) -> None:
    tests = (
        "runs = []\ndef test_once_more():\n    runs.append(k)\n"
        "    if len(runs) == 1 and k == 1: raise OSError\n"
        "    if len(runs) == 2 and k != 1: jnp.max(x)\n"
    )
    code, said, _ = run(tmp_path, tests, conftest=RERUN)
    assert code == 1
    for lines in said.values():
        verdicts = [line for line in lines if "mismatch: " in line and " waiting " in line]
        assert verdicts
        for verdict in verdicts:
            assert f"after test_once_more, test_it.py:{AT + 1}" in verdict
            assert ", which " not in verdict


# A library, by the name of its file, whose code shows nothing of the suite's, and in which process
# 0 is for longer than its client looks.
LIBRARY = '''
source = """import time
def wrap(function):
    held = [function]
    def test():
        held[0]()
    return test
def pytest_runtest_logreport(report):
    if report.when == "teardown" and report.failed and index == 0:
        time.sleep(1)
"""
library = {"index": jax.process_index(), "__name__": "library"}
exec(compile(source, "<library>", "exec"), library)
wrap, pytest_runtest_logreport = library["wrap"], library["pytest_runtest_logreport"]
'''


def test_a_process_in_a_library_after_a_verdict_is_not_given_up(tmp_path: Path) -> None:
    tests = (
        "from conftest import wrap\ntest_before = wrap(test_before)\n"
        "def it():\n    if k == 1:\n        jnp.max(x)\ntest_it = wrap(it)\n"
    )
    end = f"{END}test_after = wrap(test_after)\n"
    code, said, _ = run(tmp_path, tests, conftest=CONFTEST + LIBRARY, end=end)
    assert code == 1
    for k, lines in said.items():
        failed = "FAILED test_it" if k == 1 else "ERROR test_it"
        assert [one for one in outcomes(lines) if "PASSED" not in one] == [failed]


# Wakes the main thread, and is as invisible as native code that does.
NATIVE = """
source = "import threading, time\\ndef native(event):\\n    time.sleep(1)\\n    event.set()\\n"
module = {"__name__": "tqdm.native"}
exec(compile(source, "<native>", "exec"), module)
native = module["native"]
"""


def test_a_wait_for_native_code_in_a_test_after_a_verdict(tmp_path: Path) -> None:
    """The main thread has gone on after the verdict, so nothing that this ended holds it up."""
    tests = (
        "import threading\nfrom conftest import native\n"
        "def test_it():\n    if k == 1:\n        jnp.max(x)\n"
        "def test_waits():\n    if k == 1:\n        done = threading.Event()\n"
        "        threading.Thread(target=native, args=(done,)).start()\n        done.wait()\n"
    )
    code, said, err = run(tmp_path, tests, conftest=CONFTEST + NATIVE)
    assert (code, err) == (1, ["mcnb run: all 3 processes ended with exit code 1"])
    for k, lines in said.items():
        failed = "FAILED test_it" if k == 1 else "ERROR test_it"
        found = outcomes(lines)
        assert [one for one in found if "PASSED" not in one] == [failed]
        assert found.count("PASSED test_after") == found.count("PASSED test_waits") == 1


def test_processes_that_run_different_tests_are_told(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, "if k == 1:\n    def test_only_here(): pass\n")
    assert code == 1
    # Who waits in `min` already, when process 1 arrives, depends on the machine, and so does who is
    # named first.
    one = f"process 1 is waiting in pytest, after test_only_here, test_it.py:{AT + 1}"
    waiting = rf"process(es 0,2 are| [02] is) waiting in min f32\[12\], test_it.py:{AT + 2}"
    late = "process [02] had not reached it yet"
    verdict = re.compile(
        rf"mismatch: ({waiting}; {re.escape(one)}|{re.escape(one)}; {waiting})(; {late})?\. "
    )
    for lines in said.values():
        [last] = [line for line in lines if "the processes do not run the same tests: " in line]
        assert verdict.search(last), last
        assert f"Hint: test_it.py:{AT + 1} runs only if `k == 1`. " in last
