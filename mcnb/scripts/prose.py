"""What a program keeps of a lesson's text: its headings, and what leads to the next cell."""

from __future__ import annotations

import re
import textwrap

WIDTH = 88
_FENCE = re.compile(r"^(```|~~~|\$\$).*?^\1", re.MULTILINE | re.DOTALL)
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![A-Za-z0-9*])")
_NO_PROSE = re.compile(r"\s*(#|!\[|\||[-*+] |\d+\. |>|<|    )")


def headings(text: str) -> list[tuple[int, str]]:
    r"""Return the headings of Markdown text with their levels.

    Example:
        >>> headings("# One\ntext\n## `x` and *y*")
        [(1, 'One'), (2, '`x` and y')]
    """
    lines = _FENCE.sub("", text).splitlines()
    found = (re.match(r"(#+) (.*)", line) for line in lines)
    return [(len(match[1]), unmarked(match[2].strip())) for match in found if match]


def lead(text: str) -> str:
    r"""Return the last paragraph of Markdown text: in a lesson, it says what the next cell is for.

    Lists, tables, pictures and code are none; where the text ends in one, it is passed.

    Example:
        >>> lead("## Title\n\nBoth do.\n\n**Predict:** which [one](x.md)?\n\n- a list")
        'Predict: which one?'
    """
    paragraphs = re.split(r"\n\s*\n", _FENCE.sub("", text).strip())
    told = [part for part in paragraphs if part.strip() and not _NO_PROSE.match(part)]
    return unmarked(" ".join(told[-1].split())) if told else ""


def unmarked(text: str) -> str:
    r"""Return Markdown text without its marks for emphasis and links, code as it is.

    Example:
        >>> unmarked("**Now** *two* [links](a.md), and `P(*spec)`")
        'Now two links, and `P(*spec)`'
    """
    pieces = re.split(r"(`[^`]*`)", text)
    for number in range(0, len(pieces), 2):
        piece = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", pieces[number])
        piece = piece.replace("\\", "").replace("**", "")
        pieces[number] = _EMPHASIS.sub(r"\1", piece)
    return "".join(pieces)


def as_comment(text: str) -> str:
    """Return text as comment lines of a readable width."""
    return "\n".join(
        f"# {line}"
        for line in textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    )
