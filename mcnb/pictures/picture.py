"""Render one scene as text, SVG, HTML or on matplotlib axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcnb.pictures.pages import for_notebook, in_page
from mcnb.pictures.plot import plot
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

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return for_notebook({"image/svg+xml": self.svg(), "text/plain": self.text()})
