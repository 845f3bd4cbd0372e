"""The lessons: pairs in sync, no path of a machine in them, exercises that can be told apart."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import nbformat
import pytest

import mcnb
from mcnb.errors import ClusterError
from mcnb.exercises import exercises, grade
from tests.conftest import ROOT, once
from tests.integration.wrong_answers import WRONG

pytestmark = pytest.mark.thorough("executes every exercise with right and wrong answers")

FOLDER = ROOT / "notebooks"
LESSONS = sorted(FOLDER.glob("[0-9]*.md"))
WORDS_A_MINUTE = 75
# However much time a lesson says it takes: 30 minutes of reading, and more for its cells.
LONGEST = 2_250  # words
EXERCISES = exercises()
# The line with which an exercise begins.
EXERCISE = (
    r"^\*\*Exercise (\d)\.\*\* \*Difficulty ●[●○]{2}, importance ●[●○]{2}, (\d+) minutes\. "
    r"Trains: [^*]+\.\* "
)


def solutions() -> dict[str, str]:
    found = {}
    for path in sorted((FOLDER / "solutions").glob("*.py")):
        for part in re.split(r"^# %% ", path.read_text(), flags=re.MULTILINE)[1:]:
            name, _, source = part.partition("\n")
            found[name.strip()] = source
    return found


@pytest.mark.promise("lessons")
def test_the_lessons_are_numbered_through() -> None:
    assert [path.stem[:2] for path in LESSONS] == [f"{i:02d}" for i in range(1, len(LESSONS) + 1)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
@pytest.mark.promise(".md and .ipynb agree")
def test_the_pair_is_in_sync(path: Path) -> None:
    written, stored = jupytext.read(path), nbformat.read(path.with_suffix(".ipynb"), 4)
    assert [(c.cell_type, c.source) for c in written.cells] == [
        (c.cell_type, c.source) for c in stored.cells
    ]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
@pytest.mark.promise("stored outputs are reproducible")
def test_what_is_stored(path: Path) -> None:
    text = path.with_suffix(".ipynb").read_text()
    # The last one would tell of a machine that was busy when the lesson was executed.
    for leak in ("site-packages", "[Gloo]", "ipyparallel", "0x7f", "still compute"):
        assert leak not in text
    assert not re.search(r"/(home|root|tmp|Users)/", text)
    notebook = nbformat.read(path.with_suffix(".ipynb"), 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    lengths = sorted(len(cell.source.splitlines()) for cell in code)
    assert lengths[len(lengths) // 2] <= 6
    assert lengths[-1] <= 16
    # JupyterLab beside its list of files shows so many characters of a line.
    assert max(len(line) for cell in code for line in cell.source.splitlines()) <= 84
    for cell in code:
        raises = "raises-exception" in cell.metadata.get("tags", [])
        assert raises == any(output.output_type == "error" for output in cell.outputs)
        assert not any(output.get("name") == "stderr" for output in cell.outputs)
    words = sum(len(c.source.split()) for c in notebook.cells if c.cell_type == "markdown")
    # What a reader can take in, with the cells, in the time that the lesson says it takes.
    times = r"\*\*Time:\*\* (\d+) minutes, and (\d+) for the exercises\."
    [(minutes, exercising)] = re.findall(times, path.read_text())
    assert int(minutes) <= 45
    assert 700 <= words <= min(WORDS_A_MINUTE * int(minutes), LONGEST)
    each = re.findall(EXERCISE, path.read_text(), re.MULTILINE)
    assert [number for number, _ in each] == [f"{k}" for k in range(1, len(each) + 1)]
    assert len(each) == sum(name.startswith(path.stem[:2]) for name in EXERCISES)
    assert sum(int(own) for _, own in each) == int(exercising)
    for picture in re.findall(r"!\[([^]]+)\]\(([^)]+)\)", path.read_text()):
        alternative, file = picture
        assert len(alternative) > 20
        assert (FOLDER / file).exists()


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_stub_fails_its_check_in_the_lesson(path: Path) -> None:
    notebook = nbformat.read(path.with_suffix(".ipynb"), 4)
    said = {
        found[1]: "".join(output.get("text", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
        and (found := re.fullmatch(r'mcnb\.check\("(.*)"\)', cell.source))
    }
    assert sorted(said) == sorted(name for name in EXERCISES if name[:2] == path.stem[:2])
    for name, text in said.items():
        assert text.startswith(f"Exercise {name} is not solved yet.\n")
        assert "Hint: " in text or "mcnb used " in text
        assert "Fatal" not in text


@pytest.mark.promise("exercises")
def test_every_exercise_has_a_solution_a_stub_and_wrong_answers() -> None:
    assert set(EXERCISES) == set(solutions()) == set(WRONG)
    text = "".join(path.read_text() for path in LESSONS)
    for name, exercise in EXERCISES.items():
        assert f"{exercise.variable} = ...\n" in text or f"def {exercise.variable}(" in text
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


@once  # Hints are made of values; which Python computed them makes no difference.
@pytest.mark.parametrize(
    ("name", "wrong", "hint"),
    [(name, wrong, hint) for name, cases in WRONG.items() for wrong, hint in cases.items()],
)
def test_wrong_answers_get_a_hint(cluster: mcnb.Cluster, name: str, wrong: str, hint: str) -> None:
    assert cluster.run(wrong).ok
    grade_ = grade(name, cluster)
    assert not grade_.solved
    assert grade_.text.splitlines()[0] == f"Exercise {name} is not solved yet."
    assert grade_.text.endswith(hint if hint.startswith("mcnb used") else f"Hint: {hint}")


@pytest.mark.promise("mcnb.check names processes")
def test_solved_on_some_processes_only(cluster: mcnb.Cluster) -> None:
    cluster.run("foreign = 6", processes="0-2")
    assert grade("01.1", cluster).text == (
        "Exercise 01.1 is not solved yet.\n"
        "[0-2] yours: 6\n"
        "[3]   yours: not set yet\n"
        "Hint: Set foreign on every process, in a cell that begins with %%mcjax; process 3 has "
        "none."
    )


@pytest.mark.promise("mcnb.check")
def test_an_unknown_exercise(cluster: mcnb.Cluster) -> None:
    with pytest.raises(ClusterError) as unknown:
        mcnb.check("99.1", cluster)
    names = ", ".join(sorted(EXERCISES))
    assert str(unknown.value) == f"There is no exercise '99.1'. Exercises: {names}"


CHECKED = {
    "it parts the processes": (
        "def squares(): ...\n"
        "import jax, numpy as np\n"
        "from jax.experimental import multihost_utils\n"
        "class Late:\n"
        "    def __index__(self):\n"
        "        if jax.process_index() != 3:\n"
        "            multihost_utils.process_allgather(np.ones(1))\n"
        "        return 6\n"
        "foreign = Late()",
        "LockstepError: Processes diverged: a participant is missing\n\n"
        "[0-2] are waiting in process_allgather, line 7\n",
    ),
    "it raises": (
        "import jax\n"
        "class Broken:\n"
        "    def __index__(self):\n"
        "        return 6 if jax.process_index() else 1 // 0\n"
        "foreign = Broken()",
        "[0] ZeroDivisionError\nCell In[",
    ),
}


@pytest.mark.parametrize(("answer", "said"), CHECKED.values(), ids=CHECKED)
def test_a_check_that_runs_what_fails_tells_how(
    cluster: mcnb.Cluster, answer: str, said: str
) -> None:
    cluster.run(answer).raise_for_errors()
    last = cluster.last
    text = grade("01.1", cluster).text
    assert text.startswith(f"Exercise 01.1 is not solved yet.\n{said}"), text
    assert text.endswith("\nmcnb used foreign to check it, with the result above.")
    assert "mcnb_seen" not in text
    assert cluster.last is last
    assert cluster.run("import jax; jax.device_count()").value[0] == "8"


def test_a_check_leaves_nothing_behind(cluster: mcnb.Cluster) -> None:
    cluster.run("foreign = 6")
    before, steps = cluster.pull("sorted(globals())"), len(cluster._history.steps)
    assert grade("01.1", cluster).solved
    assert cluster.pull("sorted(globals())") == before
    assert len(cluster._history.steps) == steps
