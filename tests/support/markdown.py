"""Links and anchors of Markdown files, as GitHub makes them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

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
