"""Execute the lessons: `python tools/lessons.py [LESSON ...]`.

Each lesson is a pair. The .md is written by hand; the .ipynb is made from it here, with outputs.
Cells with the tag needs-tpu need the compiler for TPUs. Where it is missing, they are not executed,
and keep the outputs that are stored.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NEEDS_TPU = "needs-tpu"


def execute(path: Path) -> nbformat.NotebookNode:
    """Execute a lesson and return it with its outputs.

    Raises:
        CellExecutionError: A cell failed that is not meant to, or did not that is; or one that
            can't be executed here has no stored outputs.
    """
    notebook = jupytext.read(path)
    skipped = ""
    if importlib.util.find_spec("libtpu") is None:
        skipped = NEEDS_TPU
        keep_outputs(notebook, path.with_suffix(".ipynb"))
    client = NotebookClient(
        notebook,
        timeout=300,
        startup_timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": path.parent}},
        skip_cells_with_tag=skipped,
    )
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        # As if none had been skipped.
        cell.execution_count = number
        cell.outputs = joined(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        must_fail = "raises-exception" in cell.metadata.get("tags", [])
        if must_fail and not any(output.output_type == "error" for output in outputs):
            # nbclient lets it fail, but does not ask that it does.
            message = f"This cell must fail, and did not:\n{cell.source}"
            raise CellExecutionError(message, "raises-exception", message)
        for output in outputs:
            # IPython's own complaints, as of a magic that does not exist, do not fail a cell.
            if output.get("name") == "stderr":
                raise CellExecutionError(output.text, "stderr", output.text)
    return notebook


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Return outputs with each run of one stream in one piece.

    The number of pieces varies. nbclient's `coalesce_streams` would also join what a picture is
    between.
    """
    result: list[nbformat.NotebookNode] = []
    for output in outputs:
        if result and output.get("name") and result[-1].get("name") == output.name:
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def keep_outputs(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Give the cells that need the compiler for TPUs the outputs that are stored.

    Args:
        notebook: The lesson.
        path: The notebook in which these are stored.

    Raises:
        CellExecutionError: There are none of a cell.
    """
    needing = [c for c in notebook.cells if NEEDS_TPU in c.metadata.get("tags", [])]
    kept = nbformat.read(path, 4).cells if needing and path.is_file() else []
    outputs = {cell.source: cell.outputs for cell in kept if cell.cell_type == "code"}
    for cell in needing:
        if cell.source not in outputs:
            message = f"No outputs are stored of this cell, which needs libtpu:\n{cell.source}"
            raise CellExecutionError(message, NEEDS_TPU, message)
        cell.outputs = outputs[cell.source]


def store(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write an executed lesson so that the same outputs make the same file."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("language_info", None)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def main(words: list[str]) -> int:
    """Execute lessons; return how many failed."""
    failed = 0
    for path in [Path(word) for word in words] or sorted(FOLDER.glob("[0-9]*.md")):
        try:
            notebook = execute(path)
        except CellExecutionError as error:
            print(f"{path.name}: {error}")
            failed += 1
            continue
        store(notebook, path.with_suffix(".ipynb"))
        print(f"{path.name} ran to its end")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
