"""Run the cells of a notebook that was written for one process on all processes of a cluster."""

from __future__ import annotations

import re
import symtable
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mcnb._text import plural
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.result import Result
from mcnb.errors import ClusterError, OptionError
from mcnb.output.fold import Item, Line
from mcnb.output.terminal import without_escapes

# Jupyter's own tags: https://jupyterbook.org/en/stable/content/execute.html
MAY_FAIL_TAG, LEFT_OUT_TAG = "raises-exception", "skip-execution"
# Why a cell is left out. A page without cells, in plain Markdown, shows commands to its reader.
TAGGED = f"has the tag {LEFT_OUT_TAG}"
OF_A_PAGE = "has the shell commands of a page"
_COMMAND = re.compile(r"!|%(pip|conda|mamba|micromamba|uv|system|sx)\b|(pip|conda) install\b")
_COMMANDS = re.compile(r"%%(bash|sh|script|system|sx|cmd|!)")
# The longest error of a cell that is shown whole at the end.
MOST_CHARACTERS = 130
_HEADING = re.compile(r"#+ ")


@dataclass(frozen=True)
class NotebookCell:
    """A code cell of a notebook.

    Attributes:
        label: The cell's number among the code cells that have code, from 1.
        source: The cell's code, which may use IPython syntax.
        headings: The headings between the code cell before and this one.
        may_fail: Whether the cell has the tag raises-exception.
        left_out: Why the cell does not run; empty if it does.
    """

    label: str
    source: str
    headings: tuple[str, ...] = ()
    may_fail: bool = False
    left_out: str = ""

    @property
    def only_commands(self) -> bool:
        r"""Whether the cell has only shell commands, or installs packages.

        Example:
            >>> NotebookCell("1", "# data\n!wget x \\\n  y\n%pip install z").only_commands
            True
            >>> NotebookCell("1", "names = !ls").only_commands
            False
        """
        lines = [line.strip() for line in self.source.replace("\\\n", " ").splitlines()]
        code = [line for line in lines if line and not line.startswith("#")]
        if code and _COMMANDS.match(code[0]):
            return True
        return bool(code) and all(_COMMAND.match(line) for line in code)

    @property
    def prompted(self) -> str:
        r"""The code behind a prompt, as a terminal shows it.

        Example:
            >>> print(NotebookCell("3", "x = 1\nx").prompted)
            In [3]: x = 1
                    x
        """
        prompt = f"In [{self.label}]: "
        return prompt + textwrap.indent(self.source, " " * len(prompt)).lstrip(" ")

    def defines(self, name: str) -> bool:
        r"""Return whether the cell's code defines a global name.

        Example:
            >>> NotebookCell("1", "%matplotlib inline\nimport numpy as np").defines("np")
            True
        """
        from IPython.core.inputtransformer2 import TransformerManager

        try:
            code = TransformerManager().transform_cell(self.source)
            symbol = symtable.symtable(code, "<cell>", "exec").lookup(name)
        except (SyntaxError, ValueError, KeyError):
            return False
        return symbol.is_assigned() or symbol.is_imported()


def cells_of(notebook: Any, name: str) -> list[NotebookCell]:
    """Return the code cells of a notebook.

    Args:
        notebook: The notebook, as nbformat reads it.
        name: The name of its file, for errors.

    Raises:
        OptionError: It is not a notebook for Python, or has no code.
    """
    told = notebook.metadata.get("kernelspec", {}).get("language") or notebook.metadata.get(
        "language_info", {}
    ).get("name", "python")
    if not re.match("i?python", str(told), re.IGNORECASE):
        raise OptionError(f"{name}: the notebook is for {told}, and mcnb runs Python")
    form = notebook.metadata.get("jupytext", {}).get("text_representation", {})
    is_page = form.get("format_name") == "markdown"
    cells: list[NotebookCell] = []
    headings: list[str] = []
    for one in notebook.cells:
        if one.cell_type == "markdown":
            headings += [line for line in one.source.splitlines() if _HEADING.match(line)]
        elif one.cell_type == "code" and one.source.strip():
            tags, source = one.metadata.get("tags", []), one.source.strip("\n")
            shell = is_page and _COMMANDS.match(source) is not None
            left_out = TAGGED if LEFT_OUT_TAG in tags else OF_A_PAGE * shell
            label, may_fail = str(len(cells) + 1), MAY_FAIL_TAG in tags
            cells.append(NotebookCell(label, source, tuple(headings), may_fail, left_out))
            headings = []
    if not cells:
        raise OptionError(f"{name}: the notebook has no code cells")
    return cells


class NotebookRun:
    """One run of a notebook's cells, from the first to the last.

    A cell that fails does not end the run: later cells show what depends on it. The run ends where
    the processes do not survive, and at Ctrl-C.

    Args:
        cluster: Runs the cells.
        cells: The cells.
        name: The name of the notebook's file.
        prefix: Stands before each cell's number in tracebacks.
        first_only: Whether cells with only shell commands run on process 0 alone. Processes of one
            machine would install the same packages several times at once.

    Attributes:
        failed: The cells that failed, with a sentence and a hint, which may be empty.
        interrupted: Whether Ctrl-C ended the run.
        not_run: The cells that did not run, because the run ended early.
    """

    def __init__(
        self,
        cluster: Cluster,
        cells: Sequence[NotebookCell],
        name: str,
        *,
        prefix: str = "",
        first_only: bool = True,
    ) -> None:
        self._cluster = cluster
        self._cells = cells
        self._name = name
        self._prefix = prefix
        self._first_only = first_only
        self.failed: dict[NotebookCell, tuple[str, str]] = {}
        self.interrupted = False
        self._left_out: list[NotebookCell] = []
        self._allowed: list[NotebookCell] = []
        self._alone: list[NotebookCell] = []
        self._different: list[NotebookCell] = []
        self._end = ""  # why the run ended early
        self.not_run: Sequence[NotebookCell] = ()

    def run(
        self,
        before: Callable[[NotebookCell], object],
        after: Callable[[Result], object],
        *,
        timeout: float | None = None,
    ) -> None:
        """Run the cells.

        Args:
            before: Called with each cell before it runs, or is left out.
            after: Called with the result of each cell.
            timeout: The time limit of each cell in seconds; by default, none.
        """
        for number, cell in enumerate(self._cells):
            before(cell)
            if cell.left_out:
                self._left_out.append(cell)
                continue
            ran = self._run_one(cell, after, timeout)
            if self._end:
                self.not_run = self._cells[number + ran :]
                return

    def _label(self, cell: NotebookCell) -> str:
        return f"In[{self._prefix}{cell.label}]"

    def _run_one(
        self, cell: NotebookCell, after: Callable[[Result], object], timeout: float | None
    ) -> bool:
        """Run a cell; return False if Ctrl-C came before it ran."""
        alone = self._first_only and cell.only_commands
        last = self._cluster.last
        try:
            result = self._cluster.run(
                cell.source,
                processes=0 if alone else None,
                label=f"{self._prefix}{cell.label}",
                timeout=timeout,
            )
        except ClusterError as error:
            self.failed[cell] = str(error), ""
            self._end = "the cluster failed"
            return True
        except KeyboardInterrupt:
            self.interrupted, self._end = True, "of the interrupt"
            interrupted = self._cluster.last
            if interrupted is None or interrupted is last:
                return False
            after(interrupted)
            self.failed[cell] = _sentence(interrupted), ""
            return True
        after(result)
        if not result.outcome.intact:
            self._end = "the processes and their variables are lost"
        if result.ok:
            if alone:
                self._alone.append(cell)
            elif _printed_differently(result):
                self._different.append(cell)
        elif cell.may_fail and not self._end:
            self._allowed.append(cell)
        else:
            self.failed[cell] = self._sentence_on(cell, result), _hint(result)
        return True

    def _sentence_on(self, cell: NotebookCell, result: Result) -> str:
        sentence = _sentence(result)
        names = {error.undefined for error in result.errors.values()}
        if len(names) == 1 and "" not in names and not result.verdict:
            name = names.pop()
            earlier = self._cells[: self._cells.index(cell)]
            source = next((one for one in reversed(earlier) if one.defines(name)), None)
            if source is not None and source in self.failed:
                return f"{sentence}. {self._label(source)} defines {name}, and failed"
            if source is not None and source in self._left_out:
                return f"{sentence}. {self._label(source)} defines {name}, and was left out"
        return sentence

    def report(self, where: str) -> list[str]:
        """Return the lines that tell what became of the cells.

        Args:
            where: Describes the processes.
        """
        failed = len(self.failed) or "none"
        cells = plural(len(self._cells), "cell", "cells")
        lines = [f"{self._name} on {where}: {cells}, {failed} failed"]
        for cell, (sentence, hint) in self.failed.items():
            lines.append(f"{self._label(cell)} failed: {sentence}")
            if hint:
                lines.append(hint)
        for found, what in (
            (self._different, "The processes printed different output in"),
            (self._alone, "Process 0 alone ran the shell commands of"),
            (self._allowed, f"Failed, as the tag {MAY_FAIL_TAG} allows:"),
            *(
                (
                    [cell for cell in self._left_out if cell.left_out == why],
                    f"Left out, as it {why}:",
                )
                for why in (TAGGED, OF_A_PAGE)
            ),
            (self.not_run, f"Not run, because {self._end}:"),
        ):
            if found:
                lines.append(f"{what} {', '.join(map(self._label, found))}")
        return lines


def _printed_differently(result: Result) -> bool:
    """Return whether processes printed or displayed different things.

    What is written to stderr does not count: native code warns there on one process alone, for
    example that a computation takes long.
    """
    return len({b.processes for b in result.blocks if any(map(_is_printed, b.items))}) > 1


def _is_printed(item: Item) -> bool:
    return not (isinstance(item, Line) and item.stream == "stderr")


def _sentence(result: Result) -> str:
    """Return how a cell failed, in one line."""
    error = result.error()
    if error is None:
        return "the cell was interrupted"
    kind = f"{type(error).__name__}: "
    if error.lines and error.lines[0].startswith(kind):  # a verdict, which has many lines
        return without_escapes(error.lines[0]).removeprefix(kind)
    sentence = str(error).partition("\n")[0]
    plain = not (result.interrupted or result.exits or result.verdict)
    if len(sentence) > MOST_CHARACTERS and plain and result.causes:
        sentence = "; ".join(result.summaries(MOST_CHARACTERS))
    return _brief(sentence)


def _brief(sentence: str) -> str:
    """Return a sentence, without the middle of it if it is long: all of it is below its cell.

    Example:
        >>> _brief(f"process 0 raised E: {'no ' * 60}(line 9)")[-24:]
        'no no no no ... (line 9)'
    """
    if len(sentence) <= MOST_CHARACTERS:
        return sentence
    said = re.sub(r" \(line \d+\)$", "", sentence)
    where = sentence[len(said) :]
    return textwrap.shorten(said, MOST_CHARACTERS, placeholder=" ...") + where


def _hint(result: Result) -> str:
    """Return the first hint below a cell's error; empty if there is none."""
    error = result.error()
    lines = "\n".join(error.lines).splitlines() if error is not None else []
    return next((line for line in map(without_escapes, lines) if line.startswith("Hint: ")), "")
