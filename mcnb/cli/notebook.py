"""Run a notebook that was written for one process, in a terminal, on several processes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from mcnb.cluster.cluster import Cluster
from mcnb.cluster.notebooks import NotebookCell, NotebookRun, cells_of
from mcnb.cluster.result import Result
from mcnb.options import Options

_EXIT_CTRL_C = 130


def run_on_processes(path: Path, notebook: Any, options: Options) -> int:
    """Run a notebook's cells on processes, and print each cell with its folded output.

    Args:
        path: The notebook's file. The cells run in its folder, as in Jupyter.
        notebook: The notebook, as nbformat reads it.
        options: The processes.

    Returns:
        0 if no cell failed, 1 if one did, 130 if Ctrl-C ended the run.

    Raises:
        OptionError: It is not a notebook for Python, or has no code.
        ClusterError: The processes could not be started.
    """
    cells = cells_of(notebook, path.name)
    with contextlib.chdir(path.resolve().parent), Cluster.of(options) as cluster:
        print(f"Ready: {options.describe()}", flush=True)
        run = NotebookRun(cluster, cells, path.name)
        run.run(_print_cell, _print_result)
    print("", *run.report(options.describe()), sep="\n", flush=True)
    return _EXIT_CTRL_C if run.interrupted else int(bool(run.failed))


def _print_cell(cell: NotebookCell) -> None:
    for heading in cell.headings:
        print(f"\n{heading}")
    left_out = f"\nLeft out, as it {cell.left_out}" if cell.left_out else ""
    print(f"\n{cell.prompted}{left_out}", flush=True)


def _print_result(result: Result) -> None:
    print(result.text(), end="", flush=True)
