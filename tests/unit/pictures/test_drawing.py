"""How scenes are drawn: the gallery's stored pictures, and where each mark and word stands."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, Rectangle, RegularPolygon

import mcnb
from mcnb.pictures.drawing import (
    INK,
    LEAST_WIDTH,
    MOST_JOINS,
    MOST_WIDTH,
    PADDING,
    Drawing,
    drawing_of,
    lanes_drawing,
    width_of,
)
from mcnb.pictures.picture import Picture
from mcnb.pictures.plot import PIXELS_PER_INCH, POINTS_PER_INCH, SLIMMER
from mcnb.pictures.scene import (
    Bar,
    Cell,
    Chart,
    Grid,
    Join,
    Lane,
    Lanes,
    Profile,
    Scene,
    Table,
    elided,
)
from mcnb.pictures.svg import svg_of
from mcnb.pictures.text import text_of
from tests.conftest import ROOT
from tests.support.fake_devices import fake_devices
from tests.unit.pictures.test_show import SVG, mesh_of, struct

MESH = mesh_of((4, 2), "xy")


def mesh_of_some() -> mcnb.Picture:
    every = fake_devices(8)

    class Client:
        def devices(self) -> list[Any]:
            return list(every)

    for device in every:
        device.client = Client()
    kinds = AxisType.Auto, AxisType.Explicit, AxisType.Auto
    some = Mesh(every[:6].reshape(3, 2, 1), ("stage", "data", "model"), axis_types=kinds)
    return mcnb.picture(some)


def facets() -> mcnb.Picture:
    cube = mesh_of((2, 2, 2), "abc")
    return mcnb.picture(NamedSharding(cube, P("a", "b", "c")), (2, 4, 6))


def tree() -> mcnb.Picture:
    params = [
        (struct((64, 128), MESH, None, "y"), struct((128,), MESH, "y")),
        (struct((128, 128), MESH, "y", None), struct((128,), MESH)),
        (struct((128, 8), MESH), struct((8,), MESH)),
    ]
    return mcnb.picture(params, name="params")


def straggler() -> mcnb.Picture:
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "tools" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    gallery = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gallery", gallery)
        spec.loader.exec_module(gallery)
    picture: mcnb.Picture = gallery.from_data(
        json.loads(gallery.MEASURED.read_text())["straggler"]
    ).timeline()
    return picture


GALLERY: dict[str, Callable[[], mcnb.Picture]] = {
    "mesh": lambda: mcnb.picture(MESH),
    "mesh3": mesh_of_some,
    "array": lambda: mcnb.picture(struct((8, 4), MESH, "x", "y"), name="x", bounds=True),
    "replicated": lambda: mcnb.picture(struct((8, 4), MESH, None, "y"), name="w", bounds=True),
    "wide": lambda: mcnb.picture(
        struct((2, 4096), MESH, None, ("x", "y")), name="wide", bounds=True
    ),
    "facets": facets,
    "tree": tree,
    "straggler": straggler,
}


@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_of_the_gallery_that_needs_no_cluster(name: str) -> None:
    stored = ROOT / "notebooks" / "images" / "gallery" / f"{name}.svg"
    assert f"{GALLERY[name]().svg()}\n" == stored.read_text()


GRID = Grid(
    rows=(
        (Cell((0,), ("P0.0",)), Cell((1,), ("P1.0", "P1.1"), 2), None, Cell((0, 2), ("P0-2",), 3)),
        (Cell((7,), ()), Cell((), ("0,0",)), None, Cell((8,), ("P8.0",))),
    ),
    row_heads=("0", "1"),
    column_heads=("0:2", "10000:20000", "…", "4"),
    row_axis="rows",
    column_axis="columns",
    title="one",
    heights=(1.0, 0.2),
    widths=(1.0, 0.5, 0.1, 1.0),
)
TABLE = Table(("what", "how much"), (("a", "1"), ("bbb", "22")), (1,))
TEXT = """\
one                                    what  how much
↓ rows   → columns                     a            1
    0:2    10000:20000   …    4        bbb         22
  ┌──────┬─────────────┬───┬──────┐
0 │ P0.0 │     P1.0    │ … │ P0-2 │
  │      │     P1.1    │   │      │
  ├──────┼─────────────┼───┼──────┤
1 │      │     0,0     │ … │ P8.0 │
  └──────┴─────────────┴───┴──────┘
A note."""


def test_the_text_of_a_grid_beside_a_table() -> None:
    assert text_of(Scene("", ("A note.",), (GRID, TABLE))) == TEXT


MIDDLE = """\
    ┌───┬───┐
    │   │ 1 │
row │ a │ 2 │
    │   │ 3 │
    └───┴───┘"""


def test_words_stand_in_the_middle_of_their_rows() -> None:
    grid = Grid(((Cell((0,), ("a",)), Cell((1,), ("1", "2", "3"))),), row_heads=("row",))
    assert text_of(Scene("", (), (grid,))) == MIDDLE


def boxes_of(drawing: Drawing) -> list[str]:
    return [
        f"{box.x:g},{box.y:g} {box.width:g}x{box.height:g} {' '.join(box.colors)}"
        for box in drawing.boxes
    ]


def words_of(drawing: Drawing) -> list[str]:
    return [f"{label.x:g},{label.y:g} {label.anchor} {label.text}" for label in drawing.labels]


def test_where_boxes_and_words_of_a_grid_and_a_table_stand() -> None:
    drawing = drawing_of(Scene("A title", ("A note.",), (GRID, TABLE)))
    assert boxes_of(drawing) == [
        "29.32,109 86.52x52 #0072B2",
        "115.84,109 43.26x52 #E69F00 #F2CF7F",
        "198.034,109 86.52x52 #0072B2 #009E73",
        "29.32,161 86.52x24 #999999",
        "115.84,161 43.26x24 #EDEDED",
        "200.034,163 82.52x20 #0072B2",
    ]
    assert words_of(drawing) == [
        "14,22.5 start A title",
        "14,47.5 start one",
        "14,64.5 start ↓ rows",
        "14,81.5 start → columns",
        "72.58,98.5 middle 0:2",
        "137.47,98.5 middle 10000:20000",
        "178.567,98.5 middle …",
        "241.294,98.5 middle 4",
        "21.32,135 end 0",
        "72.58,135 middle P0.0",
        "137.47,126.5 middle P1.0",
        "137.47,143.5 middle P1.1",
        "178.567,135 middle …",
        "241.294,126.5 middle P0-2",
        "241.294,143.5 middle x3",
        "21.32,173 end 1",
        "137.47,173 middle 0,0",
        "178.567,173 middle …",
        "241.294,173 middle P8.0",
        "310.554,47.5 start what",
        "411.394,47.5 end how much",
        "310.554,64.5 start a",
        "411.394,64.5 end 1",
        "310.554,81.5 start bbb",
        "411.394,81.5 end 22",
        "14,203.5 start A note.",
    ]
    assert [(label.text, label.color) for label in drawing.labels if label.plate] == [
        ("P1.0", "#1A1A1A"),
        ("P1.1", "#1A1A1A"),
        ("P0-2", "#1A1A1A"),
        ("x3", "#1A1A1A"),
    ]
    assert [label.text for label in drawing.labels if label.bold] == [
        "A title",
        "one",
        "what",
        "how much",
    ]
    [rule] = drawing.rules
    assert (rule.x1, rule.y1, rule.x2, rule.y2) == (310.554, 57.0, 411.394, 57.0)
    assert (drawing.width, drawing.height) == (448.0, 226.0)


LANES = Lanes(
    (
        Lane(
            0,
            (
                Bar("python", 0.0, 0.25, ("Python, line 1", "line 1")),
                Bar("compiles", 0.25, 0.5, ("compiling",)),
                Bar("waits", 0.5, 1.0, ("waiting, line 2",)),
            ),
        ),
        Lane(
            1,
            (
                Bar("computes", 0.0, 0.125, ("computing, line 9", "line 9")),
                Bar("python", 0.125, 0.5, ("Python",)),
                Bar("python", 0.5, 0.51, ("Python, line 8",)),
            ),
        ),
        Lane(10, (), "gave no answer"),
    ),
    (
        Join(0.5, (0, 1), (), "line 2"),
        Join(0.75, (0, 1), (), "line 2"),
        Join(0.8, (0, 1), (), "line 3"),
        Join(0.82, (0, 1), (), "line 4"),
        Join(0.875, (0,), (1, 2), "line 4 ≠ line 5", False, (0.7,)),
        Join(1.0, (0, 1), (), "the end"),
        Join(1.0, (2,), (3,), "of others"),
    ),
    ((0.0, "0"), (0.5, "1.00 s"), (0.51, "1.02 s"), (1.0, "2.00 s")),
)
LANES_TEXT = """\
P0  ──────────────────▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒●·············◇···●··●·●···········●
P1  █████████───────────────────────────●                 ●  ● ●   ○       ●
P10 gave no answer
                                        ↑ line 2             ↑ line 3
    0                                   1.00 s                        2.00 s
─ Python █ computing ▒ compiling · waiting ● met ◇ in vain ○ missing"""


def test_the_text_of_lanes() -> None:
    assert text_of(Scene("", (), (LANES,))) == LANES_TEXT


def test_where_bars_lines_and_marks_of_lanes_stand() -> None:
    drawing = lanes_drawing(LANES)
    assert boxes_of(drawing) == [
        "31.96,29 148.26x8 #7FB8D8",
        "180.22,21 148.26x24 #7FB8D8",
        "328.48,21 296.52x24 #FFFFFF",
        "31.96,55 74.13x24 #E69F00",
        "106.09,63 222.39x8 #F2CF7F",
        "328.48,63 5.9304x8 #F2CF7F",
        "31.96,148.5 22x8 #CCCCCC",
        "119.88,140.5 22x24 #999999",
        "229.76,140.5 22x24 #CCCCCC",
        "339.64,140.5 22x24 #FFFFFF",
    ]
    assert [(box.edge, box.dashed, box.hint) for box in drawing.boxes[:5]] == [
        ("#7FB8D8", False, "P0: Python, line 1"),
        ("#0072B2", False, "P0: compiling"),
        ("#555555", True, "P0: waiting, line 2"),
        ("#E69F00", False, "P1: computing, line 9"),
        ("#F2CF7F", False, "P1: Python"),
    ]
    assert words_of(drawing) == [
        "21.96,33 end P0",
        "106.09,33 middle Python, line 1",
        "254.35,33 middle compiling",
        "476.74,33 middle waiting, line 2",
        "21.96,67 end P1",
        "69.025,67 middle line 9",
        "217.285,67 middle Python",
        "21.96,101 end P10",
        "31.96,101 start gave no answer",
        "328.48,8.5 middle line 2",
        "506.392,8.5 middle line 3",
        "606.38,8.5 middle the end",
        "31.96,131.5 middle 0",
        "328.48,131.5 middle 1.00 s",
        "59.96,152.5 start Python",
        "147.88,152.5 start computing",
        "257.76,152.5 start compiling",
        "367.64,152.5 start waiting",
        "450.88,152.5 start met",
        "504.84,152.5 start in vain",
        "588.08,152.5 start missing",
    ]
    assert [(label.text, label.plate) for label in drawing.labels if label.plate] == [
        ("Python, line 1", "#FFFFFF"),
        ("Python", "#FFFFFF"),
    ]
    rules = [
        f"{r.x1:g},{r.y1:g} {r.x2:g},{r.y2:g} {r.width:g}{' dashed' * r.dashed}"
        for r in drawing.rules
    ]
    assert rules == [
        "328.48,33 328.48,67 1.5",
        "476.74,33 476.74,67 1.5",
        "506.392,33 506.392,67 1.5",
        "518.253,33 518.253,67 1.5",
        "550.87,33 550.87,67 1.5 dashed",
        "625,33 625,67 1.5",
        "31.96,119 31.96,124 1",
        "328.48,119 328.48,124 1",
        "334.41,119 334.41,124 1",
        "625,119 625,124 1",
        "31.96,119 625,119 1",
    ]
    assert [f"{dot.x:g},{dot.y:g} {dot.shape}" for dot in drawing.dots] == [
        "328.48,33 disc",
        "328.48,67 disc",
        "476.74,33 disc",
        "476.74,67 disc",
        "506.392,33 disc",
        "506.392,67 disc",
        "518.253,33 disc",
        "518.253,67 disc",
        "447.088,33 diamond",
        "550.87,67 ring",
        "625,33 disc",
        "625,67 disc",
        "439.88,152.5 disc",
        "493.84,152.5 diamond",
        "577.08,152.5 ring",
    ]
    assert (drawing.width, drawing.height) == (632.0, 165.0)


def test_a_word_above_a_line_is_left_out_if_it_would_touch_another() -> None:
    joins = (Join(0.5, (0,), (), "line 2"), Join(0.56, (0,), (), "line 3"))
    lanes = Lanes((Lane(0, ()),), (*joins, Join(0.6, (0,), (), "line 4")))
    words = [label.text for label in lanes_drawing(lanes).labels]
    assert words == ["P0", "line 2", "line 4", "met"]


@pytest.mark.parametrize("count", [MOST_JOINS, MOST_JOINS + 1])
def test_of_very_many_meetings_only_thin_lines_are_drawn(count: int) -> None:
    """But a line at which a process is missing keeps its marks."""
    many = tuple(Join(i / count, (0, 1)) for i in range(count - 1))
    lanes = Lanes((Lane(0, ()), Lane(1, ())), (*many, Join(0.9, (0,), (1,), "", False)))
    drawing = lanes_drawing(lanes)
    dense = count > MOST_JOINS
    assert [rule.width for rule in drawing.rules] == (
        [0.5] * (count - 1) + [1.5, 0.5] if dense else [1.5] * count
    )
    assert [dot.shape for dot in drawing.dots] == [
        *([] if dense else ["disc", "disc"] * (count - 1)),
        *("diamond", "ring"),
        *([] if dense else ["disc"]),
        *("diamond", "ring"),
    ]
    assert [label.text for label in drawing.labels] == ["P0", "P1", "met", "in vain", "missing"]


@pytest.mark.parametrize("count", [24, 25])
def test_of_very_many_meetings_the_text_marks_who_was_in_vain(count: int) -> None:
    many = tuple(Join(i / 72, (0, 1)) for i in range(count - 1))
    lane = (Bar("python", 0.0, 1.0),)
    lanes = Lanes((Lane(0, lane), Lane(1, lane)), (*many, Join(0.99, (0,), (1,), "", False)))
    marks = "─" * 24 if count > 24 else "●" * 23 + "─"
    legend = "─ Python ◇ in vain ○ missing" if count > 24 else "─ Python ● met ◇ in vain ○ missing"
    assert text_of(Scene("", (), (lanes,))).splitlines() == [
        f"P0 {marks}{'─' * 47}◇",
        f"P1 {marks}{'─' * 47}○",
        legend,
    ]


@pytest.mark.parametrize(
    ("places", "heads"),
    [
        ([(0, "a"), (3, "b")], "↑ a"),
        ([(0, "a"), (4, "b")], "↑ a ↑ b"),
        ([(0, "a"), (4, "a"), (9, "b")], "↑ a      ↑ b"),
        ([(70, "ab")], f"{'':67}ab ↑"),
        ([(69, "a")], f"{'':69}↑ a"),
    ],
)
def test_words_under_lanes_stand_where_there_is_room(
    places: list[tuple[int, str]], heads: str
) -> None:
    joins = tuple(Join((column + 0.5) / 72, (0,), (), text) for column, text in places)
    lines = text_of(Scene("", (), (Lanes((Lane(0, ()),), joins),))).splitlines()
    assert lines[1] == f"   {heads}"


def test_parts_flow_into_rows_and_long_sentences_into_lines() -> None:
    wide = Table(("x" * 40,), (("y",), ("z",)))
    small = Table(("x" * 10,), (("y",),))
    scene = Scene("t" * 30 + " " + "u" * 40, ("n " * 45,), (wide, small, wide, small))
    drawing = drawing_of(scene)
    assert words_of(drawing) == [
        f"14,22.5 start {'t' * 30}",
        f"14,39.5 start {'u' * 40}",
        f"14,64.5 start {'x' * 40}",
        "14,81.5 start y",
        "14,98.5 start z",
        f"332.8,64.5 start {'x' * 10}",
        "332.8,81.5 start y",
        f"14,132.5 start {'x' * 40}",
        "14,149.5 start y",
        "14,166.5 start z",
        f"332.8,132.5 start {'x' * 10}",
        "332.8,149.5 start y",
        f"14,195.5 start {'n ' * 28}n",
        f"14,212.5 start {'n ' * 15}n",
    ]
    assert (drawing.width, drawing.height) == (448.0, 235.0)
    least = drawing_of(Scene("t"))
    assert (least.width, least.height) == (LEAST_WIDTH + 2 * PADDING, 17 + 2 * PADDING)
    lines = text_of(Scene("", (), (wide, wide, small, wide))).splitlines()
    assert lines == [
        f"{'x' * 40}    {'x' * 40}",
        f"{'y':44}y",
        f"{'z':44}z",
        f"{'x' * 10}    {'x' * 40}",
        f"{'y':14}y",
        f"{'':14}z",
    ]


def test_in_a_box_processes_of_the_same_colour_are_told_apart() -> None:
    together = ((0,), (0, 8), (0, 1), (0, 9), (8, 9), (8, 24), (1, 8, 16))
    grid = Grid((tuple(Cell(processes, (), 2) for processes in together),))
    assert [box.colors for box in drawing_of(Scene("", (), (grid,))).boxes] == [
        ("#0072B2", "#7FB8D8"),
        ("#0072B2", "#0072B2", INK),
        ("#0072B2", "#E69F00"),
        ("#0072B2", "#E69F00", INK),
        ("#0072B2", "#E69F00"),  # in a frame
        ("#0072B2", "#0072B2", INK, INK),
        ("#E69F00", "#0072B2", INK, "#0072B2", INK, INK),
    ]
    many = Grid(((Cell(tuple(range(64)), (), 64),),))
    assert len(drawing_of(Scene("", (), (many,))).boxes[0].colors) == 8


def test_no_text_leaves_its_picture() -> None:
    """That of a chart's title, of a lane without bars, and of a table."""
    long = "one word after another " * 9
    parts = (
        Chart(long, (Profile("all", (1.0,)),)),
        Lanes((Lane(0, (), long), Lane(1, (), "short"))),
        Table(("leaf", "bytes"), ((f"['{'x' * 99}']", "4 B"), ("w", "8 B")), (1,)),
    )
    for part in parts:
        drawing = drawing_of(Scene("", (), (part,)))
        assert drawing.width <= MOST_WIDTH + 2 * 14
        for label in drawing.labels:
            wide = width_of(label.text, label.size)
            begin = label.x - {"start": 0.0, "middle": wide / 2, "end": wide}[label.anchor]
            assert 0 <= begin <= begin + wide <= drawing.width, label
    lanes = [label.text for label in drawing_of(Scene("", (), (parts[1],))).labels]
    assert lanes[1].startswith("one word after another one ")
    assert lanes[2].endswith(" …")
    table = drawing_of(Scene("", (), (parts[2],)))
    [name] = [label.text for label in table.labels if "…" in label.text]
    assert re.fullmatch(r"\['x{30,}…x{30,}'\]", name)


def test_a_box_has_room_for_its_words_and_a_first_part_is_never_moved_down() -> None:
    grid = Grid(((Cell((0,), ("x" * 20,)),),))
    [box] = drawing_of(Scene("", (), (grid,))).boxes
    assert box.width == pytest.approx(20 * 7.32 + 18)
    tables = (Table(("x" * length,), ()) for length in (10, 100))
    assert len({drawing_of(Scene("", (), (table,))).labels[0].y for table in tables}) == 1


@pytest.mark.parametrize(("count", "shown"), [(8, list(range(8))), (9, [0, 1, 2, 3, 4, "…", 7, 8])])
def test_what_is_left_out_is_more_than_one(count: int, shown: list[Any]) -> None:
    assert elided(range(count), large=True) == shown
    assert elided(range(count), large=False) == list(range(count))


def test_an_svg_escapes_hints_and_has_ids_of_its_own() -> None:
    lanes = Lanes((Lane(0, (Bar("waits", 0.0, 1.0, ("<b>", "x")),)),), (Join(1.0, (0,)),))
    root = ElementTree.fromstring(svg_of(Scene("t", ("<n>",), (lanes,))))
    assert [e.text for e in root.iter(f"{SVG}title")] == ["t", "P0: <b>"]
    assert [e.text for e in root.iter(f"{SVG}desc")] == ["<n>"]
    ids = {
        ElementTree.fromstring(svg_of(scene)).get("aria-labelledby")
        for scene in (Scene("t"), Scene("u"), Scene("t", ("n",)), Scene("t", (), (lanes,)))
    }
    assert len(ids) == 4


def elements(svg: str, tag: str) -> list[dict[str, str]]:
    return [dict(e.attrib) for e in ElementTree.fromstring(svg).iter(f"{SVG}{tag}")]


def test_the_marks_and_lines_of_an_svg() -> None:
    svg = svg_of(Scene("", (), (LANES,)))
    drawing = drawing_of(Scene("", (), (LANES,)))
    assert [
        (line["stroke-width"], line.get("stroke-dasharray")) for line in elements(svg, "line")
    ] == [(f"{rule.width:g}", "4 3" if rule.dashed else None) for rule in drawing.rules]
    discs = [dot for dot in drawing.dots if dot.shape != "diamond"]
    assert [circle["fill"] for circle in elements(svg, "circle")] == [
        dot.color if dot.shape == "disc" else "#FFFFFF" for dot in discs
    ]
    [first, *_] = elements(svg, "polygon")
    assert first == {
        "points": "455.1,55 461.1,49 467.1,55 461.1,61",
        "fill": "#FFFFFF",
        "stroke": "#1A1A1A",
        "stroke-width": "2",
    }
    rects = elements(svg, "rect")[1:]
    dashes = [rect.get("stroke-dasharray") for rect in rects if "stroke" in rect]
    assert dashes == ["3 3" if box.dashed else None for box in drawing.boxes]
    plates = [rect for rect in rects if "stroke" not in rect]
    assert plates[0] == {
        "x": "65.8",
        "y": "46.5",
        "width": "108.5",
        "height": "17",
        "fill": "#FFFFFF",
        "fill-opacity": "0.88",
    }


def test_stripes_of_an_svg_stand_side_by_side() -> None:
    svg = svg_of(Scene("", (), (GRID,)))
    assert [pattern["id"] for pattern in elements(svg, "pattern")] == [
        "stripes-0072B2-009E73",
        "stripes-E69F00-F2CF7F",
    ]
    stripes = [(rect["x"], rect["fill"]) for rect in elements(svg, "rect") if "y" not in rect]
    assert stripes == [("0", "#0072B2"), ("7", "#009E73"), ("0", "#E69F00"), ("7", "#F2CF7F")]
    fills = [rect["fill"] for rect in elements(svg, "rect") if rect["fill"].startswith("url")]
    assert fills == ["url(#stripes-E69F00-F2CF7F)", "url(#stripes-0072B2-009E73)"]


@pytest.fixture
def plotted() -> Any:
    """Return a function that plots parts on axes of their own."""
    yield lambda *parts: Picture(Scene("A title", (), parts)).plot()
    plt.close("all")


def test_a_plot_has_the_drawings_size_and_words(plotted: Any) -> None:
    ax = plotted(GRID, TABLE)
    drawing = drawing_of(Scene("A title", (), (GRID, TABLE)))
    inches = (drawing.width / PIXELS_PER_INCH, drawing.height / PIXELS_PER_INCH)
    assert tuple(ax.figure.get_size_inches()) == pytest.approx(inches)
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, drawing.width), (drawing.height, 0))
    assert (ax.get_aspect(), ax.axison) == (1.0, False)
    scale = POINTS_PER_INCH / PIXELS_PER_INCH * SLIMMER
    aligned = {"start": "left", "middle": "center", "end": "right"}
    for text, label in zip(ax.texts, drawing.labels, strict=True):
        assert (text.get_text(), text.get_position()) == (label.text, (label.x, label.y))
        assert text.get_horizontalalignment() == aligned[label.anchor]
        assert text.get_fontweight() == ("bold" if label.bold else "normal")
        assert text.get_fontsize() == pytest.approx(label.size * scale)
        assert (text.get_bbox_patch() is not None) == bool(label.plate)
        assert not text.get_parse_math()


def test_a_plot_has_the_drawings_boxes_stripes_and_marks(plotted: Any) -> None:
    slim = Grid(((Cell(tuple(range(8)), (), 8),),), widths=(0.1,))
    ax = plotted(LANES, GRID, slim)
    drawing = drawing_of(Scene("A title", (), (LANES, GRID, slim)))
    paper, *rectangles = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert (paper.get_width(), paper.get_height()) == (drawing.width, drawing.height)
    edges = [patch for patch in rectangles if not patch.get_fill()]
    assert [
        (edge.get_x(), edge.get_y(), edge.get_width(), edge.get_height(), edge.get_linestyle())
        for edge in edges
    ] == [(b.x, b.y, b.width, b.height, "--" if b.dashed else "-") for b in drawing.boxes]
    for box, edge in zip(drawing.boxes, edges, strict=True):
        at = rectangles.index(edge)
        stripes = []
        while at and rectangles[at - 1].get_fill():
            at -= 1
            stripes.insert(0, rectangles[at])
        assert len(stripes) == 1 if len(box.colors) == 1 else len(stripes) >= len(box.colors)
        assert sum(stripe.get_width() for stripe in stripes) == pytest.approx(box.width)
        assert stripes[0].get_x() == box.x
        filled = [to_hex(s.get_facecolor()).upper() for s in stripes]
        assert filled == [box.colors[i % len(box.colors)] for i in range(len(stripes))]
    scale = POINTS_PER_INCH / PIXELS_PER_INCH
    assert [(line.get_linestyle(), line.get_linewidth()) for line in ax.lines] == [
        ("--" if rule.dashed else "-", pytest.approx(rule.width * scale)) for rule in drawing.rules
    ]
    marks = [patch for patch in ax.patches if isinstance(patch, (Circle, RegularPolygon))]
    assert [
        (isinstance(mark, RegularPolygon), mark.get_facecolor()[:3] == (1.0, 1.0, 1.0))
        for mark in marks
    ] == [(dot.shape == "diamond", dot.shape != "disc") for dot in drawing.dots]
