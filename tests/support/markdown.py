"""Links and anchors of Markdown files, as GitHub makes them, and what they quote."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_BLOCK = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


@cache
def anchors(path: Path) -> dict[str, str]:
    """Maps each anchor that GitHub makes in a Markdown file to its heading."""
    found: dict[str, str] = {}
    fenced = False
    for line in path.read_text().splitlines():
        if line.startswith("```"):
            fenced = not fenced
        heading = re.match(r"#{1,6} +(.*?)(?: +#+)? *$", line)
        if fenced or heading is None:
            continue
        text = LINK.sub(r"\1", heading[1])
        slug = anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = 0
        while anchor in found:
            again += 1
            anchor = f"{slug}-{again}"
        found[anchor] = text
    return found


@dataclass(frozen=True)
class Block:
    """A fenced block of a Markdown file: its language, which may be empty, and its lines."""

    language: str
    text: str


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a Markdown file."""
    return [Block(*found) for found in _BLOCK.findall(path.read_text())]


def spans(path: Path) -> list[str]:
    """Return what stands in backticks in the prose and the tables of a Markdown file, once each."""
    return list(dict.fromkeys(_SPAN.findall(_BLOCK.sub("", path.read_text()))))
