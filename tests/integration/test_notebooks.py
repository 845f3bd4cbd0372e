"""Notebooks of others on several processes: in a terminal, and in a notebook."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import nbformat
import pytest

from mcnb.output.terminal import without_escapes
from tests.conftest import Notebook, once, wait_until
from tests.integration.test_run import HANG_S, MOVE_IT
from tests.support.command import MCNB

GATHER = "jax.experimental.multihost_utils.process_allgather(x, tiled=True)"
HINT = (
    f"Hint: the array has shards in other processes. {GATHER} returns all of it, if every process "
    "calls it; x.addressable_shards has the shards of this process"
)
CELLS = (
    "!echo installing",
    "import jax, jax.numpy as jnp, numpy as np, sys\nprint(open('data.txt').read(), *sys.argv[1:])",
    "mesh = jax.make_mesh((4,), ('x',), axis_types=(jax.sharding.AxisType.Auto,))\n"
    "x = jax.device_put(jnp.arange(8.0), jax.NamedSharding(mesh, jax.P('x')))\njnp.sum(x)",
    "values = np.asarray(x)",
    "values.sum()",
    "if jax.process_index() == 0:\n    jnp.max(x)",
    "jnp.min(x)",
)


def written(folder: Path, *sources: str) -> Path:
    """Write a notebook of these cells, and the file that its second cell reads."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# Arrays"), *cells],
        metadata={"kernelspec": {"name": "python3", "language": "python", "display_name": "P"}},
    )
    folder.mkdir(exist_ok=True)
    (folder / "data.txt").write_text("data")
    path = folder / "guide.ipynb"
    nbformat.write(notebook, path)
    return path


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MCNB, "run", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    try:
        out, err = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, out, err


@pytest.mark.promise("mcnb run FILE.ipynb")
def test_a_notebook_in_a_terminal(tmp_path: Path) -> None:
    written(tmp_path / "there", *CELLS)
    words = ("there/guide.ipynb", "-n", "2", "-d", "2", "{process}", "of {processes}")
    code, out, err = run(tmp_path, *words)
    assert (code, err) == (1, "")
    before, _, rest = out.partition("In [4]")
    assert before == (
        "Ready: 2 processes x 2 CPU devices\n\n# Arrays\n\nIn [1]: !echo installing\n"
        "[0] installing\n\n"
        "In [2]: import jax, jax.numpy as jnp, numpy as np, sys\n"
        "        print(open('data.txt').read(), *sys.argv[1:])\n"
        "[0] data 0 of 2\n[1] data 1 of 2\n\n"
        "In [3]: mesh = jax.make_mesh((4,), ('x',), axis_types=(jax.sharding.AxisType.Auto,))\n"
        "        x = jax.device_put(jnp.arange(8.0), jax.NamedSharding(mesh, jax.P('x')))\n"
        "        jnp.sum(x)\n[all 2] Array(28., dtype=float32)\n\n"
    )
    assert "\nIn [7]: jnp.min(x)\n[all 2] Array(0., dtype=float32)\n" in rest
    lines = rest.rpartition("\n\n")[2].splitlines()
    assert lines[0] == "guide.ipynb on 2 processes x 2 CPU devices: 7 cells, 3 failed"
    assert lines[1:] == [
        "In[4] failed: both processes raised RuntimeError: Fetching value for `jax.Array` that "
        "spans non-addressable (non process local) devices is ... (line 1)",
        HINT,
        "In[5] failed: both processes raised NameError: name 'values' is not defined (line 1). "
        "In[4] defines values, and failed",
        "In[6] failed: Processes diverged: a participant is missing",
        f"Hint: this line runs only if `jax.process_index() == 0`. {MOVE_IT}",
        "The processes printed different output in In[2]",
        "Process 0 alone ran the shell commands of In[1]",
    ]


@once
def test_a_file_with_marks_is_a_notebook_or_a_program(tmp_path: Path) -> None:
    path = tmp_path / "guide.py"
    path.write_text("# %%\nimport jax\n# %%\njax.process_count()\n# %%\nprint(__name__)\n")
    code, out, err = run(tmp_path, "guide.py", "-n", "2", "-d", "1")
    assert (code, out, err) == (
        0,
        "Ready: 2 processes x 1 CPU device\n\nIn [1]: import jax\n\nIn [2]: jax.process_count()\n"
        "[all 2] 2\n\nIn [3]: print(__name__)\n[all 2] __main__\n\n"
        "guide.py on 2 processes x 1 CPU device: 3 cells, none failed\n",
        "",
    )
    assert run(tmp_path, "guide.py", "-n", "2", "-d", "1", "--fold", "--") == (
        0,
        "[all 2] __main__\n",
        "mcnb run: guide.py never called jax.distributed.initialize(), so its 2 processes ran "
        "independently\n",
    )


@once
def test_ctrl_c_in_a_terminal(tmp_path: Path) -> None:
    marks = [tmp_path / f"mark{k}" for k in range(2)]
    # One line, because the interrupt may come before the process sleeps.
    wait = f"pathlib.Path({str(tmp_path)!r}, f'mark{{k}}').touch(); time.sleep({HANG_S})"
    written(tmp_path, "import jax, pathlib, time; k = jax.process_index()", wait, "k")
    process = start(tmp_path, "guide.ipynb", "-n", "2", "-d", "1")
    try:
        assert wait_until(lambda: all(mark.exists() for mark in marks), HANG_S)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, err) == (130, "")
    lines = out.rpartition("\n\n")[2].splitlines()
    assert lines[0] == "guide.ipynb on 2 processes x 1 CPU device: 3 cells, 1 failed"
    assert lines[1:] == [
        "In[2] failed: The cell was interrupted. Both processes (line 1) were interrupted. The "
        "cluster is intact; all variables are kept",
        "Not run, because of the interrupt: In[3]",
    ]


def test_a_notebook_in_a_notebook(notebook: Notebook, tmp_path: Path) -> None:
    path = written(tmp_path, "a = 1\na", "print(b)", "c = a + 1")
    result = notebook.run(f"%mcjax run {path}")
    number = result.execution_count
    assert result.stdout.startswith(
        "\nIn [1]: a = 1\n        a\n[all 4] 1\n\nIn [2]: print(b)\n\nIn [3]: c = a + 1\n\n"
    )
    assert str(result.error_in_exec) == (
        "guide.ipynb on 4 processes x 2 CPU devices: 3 cells, 1 failed"
    )
    assert " ".join(result.stdout.rpartition("1 failed\n")[2].split()) == (
        f"In[{number}.2] failed: all 4 processes raised NameError: name 'b' is not defined (line 1)"
    )
    assert f"Cell In[{number}.2], line 1\n" in without_escapes(result.stderr)
    assert notebook.run("%%mcjax\nc").stdout == "[all 4] 2\n"
    written(tmp_path, "c += 1", "print(c)")
    result = notebook.run(f"%mcjax run {path} --timeout 60")
    assert result.success
    assert result.stdout == (
        "\nIn [1]: c += 1\n\nIn [2]: print(c)\n[all 4] 3\n\n"
        "guide.ipynb on 4 processes x 2 CPU devices: 2 cells, none failed\n"
    )


def test_a_cell_that_takes_too_long(notebook: Notebook, tmp_path: Path) -> None:
    path = written(tmp_path, f"import time\ntime.sleep({HANG_S})", "time.sleep(0)")
    result = notebook.run(f"%mcjax run {path} --timeout 1")
    number = result.execution_count
    told = " ".join(result.stdout.rpartition("cells, 1 failed\n")[2].split())
    assert told == (
        f"In[{number}.1] failed: The cell did not finish within its time limit Hint: no process "
        "waited for a launch of another one. If the code only needs more time, use a larger "
        "--timeout. Otherwise, look for a loop that does not end, or for a wait for something "
        "outside the cell, such as a file or a thread"
    )


def test_what_the_magic_refuses(notebook: Notebook, tmp_path: Path) -> None:
    own = written(tmp_path, "%load_ext mcnb")
    for line, sentence in (
        (
            "",
            "the notebook's file is missing. For example: %mcjax run train.ipynb",
        ),
        ("none.ipynb", "there is no such file"),
        (
            str(own),
            "the notebook starts its own processes. Open it, or run it in a terminal: mcnb run "
            f"{own}",
        ),
    ):
        said = f"%mcjax run {line}".strip()
        assert notebook.error(said) == f"OptionError: {said}: {sentence}"
    assert notebook.error("%mcjax stop it") == (
        "OptionError: %mcjax stop it: stop is given alone, without it. Help: %mcjax?"
    )


def test_arguments_of_a_cluster(empty_notebook: Notebook) -> None:
    empty_notebook.run("%mcjax start -n 2 -d 1 --args '--rank={process} {processes}'")
    cell = "%%mcjax\nimport sys\nprint(sys.argv)"
    said = "[0] ['', '--rank=0', '2']\n[1] ['', '--rank=1', '2']\n"
    assert empty_notebook.run(cell).stdout == said
    empty_notebook.run("%mcjax restart")
    assert empty_notebook.run(cell).stdout == said
