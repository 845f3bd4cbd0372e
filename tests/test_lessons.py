"""The lessons: pairs in sync, no path of a machine in them, exercises that can be told apart."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import nbformat
import pytest

import mcnb
from mcnb.errors import ClusterError
from mcnb.exercises import EXERCISES, grade

FOLDER = Path(__file__).parent.parent / "notebooks"
LESSONS = sorted(FOLDER.glob("[0-9]*.md"))

WRONG = {
    "01.1": {
        "import jax\nforeign = jax.device_count()": (
            "that is how many devices there are in all. Leave out those of this process."
        ),
        "import jax\nforeign = jax.local_device_count()": (
            "those are the devices of this process. Count the others."
        ),
        "foreign = 'six'": (
            "jax.devices() lists all devices, jax.local_devices() those of this process."
        ),
    },
    "01.2": {
        "import jax.numpy as jnp\nsquares = jnp.arange(8).reshape(4, 2) ** 2": (
            "this array lies on one process alone. A global array is put together from the pieces "
            "of all processes: jax.make_array_from_single_device_arrays."
        ),
        # Numbered within each process only.
        """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
sharding = NamedSharding(jax.make_mesh((4, 2), ("process", "local")), P("process", "local"))
pieces = [jax.device_put(jnp.array([[i**2]]), d) for i, d in enumerate(jax.local_devices())]
squares = jax.make_array_from_single_device_arrays((4, 2), sharding, pieces)
""": "a piece's value depends on which device it lies on, counted over all processes.",
        "squares = [0, 1]": "build it with jax.make_array_from_single_device_arrays.",
    },
}


def solutions() -> dict[str, str]:
    found = {}
    for path in sorted((FOLDER / "solutions").glob("*.py")):
        for part in re.split(r"^# %% ", path.read_text(), flags=re.MULTILINE)[1:]:
            name, _, source = part.partition("\n")
            found[name.strip()] = source
    return found


def test_there_is_a_lesson() -> None:
    assert [path.stem for path in LESSONS] == ["01_hello_controllers"]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_pair_is_in_sync(path: Path) -> None:
    written, stored = jupytext.read(path), nbformat.read(path.with_suffix(".ipynb"), 4)
    assert [(c.cell_type, c.source) for c in written.cells] == [
        (c.cell_type, c.source) for c in stored.cells
    ]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_what_is_stored(path: Path) -> None:
    text = path.with_suffix(".ipynb").read_text()
    for leak in ("site-packages", "[Gloo]", "ipyparallel", "0x7f"):
        assert leak not in text
    assert not re.search(r"/(home|root|tmp|Users)/", text)
    notebook = nbformat.read(path.with_suffix(".ipynb"), 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    lengths = sorted(len(cell.source.splitlines()) for cell in code)
    assert lengths[len(lengths) // 2] <= 6
    assert lengths[-1] <= 12
    for cell in code:
        raises = "raises-exception" in cell.metadata.get("tags", [])
        assert raises == any(output.output_type == "error" for output in cell.outputs)
        assert not any(output.get("name") == "stderr" for output in cell.outputs)
    words = sum(len(c.source.split()) for c in notebook.cells if c.cell_type == "markdown")
    assert 700 <= words <= 1500
    for picture in re.findall(r"!\[([^]]+)\]\(([^)]+)\)", path.read_text()):
        alternative, file = picture
        assert len(alternative) > 20
        assert (FOLDER / file).exists()


def test_every_exercise_has_a_solution_a_stub_and_wrong_answers() -> None:
    assert set(EXERCISES) == set(solutions()) == set(WRONG)
    text = "".join(path.read_text() for path in LESSONS)
    for name, exercise in EXERCISES.items():
        assert f"{exercise.variable} = ...\n" in text
        assert f'mcnb.check("{name}")' in text
        assert len(WRONG[name]) >= 2


@pytest.mark.parametrize("name", sorted(EXERCISES))
def test_solutions_pass_and_stubs_do_not(cluster: mcnb.Cluster, name: str) -> None:
    variable = EXERCISES[name].variable
    for stub in ("", f"{variable} = ..."):
        cluster.run(stub)
        unsolved = grade(name, cluster)
        assert not unsolved.solved
        assert unsolved.text.endswith(
            f"Hint: Set {variable} on every process, in a cell that begins with %%mcjax; "
            "all 4 processes have none."
        )
    assert cluster.run(solutions()[name]).ok
    solved = grade(name, cluster)
    assert solved.solved
    assert solved.text == f"Exercise {name} is solved on all 4 processes."


@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [(name, wrong, hint) for name, cases in WRONG.items() for wrong, hint in cases.items()],
)
def test_wrong_answers_get_a_hint(cluster: mcnb.Cluster, name: str, wrong: str, hint: str) -> None:
    assert cluster.run(wrong).ok
    grade_ = grade(name, cluster)
    assert not grade_.solved
    assert grade_.text.splitlines()[0] == f"Exercise {name} is not solved yet."
    assert grade_.text.endswith(f"Hint: {hint}")


def test_solved_on_some_processes_only(cluster: mcnb.Cluster) -> None:
    cluster.run("foreign = 6", processes="0-2")
    assert grade("01.1", cluster).text == (
        "Exercise 01.1 is not solved yet.\n"
        "[0-2]   yours: 6\n"
        "[3]     yours: not set yet\n"
        "[all 4] expected: 6\n"
        "Hint: Set foreign on every process, in a cell that begins with %%mcjax; process 3 has "
        "none."
    )


def test_an_unknown_exercise(cluster: mcnb.Cluster) -> None:
    with pytest.raises(ClusterError) as unknown:
        mcnb.check("99.1", cluster)
    assert str(unknown.value) == "There is no exercise '99.1'. Exercises: 01.1, 01.2"
