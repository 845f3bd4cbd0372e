"""A picture: one scene, as text, SVG, HTML or in matplotlib's axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcnb.pictures.plot import plot
from mcnb.pictures.scene import Scene
from mcnb.pictures.svg import svg_of
from mcnb.pictures.text import text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Picture:
    """A picture, which Jupyter shows as SVG and a terminal as text.

    Equal pictures are equal to the byte, on every process and in every run.

    Attributes:
        scene: What is drawn, as plain data.
    """

    scene: Scene

    def text(self) -> str:
        """Return it as text."""
        return text_of(self.scene)

    def svg(self) -> str:
        """Return it as an SVG document."""
        return svg_of(self.scene)

    def html(self) -> str:
        """Return it as HTML that scrolls where the page is narrow."""
        return f'<div style="overflow-x:auto">{self.svg()}</div>'

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw it in matplotlib's axes, and return them.

        Args:
            ax: The axes; those of a new figure by default.
        """
        return plot(self.scene, ax)

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"image/svg+xml": self.svg(), "text/plain": self.text()}
