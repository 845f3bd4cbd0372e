"""Render one scene as text, SVG, HTML or on matplotlib axes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcnb.errors import PictureError
from mcnb.pictures.pages import for_notebook, in_page, whole_page
from mcnb.pictures.plot import FORMATS, plot, save_plot
from mcnb.pictures.scene import Scene
from mcnb.pictures.svg import svg_of
from mcnb.pictures.text import text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Picture:
    """Picture that Jupyter shows as SVG, in an open notebook with tooltips, and a terminal as text.

    Equal pictures are rendered to identical bytes, on every process and in every run.

    Attributes:
        scene: Contents of the picture, as plain data.
    """

    scene: Scene

    def text(self) -> str:
        """Return the picture as text."""
        return text_of(self.scene)

    def svg(self) -> str:
        """Return the picture as an SVG document."""
        return svg_of(self.scene)

    def html(self) -> str:
        """Return the picture as HTML: it scrolls sideways on a narrow page, and follows its theme.

        JupyterLab's themes are known, Sphinx's, Colab's and VS Code's. Pointing at a part says what
        it is.
        """
        return in_page(self.svg(), self.text())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the picture on matplotlib axes, and return the axes.

        Args:
            ax: Axes to draw on; by default, those of a new figure of the right size. The font size
                follows the size of the axes at the time of the call.

        Raises:
            PictureError: `ax` is not an `Axes`.
        """
        return plot(self.scene, ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, in the format that the end of its name says.

        An `.svg` file is sharp at every size. An `.html` file has tooltips and is dark where the
        reader's system is, and needs no kernel. A `.png` file has 192 pixels an inch, `.pdf` is for
        LaTeX, `.txt` is for a terminal.

        Args:
            path: Name of the file.

        Raises:
            PictureError: The name has another end.
            OSError: The file can't be written.

        Example:
            >>> picture = Picture(Scene("float32[8,4]  P('a')"))
            >>> picture.save("layout.gif")
            Traceback (most recent call last):
            ...
            mcnb.errors.PictureError: layout.gif must end in .html, .pdf, .png, .svg or .txt, ...
        """
        file = Path(path)
        texts: dict[str, Callable[[], str]] = {
            ".svg": self.svg,
            ".html": self._page,
            ".txt": lambda: f"{self.text()}\n",
        }
        suffix = file.suffix.lower()
        if suffix in texts:
            file.write_text(texts[suffix](), encoding="utf-8")
        elif suffix in FORMATS:
            save_plot(self.scene, file)
        else:
            *most, last = sorted([*texts, *FORMATS])
            raise PictureError(
                f"{file.name} must end in {', '.join(most)} or {last}, which says the format of "
                "the picture"
            )

    def _page(self) -> str:
        return whole_page(self.scene.title, self.html())

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return for_notebook({"image/svg+xml": self.svg(), "text/plain": self.text()})
