"""Run pages of documentation on several processes: `python tools/pages.py PAGE...`.

    python tools/pages.py ~/jax/docs/multi_process.md ~/jax/docs/parallel.md
    python tools/pages.py ~/jax/docs/parallel.md -n 2 -d 4

A page is Markdown, MyST or a notebook, and its blocks run as they are, one after the other: first
on one process that has all the devices, which is what most pages are written for, then on several.
For each page there is a line of a Markdown table on stdout. stderr has a line or two for every
block that does not run on several processes. A block is counted as

- run: it runs, or fails where the page itself says so (tag raises-exception);
- alike: it fails on one process, too, with an error of the same type: it needs a package that is
  not installed, or another block, or another version of JAX;
- hinted: it fails on several processes only, with a hint;
- following: it needs a name of a block that failed;
- open: it fails on several processes only, and nothing says what to do;
- not run: a block before it ended the run, on several processes.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcnb._lessons import read_notebook
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.notebooks import NotebookCell, NotebookRun, cells_of
from mcnb.cluster.result import Result
from mcnb.errors import McnbError

KINDS = ("run", "alike", "hinted", "following", "open", "not run")


@dataclass(frozen=True)
class Failure:
    """What a block that failed came to.

    Attributes:
        kinds: The names of the types of its errors, one for each process that raised one.
        sentence: How it failed, in a line.
        hint: What to do; empty if nothing says so.
    """

    kinds: frozenset[str]
    sentence: str
    hint: str


@dataclass(frozen=True)
class Side:
    """A run of a page.

    Attributes:
        blocks: The numbers of the page's blocks of Python, as they stand in it.
        failures: Those that failed, by their numbers.
        not_run: Those that did not run, because the run ended early.
        end: Which blocks did not run, and why, in a line; empty if all did.
    """

    blocks: Sequence[str]
    failures: Mapping[str, Failure]
    not_run: Container[str] = ()
    end: str = ""


def run(page: Path, processes: int, devices: int, limit_s: float) -> Side:
    """Run a page's blocks.

    Args:
        page: Its file.
        processes: The number of processes.
        devices: The number of devices of each process.
        limit_s: The time limit of each block in seconds.
    """
    cells = [cell for cell in cells_of(read_notebook(page), page.name) if not cell.left_out]
    kinds: dict[str, frozenset[str]] = {}
    current: list[NotebookCell] = []

    def note(result: Result) -> None:
        kinds[current[-1].label] = frozenset(error.name for error in result.errors.values())

    # Pages read the files of their own folder, and write some.
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        Cluster(processes, devices) as cluster,
    ):
        hidden = shutil.ignore_patterns(".*")
        shutil.copytree(page.parent, folder, dirs_exist_ok=True, ignore=hidden)
        ran = NotebookRun(cluster, cells, page.name)
        ran.run(current.append, note, timeout=limit_s)
    failures = {
        cell.label: Failure(kinds.get(cell.label, frozenset()), sentence, hint)
        for cell, (sentence, hint) in ran.failed.items()
    }
    ends = [line for line in ran.report("") if line.startswith("Not run")]
    not_run = {cell.label for cell in ran.not_run}
    return Side([cell.label for cell in cells], failures, not_run, "".join(ends))


def kind_of(label: str, one: Side, several: Side) -> str:
    """Return what a block is counted as.

    Args:
        label: The block's number.
        one: The page on one process.
        several: The page on several.

    Example:
        >>> error = Failure(frozenset({"NameError"}), "all raised NameError: x", "")
        >>> kind_of("1", Side(["1"], {}), Side(["1"], {"1": error}))
        'open'
        >>> kind_of("1", Side(["1"], {"1": error}), Side(["1"], {"1": error}))
        'alike'
    """
    if label in several.not_run:
        return "not run"
    failure = several.failures.get(label)
    if failure is None:
        return "run"
    alone = one.failures.get(label)
    if alone is not None and alone.kinds == failure.kinds:
        return "alike"
    if failure.hint:
        return "hinted"
    return "following" if " defines " in failure.sentence else "open"


def table(page: Path, processes: int, devices: int, limit_s: float) -> Iterator[str]:
    """Run a page on one process and on several; yield its line, and what is said after it."""
    one = run(page, 1, processes * devices, limit_s)
    several = run(page, processes, devices, limit_s)
    kinds = {label: kind_of(label, one, several) for label in several.blocks}
    counts = Counter(kinds.values())
    yield f"| {page.name} | {len(kinds)} | {' | '.join(str(counts[k]) for k in KINDS)} |"
    for label, failure in several.failures.items():
        yield f"{page.name}, block {label}, {kinds[label]}: {failure.sentence}"
        if failure.hint:
            yield f"    {failure.hint}"
        if label in one.failures and kinds[label] != "alike":
            yield f"    on one process: {one.failures[label].sentence}"
    for side, name in ((one, "one process"), (several, f"{processes} processes")):
        if side.end:
            yield f"{page.name}, {name}: {side.end}"


def main(words: Sequence[str]) -> int:
    """Run the pages and print the table; return 0 if every block ran, or something says why not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("-n", type=int, default=4, help="processes (4)")
    parser.add_argument("-d", type=int, default=2, help="devices of each process (2)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each block (120)")
    arguments = parser.parse_args(words)
    print(f"| page | blocks | {' | '.join(KINDS)} |")
    print(f"| --- | --- | {' | '.join('---' for _ in KINDS)} |", flush=True)
    is_open = False
    for page in arguments.pages:
        try:
            line, *more = table(page.expanduser(), arguments.n, arguments.d, arguments.limit)
        except McnbError as error:
            line, more = f"| {page.name} |{' |' * (len(KINDS) + 1)}", [f"{page.name}: {error}"]
        print(line, flush=True)
        print(*more, sep="\n", file=sys.stderr, flush=True)
        is_open = is_open or any(", open: " in one or ": Not run" in one for one in more)
    return int(is_open)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
