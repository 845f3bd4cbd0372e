"""Verdicts that name a library's function, or an exception that a process caught."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcnb
from tests.integration.test_divergences import SETUP
from tests.integration.test_run import BEGIN, MISMATCH, MISSING, at_line, run, told

# A library whose functions have other names, in other modules, than its users know.
INIT = "from . import stats\n"
STATS = "from .._impl import Saver, statistics as mean\n"
IMPL = """\
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils

@jax.jit
def _reduce(x):
    return jnp.sum(x)

def _inner(x):
    return _reduce(x)

def statistics(x):
    return _inner(x) / x.size

class Saver:
    def save(self, x):
        return self._write(x)

    def _write(self, x):
        return multihost_utils.process_allgather(x, tiled=True)
"""
LIBRARY = "saver = nk.stats.Saver()\nif k == 0:\n    saver.save(x)\nnk.stats.mean(x)\n"
ONLY_IF = (
    "runs only if `k == 0`. A collective must run on every participating process: move it out of "
    "the condition, and keep only local work such as printing inside"
)
FILES = """\
def load(number):
    if k == 1 and number == 2:
        raise OSError(f"no shard {number}")
    return x + number

for number in range(4):
    try:
        batch = load(number)
    except OSError:
        continue
    jnp.sum(batch)
"""
SKIPS = (
    "Hint: in the loop `for number in range(4):` ({}), `except OSError:` ({}) may skip this line. "
    "All processes must do so if one of them does: catch the error, and agree after the `except` "
    "clause, for example by multihost_utils.process_allgather(failed).any()"
)
watched = pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")


@pytest.fixture(scope="module")
def cluster(shared_cluster: mcnb.Cluster) -> Iterator[mcnb.Cluster]:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run(SETUP).raise_for_errors()
    return shared_cluster


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return the folder of an installed library."""
    folder = tmp_path / "site-packages"
    for name, source in (("", INIT), ("stats", STATS)):
        (folder / "nk" / name).mkdir(parents=True)
        (folder / "nk" / name / "__init__.py").write_text(source)
    (folder / "nk" / "_impl.py").write_text(IMPL)
    return folder


@pytest.mark.thorough("a program in three processes")
def test_a_script_uses_a_library(tmp_path: Path, library: Path) -> None:
    use = f"import sys; sys.path.insert(0, {str(library)!r}); import nk\n"
    code, _, err = run(tmp_path, use + BEGIN + LIBRARY)
    line = (use + BEGIN).count("\n") + 3
    program = use + BEGIN + LIBRARY
    assert (code, told(err)) == (
        1,
        f"{MISMATCH}[0]   is waiting in process_allgather f32[12], called by saver.save, "
        f"train.py:{line}\n{at_line(program, line)}"
        "[1,2] are waiting in jit(_reduce) f32[12], called by nk.stats.mean, "
        f"train.py:{line + 1}\n{at_line(program, line + 1)}\nHint: train.py:{line} {ONLY_IF}",
    )


def test_a_cell_uses_a_library(cluster: mcnb.Cluster, library: Path) -> None:
    cluster.run(f"import sys; sys.path.insert(0, {str(library)!r})\nimport nk").raise_for_errors()
    result = cluster.run(LIBRARY)
    assert str(result.error()) == (
        "mismatch: process 0 is waiting in process_allgather f32[8,4], called by saver.save, line "
        "3; processes 1-3 are waiting in jit(_reduce) f32[8,4], called by nk.stats.mean, line 4. "
        f"Hint: line 3 {ONLY_IF}. The cluster is intact; all variables are kept"
    )
    assert "----> 3 saver.save(x)\n" in result.text()


@watched
@pytest.mark.thorough("a program in three processes")
def test_a_process_of_a_script_caught_an_exception(tmp_path: Path) -> None:
    code, _, err = run(tmp_path, BEGIN + FILES)
    at = BEGIN.count("\n")
    hint = SKIPS.format(f"train.py:{at + 6}", f"train.py:{at + 9}")
    assert (code, told(err)) == (
        1,
        f"{MISSING}[0,2] are waiting in sum, train.py:{at + 11}, for the 4th time\n"
        f"{at_line(BEGIN + FILES, at + 11)}[1]   exited without reaching it a 4th time\n\n"
        "Likely cause: process 1 caught OSError: no shard 2 "
        f"(train.py:{at + 3}), 1 launch earlier\n{hint}",
    )


@watched
def test_a_process_of_a_cell_caught_an_exception(cluster: mcnb.Cluster) -> None:
    hint = SKIPS.format("line 6", "line 9")
    said = (
        "missing: processes 0,2,3 are waiting in sum, line 11, for the 4th time; process 1 "
        "finished the cell without reaching it a 4th time. Likely cause: process 1 caught "
        f"OSError: no shard 2 (line 3), 1 launch earlier. {hint}. The cluster is "
        "intact; all variables are kept"
    )
    for _ in range(2):  # what an earlier cell caught does not count
        assert str(cluster.run(FILES).error()) == said


@watched
def test_what_all_processes_caught_is_not_the_cause(cluster: mcnb.Cluster) -> None:
    caught = "try:\n    open('/no/such/file')\nexcept OSError:\n    pass\n"
    result = cluster.run(f"{caught}if k == 0:\n    jnp.sum(x)")
    assert str(result.error()) == (
        "missing: process 0 is waiting in sum, line 6; processes 1-3 finished the cell without "
        f"reaching it. Hint: this line {ONLY_IF}. The cluster is intact; all variables are kept"
    )
    result = cluster.run(
        f"{caught}rounds = k\nwhile rounds < 1:\n    jnp.sum(x)\n    rounds += 1\n"
    )
    assert "caught" not in str(result.error())


@pytest.mark.parametrize(
    ("before", "loop", "times", "cause", "how"),
    [
        (
            "names = ['loss']\nif k == 3:\n    names.append('norm')\n",
            "for name in names:",
            "2nd",
            "`names` depends on a condition that differs between processes: `if k == 3:` (line 2)",
            "give every process the same number of batches",
        ),
        (
            "def rows():\n    return x.shape[0] + (k == 3)\n\nmost = rows()\n",
            "for row in range(most):",
            "9th",
            "`range(most)` depends on a value that differs between processes: `return x.shape[0] + "
            "(k == 3)` (line 2)",
            "compute the range from values that all processes share",
        ),
        (
            "left = 2\nleft += k == 3\n",
            "while (left := left - 1) >= 0:",
            "3rd",
            "`(left := (left - 1)) >= 0` depends on a value that differs between processes: `left "
            "+= k == 3` (line 2)",
            "base the condition on values that all processes share",
        ),
    ],
)
def test_where_the_rounds_of_a_loop_begin_to_differ(
    cluster: mcnb.Cluster, before: str, loop: str, times: str, cause: str, how: str
) -> None:
    line = before.count("\n") + 2
    result = cluster.run(f"{before}{loop}\n    jnp.sum(x)")
    assert str(result.error()) == (
        f"missing: process 3 is waiting in sum, line {line}, for the {times} time; processes 0-2 "
        f"finished the cell without reaching it a {times} time. Likely cause: {cause}. Hint: the "
        f"loop `{loop}` ran a different number of times on different processes. Run the same "
        f"number of steps on every process: {how}. The cluster is intact; all variables are kept"
    )
