"""What a program does beside its cells: it joins, shares and ends; and what it says of itself."""

from __future__ import annotations

import ast
import os
import pathlib
import pickle
import shutil
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jax.experimental import multihost_utils

from mcnb.export.write import Program
from tests.unit.export.test_parse import X, body, lesson

HERE = {"os": os, "pathlib": pathlib, "pickle": pickle, "np": np, "shutil": shutil, "types": types}
PUSH = "mcnb.current_cluster().push({'m': disk.name})"


def function_of(program: Program, name: str, **names: Any) -> Any:
    """Return a function of a program, which finds these names."""
    found: dict[str, Any] = {**HERE, **names}
    (made,) = (
        node
        for node in ast.parse(program.text).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    exec(ast.unparse(made), found)
    return found[name]


class Distributed:
    """Stands in for `jax.distributed`, and keeps how it was initialized.

    Args:
        finds: Whether it finds a launcher by itself.
    """

    def __init__(self, *, finds: bool) -> None:
        self.finds = finds
        self.given: list[dict[str, Any]] = []

    def initialize(self, **options: Any) -> None:
        if not options and not self.finds:
            raise ValueError("no launcher")
        self.given.append(options)


def joined(*words: str, finds: bool = False) -> list[dict[str, Any]]:
    """Return how a program with these words on its command line joins."""
    (program,) = lesson("%mcjax start -n 2", X)
    distributed = Distributed(finds=finds)
    function_of(
        program,
        "join",
        sys=SimpleNamespace(argv=["mine.py", *words], exit=sys.exit),
        jax=SimpleNamespace(distributed=distributed),
        __doc__="For 2 processes.",
    )()
    return distributed.given


def told(address: str, index: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "coordinator_address": address,
            "coordinator_bind_address": address,
            "process_id": index,
            "num_processes": count,
            "cluster_detection_method": "deactivate",
        }
    ]


OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
OPEN_MPI_4 = "OMPI_MCA_orte_hnp_uri"


def test_who_a_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OPEN_MPI, OPEN_MPI_4):
        monkeypatch.delenv(name, raising=False)
    assert joined("host:7", "1", "2") == told("host:7", 1, 2)
    assert joined(finds=True) == [{}]
    with pytest.raises(SystemExit) as refused:
        joined("host:7", "1")
    assert refused.value.code == "Nothing says which of 2 processes this is.\n\nFor 2 processes."
    for name, value in OPEN_MPI.items():
        monkeypatch.setenv(name, value)
    assert joined() == told(f"localhost:{61440 + os.getppid() % 4096}", 1, 2)
    assert joined("host:7", "0", "2") == told("host:7", 0, 2)
    monkeypatch.setenv(OPEN_MPI_4, "uri")
    assert joined(finds=True) == [{}]


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_processes(count: int) -> None:
    (program,) = lesson("%mcjax start -n 2", X)
    lines = program.text.splitlines()
    at = lines.index("join()")
    names = {"sys": sys, "jax": SimpleNamespace(process_count=lambda: count)}
    with pytest.raises(SystemExit) as refused:
        exec("\n".join(lines[at + 1 : at + 3]), names)
    assert refused.value.code == f"This program is for 2 processes, not for {count}."
    names["jax"] = SimpleNamespace(process_count=lambda: 2)
    exec("\n".join(lines[at + 1 : at + 3]), names)


def test_a_cell_that_two_pushes_need_runs_once() -> None:
    push = "mcnb.current_cluster().push({'%s': n})"
    cells = "print('once')\nn = 1", push % "m", "%%mcjax\nm", push % "k", "%%mcjax\nk"
    (program,) = lesson(*cells)
    said = body(program)
    run = [line.strip() for line in said.splitlines() if not line.startswith("#")]
    assert [run.count(line) for line in ("print('once')", "n = 1")] == [1, 1]
    assert "k = from_process_0(lambda: n)" in said


@pytest.mark.parametrize("value", [3, {"a": [1.5] * 99}, "é\x00 "])
def test_what_process_0_tells_all_have(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = lesson("n = 1\nmcnb.current_cluster().push({'m': n})", "%%mcjax\nm")
    sent: list[np.ndarray[Any, Any]] = []
    index = 0

    def broadcast(data: Any) -> Any:
        """Return what process 0 gives; the others must give data of the same form."""
        if index == 0:
            sent.append(np.asarray(data))
            return sent[-1]
        first = sent.pop(0)
        assert (np.shape(data), np.asarray(data).dtype) == (first.shape, first.dtype)
        return first

    def make() -> object:
        assert index == 0, "only process 0 does what the notebook did"
        return value

    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", broadcast)
    share = function_of(program, "from_process_0", jax=SimpleNamespace(process_index=lambda: index))
    assert share(make) == value
    index = 1
    assert share(make) == value
    assert "import pickle\n" in program.text
    assert "\nimport numpy as np\n" in program.text


def shares() -> list[Program]:
    disk = f"import tempfile\ndisk = tempfile.TemporaryDirectory()\n{PUSH}"
    return lesson(
        disk, "%%mcjax\nprint(m)", "%mcjax restart", PUSH, "%%mcjax\nprint(m)", "%mcjax restart", X
    )


def test_a_folder_that_all_parts_share(tmp_path: Path) -> None:
    first, second, third = shares()
    assert "import pathlib\nimport pickle\nimport shutil\nimport sys\nimport types\n" in first.text
    assert "import os\nimport pathlib\nimport shutil\nimport sys\n\n" in third.text
    file = str(tmp_path / "mine.py")
    folder = function_of(first, "lasting_folder", __file__=file)
    made = Path(folder(0, new=True).name)
    assert made == tmp_path.resolve() / "mine_files" / "0"
    (made / "kept").touch()
    again = function_of(second, "lasting_folder", __file__=file)
    assert again(0).name == str(made)
    assert [path.name for path in made.iterdir()] == ["kept"]
    assert [*Path(folder(0, new=True).name).iterdir()] == []
    assert Path(folder(1).name).is_dir()


@pytest.mark.parametrize("index", [0, 1])
def test_the_end(index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine_files"
    (folder / "0").mkdir(parents=True)
    met: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        multihost_utils,
        "sync_global_devices",
        lambda name: met.append((name, folder.exists())),
    )
    names = {**HERE, "__file__": str(tmp_path / "mine.py")}
    names["jax"] = SimpleNamespace(process_index=lambda: index)
    for number, program in enumerate(shares()):
        assert folder.exists(), number
        exec(program.text[program.text.index("# %% The end") :], names)
    # No part removes what another process may still read.
    assert met == [("the end", True)] * 3
    assert folder.exists() == (index > 0)


@pytest.mark.parametrize(("devices", "threads"), [(1, 32), (2, 64), (16, 512), (64, 512)])
def test_threads_for_all_devices(devices: int, threads: int) -> None:
    (program,) = lesson(f"%mcjax start -d {devices}", X)
    assert f'\nos.environ.setdefault("NPROC", "{threads}")\n' in program.text


@pytest.mark.parametrize(
    ("count", "loop"), [(1, "0"), (10, "0 1 2 3 4 5 6 7 8 9"), (11, "$(seq 0 10)")]
)
def test_how_it_is_run(count: int, loop: str) -> None:
    (program,) = lesson(f"%mcjax start -n {count} -d 1", X)
    processes = "1 process" if count == 1 else f"{count} processes"
    assert program.text.startswith(
        f'"""mine.md\n\nFor {processes} x 1 CPU device, without mcnb. In a shell, with any free '
        f"port:\n\n    for i in {loop}; do python mine.py localhost:10000 $i {count} & done; wait\n"
        "\nWith a launcher, which sets the index of each process:\n\n"
        f"    mpirun -np {count} python mine.py\n    srun -n {count} python mine.py\n\n"
        "Comments hold what only the notebook can do, and why.\n"
        'Written by mcnb script from mine.md.\n"""\n\nimport os\nimport sys\n'
    )


def test_a_title_that_python_would_not_take() -> None:
    title = 'md:## Before\n\n# `C:\\new` """quoted"""'
    (program,) = lesson(title, X)
    assert program.text.startswith("\"\"\"`C:/new` '''quoted'''\n\nFor 4 processes")
    compile(program.text, "mine.py", "exec")


def test_a_name_of_a_function_that_the_cells_do_not_take() -> None:
    (program,) = lesson("y = 1\ndisplay = 1", "%%mcjax\nx = 1\nx")
    assert body(program).endswith("\ndisplay(x)")
    (program,) = lesson("%%mcjax\ndisplay = 1\n!ls", "%%mcjax\ndef show_value(): pass\n2")
    assert body(program).endswith("\n_display(2)")


def test_the_future_of_all_cells() -> None:
    (program,) = lesson(
        X, "%%mcjax\nfrom __future__ import division\ny = 1",
        "%%mcjax\nfrom __future__ import annotations\nz = 1",
        "%%mcjax\nfrom __future__ import generators\nz = 1",
        tagged=3,
    )  # fmt: skip
    assert '\n"""\n\nfrom __future__ import annotations, division\n\nimport os\n' in program.text


def test_a_part_without_code_is_no_program() -> None:
    first, second = lesson(
        "%mcjax start -n 2", X, "%mcjax restart", "%%mcjax\nawait f()", "%mcjax restart", X
    )
    assert [first.name, second.name] == ["mine.py", "mine_2.py"]
    assert [first.cells, second.cells] == [(1,), (4, 5)]


LONG = "see https://example.org/" + "a" * 90
TEXTS = {
    "headings of sections and of what is in them": (
        ["md:# T\n\n## A\n\n### B", X, "md:### C", X, "md:## D", X],
        "# %% A / B\nx = 1\n\n# %% C\nx = 1\n\n# %% D\nx = 1",
    ),
    "a heading without code gives way": (
        ["md:## A\n\n### B\n\n### C", X, X],
        "# %% A / C\nx = 1\n\n# %%\nx = 1",
    ),
    "a heading above the start": (
        ["md:## A", "# now\n%load_ext mcnb\n%mcjax start", X, X],
        "# %% A\nx = 1\n\n# %%\nx = 1",
    ),
    "text is told once": (["md:It begins.", X, X], "# %%\n# It begins.\nx = 1\n\n# %%\nx = 1"),
    "text before what is left out": (
        ["md:It begins.", X, "md:It **ends**.", "%mcjax timeline"],
        "# %%\n# It begins.\nx = 1\n\n"
        "# %%\n# It ends.\n#\n# Left out, as it runs in the notebook:\n#     %mcjax timeline",
    ),
    "what the notebook does before it starts": (
        ["print(1)", "%mcjax start", X],
        "# %%\n# Left out, as it runs in the notebook:\n#     print(1)\n\n# %%\nx = 1",
    ),
    "code is neither text nor a heading": (
        ["md:Read.\n\n```\n## no heading\n\nno text\n```\n\n1. a list", X],
        "# %%\n# Read.\nx = 1",
    ),
    "the last paragraph, in lines that are not too long": (
        [f"md:First.\n\n{'four ' * 18}\n{LONG}", X],
        f"# %%\n# {' '.join(['four'] * 17)}\n# four see\n# {LONG.removeprefix('see ')}\nx = 1",
    ),
}


@pytest.mark.parametrize(("sources", "expected"), TEXTS.values(), ids=TEXTS)
def test_text_of_the_lesson(sources: list[str], expected: str) -> None:
    (program,) = lesson(*sources)
    assert body(program) == expected
