"""Magics of IPython inside a cell: lines are those of the notebook's cell."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import mcnb
from tests.integration.test_divergences import SETUP

BODY = "y = 1\nif k == 0:\n    {}\nz = 1"
# The magic, and the line of its body's third line.
CELL_MAGICS = {
    "%%time": 4,
    "%%capture": 4,
    "%%timeit -n1 -r1": 4,
    "%%capture\n%%time": 5,
    "%%capture\n\n%%timeit -n1 -r1": 6,
    "\n\n%%time": 6,
    "%%time\n\n": 6,
    "%%capture\n\n": 6,
    "%%prun -q": 4,
    "%%capture\n\n%%prun -s cumulative\n\n": 8,
}
# Times differ from run to run.
TIMES = re.compile(r"^.*(CPU times|Wall time|per loop).*\n", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster(shared_cluster: mcnb.Cluster) -> Iterator[mcnb.Cluster]:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run(SETUP).raise_for_errors()
    return shared_cluster


@pytest.mark.parametrize(("magic", "line"), CELL_MAGICS.items())
def test_the_line_of_a_divergence(cluster: mcnb.Cluster, magic: str, line: int) -> None:
    result = cluster.run(f"{magic}\n{BODY.format('jnp.sum(x)')}")
    assert str(result.error()) == (
        f"missing: process 0 is waiting in sum, line {line}; processes 1-3 finished the cell "
        "without reaching it. Hint: this line runs only if `k == 0`. A collective must run on "
        "every participating process: move it out of the condition, and keep only local work such "
        "as printing inside. The cluster is intact; all variables are kept"
    )
    assert f"----> {line} jnp.sum(x)\n" in result.text()


@pytest.mark.parametrize("magic", ["%%time", "%%timeit -n1 -r1", "\n%%time\n", "%%prun -q"])
def test_the_line_of_an_error(cluster: mcnb.Cluster, magic: str) -> None:
    line = 3 + len(magic.split("\n"))
    result = cluster.run(f"{magic}\n{BODY.format('1 / 0')}")
    function = ", in inner" if "timeit" in magic else ""
    text = re.sub(r"In\[\d+\]", "In[1]", TIMES.sub("", result.text()))
    text = text.removeprefix("[1-3]\n")  # the profiler prints a space where no error ends it
    assert text == (
        f"[0] ZeroDivisionError in line {line}\n"
        f"Cell In[1], line {line}{function}\n"
        f"{line - 2:>7} y = 1\n"
        f"{line - 1:>7} if k == 0:\n"
        f"----> {line}     1 / 0\n"
        f"{line + 1:>7} z = 1\n"
        "\n"
        "ZeroDivisionError: division by zero\n"
    )


@pytest.mark.parametrize("magic", ["%time", "%timeit -n1 -r1", "%prun -q"])
def test_a_magic_of_one_line(cluster: mcnb.Cluster, magic: str) -> None:
    result = cluster.run(f"a = 1\n\n{magic} jnp.sum(x) if k else 0")
    assert "processes 1-3 are waiting in sum, line 3; process 0 finished" in str(result.error())


def test_lines_after_a_magic(cluster: mcnb.Cluster) -> None:
    result = cluster.run("%time a = 1\n%time b = 2\nc = 3\nif k == 2: jnp.sum(x)")
    assert "process 2 is waiting in sum, line 4" in str(result.error())


@pytest.mark.parametrize("magic", ["%%time", "%%prun"])
def test_a_syntax_error_in_a_magic(cluster: mcnb.Cluster, magic: str) -> None:
    error = str(cluster.run(f"{magic}\na = 1\nb = = 2").error())
    assert re.sub(r"In\[\d+\]", "In[1]", error) == (
        "all 4 processes raised SyntaxError: invalid syntax (<In[1]>, line 3) (line 3)"
    )


def test_a_profile_counts_calls_of_the_cell(cluster: mcnb.Cluster) -> None:
    result = cluster.run("%%prun -s name\ndef later():\n    return 1\nlater(); later()")
    assert re.search(r"\n +2 +[\d. ]+<In\[\d+\]>:2\(later\)\n", result.text())


def test_a_statement_beside_a_profile_counts(cluster: mcnb.Cluster) -> None:
    cluster.run("%%prun -q one = 1\ntwo = one + 1").raise_for_errors()
    assert cluster.pull("two")[0] == 2


def test_a_function_of_a_timed_cell(cluster: mcnb.Cluster) -> None:
    cluster.run("%%time\ndef later(v):\n    return jnp.sum(v)").raise_for_errors()
    error = str(cluster.run("if k: later(x)").error())
    assert "processes 1-3 are waiting in sum, line 1" in error


@pytest.mark.parametrize(
    ("magic", "instead"),
    [
        ("%tb", "To see the last output again: %mcjax last"),
        (
            "%xmode Minimal",
            "To see all frames of JAX: jax.config.update('jax_traceback_filtering', 'off')",
        ),
        ("%pdb on", "To look around after an error: %mcjax debug"),
    ],
)
def test_magics_that_do_nothing_say_so(cluster: mcnb.Cluster, magic: str, instead: str) -> None:
    """A notebook may begin with them, so its cell goes on."""
    result = cluster.run(f"{magic}\nprint('after')")
    assert result.ok
    assert result.stderr == dict.fromkeys(
        range(4), f"{magic}: in a cell on the processes, this does nothing. {instead}\n"
    )
    assert result.stdout == dict.fromkeys(range(4), "after\n")
