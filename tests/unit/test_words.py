"""Counts, sizes, places and errors in words."""

from __future__ import annotations

from typing import Any

import pytest
from jax.sharding import PartitionSpec as P

from mcnb._text import (
    LIBRARY_PATH,
    a_or_an,
    cell_label,
    error_line,
    index_ranges,
    name_processes,
    ordinal,
    place_name,
    size,
    spec_text,
)
from mcnb.messages import ProcessError, Unfinished


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1024, "1.02 KB"),
        (999_499, "999 KB"),
        (999_500, "1 MB"),
        (10**12, "1 TB"),
        (10**15, "1000 TB"),
        (123_456 * 10**12, "123456 TB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(count: int, text: str) -> None:
    assert size(count) == text


def test_numbers_in_words() -> None:
    assert [ordinal(n) for n in (21, 102, 111, 112, 1013)] == [
        "21st",
        "102nd",
        "111th",
        "112th",
        "1013th",
    ]
    assert index_ranges([5, 2, 0, 1, 7, 6]) == "0-2,5-7"
    assert index_ranges([]) == ""
    assert name_processes([0, 1, 2], 3) == "all 3 processes"
    assert name_processes([0, 1, 2], 4) == name_processes([0, 1, 2]) == "processes 0-2"
    assert name_processes([0], 1) == "process 0"


def test_nouns_have_their_article() -> None:
    nouns = ("AbstractMesh", "UserDict", "NDArray", "Iterator", "Operation", "Event", "Namespace")
    assert [a_or_an(noun).split()[0] for noun in nouns] == ["An", "A", "An", "An", "An", "An", "A"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, ""),
        (P(), "P()"),
        (P("a"), "P('a')"),
        (P(None, "a"), "P(None, 'a')"),
        (P(("a", "b")), "P(('a', 'b'))"),
    ],
)
def test_specs_are_short(spec: Any, text: str) -> None:
    assert spec_text(spec) == text


@pytest.mark.parametrize(
    ("filename", "label", "place"),
    [
        ("<In[3]>", "3", "In[3], line 2"),
        ("<In[]>", "", "In[], line 2"),
        ("<In[3]> and more", None, "<In[3]> and more:2"),
        ("/home/me/train.py", None, "train.py:2"),
        ("/tmp/ipykernel_71/2376.py", None, "a cell, line 2"),
        ("/tmp/ipykernel_71/train.py", None, "train.py:2"),
    ],
)
def test_places_are_cells_or_files(filename: str, label: str | None, place: str) -> None:
    assert (cell_label(filename), place_name(filename, 2)) == (label, place)


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages", "lib/python3.11"])
def test_a_librarys_path_is_told_from_the_users(folder: str) -> None:
    line = f'File "/opt/mine/{folder}/jax/core.py"'
    assert LIBRARY_PATH.sub("", line) == 'File "jax/core.py"'
    assert LIBRARY_PATH.sub("", 'File "/opt/mine/train.py"') == 'File "/opt/mine/train.py"'


class UnsayableError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_is_one_line_also_if_its_text_fails() -> None:
    assert error_line(ValueError("one\ntwo")) == "ValueError: one"
    assert error_line(ValueError()) == "ValueError"
    assert error_line(UnsayableError()) == "UnsayableError: its text can't be shown"


@pytest.mark.parametrize(
    ("message", "line", "heading", "summary"),
    [
        ("no x", 3, "KeyError in line 3", "KeyError: no x (line 3)"),
        ("no x", None, "KeyError", "KeyError: no x"),
        ("", 3, "KeyError in line 3", "KeyError (line 3)"),
        (" \n", None, "KeyError", "KeyError"),
        ("\n  first \nsecond\n", 3, "KeyError in line 3", "KeyError: first (line 3)"),
    ],
)
def test_an_error_of_a_process_in_a_heading_and_in_a_sentence(
    message: str, line: int | None, heading: str, summary: str
) -> None:
    error = ProcessError("KeyError", message, line, "")
    assert (error.heading(), error.summary()) == (heading, summary)


@pytest.mark.parametrize(
    ("left", "nothing"),
    [
        ({}, True),
        ({"arrays": ("x",), "newest": "f", "cell": "3", "bytes": 8}, True),
        ({"devices": (0,)}, False),
        ({"threads": (None,)}, False),
        ({"native": True}, False),
        ({"children": ("sh",)}, False),
    ],
)
def test_what_counts_as_running_still(left: dict[str, Any], nothing: bool) -> None:
    assert Unfinished(**left).nothing is nothing
