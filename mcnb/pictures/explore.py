"""Explore the layouts of an array: an interactive page with a picture for each mesh and spec.

The page contains all pictures, so it needs neither a kernel nor a connection.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from string import Template
from typing import Any

import numpy as np

from mcnb._text import array_type, plural
from mcnb.errors import PictureError
from mcnb.pictures.inspect import element_type
from mcnb.pictures.model import Axis, Device, Layout, MeshModel, Region, grouped
from mcnb.pictures.pages import STYLE, save_page
from mcnb.pictures.picture import Picture
from mcnb.pictures.scenes.layout import layout_scene

# For a page of at most about 1 MB: a picture has some 5 kB.
MOST_DEVICES, MOST_DIMENSIONS, MOST_AXES = 16, 3, 3
NAMES = "xyz"


@dataclass(frozen=True, slots=True)
class Choice:
    """A mesh, and where its axes go.

    Attributes:
        sizes: The sizes of the mesh's axes.
        dims: The dimension that each axis splits; None for an axis that splits none.
    """

    sizes: tuple[int, ...]
    dims: tuple[int | None, ...]

    def mesh(self) -> str:
        """Return the code that makes the mesh.

        Example:
            >>> Choice((4, 2), (0, None)).mesh()
            "jax.make_mesh((4, 2), ('x', 'y'))"
        """
        return f"jax.make_mesh({self.sizes!r}, {tuple(NAMES[: len(self.sizes)])!r})"

    def spec(self, rank: int) -> str:
        """Return the spec for an array of so many dimensions, as code.

        Example:
            >>> Choice((4, 2), (1, 1)).spec(2), Choice((4, 2), (0, None)).spec(2)
            ("P(None, ('x', 'y'))", "P('x', None)")
        """
        split = [tuple(names) for names in self.names(rank)]
        entries = [one[0] if len(one) == 1 else one or None for one in split]
        return f"P({', '.join(map(repr, entries))})"

    def names(self, rank: int) -> tuple[tuple[str, ...], ...]:
        """Return the names of the axes that split each dimension."""
        named = list(zip(NAMES, self.dims, strict=False))
        return tuple(tuple(name for name, at in named if at == d) for d in range(rank))


def meshes(devices: int) -> list[tuple[int, ...]]:
    """Return the shapes of all meshes of so many devices, with at most three axes.

    Example:
        >>> meshes(8)
        [(8,), (4, 2), (2, 4), (2, 2, 2)]
    """
    return [
        shape
        for count in range(1, MOST_AXES + 1)
        for shape in itertools.product(range(devices, 0, -1), repeat=count)
        if math.prod(shape) == devices and (1 not in shape or shape == (1,))
    ]


def choices(devices: int, rank: int) -> list[Choice]:
    """Return all meshes and specs of an array of so many dimensions."""
    dims = [*range(rank), None]
    return [
        Choice(sizes, split)
        for sizes in meshes(devices)
        for split in itertools.product(dims, repeat=len(sizes))
    ]


def layout_for(
    choice: Choice, shape: Sequence[int], dtype: str, item_bytes: int, per_process: int
) -> Layout:
    """Return the layout of an array for a mesh and a spec, as JAX would choose it.

    Args:
        choice: The mesh and the spec.
        shape: The array's global shape.
        dtype: The type of its elements.
        item_bytes: The size of an element in bytes.
        per_process: The number of devices of each process.

    Raises:
        PictureError: A dimension can't be split evenly.
    """
    spec = choice.spec(len(shape))
    counts = [
        math.prod(size for size, at in zip(choice.sizes, choice.dims, strict=True) if at == d)
        for d in range(len(shape))
    ]
    for d, (size, count) in enumerate(zip(shape, counts, strict=True)):
        if size % count:
            raise PictureError(
                f"An array of shape {tuple(shape)} can't be split as {spec}: dimension {d} has "
                f"{plural(size, 'element', 'elements')}, which can't be split evenly into {count} "
                "parts"
            )
    total = math.prod(choice.sizes)
    devices = [Device(i // per_process, i % per_process, i) for i in range(total)]
    places = itertools.product(*map(range, choice.sizes))
    bounds = {}
    for device, place in zip(devices, places, strict=True):
        parts = [0] * len(shape)
        for axis, at in enumerate(choice.dims):
            if at is not None:
                parts[at] = parts[at] * choice.sizes[axis] + place[axis]
        lengths = [size // count for size, count in zip(shape, counts, strict=True)]
        bounds[device] = tuple((p * n, (p + 1) * n) for p, n in zip(parts, lengths, strict=True))
    regions = [
        Region(bound, tuple(own)) for bound, own in grouped(devices, bounds.__getitem__).items()
    ]
    processes = len({device.process for device in devices})
    axes = map(Axis, NAMES, choice.sizes)
    return Layout(
        shape=tuple(shape),
        dtype=dtype,
        item_bytes=item_bytes,
        regions=tuple(sorted(regions, key=lambda region: region.bounds)),
        spec=spec,
        mesh=MeshModel(tuple(axes), tuple(devices), processes, total),
        split=choice.names(len(shape)),
        processes=processes,
        all_devices=total,
    )


@dataclass(frozen=True)
class Explorer:
    """Interactive page with a picture of an array's layout for each mesh and spec.

    Attributes:
        title: The type and the shape of the array, and the devices.
        rank: The number of the array's dimensions.
        pictures: The picture of each choice; or why there is none.
    """

    title: str
    rank: int
    pictures: dict[Choice, Picture | str] = field(repr=False)

    def first(self) -> Choice:
        """Return the choice that is shown first: a mesh of two axes that split two dimensions."""
        drawn = [one for one, found in self.pictures.items() if isinstance(found, Picture)]
        return max(drawn, key=lambda one: (len(one.sizes) == 2, len({*one.dims} - {None})))

    def html(self) -> str:
        """Return the page's contents, for any page: controls, one picture, and its code."""
        shapes = list(dict.fromkeys(choice.sizes for choice in self.pictures))
        first = self.first()
        shown = self.pictures[first]
        meshes_ = [
            {
                "sizes": sizes,
                "views": {
                    _key(choice): self._view(choice)
                    for choice in self.pictures
                    if choice.sizes == sizes
                },
            }
            for sizes in shapes
        ]
        data = json.dumps({"meshes": meshes_}, ensure_ascii=False).replace("</", "<\\/")
        where = [*(f"dimension {d}" for d in range(self.rank)), "no dimension: replicated"]
        axes = "".join(
            f'<label data-axis="{i}"{"" if i < len(first.sizes) else " hidden"}>axis {NAMES[i]} '
            f"splits <select>{_options(where, _at(first, i, self.rank))}</select></label>"
            for i in range(MOST_AXES)
        )
        return Template(_PAGE).substitute(
            title=escape(self.title),
            meshes=_options([str(shape) for shape in shapes], shapes.index(first.sizes)),
            axes=axes,
            view=shown.svg() if isinstance(shown, Picture) else escape(shown),
            code=escape(self._code(first)),
            data=data,
            style=_STYLE,
            theme=STYLE,
            program=_PROGRAM,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to an HTML file, which can be opened without a kernel or a connection.

        It is dark where the reader's system is.

        Args:
            path: Name of the file, which ends in `.html`.

        Raises:
            PictureError: The name ends otherwise.
            OSError: The file can't be written.
        """
        save_page(path, self.title, self.html(), "an explorer")

    def _view(self, choice: Choice) -> dict[str, str]:
        found = self.pictures[choice]
        if isinstance(found, Picture):
            return {"svg": found.svg(), "code": self._code(choice)}
        return {"text": found, "code": ""}

    def _code(self, choice: Choice) -> str:
        return (
            f"mesh = {choice.mesh()}\n"
            f"x = jax.device_put(x, jax.NamedSharding(mesh, jax.{choice.spec(self.rank)}))"
        )

    def __str__(self) -> str:
        """The picture that is shown first, as text."""
        return str(self.pictures[self.first()])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def explore(shape: Any, devices: int = 8, processes: int = 4, dtype: Any = None) -> Explorer:
    """Return an interactive page that shows an array's layout for the chosen mesh and spec.

    Nothing is computed, and the devices need not exist. Hovering over a part of the array shows its
    elements, its size, and the devices that hold it. Below the picture is the code for the layout.

    Args:
        shape: Global shape of the array, of at most three dimensions; or an array that has it.
        devices: Number of devices, at most 16.
        processes: Number of processes, which have equally many devices.
        dtype: Type of the elements; by default, that of the array, or float32.

    Returns:
        The page, which Jupyter shows; its `save` writes it to a file.

    Raises:
        PictureError: There is no shape, there are too many dimensions or devices, or they can't be
            divided.

    Example:
        >>> print(explore((4, 2), devices=2, processes=2))
        float32[4,2]  P('x', None)
        ↓ dim 0: 4, split over 'x' (2)   → dim 1: 2, whole
        ┌──────┐
        │ P0.0 │
        ├──────┤
        │ P1.0 │
        └──────┘
        On 2 devices of 2 processes: P0-1, float32[2,2] of 16 B on each; global: spans all devices.
    """
    given = getattr(shape, "shape", shape)
    sizes = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(map(_is_whole, sizes)) or not 1 <= len(sizes) <= MOST_DIMENSIONS or min(sizes) < 1:
        raise PictureError(
            f"mcnb.explore({given!r}): the shape must have 1 to {MOST_DIMENSIONS} dimensions, of 1 "
            "element or more. For example: mcnb.explore((8, 4))"
        )
    if (
        not (_is_whole(devices) and _is_whole(processes))
        or not 1 <= devices <= MOST_DEVICES
        or processes < 1
        or devices % processes
    ):
        raise PictureError(
            f"mcnb.explore({given!r}, devices={devices!r}, processes={processes!r}): there can be "
            f"1 to {MOST_DEVICES} devices, which the number of processes must divide. For example: "
            "mcnb.explore((8, 4), devices=8, processes=4)"
        )
    sizes = tuple(map(int, sizes))
    wanted = getattr(shape, "dtype", "float32") if dtype is None else dtype
    try:
        kind = element_type(wanted)
    except TypeError:
        raise PictureError(
            f"mcnb.explore({given!r}, dtype={str(wanted)!r}): there is no such type of elements. "
            "For example: mcnb.explore((8, 4), dtype='bfloat16')"
        ) from None
    pictures: dict[Choice, Picture | str] = {}
    for choice in choices(devices, len(sizes)):
        try:
            layout = layout_for(choice, sizes, str(kind), kind.itemsize, devices // processes)
        except PictureError as error:
            pictures[choice] = str(error)
        else:
            pictures[choice] = Picture(layout_scene(layout))
    on = plural(devices, "device", "devices")
    of = plural(processes, "process", "processes")
    return Explorer(f"{array_type(kind, sizes)} on {on} of {of}", len(sizes), pictures)


def _key(choice: Choice) -> str:
    return "".join("r" if at is None else str(at) for at in choice.dims)


def _at(choice: Choice, axis: int, rank: int) -> int:
    """Return which option an axis has: the dimension that it splits, or the last one."""
    at = choice.dims[axis] if axis < len(choice.dims) else None
    return rank if at is None else at


def _options(texts: Sequence[str], chosen: int) -> str:
    return "".join(
        f"<option{' selected' if i == chosen else ''}>{escape(text)}</option>"
        for i, text in enumerate(texts)
    )


# A page may have several of these, and one of them twice: the program finds those that have not
# begun. A front end may run it long after it has put the contents on the page. JupyterLab has
# shortcuts for keys without modifiers, such as those that choose in a list.
_PAGE = """\
<div class="mcnb-explore" data-mcnb><style>$style$theme</style>
<p><strong>$title</strong></p>
<form onsubmit="return false"><label>mesh <select name="mesh">$meshes</select></label>
$axes</form>
<div class="view mcnb-picture" role="region" aria-live="polite">$view</div>
<pre class="code">$code</pre>
<script type="application/json">$data</script><script>$program</script></div>"""
_STYLE = (
    ".mcnb-explore form{display:flex;flex-wrap:wrap;gap:.3em 1.5em;margin:.5em 0}"
    ".mcnb-explore [hidden]{display:none}"
    ".mcnb-explore .view{overflow-x:auto;min-height:12em}"
    ".mcnb-explore pre{white-space:pre-wrap}"
)
_PROGRAM = """\
for (const root of document.querySelectorAll("[data-mcnb]:not([data-begun])")) {
  root.dataset.begun = "";
  const {meshes} = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const mesh = root.querySelector("select[name=mesh]");
  const axes = [...root.querySelectorAll("label[data-axis]")];
  const draw = () => {
    const {sizes, views} = meshes[mesh.selectedIndex];
    axes.forEach((axis, i) => { axis.hidden = i >= sizes.length; });
    const places = axes.slice(0, sizes.length).map((axis) => axis.querySelector("select"));
    const key = places.map((one) => one.selectedIndex === one.length - 1 ? "r"
      : String(one.selectedIndex)).join("");
    const view = root.querySelector(".view");
    if (views[key].svg) view.innerHTML = views[key].svg; else view.textContent = views[key].text;
    root.querySelector(".code").textContent = views[key].code;
  };
  root.addEventListener("change", draw);
  root.addEventListener("keydown", (event) => {
    const modified = event.ctrlKey || event.metaKey || event.altKey || event.shiftKey;
    if (!modified) event.stopPropagation();
  });
}"""
