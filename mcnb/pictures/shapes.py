"""What drawings are made of: boxes, rules, dots and labels with coordinates.

Coordinates are in pixels, from the upper left corner. Texts are set in a typewriter face, so that
their width is known wherever they are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from mcnb.pictures import palette

FONT = 12.0
ADVANCE = 0.61  # a character's width, in parts of the font's size
LINE = 17.0  # from one line of text to the next


Shape: TypeAlias = Literal["disc", "ring", "diamond"]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle.

    Attributes:
        x: Its left edge.
        y: Its upper edge.
        width: Its width.
        height: Its height.
        colors: Its colours, as stripes where there are several.
        edge: The colour of its edge.
        dashed: Whether its edge is dashed.
        hint: What is said of it where something points at it.
    """

    x: float
    y: float
    width: float
    height: float
    colors: tuple[str, ...]
    edge: str = palette.PAPER
    dashed: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A line of text.

    Attributes:
        x: Where it stands.
        y: Its middle.
        text: What it says.
        anchor: What of it stands at `x`.
        color: Its colour.
        size: The font's size.
        bold: Whether it is bold.
        plate: The colour behind it; empty for none.
    """

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    color: str = palette.INK
    size: float = FONT
    bold: bool = False
    plate: str = ""

    @property
    def width(self) -> float:
        """How wide it is."""
        return width_of(self.text, self.size)


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line from one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float
    color: str = palette.EDGE
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A mark.

    Attributes:
        x: Its middle.
        y: Its middle.
        radius: Its radius.
        color: Its colour.
        shape: What it is; a ring is empty inside, and so is a diamond.
    """

    x: float
    y: float
    radius: float
    color: str
    shape: Shape = "disc"


@dataclass(slots=True)
class Drawing:
    """Boxes, rules over them, dots over these and labels over all, and how large they are."""

    boxes: list[Box] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0

    def add(self, other: Drawing, x: float, y: float) -> None:
        """Add another drawing, moved to a place."""
        self.boxes += [replace(box, x=box.x + x, y=box.y + y) for box in other.boxes]
        self.labels += [replace(label, x=label.x + x, y=label.y + y) for label in other.labels]
        self.dots += [replace(dot, x=dot.x + x, y=dot.y + y) for dot in other.dots]
        self.rules += [
            replace(rule, x1=rule.x1 + x, y1=rule.y1 + y, x2=rule.x2 + x, y2=rule.y2 + y)
            for rule in other.rules
        ]


def width_of(text: str, size: float = FONT) -> float:
    """Return how wide a text is."""
    return len(text) * size * ADVANCE
