"""Build the site of the documentation with Sphinx: `python tools/dev.py docs`.

Its pages are the files that GitHub shows, README.md first; nothing is written twice.
"""

from __future__ import annotations

import dataclasses
import json
import re
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Name, Text

import mcnb

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))

project = "mcnb"
author = "the authors of mcnb"
project_copyright = author
version = release = mcnb.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/api.rst",
    "docs/course/*.md",
    "notebooks/README.md",
    "notebooks/gallery.md",
    # Not the other half of each pair, from which the notebook is made.
    *(f"notebooks/{name}.ipynb" for name in LESSONS),
    "tests/corpus/README.md",
]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}

# The outputs are those that are stored, and that nbval compares.
nb_execution_mode = "off"
nb_merge_streams = True
# mcnb folds the errors of several processes, which is no traceback of one.
nb_render_error_lexer = "text"
myst_enable_extensions = ["dollarmath"]
# The anchors that GitHub gives to headings.
myst_heading_anchors = 4

nitpicky = True
nitpick_ignore_regex = [
    # Other projects' names lead nowhere: the site is built without a network.
    ("py:.*", r"(?!mcnb\.).*"),
    # What mcnb makes of these is public, they are not.
    ("py:class", r"mcnb\.(messages\.Reply|cluster\.(outcome\.Outcome|workers\.Pending))"),
    ("py:class", r"mcnb\.pictures\.scene\.Scene"),
]
autodoc_typehints_description_target = "documented"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "sphinx_book_theme"
html_title = "mcnb"
html_theme_options = {
    "show_toc_level": 2,
    "use_download_button": False,
    # The margin has the search.
    "navbar_persistent": [],
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False

# What stands in the margin of each page.
_CONTENTS = [
    ("The course", ["notebooks/README", *(f"notebooks/{name}" for name in LESSONS)]),
    ("Cells", ["docs/cells", "docs/pictures", "notebooks/gallery"]),
    ("Programs and machines", ["docs/programs", "docs/hosts", "docs/tpus", "docs/pods"]),
    (
        "Verdicts",
        ["docs/verdicts", "docs/each_verdict", "tests/corpus/README", "docs/how_it_works"],
    ),
    ("Reference", ["docs/README", "docs/api", "CHANGELOG"]),
    ("To contribute", ["CONTRIBUTING", "docs/course/sources"]),
]


class CellLexer(PythonLexer):  # type: ignore[misc]
    """Highlights a cell in which magics and shell commands stand beside Python.

    IPython's own lexer takes the code below a cell magic that it does not know for text.
    """

    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"^(%%?\w+)(.*\n)", bygroups(Name.Decorator, Text)),
            (r"^!.*\n", Text),
            inherit,
        ]
    }


def _prepare(app: Any, page: str, source: list[str]) -> None:
    """Name the language of cells, and give the first page a table of contents."""
    if app.env.doc2path(page).suffix == ".ipynb":
        notebook = json.loads(source[0])
        notebook["metadata"]["language_info"] = {"name": "python", "pygments_lexer": "mcjax"}
        source[0] = json.dumps(notebook)
    source[0] = re.sub(r"^```\n(?=%)", "```mcjax\n", source[0], flags=re.MULTILINE)
    if page == root_doc:
        for caption, pages in _CONTENTS:
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def _without_constructor(
    _: Any, what: str, __: str, found: object, *___: Any
) -> tuple[str, None] | None:
    """Show no constructor of what users don't construct."""
    data = dataclasses.is_dataclass(found) or (isinstance(found, type) and issubclass(found, Enum))
    return ("", None) if what == "class" and data else None


def setup(app: Any) -> dict[str, bool]:
    """Connect what this file adds to Sphinx."""
    app.add_lexer("mcjax", CellLexer)
    app.connect("source-read", _prepare)
    app.connect("autodoc-process-signature", _without_constructor)
    return {"parallel_read_safe": True}
