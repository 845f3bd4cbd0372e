"""Programs that `mcnb script` writes of lessons: run, and compared with what is stored.

What is compared: the text that each cell prints or shows, folded as in the notebook. What is not:
pictures, cells that are meant to fail, and cells with the tag no-script. All others with text are.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jupytext
import nbformat

from mcnb._system import reserved_port
from mcnb.export.write import Program, export
from mcnb.messages import STREAMS, Event
from mcnb.output.fold import fold_events
from mcnb.output.text import entries
from mcnb.worker.capture import Record
from tests.conftest import ROOT, using, wait_until

LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.md"))
# Cells with the tag no-script: they show what a death or a hang, which no program repeats, left on
# the disk, or a package's picture, which has bold numbers in a notebook.
TAGGED = {"03_shardings": 1, "05_lockstep": 1, "10_when_a_process_dies": 2}
# Only ends what hangs, on however busy a machine.
HANG_S = 240
# Keeps what is written with the cell that wrote it, in the pieces in which it was written.
LISTEN = """
def listen():
    import json, sys
    class Told:
        cell = -1
        file = open(f"{__file__}.{jax.process_index()}", "w", buffering=1)
        def write(self, text):
            self.file.write(json.dumps([self.cell, text]) + "\\n")
        def flush(self):
            pass
    sys.stdout = Told()
listen()
"""
AT = '__import__("sys").stdout.cell = {}\n'
LABEL = re.compile(r"^\[(all \d+|[\d,-]+)\](?= |$)", re.MULTILINE)
Start = Callable[[Program, Path, int], "list[str]"]


def listening(program: Program) -> str:
    """Return a program's text, which keeps what each of its cells writes."""
    head, *cells = re.split(r"^(?=# %%)", program.text, flags=re.MULTILINE)
    assert len(cells) == len(program.cells) + 1
    marked = [AT.format(number) + cell for number, cell in enumerate(cells)]
    return head + LISTEN + "".join(marked) + AT.format(-1) + "print('through')\n"


def in_a_shell(program: Program, path: Path, port: int) -> list[str]:
    """Return the command that the program itself tells, for this Python and a free port."""
    (line,) = re.findall(r"^    (for i in .*)$", program.text, re.MULTILINE)
    assert f" {program.options.processes} & done; wait" in line
    python = f"{sys.executable} -P"
    return [
        "bash",
        "-c",
        line.replace("python", python).replace(program.name, path.name).replace("10000", str(port)),
    ]


def run(program: Program, folder: Path, start: Start, environment: dict[str, str]) -> list[Any]:
    """Run a program to its end; return what each process wrote: pairs of a cell and a text."""
    path = folder / program.name
    path.write_text(listening(program))
    with reserved_port() as port:
        process = subprocess.Popen(
            start(program, path, port),
            cwd=folder,
            # JAX takes a port that follows from the job's number, which another Slurm has, too.
            env={**environment, "JAX_COORDINATOR_PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=HANG_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    count = program.options.processes
    files = [folder / f"{program.name}.{k}" for k in range(count)]
    assert all(file.exists() for file in files), said
    told = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    assert [pairs[-2:] for pairs in told] == [[[-1, "through"], [-1, "\n"]]] * count, said
    assert wait_until(lambda: not using(path), HANG_S), using(path)
    return told


def events(texts: Sequence[str]) -> tuple[Event, ...]:
    """Return what a process of mcnb's would have recorded of these writes."""
    silent = SimpleNamespace(reported=0, read=lambda cell_ends=False: "")
    nobody = SimpleNamespace(add=lambda text: None, begin=lambda *sizes: None)
    record = Record(cast(Any, dict.fromkeys(STREAMS, silent)), cast(Any, nobody))
    for text in texts:
        record.write("stdout", text)
    return record.take()


def labelled(text: str) -> list[tuple[str, str]]:
    """Return each line with the label that it stands under."""
    width = max((len(found[0]) for found in LABEL.finditer(text)), default=0)
    lines = []
    label = ""
    for line in text.splitlines():
        found = LABEL.match(line)
        label = found[0] if found else label
        lines.append((label, line[width + 1 :].rstrip()))
    return lines


def printed(told: Sequence[Any], number: int) -> list[tuple[str, str]]:
    said = {
        k: events([text for cell, text in pairs if cell == number]) for k, pairs in enumerate(told)
    }
    return labelled("".join(entry.text for entry in entries(fold_events(said), len(told))))


def stored(cell: Any) -> list[tuple[str, str]]:
    """Return what the lesson stores of a cell's text, without the labels of pictures.

    Notes are mcnb's own, and no program prints them.
    """
    text = ""
    for output in cell.outputs:
        if output.output_type == "stream":
            text += output.text
        elif set(output.data) == {"text/plain"}:
            text += f"{output.data['text/plain']}\n"
        else:
            above = text.removesuffix("\n").rpartition("\n")[2]
            assert LABEL.fullmatch(above)
            text = text[: -len(above) - 1]
    return labelled(re.sub(r"^Note: .*\n", "", text, flags=re.MULTILINE))


def compare(lesson: Path, folder: Path, start: Start, environment: dict[str, str]) -> None:
    """Run a lesson's programs, and compare what their cells print with what is stored."""
    kept = nbformat.read(lesson.with_suffix(".ipynb"), 4).cells
    tags = [cell.metadata.get("tags", []) for cell in kept]
    assert sum("no-script" in tag for tag in tags) == TAGGED.get(lesson.stem, 0)
    with_text = {
        index
        for index, cell in enumerate(kept)
        if cell.source.startswith("%%mcjax") and not tags[index] and stored(cell)
    }
    compared = set()
    for program in export(jupytext.read(lesson).cells, lesson.name, f"{lesson.stem}.py"):
        told = run(program, folder, start, environment)
        assert not printed(told, len(program.cells))  # the end
        for number, index in enumerate(program.cells):
            says = printed(told, number)
            if index in with_text and index not in program.left_out:
                assert says == stored(kept[index]), kept[index].source
                compared.add(index)
            else:
                assert says == [], kept[index].source
    assert compared == with_text != set()
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
