"""What a notebook shows of mcnb's errors, and which of Python's errors they are."""

from __future__ import annotations

import pytest

from mcnb.errors import (
    WIDTH,
    CellError,
    ClusterError,
    LockstepError,
    McnbError,
    OptionError,
    PictureError,
    wrapped,
)

LONG = "word " * 12 + "the last"  # 68 characters


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (LONG, [LONG]),
        (f"{LONG}!", [LONG.removesuffix(" last"), "last!"]),
        (f"    {LONG}", [f"    {LONG}"]),
        (f"----> 5 {LONG}", [f"----> 5 {LONG}"]),
        (f"\x1b[31m{LONG}\x1b[0m", [f"\x1b[31m{LONG}\x1b[0m"]),
        ("x" * 90, ["x" * 90]),
        (f"{'word ' * 13}co-hosts", ["word " * 12 + "word", "co-hosts"]),
        ("one\ntwo", ["one", "two"]),
        ("", [""]),
    ],
    ids=["68", "69", "code", "the line", "colours", "one word", "a hyphen", "two lines", "empty"],
)
def test_lines_are_wrapped_for_a_notebook_unless_they_are_code(line: str, shown: list[str]) -> None:
    assert len(LONG) == WIDTH
    assert McnbError("message", ["first", line])._render_traceback_() == ["first", *shown]


def test_an_error_without_lines_shows_its_name_and_message() -> None:
    assert ClusterError("It is gone")._render_traceback_() == ["ClusterError: It is gone"]
    assert str(ClusterError("It is gone", ["a line"])) == "It is gone"


def test_the_lines_of_a_sentence_after_the_first_are_indented() -> None:
    assert wrapped(f"{LONG} more", "  ") == [LONG, "  more"]


def test_an_error_knows_what_fixes_it() -> None:
    plain = ClusterError("It is gone")
    assert (plain.what, plain.remedy) == ("It is gone", "")
    fixed = OptionError.remedied("ssh is missing", "apt install ssh", "Get it")
    assert type(fixed) is OptionError
    assert str(fixed) == "ssh is missing. Get it: apt install ssh"
    assert (fixed.what, fixed.remedy) == ("ssh is missing", "apt install ssh")


def test_a_verdict_keeps_its_kind_and_notes_but_not_those_of_jax() -> None:
    error = LockstepError("missing", ["a line"], "missing")
    assert (error.kind, error.lines, LockstepError("missing").kind) == ("missing", ["a line"], "")
    error.add_note("--------------------\nFor simplicity, JAX has removed its internal frames ...")
    assert not hasattr(error, "__notes__")
    error.add_note("mine")
    assert error.__notes__ == ["mine"]


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (LockstepError, CellError),
        (CellError, McnbError),
        (OptionError, ClusterError),
        (OptionError, ValueError),
        (PictureError, ValueError),
        (ClusterError, McnbError),
    ],
)
def test_who_catches_an_error(kind: type[McnbError], also: type[Exception]) -> None:
    with pytest.raises(also):
        raise kind("text")
