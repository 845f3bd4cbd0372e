"""What the pages for readers say, executed: cells with their outputs, programs and commands.

Each command of a page is executed here, or by the test that `ELSEWHERE` names, or `NOT` says why
not; a command that is none of these fails `test_each_command_has_a_test`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcnb.output.terminal import without_escapes
from tests.conftest import ROOT, Notebook, once
from tests.support.clients import HANG_S
from tests.support.command import MCNB
from tests.support.markdown import blocks, spans
from tools import recording

pytestmark = pytest.mark.thorough("runs every command of the pages")

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / ".github" / "SECURITY.md",
    *sorted(DOCS.glob("*.md")),
    ROOT / "notebooks" / "README.md",
]
# What stands in backticks and is a command or a call, rather than the name of one.
COMMAND = re.compile(
    r"%%?mcjax .+|%%here|%debug|mcnb (?:run|lab|script|doctor|COMMAND) .+|mcnb doctor"
    r"|(?:\.venv|python -m|docker|srun|mpirun|ipcluster|gcloud|pip|check\.py|\.ci/run)\b.* .+"
    r"|(?:cluster|mcnb)\.[\w.]+\(.*\).*|mcnb\.lockstep\.install\(\)"
)
# Cells that use the commands of the pages, in this order, and what each shows: a pattern.
SESSION = (
    ("%mcjax start --args '{process} {processes}'", "Ready: 4 processes x 2 CPU devices\n"),
    (
        "%%mcjax\nimport sys\nsys.argv[1:]",
        "\\n".join(rf"\[{k}\] \['{k}', '4'\]" for k in range(4)),
    ),
    ("%%mcjax -p 0,2-3\nprint('here')", r"\[0,2,3\] here\n"),
    ("%%mcjax --values\n1 + 1", r"\[all 4\] 2\n"),
    ("%%mcjax --timeout 30\n1 + 1", r"\[all 4\] 2\n"),
    (
        "%%mcjax\nimport jax, jax.numpy as jnp, numpy as np, mcnb\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "k = jax.process_index()\nmesh = jax.make_mesh((4, 2), ('a', 'b'))\n"
        "sharding = NamedSharding(mesh, P('b', 'a'))\n"
        "x = jax.device_put(np.arange(32.0).reshape(8, 4), NamedSharding(mesh, P('a')))\n"
        "y = 2 * x\ndef f(x, y): return jnp.sum(x * y)\n"
        "params, losses = {'w': np.ones(3) + (k == 2)}, [0.5, k]",
        "",
    ),
    ("%%mcjax --unchecked\ntotal = jnp.sum(x)", ""),
    ("%mcjax log", r"\[all 4\]  2     sum f32\[8,4\]  all-reduce of 4 B among 0-3\n"),
    ("%mcjax log --full", r"\[all 4\]  2     sum f32\[8,4\]  all-reduce of 4 B among 0-3\n"),
    ("%mcjax timeline", r"The cell took .*\nP0 "),
    ("%mcjax timeline --order", r"The cell's launches on 4 processes, in order\nP0 "),
    ("%%mcjax\nfor step in range(112): total = jnp.sum(x)", ""),
    ("%mcjax timeline --step 100", r"Step 100 of 112 took .*\nP0 "),
    ("%mcjax timeline --from 90 --to 110", r"Steps 90 to 110 of 112 took .*\nP0 "),
    ("%mcjax vars", r"\nparams +differs on 2 +dict of 1 leaf\n"),
    ("%mcjax compare params", r"params\['w'\] at \[0\] differs: 1.0 on processes 0,1,3 and 2.0 "),
    ("%%mcjax\nmcnb.show(mesh)", r"'a'.*\n(.*\n)*.*P3\.1"),
    ("%%mcjax\nmcnb.show(x)", r"\[all 4\]\nfloat32\[8,4\]  P\('a'\)\n"),
    ("%%mcjax\nmcnb.show(x, bounds=True)", r"P0\.0 .*\n(.*\n)*.*6:8"),
    ("%%mcjax\nmcnb.show(x, values=True)", r"\b31\b"),
    ("%%mcjax\nmcnb.show(sharding, (8, 4))", r"\[8,4\]  P\('b', 'a'\)\n"),
    ("%%mcjax\nmcnb.explore((8, 4), devices=8, processes=4)", r"float32\[8,4\]  P\('x', 'y'\)\n"),
    ("%%mcjax\nmcnb.show(params)", r"\n\['w'\]  ndarray  on the host\n"),
    ("%%mcjax\nmcnb.show(params, full=True)", r"\n\['w'\]  ndarray  on the host\n"),
    ("%%mcjax\nmcnb.show(x, sharding)", r"P\('a'\)(.*\n)*.*P\('b', 'a'\)"),
    ("%%mcjax\nmcnb.play(x, sharding)", r"P\('a'\) → P\('b', 'a'\)\nBefore: P\('a'\)\.\n"),
    ("%%mcjax\nmcnb.show(f, x, y)", r"1 collective, .*\n(.*\n)*1  all-reduce "),
    ("%%mcjax\nmcnb.show(f, x, y, full=True)", r"1 collective, .*\n(.*\n)*1  all-reduce "),
    ("%%mcjax\nmcnb.show(jnp.sum, x, axis=0)", r"1 collective, .*\n(.*\n)*1  all-reduce "),
    ('import mcnb\nmcnb.show(mcnb.current_cluster(), "x")', r"x: float32\[8,4\]  P\('a'\)\n"),
    (
        "%%mcjax -p 0\nimport matplotlib; matplotlib.use('agg')\n"
        "import matplotlib.pyplot as plt\nax = plt.figure().add_subplot()\n"
        "mcnb.picture(x).plot(ax=ax)\nlen(ax.texts) >= 8",
        r"\[0\] True\n",
    ),
    ("%mcjax run training.ipynb", r"4 processes x 2 CPU devices: 2 cells, none failed\n"),
    ("%mcjax auto on", r"Every cell runs on the processes, "),
    ("%%here\nbatch = [1, 2]", ""),
    ("%mcjax auto off", r"Cells run in the notebook kernel, "),
    ("%mcjax push batch", r"batch is on all 4 processes now\n"),
    ("%%mcjax\nbatch", r"\[all 4\] \[1, 2\]\n"),
    ("%mcjax last", r"\[all 4\] \[1, 2\]\n"),
    ("%mcjax pull losses", r"losses: a dictionary with the value on each process"),
    ("print(losses[2])", r"\[0\.5, 2\]\n"),
    ("%mcjax status", r"4 processes x 2 CPU devices: ready\n"),
    ("%mcjax heal", r"The cluster was healed: the same processes reconnected"),
    ("%mcjax interrupt", ""),
    ("cluster = mcnb.current_cluster()\ncluster.interrupt()", ""),
    ("%%mcjax\nx = k * 10\nif k == 2: 1 / 0", r"ZeroDivisionError: division by zero\n"),
    ("%debug", r"process 2 \(pdb\) p x\n20\n"),
    ("%mcjax debug", r"process 2 \(pdb\) p x\n20\n"),
    ("%mcjax debug p x", r"20\n"),
    ('print(cluster.debug("p x", 2).text)', r"20\n"),
    ("%mcjax restart --replay In[1-5]", r"cells? ran again.*\nReady: "),
    ("%mcjax restart --replay --keep-going", r"cells? ran again.*\nReady: "),
    ("%mcjax restart --replay", r"cells? ran again.*\nReady: "),
    ("cluster.restart(replay=True)", ""),
    ("%mcjax restart", r"Ready: 4 processes x 2 CPU devices\. The variables are lost\n"),
    ("%mcjax stop", r"Stopped: 4 processes x 2 CPU devices\n"),
    ("%mcjax start --env PYTHONHASHSEED=random", r"Ready: 4 processes x 2 CPU devices\n"),
    ("%%mcjax\nimport os\nos.environ['PYTHONHASHSEED']", r"\[all 4\] 'random'\n"),
    ("%mcjax?", r"Usage:\n  %mcjax start "),
    ("%%mcjax?", r"Usage:\n  %%mcjax "),
)

BEGIN = """\
import os, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

jax.distributed.initialize()
k = jax.process_index()
"""
# `train.py` of the page on programs, whose line 31 is its divergence.
TRAIN = f"""\
{BEGIN}
mesh = jax.make_mesh((jax.device_count(),), ("data",))
split = NamedSharding(mesh, P("data"))
batch = jax.device_put(np.ones(8, np.float32), split)
steps = int(sys.argv[2])


@jax.jit
def train_step(batch):
    return batch * 0.99


losses = jax.device_put(np.full(8, 0.41 * steps / 8, np.float32), split)
for step in range(steps):
    batch = train_step(batch)


# What follows is a report of how the training went, by process 0,
# as if the others had nothing to do with it.
if k == 0:
    print(f"step {{steps - 1}}: loss 0.41")
# It ends with the mean of the losses over all steps. The line below is a sum
# over the devices of all processes.
if jax.process_index() == 0:
    print("mean", float(jnp.sum(losses)) / steps)
"""
RANKS = f"{BEGIN}print(k, sys.argv[1:], os.environ.get('RANK'), os.environ.get('WORLD_SIZE'))\n"
SUITE = "import jax\ndef test_processes(): assert jax.process_count() == 2\n"
NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
for source in ("import jax.numpy as jnp\nloss = jnp.ones(3).sum()", "print(loss)"):
    cell = {"cell_type": "code", "id": str(len(source)), "metadata": {}, "source": source}
    NOTEBOOK["cells"].append({**cell, "execution_count": None, "outputs": []})
# Commands for a shell, with the files that they need, their exit codes, and what they print.
SHELL = (
    (
        "mcnb run toy.py -n 4 -d 2 {process} {processes}",
        {"toy.py": RANKS},
        0,
        *(rf"\[{k}\] {k} \['{k}', '4'\] None None\n" for k in range(4)),
    ),
    (
        "mcnb run train.py -n 4 -d 2 --env RANK={process} --env WORLD_SIZE={processes}",
        {"train.py": RANKS},
        0,
        *(rf"\[{k}\] {k} \[\] {k} 4\n" for k in range(4)),
    ),
    (
        "mcnb run train.py -n 4 -- -n 3",
        {"train.py": RANKS},
        0,
        r"\[3\] 3 \['-n', '3'\] None None\n",
    ),
    ("mcnb run train.py -n 4 -d 2", {"train.py": RANKS}, 0, r"\[3\] 3 \[\] None None\n"),
    (
        "mcnb run -n 4 -d 2 -m trainer.main",
        {"trainer/__init__.py": "", "trainer/main.py": RANKS},
        0,
        r"\[3\] 3 \[\] None None\n",
    ),
    (
        "mcnb run -n 2 -d 2 --fold -m pytest tests/",
        {
            "tests/conftest.py": "import jax\njax.distributed.initialize()\n",
            "tests/test_it.py": SUITE,
        },
        0,
        r"\[all 2\] (.*\n)*.*1 passed",
    ),
    (
        "mcnb run training.ipynb -n 4 -d 2",
        {"training.ipynb": json.dumps(NOTEBOOK)},
        0,
        r"\[all 4\] 3.0\n",
        r"\ntraining.ipynb on 4 processes x 2 CPU devices: 2 cells, none failed\n",
    ),
    ("mcnb run --help", {}, 0, r"usage: mcnb run "),
)
ELSEWHERE = {
    ".venv/bin/mcnb doctor": "integration/test_doctor.py::test_this_machine_is_ready",
    "mcnb doctor": "integration/test_doctor.py::test_this_machine_is_ready",
    "mcnb doctor --hosts alice@one,two": "integration/test_hosts.py::test_doctor_on_good_hosts",
    "mcnb lab another-folder": "integration/test_lab.py::test_jupyterlab_starts_and_ends",
    "mcnb run 05_lockstep.md": "integration/test_run.py::test_a_lesson_in_the_terminal",
    "mcnb script 05_lockstep.md -o lockstep.py": (
        "integration/test_script.py::test_a_lesson_in_a_shell_prints_what_is_stored"
    ),
    ".venv/bin/mcnb lab --copy": (
        "integration/test_cli.py::test_lessons_are_copied_without_jupyterlab"
    ),
    "mcnb.panel()": "integration/test_panel.py::test_a_panel_that_stays",
    'mcnb.explore((8, 4)).save("layouts.html")': (
        "unit/pictures/test_explore.py::test_jupyter_and_a_file_have_the_same_page"
    ),
    'mcnb.picture(x).save("x.png")': (
        "unit/pictures/test_saving.py::test_an_image_has_two_pixels_for_each_of_the_drawing"
    ),
    "mcnb.picture(x).html()": (
        "unit/pictures/test_pages.py::test_a_page_has_the_picture_as_it_is_and_as_text"
    ),
    "cluster.run(source, debugger=ask)": (
        "integration/test_debugging.py::test_an_error_of_the_callers_debugger"
    ),
    "mcnb.breakpoint(2)": "integration/test_debugging.py::test_a_person_stops_at_a_breakpoint",
    'mcnb.breakpoint("0,2-3")': (
        "integration/test_debugging.py::test_a_process_that_waits_for_stopped_ones"
    ),
    "import jax": "unit/pods/test_pod.py::test_the_page_on_pods",
    "lambda: 1 collective, 3.15 MB sent by each device": (
        "unit/pods/test_pod.py::test_the_page_on_pods"
    ),
    "import mcnb.lockstep": "integration/test_install.py::test_every_way_to_join_is_checked",
    "mcnb.lockstep.install()": "integration/test_install.py::test_every_way_to_join_is_checked",
    "%mcjax start -n 4 -d 2 --launcher mpi": "integration/test_engines.py::test_a_cell",
    "%mcjax start -n 4 -d 2 --launcher ssh --hosts alice@one,two": (
        "integration/test_hosts.py::test_a_notebook_and_two_other_hosts"
    ),
    "%mcjax start -n 4 -d 2 --launcher slurm --options '--time=30 --partition=debug'": (
        "integration/test_engines.py::test_a_cell"
    ),
    'mcnb.Cluster(4, 2, launcher="slurm", launcher_options="--time=30")': (
        "integration/test_engines.py::test_a_cell"
    ),
    "%mcjax connect --profile default": "integration/test_connect.py::test_the_magic",
    "mcnb.connect()": "integration/test_connect.py::test_its_engines_become_processes",
    '~/venv/bin/ipcontroller --profile-dir="$HOME/nfs" --ip="$(hostname -I | cut -d\' \' -f1)"': (
        "integration/test_tpus.py::test_the_page_on_two_hosts"
    ),
    'cd ~/nfs && ~/venv/bin/ipengine --profile-dir="$HOME/nfs"': (
        "integration/test_tpus.py::test_the_page_on_two_hosts"
    ),
    "%mcjax connect --env NAME=VALUE": ("integration/test_connect.py::test_the_magic"),
    "%mcjax start -n 2 -d 4 --platform tpu --launcher ssh --hosts 10.0.0.2,10.0.0.3": (
        "integration/test_hosts.py::test_a_notebook_and_two_other_hosts"
    ),
    "ipcluster start -n 4": "integration/test_connect.py::test_its_engines_become_processes",
    "%mcjax start -n 4 -d 1 --platform cuda": (
        "integration/test_gpus.py::test_cells_on_a_real_gpu"
    ),
    "srun python -m mcnb.lockstep train.py --steps 100": (
        "integration/test_launchers.py::test_a_program_runs"
    ),
    "srun python -m mcnb.lockstep train.py": "integration/test_launchers.py::test_a_program_runs",
}
NOT = {
    "docker build -t mcnb . && docker run --rm -p 127.0.0.1:8888:8888 mcnb": (
        "needs Docker; the nightly workflow builds the image, and runs a lesson in it"
    ),
    '~/venv/bin/pip install --quiet "$HOME/nfs/mcnb[lab,tpu]"': (
        "the steps `wheel` and `pods` of the check install it so"
    ),
    "gcloud compute tpus tpu-vm ssh NAME --worker=0 -- -L 8888:localhost:8888": "needs a TPU",
    'python3 -m venv .venv && .venv/bin/pip install --quiet -e ".[lab]" && .venv/bin/mcnb lab': (
        "installs from a package index; the nightly workflow does it with [test]"
    ),
    'python3 -m venv .venv && .venv/bin/pip install --quiet -e ".[test]" && .venv/bin/python '
    ".ci/check.py": "is what runs the tests",
    ".ci/run --all": "is what runs the tests",
    "check.py tests": "is what runs the tests",
    "check.py types tests": "is what runs the tests",
    ".venv/bin/python tools/dev.py test          # the tests of what has changed since the last "
    "commit": "tools for contributors, which themselves run the tests, benchmarks and others' code",
    "pip install pre-commit && pre-commit install": "changes the hooks of this clone",
    "pip install PATH_OF_THE_CLONE": "the step `wheel` of the check installs it so",
    '.venv/bin/pip install -e ".[tpu]"': "the step `pods` of the check installs it so",
    "%mcjax start -n 4 -d 2 --launcher pbs": "the page says that there is no test",
    "ipcluster stop": "is ipyparallel's, and ends what `ipcluster start` has started",
    "mcnb COMMAND --help": "is no command",
    'gcloud compute tpus tpu-vm ssh NAME --worker=all --command="python train.py"': "needs a TPU",
}
# Pages whose blocks are cells and their outputs.
CELLS = ("README.md", "docs/cells.md", "docs/each_verdict.md")
CELLS_ELSEWHERE = ("docs/pictures.md", "docs/verdicts.md", "docs/tpus.md")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Somebody who types the lines of this list, and then leaves."""
    lines: list[str] = []

    def answer(prompt: str = "") -> str:
        if not lines:
            raise EOFError
        print(f"{prompt}{lines[0]}")
        return lines.pop(0)

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("mcnb.notebook.magics.somebody_looks", lambda _: bool(lines))
    yield lines
    assert not lines


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("README.md", marks=pytest.mark.promise("the example of the first page")),
        *(pytest.param(name, marks=once) for name in CELLS[1:]),
    ],
)
def test_cells_show_what_the_page_says(
    name: str, empty_notebook: Notebook, typed: list[str]
) -> None:
    page = ROOT / name
    before = empty_notebook.shell.execution_count - 1
    shown, compared = "", 0
    for block in blocks(page):
        if block.language:
            continue
        if block.text.startswith("%"):
            typed[:] = re.findall(r"\(pdb\) (.*)", _after(page, block.text))
            result = empty_notebook.run(block.text)
            assert result.stderr == ""
            shown = re.sub(
                r"\bIn\[(\d+)\]",
                lambda found: f"In[{int(found[1]) - before}]",
                without_escapes(result.stdout),
            )
        else:
            assert shown.strip("\n") == block.text.strip("\n")
            compared += 1
    assert compared


def _after(page: Path, cell: str) -> str:
    """Return the block after a cell, if it is an output."""
    found = blocks(page)
    at = next(i for i, block in enumerate(found) if block.text == cell)
    after = found[at + 1].text if at + 1 < len(found) else ""
    return "" if after.startswith("%") else after


@once
def test_magics_of_the_pages(
    empty_notebook: Notebook,
    typed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "training.ipynb").write_text(json.dumps(NOTEBOOK))
    monkeypatch.setattr(empty_notebook.shell, "execution_count", 1)  # some cells name others
    for cell, pattern in SESSION:
        typed[:] = re.findall(r"\(pdb\\\) (.*?)\\n", pattern)
        result = empty_notebook.run(cell)
        shown = without_escapes(result.stdout)
        assert re.search(pattern, shown), (cell, pattern, shown, result.stderr)
        assert result.success or "1 / 0" in cell, (cell, shown)
    [picture] = blocks(DOCS / "pictures.md")
    empty_notebook.run(next(cell for cell, _ in SESSION if "sharding = " in cell))
    assert empty_notebook.run("%%mcjax\nmcnb.show(x)").stdout == f"[all 4]\n{picture.text}"


def test_sentences_that_the_page_on_verdicts_quotes(empty_notebook: Notebook) -> None:
    begin = next(cell for cell, _ in SESSION if "sharding = " in cell)
    empty_notebook.run(f"{begin}\ndef init(key): return jax.random.normal(key, (8,))")
    argument, note = (block.text.strip("\n") for block in blocks(DOCS / "verdicts.md"))
    error = empty_notebook.error(
        "%%mcjax\nw = np.ones((2, 3), np.float32)\nw[1, 2] = 7 if k == 2 else 1\n"
        "whole = NamedSharding(mesh, P())\n"
        "params = {'w': jax.make_array_from_callback(w.shape, whole, lambda i: w[i])}\n"
        "jax.jit(lambda params, x: jnp.sum(params['w']) + jnp.sum(x))(params, x)"
    )
    assert f"{argument}. " in error
    shown = empty_notebook.run(
        "%%mcjax\nkey = jax.random.key(int(k == 2))\n"
        "params = jax.jit(init, out_shardings=NamedSharding(mesh, P('a')))(key)"
    ).stdout
    assert shown.startswith(note.removesuffix("..."))


@pytest.fixture
def shell_of_a_reader(tmp_path: Path) -> dict[str, str]:
    """Return an environment with the command `mcnb`."""
    command = tmp_path / "bin" / "mcnb"
    command.parent.mkdir()
    python, _, source = MCNB
    command.write_text(f"#!{python}\n{source}\n")
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def in_shell(
    command: str, folder: Path, files: dict[str, str], env: dict[str, str]
) -> tuple[int, str]:
    """Run a command in a folder with files; return its exit code and what it printed."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
    )
    return done.returncode, done.stdout


@once
@pytest.mark.parametrize(
    ("command", "files", "code", "patterns"), [(one[0], one[1], one[2], one[3:]) for one in SHELL]
)
def test_commands_of_the_pages(
    command: str,
    files: dict[str, str],
    code: int,
    patterns: tuple[str, ...],
    tmp_path: Path,
    shell_of_a_reader: dict[str, str],
) -> None:
    got, said = in_shell(command, tmp_path, files, shell_of_a_reader)
    assert got == code, said
    for pattern in patterns:
        assert re.search(pattern, said), (pattern, said)


def test_the_divergence_of_a_program(tmp_path: Path, shell_of_a_reader: dict[str, str]) -> None:
    [shown] = [block.text for block in blocks(DOCS / "programs.md") if block.language == "console"]
    command, _, expected = shown.partition("\n")
    code, said = in_shell(
        command.removeprefix("$ "), tmp_path, {"train.py": TRAIN}, shell_of_a_reader
    )
    assert code == 1
    # The page leaves out what it has dots for.
    pattern = re.escape(expected.strip("\n")).replace(r"\.\.\.", "(?:.|\\n)*")
    assert re.search(pattern, said), said


@once
def test_the_program_that_drives_a_cluster(
    tmp_path: Path, shell_of_a_reader: dict[str, str]
) -> None:
    [program] = [block.text for block in blocks(DOCS / "cells.md") if block.language == "python"]
    (tmp_path / "drive.py").write_text(program)
    code, said = in_shell(f"{sys.executable} drive.py", tmp_path, {}, shell_of_a_reader)
    own = {k: k + 3 for k in range(4)}
    folded = "\n".join(f"[{k}] {k} 8" for k in range(4))
    assert (code, said) == (0, f"{folded}\n\n3 8\n\n{own}\n")
    assert f"# {own}" in program


@once
def test_the_session_of_the_moving_picture(empty_notebook: Notebook) -> None:
    shown = [without_escapes(empty_notebook.run(cell).stdout) for cell, _ in recording.CELLS]
    assert shown[0].endswith("Ready: 4 processes x 2 CPU devices\n")
    own = "".join(f"[{k}]     I am process {k}\n" for k in range(4))
    assert shown[1] == f"{own}[all 4] 8\n"
    assert shown[2].startswith("[all 4]\nfloat32[8,4]  P('a', 'b')\n")
    assert shown[3].startswith("LockstepError: Processes diverged: a participant is missing\n")


@pytest.mark.promise("each command of the pages has a test")
def test_each_command_has_a_test() -> None:
    executed = [cell for cell, _ in SESSION] + [one[0] for one in SHELL]
    said = {span for page in PAGES for span in spans(page) if COMMAND.fullmatch(span)}
    for page in PAGES:
        cells = str(page.relative_to(ROOT)) in (*CELLS, *CELLS_ELSEWHERE)
        said |= {
            block.text.partition("\n")[0]
            for block in blocks(page)
            if block.language != "console" and not (cells and block.language in ("", "python"))
        }
    known = [*executed, *ELSEWHERE, *NOT]
    assert {one for one in said if not any(one in text for text in known)} == set()
    assert (set(ELSEWHERE) | set(NOT)) - said == set()


@pytest.mark.promise("each command of the pages has a test")
def test_tests_elsewhere_are_there() -> None:
    for test in ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(), test
