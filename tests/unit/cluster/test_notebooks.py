"""Notebooks that were written for one process: which cells run where, and what is told of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import nbformat
import pytest

from mcnb._lessons import read_notebook, starts_processes
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.notebooks import (
    OF_A_PAGE,
    TAGGED,
    NotebookCell,
    NotebookRun,
    cells_of,
)
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.errors import ClusterError, OptionError
from mcnb.messages import ProcessError, Reply, Text

WHERE = "2 processes x 1 CPU device"


def cells(*sources: str, **tags: str) -> list[NotebookCell]:
    """Return cells of these sources; the tag of the n-th is given as `_n`."""
    return [
        NotebookCell(
            str(n),
            source,
            may_fail=tags.get(f"_{n}") == "raises-exception",
            left_out=TAGGED if tags.get(f"_{n}") == "skip-execution" else "",
        )
        for n, source in enumerate(sources, 1)
    ]


def failed(name: str, message: str, undefined: str = "", *, hint: str = "") -> Result:
    shown = f"\x1b[31m{name}\x1b[39m: {message}" + (f"\nHint: {hint}" if hint else "")
    reply = Reply(error=ProcessError(name, message, 1, shown, undefined))
    return Result({0: reply, 1: reply}, 2)


FINE = Result({0: Reply(), 1: Reply()}, 2)


class FakeCluster:
    """Runs no cell, but keeps where each should run, and returns what a test wants."""

    def __init__(self, *outcomes: Result | BaseException) -> None:
        self._outcomes = list(outcomes)
        self.last: Result | None = None
        self.asked: list[tuple[str, int | None, str, float | None]] = []

    def run(
        self, source: str, *, processes: int | None, label: str, timeout: float | None
    ) -> Result:
        self.asked.append((source, processes, label, timeout))
        outcome = self._outcomes.pop(0) if self._outcomes else FINE
        if isinstance(outcome, BaseException):
            raise outcome
        self.last = outcome
        return outcome


def ran(
    cluster: FakeCluster, found: list[NotebookCell], **options: Any
) -> tuple[NotebookRun, list[str]]:
    run = NotebookRun(cast(Cluster, cluster), found, "guide.ipynb", **options)
    run.run(lambda _: None, lambda _: None)
    return run, run.report(WHERE)


def test_all_cells_run_everywhere_but_commands() -> None:
    cluster = FakeCluster()
    found = cells("x = 1", "!pip install y", "files = !ls", "%%bash\nls", "%cd z", "%%time\nx")
    run, lines = ran(cluster, found, prefix="7.")
    assert [(processes, label) for _, processes, label, _ in cluster.asked] == [
        (None, "7.1"),
        (0, "7.2"),
        (None, "7.3"),
        (0, "7.4"),
        (None, "7.5"),
        (None, "7.6"),
    ]
    assert not run.failed
    assert lines == [
        f"guide.ipynb on {WHERE}: 6 cells, none failed",
        "Process 0 alone ran the shell commands of In[7.2], In[7.4]",
    ]


def test_commands_run_on_all_processes_of_several_hosts() -> None:
    cluster = FakeCluster()
    ran(cluster, cells("!pip install y"), first_only=False)
    assert cluster.asked[0][1] is None


def test_what_native_code_writes_to_stderr_is_no_different_output() -> None:
    said = Text("stdout", "one\n")
    warned = said, Text("stderr", "W0000 slow\n")
    cluster = FakeCluster(Result({0: Reply((said,)), 1: Reply(warned)}, 2))
    _, lines = ran(cluster, cells("print('one')"))
    assert lines == [f"guide.ipynb on {WHERE}: 1 cell, none failed"]


def test_what_is_told_of_cells_that_fail() -> None:
    parts = {k: Reply((Text("stdout", f"{k}\n"),)) for k in range(2)}
    cluster = FakeCluster(
        failed("RuntimeError", "no", hint="do it"),
        failed("NameError", "name 'y' is not defined", "y"),
        failed("NameError", "name 'z' is not defined", "z"),
        failed("NameError", "name 'q' is not defined", "q"),
        failed("ValueError", "meant"),
        Result(parts, 2),
    )
    found = cells(
        "%time\ny = f()", "z = 1", "y", "z", "q", "raise", "print", _2="skip-execution",
        _6="raises-exception",
    )  # fmt: skip
    run, lines = ran(cluster, found)
    assert [source for source, *_ in cluster.asked] == [
        "%time\ny = f()",
        "y",
        "z",
        "q",
        "raise",
        "print",
    ]
    assert [cell.label for cell in run.failed] == ["1", "3", "4", "5"]
    assert lines == [
        f"guide.ipynb on {WHERE}: 7 cells, 4 failed",
        "In[1] failed: both processes raised RuntimeError: no (line 1)",
        "Hint: do it",
        "In[3] failed: both processes raised NameError: name 'y' is not defined (line 1). In[1] "
        "defines y, and failed",
        "In[4] failed: both processes raised NameError: name 'z' is not defined (line 1). In[2] "
        "defines z, and was left out",
        "In[5] failed: both processes raised NameError: name 'q' is not defined (line 1)",
        "The processes printed different output in In[7]",
        "Failed, as the tag raises-exception allows: In[6]",
        "Left out, as it has the tag skip-execution: In[2]",
    ]


def test_what_is_told_of_processes_that_fail_alike_in_many_words() -> None:
    errors = {k: ProcessError("E", f"{k} {'no ' * 40}", 1, f"E: {k}") for k in range(4)}
    cluster = FakeCluster(Result({k: Reply((), error) for k, error in errors.items()}, 4))
    _, lines = ran(cluster, cells("f()"))
    assert lines[1] == (
        "In[1] failed: all 4 processes raised E in line 1, with 4 different texts, for "
        f"example on process 0: 0 {'no ' * 13}..."
    )


def test_a_name_that_a_cell_defined_again_is_not_blamed_on_the_first() -> None:
    cluster = FakeCluster(
        failed("ValueError", "no"), FINE, failed("NameError", "name 'y' is not defined", "y")
    )
    _, lines = ran(cluster, cells("y = 1", "y = 2\ndel y", "y"))
    assert lines[-1] == (
        "In[3] failed: both processes raised NameError: name 'y' is not defined (line 1)"
    )


def test_a_run_ends_with_its_processes() -> None:
    dead = Result(
        {0: Reply(error=ProcessError("SystemError", "bad", 1, "")), 1: Reply()},
        2,
        Outcome(intact=False),
    )
    cluster = FakeCluster(dead)
    run, lines = ran(cluster, cells("die", "x", "y", _1="raises-exception"))
    assert len(cluster.asked) == 1
    assert [cell.label for cell in run.failed] == ["1"]
    assert lines[-1] == (
        "Not run, because the processes and their variables are lost: In[2], In[3]"
    )


def test_a_run_ends_where_the_cluster_fails() -> None:
    _, lines = ran(FakeCluster(FINE, ClusterError("The hub is gone")), cells("x", "y", "z"))
    assert lines == [
        f"guide.ipynb on {WHERE}: 3 cells, 1 failed",
        "In[2] failed: The hub is gone",
        "Not run, because the cluster failed: In[3]",
    ]


def test_ctrl_c_ends_a_run() -> None:
    run, lines = ran(FakeCluster(FINE, KeyboardInterrupt()), cells("x", "y", "z"))
    assert (run.interrupted, list(run.failed)) == (True, [])
    assert lines == [
        f"guide.ipynb on {WHERE}: 3 cells, none failed",
        "Not run, because of the interrupt: In[2], In[3]",
    ]


def test_the_cell_that_ctrl_c_ended_is_shown() -> None:
    class Interrupted(FakeCluster):
        def run(self, *args: Any, **kwargs: Any) -> Result:
            self.last = Result(
                {k: Reply((Text("stdout", "step 1\n"),)) for k in range(2)},
                2,
                Outcome(interrupted=True),
            )
            raise KeyboardInterrupt

    shown: list[Result] = []
    run = NotebookRun(cast(Cluster, Interrupted()), cells("x", "y"), "guide.ipynb")
    run.run(lambda _: None, shown.append)
    assert [result.text().splitlines()[0] for result in shown] == ["[all 2] step 1"]
    assert run.report(WHERE)[1:] == [
        "In[1] failed: The cell was interrupted. All variables are kept",
        "Not run, because of the interrupt: In[2]",
    ]


def test_a_long_sentence_on_an_interrupted_cell_is_cut() -> None:
    stopped = ProcessError("KeyboardInterrupt", "", 1, "stopped")

    class Interrupted(FakeCluster):
        def run(self, *args: Any, **kwargs: Any) -> Result:
            outcome = Outcome(interrupted=True, stopped={0: 1, 1: 1}, intact=False)
            self.last = Result({k: Reply(error=stopped) for k in range(2)}, 2, outcome)
            raise KeyboardInterrupt

    run = NotebookRun(cast(Cluster, Interrupted()), cells("x"), "guide.ipynb")
    run.run(lambda _: None, lambda _: None)
    assert run.report(WHERE)[1] == (
        "In[1] failed: The cell was interrupted. Both processes (line 1) were interrupted. Both "
        "processes are being restarted: their variables are ..."
    )


PERCENT = """\
# %% [markdown]
# # A title
# ## A part

# %%
# %matplotlib inline
x = 1

# %% tags=["raises-exception"]
1 / 0

# %%

# %% [markdown]
# ### The end

# %% tags=["skip-execution"]
x
"""
MYST = """---
kernelspec:
  name: python3
  display_name: Python 3
---

# A title

## A part

```{code-cell}
%matplotlib inline
x = 1
```

```{code-cell}
:tags: [raises-exception]

1 / 0
```

### The end

```{code-cell}
:tags: [skip-execution]

x
```
"""


def test_the_same_cells_in_each_format(tmp_path: Path) -> None:
    percent, myst, ipynb = (tmp_path / f"guide.{ending}" for ending in ("py", "md", "ipynb"))
    percent.write_text(PERCENT)
    myst.write_text(MYST)
    nbformat.write(read_notebook(percent), ipynb)
    for path in (percent, myst, ipynb):
        assert cells_of(read_notebook(path), path.name) == [
            NotebookCell("1", "%matplotlib inline\nx = 1", ("# A title", "## A part")),
            NotebookCell("2", "1 / 0", may_fail=True),
            NotebookCell("3", "x", ("### The end",), left_out=TAGGED),
        ]


def test_a_page_runs_its_python_only(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_text("# Title\n\n```bash\nrm -r x\n```\n\n```python\n!ls\n```\n\n```text\ny\n```\n")
    found = cells_of(read_notebook(path), path.name)
    assert found == [
        NotebookCell("1", "%%bash\nrm -r x", ("# Title",), left_out=OF_A_PAGE),
        NotebookCell("2", "!ls"),
    ]
    cluster = FakeCluster()
    _, lines = ran(cluster, found)
    assert [source for source, *_ in cluster.asked] == ["!ls"]
    assert lines[-1] == "Left out, as it has the shell commands of a page: In[1]"


def test_a_program_without_marks_is_one_cell(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = 1\n\n\ny = 2\n")
    assert [cell.source for cell in cells_of(read_notebook(path), path.name)] == [
        "x = 1\n\n\ny = 2"
    ]


@pytest.mark.parametrize(
    ("source", "starts"),
    [
        ("%load_ext mcnb\n", True),
        ("%%mcjax -p 0\nx", True),
        ("x = 1\n%mcjax start", True),
        ("from mcnb import show", True),
        ("print('%mcjax')", False),
        ("import mcnbx", False),
    ],
)
def test_which_notebooks_start_processes(source: str, starts: bool) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("%%mcjax"), nbformat.v4.new_code_cell(source)]
    )
    assert starts_processes(notebook) == starts


def test_what_can_not_run() -> None:
    empty = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(" \n")])
    other = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
    )
    for notebook, sentence in (
        (empty, "a.ipynb: the notebook has no code cells"),
        (other, "a.ipynb: the notebook is for R, and mcnb runs Python"),
    ):
        with pytest.raises(OptionError) as refused:
            cells_of(notebook, "a.ipynb")
        assert str(refused.value) == sentence
