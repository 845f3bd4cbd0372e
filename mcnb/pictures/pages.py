"""Put pictures into pages: HTML that follows the page's theme, and has tooltips."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from mcnb.errors import PictureError
from mcnb.pictures.drawing import EDGE, INK, NOBODY, PAPER, SOFT
from mcnb.pictures.svg import SVG_BEGINS

# Jupyter's server sets it for the kernels of notebooks that somebody has opened. Tools that execute
# notebooks do not, so that what they store is the same everywhere.
_OPENED = "JPY_SESSION_NAME"
# By the name of a CSS variable: a colour of pictures, and what replaces it on a dark page.
THEME: Mapping[str, tuple[str, str]] = {
    "paper": (PAPER, "#181818"),
    "ink": (INK, "#E8E8E8"),
    "soft": (SOFT, "#B0B0B0"),
    "edge": (EDGE, "#4A4A4A"),
    "nobody": (NOBODY, "#383838"),
}
# How dark pages say so: JupyterLab and Jupyter Notebook, sites made by Sphinx, Colab, VS Code.
_DARK = (
    '[data-jp-theme-light="false"]',
    '[data-theme="dark"]',
    'html[theme="dark"]',
    "body.vscode-dark",
)


_LIGHT_COLORS, _DARK_COLORS = (
    "".join(f"--mcnb-{name}:{colors[side]};" for name, colors in THEME.items()) for side in (0, 1)
)


def _style() -> str:
    on_dark = ",".join(f"{page} .mcnb-picture" for page in _DARK)
    rules = [f".mcnb-picture{{{_LIGHT_COLORS}overflow-x:auto}}", f"{on_dark}{{{_DARK_COLORS}}}"]
    for name, (color, _) in THEME.items():
        # White words stand in boxes that have a process's colour on every page.
        filled = ":not(text)" if color == PAPER else ""
        rules.append(f'.mcnb-picture {filled}[fill="{color}"]{{fill:var(--mcnb-{name})}}')
        rules.append(f'.mcnb-picture [stroke="{color}"]{{stroke:var(--mcnb-{name})}}')
    # What lies on a part is not what one points at: the words in it, and the plates behind them.
    rules.append(".mcnb-picture svg text,.mcnb-picture [fill-opacity]{pointer-events:none}")
    # A wide picture scrolls, and keeps its words readable. Between two pixels, where a page may put
    # it, it would lose the lower line of its frame if it were clipped.
    rules.append(".mcnb-picture>svg{max-width:none!important;overflow:visible}")
    return "".join([*rules, ".mcnb-text{display:none}"])


STYLE = _style()


def in_page(svg: str, text: str = "") -> str:
    """Return a picture as HTML, for any page; on a dark one, it is dark.

    Args:
        svg: The picture as SVG.
        text: The picture as text, for pages that show neither SVG nor styles, such as GitHub's.

    Example:
        >>> page = in_page("<svg></svg>", "[0] <-> [1]")
        >>> page[page.index("</style>") + 8 :]
        '<pre class="mcnb-text">[0] &lt;-&gt; [1]</pre><svg></svg></div>'
    """
    instead = f'<pre class="mcnb-text">{escape(text)}</pre>' if text else ""
    return f'<div class="mcnb-picture"><style>{STYLE}</style>{instead}{svg}</div>'


# A page of its own has the theme of the reader's system. Its rule counts more than the one above.
_PAGE_STYLE = (
    ":root{color-scheme:light dark}"
    f"@media(prefers-color-scheme:dark){{:root .mcnb-picture{{{_DARK_COLORS}}}}}"
)


def whole_page(title: str, body: str) -> str:
    """Return an HTML document, which needs no other file and follows the theme of the system.

    Args:
        title: Title of the document, as text.
        body: Contents, as HTML.

    Example:
        >>> whole_page("x & y", "<p>text</p>").splitlines()[-2]
        '<body><p>text</p></body>'
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}</style></head>\n"
        f"<body>{body}</body>\n</html>\n"
    )


def save_page(path: str | os.PathLike[str], title: str, body: str, what: str) -> None:
    """Write an HTML document to a file.

    Args:
        path: Name of the file, which ends in `.html`.
        title: Title of the document, as text.
        body: Contents, as HTML.
        what: What it is, for the error, such as `"an explorer"`.

    Raises:
        PictureError: The name ends otherwise.
        OSError: The file can't be written.
    """
    file = Path(path)
    if file.suffix != ".html":
        raise PictureError(f"{file.name} must end in .html, because {what} is an HTML page")
    file.write_text(whole_page(title, body), encoding="utf-8")


def is_opened() -> bool:
    """Return whether this is the kernel of a notebook that somebody has opened."""
    return _OPENED in os.environ


def for_notebook(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a cell displays, with HTML for a picture of mcnb's if somebody looks at it.

    In an image, as which Jupyter shows SVG, nothing follows the page and nothing can be pointed at.

    Args:
        data: Representations by their MIME types.
    """
    svg = data.get("image/svg+xml", "")
    if not is_opened() or "text/html" in data or not str(svg).startswith(SVG_BEGINS):
        return dict(data)
    return {"text/html": in_page(svg, data.get("text/plain", "")), **data}
