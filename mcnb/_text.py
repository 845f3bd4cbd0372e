"""Put counts, sizes, process indices, source lines and specs into words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

_CELL_NAME = re.compile(r"<In\[(.*?)\]>")
# ipykernel's file names for cells that run in the notebook kernel.
_NOTEBOOKS_OWN = re.compile(r".*/ipykernel_\d+/\d+\.py")
# The part of a library's path that differs between machines.
LIBRARY_PATH = re.compile(r"[^\s\"']*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
_UNITS = ("B", "KB", "MB", "GB", "TB")
_Same = TypeVar("_Same")


def plural(count: int, one: str, many: str) -> str:
    """Return a count with its noun.

    Example:
        >>> plural(1, "process", "processes")
        '1 process'
    """
    return f"{count} {one if count == 1 else many}"


def ordinal(number: int) -> str:
    """Return an ordinal number in digits.

    Example:
        >>> [ordinal(number) for number in (1, 2, 3, 4, 11, 22, 113)]
        ['1st', '2nd', '3rd', '4th', '11th', '22nd', '113th']
    """
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def filled(text: str, process: int, processes: int) -> str:
    """Return a text with a process's index and the number of processes in their places.

    Example:
        >>> filled("--rank={process} --size={processes}", 2, 4)
        '--rank=2 --size=4'
    """
    return text.replace("{processes}", str(processes)).replace("{process}", str(process))


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, which compare as versions do.

    Example:
        >>> release("0.10.2"), release("0.12.0.dev3+local") > (0, 9)
        ((0, 10, 2), True)
    """
    return tuple(map(int, re.findall(r"\d+", re.split(r"[^\d.]", version)[0])))


def array_type(dtype: object, shape: Sequence[int]) -> str:
    """Return an array's type of elements and shape, as JAX writes them.

    Example:
        >>> array_type("float32", (8, 4)), array_type("int32", ())
        ('float32[8,4]', 'int32[]')
    """
    return f"{dtype}[{','.join(map(str, shape))}]"


def error_line(error: BaseException) -> str:
    r"""Return an error in one line.

    Example:
        >>> error_line(OSError("\ndisk full\nor so")), error_line(KeyboardInterrupt())
        ('OSError: disk full', 'KeyboardInterrupt')
    """
    try:
        message = str(error).strip()
    except Exception:  # its own __str__ may fail
        message = "its text can't be shown"
    return f"{type(error).__name__}: {message}".removesuffix(": ").splitlines()[0]


def a_or_an(noun: str) -> str:
    """Return a noun with its article, for the beginning of a sentence.

    Example:
        >>> a_or_an("int"), a_or_an("jax.Array"), a_or_an("ndarray"), a_or_an("8th time")
        ('An int', 'A jax.Array', 'An ndarray', 'An 8th time')
    """
    vowels = ("a", "e", "i", "o", "nd", "8", "11th", "18th")
    spoken_with_a_vowel = noun.lower().startswith(vowels)
    return f"{'An' if spoken_with_a_vowel else 'A'} {noun}"


def index_ranges(indices: Sequence[int]) -> str:
    """Return indices as text, with runs of three or more as ranges.

    Example:
        >>> index_ranges([0, 1, 2, 5])
        '0-2,5'
        >>> index_ranges([0, 1, 3])
        '0,1,3'
    """
    parts: list[str] = []
    # In a run of consecutive indices, the difference between index and position is the same.
    ascending = enumerate(sorted(indices))
    for _, pairs in itertools.groupby(ascending, key=lambda pair: pair[1] - pair[0]):
        run = [index for _, index in pairs]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return ",".join(parts)


def name_processes(indices: Sequence[int], count: int | None = None) -> str:
    """Name processes, at least one, for a sentence: "all 4 processes" if they are all `count`.

    Example:
        >>> name_processes([2]), name_processes([0, 1, 2], 4), name_processes([0, 1], 2)
        ('process 2', 'processes 0-2', 'both processes')
    """
    if len(indices) == 1:
        return f"process {indices[0]}"
    if count is not None and len(indices) == count:
        return "both processes" if count == 2 else f"all {count} processes"
    return f"processes {index_ranges(indices)}"


def grouped(by_process: Mapping[int, _Same]) -> list[tuple[_Same, list[int]]]:
    """Group processes by equal values, for a sentence on each group.

    Example:
        >>> grouped({0: "a", 1: "b", 2: "a"})
        [('a', [0, 2]), ('b', [1])]
    """
    groups: dict[_Same, list[int]] = {}
    for k, value in by_process.items():
        groups.setdefault(value, []).append(k)
    return list(groups.items())


def spec_text(spec: Any) -> str:
    """Return a spec as short text, the same on all versions of JAX."""
    return "" if spec is None else str(spec).replace("PartitionSpec", "P").replace(",)", ")")


def cell_name(label: str) -> str:
    """Return the file name of a cell's code.

    Example:
        >>> cell_name("3")
        '<In[3]>'
    """
    return f"<In[{label}]>"


def cell_label(filename: str) -> str | None:
    """Return the label of the cell with that file name; None for other files.

    Code that mcnb runs for itself has an empty label.
    """
    match = _CELL_NAME.fullmatch(filename)
    return match and match[1]


def place_name(filename: str, line: int) -> str:
    """Return the name of a line of a cell, or of another file.

    Example:
        >>> place_name("<In[3]>", 2), place_name("/home/me/train.py", 8)
        ('In[3], line 2', 'train.py:8')
        >>> place_name("/tmp/ipykernel_71/2376093919.py", 3)
        'a cell, line 3'
    """
    label = cell_label(filename)
    if _NOTEBOOKS_OWN.fullmatch(filename):
        return f"a cell, line {line}"
    return f"{Path(filename).name}:{line}" if label is None else f"In[{label}], line {line}"


def size(count: int) -> str:
    """Return a number of bytes with its unit.

    Example:
        >>> size(4), size(1_500_000)
        ('4 B', '1.5 MB')
    """
    amount, unit = float(count), 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:  # three digits round it to 1000
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}" if amount < 999.5 else f"{amount:.0f} {_UNITS[unit]}"


def label(processes: Sequence[int], count: int) -> str:
    """Return the label of some of the `count` processes of a cluster.

    Example:
        >>> label([0, 1, 2, 3], 4), label([0, 2, 3], 4), label([0], 1)
        ('[all 4]', '[0,2,3]', '[0]')
    """
    if len(processes) == count and count > 1:
        return f"[all {count}]"
    return f"[{index_ranges(processes)}]"


def is_expression(text: str) -> bool:
    """Return whether a text is an expression of Python.

    Example:
        >>> is_expression("params['w']"), is_expression("w b")
        (True, False)
    """
    try:
        compile(text, "<expression>", "eval")
    except (SyntaxError, ValueError):  # the latter of a null character, on some versions
        return False
    return True
