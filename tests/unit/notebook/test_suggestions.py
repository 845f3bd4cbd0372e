"""What may follow in a line that begins with a magic of mcnb's."""

from __future__ import annotations

import pytest

from mcnb.notebook.suggestions import Suggestions, suggestions

COMMANDS = ("start", "auto", "status", "compare", "debug", "push", "pull", "run", "restart")
NAMES = ("params", "_hidden", "path")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%mcjax sta", ["start", "status"]),
        ("  %mcjax  sta", ["start", "status"]),
        ("%mcjax ", list(COMMANDS)),
        ("%mcjax restart --", ["--replay", "--keep-going"]),
        ("%mcjax start --pla", ["--platform"]),
        ("%mcjax start --platform ", ["cpu", "cuda", "tpu"]),
        ("%mcjax start -n 4 --platform c", ["cpu", "cuda"]),
        ("%mcjax auto ", ["on", "off"]),
        ("%mcjax auto of", ["off"]),
        ("%mcjax push pa", ["params", "path"]),
        ("%mcjax push params ", ["params", "path"]),
        ("%mcjax nothing --", []),
        ("%%mcjax --un", ["--unchecked"]),
        ("%%mcjax -p 2 --ti", ["--timeout"]),
        ("%%mcjax word", []),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    found = suggestions(line, COMMANDS, NAMES)
    assert found is not None
    assert (list(found.words), found.expression, found.files) == (words, "", False)


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("%mcjax compare params['w'].sh", "params['w'].sh"),
        ("%mcjax debug p x.sh", "p x.sh"),
        ("%mcjax pull x", "x"),
        ("%mcjax compare ", ""),
    ],
)
def test_names_of_the_processes(line: str, expression: str) -> None:
    found = suggestions(line, COMMANDS, NAMES)
    assert found is not None
    assert (found.words, found.expression) == ((), expression)


def test_files() -> None:
    assert suggestions("%mcjax run tra", COMMANDS, NAMES) == Suggestions("tra", files=True)


@pytest.mark.parametrize("line", ["%mcjax", "%time x", "x = %mcjaxes ", "print(1)", "%%mcjaxx -"])
def test_other_lines(line: str) -> None:
    assert suggestions(line, COMMANDS, NAMES) is None
