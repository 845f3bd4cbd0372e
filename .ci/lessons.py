"""Execute the lessons and store their outputs: python .ci/lessons.py [LESSON.md ...].

Each lesson is a pair: the .md is what is written by hand, the .ipynb is made from it here.
"""

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

LESSONS = Path(__file__).parent.parent / "notebooks"


def main(paths: list[Path]) -> None:
    """Execute lessons and write their notebooks."""
    for path in paths or sorted(LESSONS.glob("[0-9]*.md")):
        notebook = jupytext.read(path)
        NotebookClient(
            notebook, timeout=300, resources={"metadata": {"path": str(LESSONS)}}
        ).execute()
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number:02d}"
            cell.metadata.pop("execution", None)
        notebook.metadata.pop("language_info", None)
        nbformat.validate(notebook)
        nbformat.write(notebook, path.with_suffix(".ipynb"))
        print(path.with_suffix(".ipynb").name)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
