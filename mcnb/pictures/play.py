"""Play a change of layout: an interactive page that shows, step by step, which data moves.

The page contains the pictures of all steps, so it needs neither a kernel nor a connection.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from string import Template
from typing import Any, TypeAlias

from mcnb._text import plural, size
from mcnb.errors import PictureError
from mcnb.pictures.model import Device, Layout, Region
from mcnb.pictures.moves import Need, is_host_value, layouts_of_change, needs, summed_over
from mcnb.pictures.pages import STYLE, save_page
from mcnb.pictures.picture import Picture
from mcnb.pictures.scene import MOST_DEVICES, Scene
from mcnb.pictures.scenes.layout import layout_scene

Bounds: TypeAlias = tuple[tuple[int, int], ...]
# The most devices beside each other in the box of a part that many devices hold.
MOST_NAMES = 8
# The most pairs of processes that the text of a step names.
MOST_PAIRS = 8
# How long a step is shown while they are played.
STEP_MS = 1500
ORDER = "In each step, each process sends to one other; XLA may move everything at once."
# Of an array on the devices of one process, which JAX takes as a value that all have.
HOSTED = "Each process kept its own part of a value that all have, and no data was sent."


@dataclass(frozen=True)
class Step:
    """A step of a change of layout.

    Attributes:
        text: What happens.
        picture: Which devices hold each part afterwards.
    """

    text: str
    picture: Picture = field(repr=False)


@dataclass(frozen=True)
class Player:
    """Interactive page that plays a change of layout.

    Attributes:
        title: The array, and its specs before and after.
        steps: The steps; the first one is before the change, and the last one after it.
    """

    title: str
    steps: tuple[Step, ...]

    def html(self) -> str:
        """Return the page's contents, for any page: a button, a slider, a picture and its text."""
        first = self.steps[0]
        data = json.dumps(
            [{"svg": step.picture.svg(), "text": step.text} for step in self.steps],
            ensure_ascii=False,
        ).replace("</", "<\\/")
        return Template(_PAGE).substitute(
            title=escape(self.title),
            last=len(self.steps) - 1,
            view=first.picture.svg(),
            text=escape(first.text),
            data=data,
            style=_STYLE,
            theme=STYLE,
            program=_PROGRAM,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to an HTML file, which can be opened without a kernel or a connection.

        Args:
            path: Name of the file, which ends in `.html`.

        Raises:
            PictureError: The name ends otherwise.
            OSError: The file can't be written.
        """
        save_page(path, self.title, self.html(), "a player")

    def __str__(self) -> str:
        """The steps as text."""
        return "\n".join([self.title, *(step.text for step in self.steps)])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}


def play(before: Any, after: Any, *shape: Any, name: str = "") -> Player:
    """Return an interactive page that plays a change of an array's layout, step by step.

    Nothing is moved or computed. `mcnb.show` draws the same change as one picture.

    Args:
        before: Array, `jax.ShapeDtypeStruct` or sharding.
        after: Array, `jax.ShapeDtypeStruct` or sharding.
        shape: The array's shape, if both are shardings.
        name: Name of the array, for the title.

    Returns:
        The page, which Jupyter shows; its `save` writes it to a file.

    Raises:
        PictureError: The shape is missing or ambiguous, a sharding can't be applied to it, the
            array is to be summed, or there are more than 64 devices.
    """
    return player_of(*layouts_of_change(before, after, shape), name=name)


def player_of(before: Layout, after: Layout, *, name: str = "") -> Player:
    """Return the player for two layouts of one array.

    Raises:
        PictureError: The array has no elements or is to be summed, or there are more than 64
            devices.
    """
    count = len({*before.devices, *after.devices})
    if count > MOST_DEVICES:
        raise PictureError(
            f"mcnb.play draws at most {MOST_DEVICES} devices, and these layouts have {count}. "
            "mcnb.show draws the change as one picture"
        )
    if summed := summed_over(before, after):
        raise PictureError(
            f"mcnb.play moves parts of an array, and each device holds a partial sum over {summed} "
            "before, which is added up. mcnb.show draws the change as one picture"
        )
    found = needs(before, after)
    if not found:
        raise PictureError(f"{before.kind} has no elements, so there is nothing to play")
    kind = f"{name}: {before.kind}" if name else before.kind
    title = f"{kind}  {before.spec or 'as it is'} → {after.spec or 'as given'}"
    unit = before.item_bytes
    hosted = is_host_value(before, after)
    rounds = [] if hosted else _rounds(found)
    # Of the parts that have one place before and one afterwards.
    old = {bounds: _holders(before, bounds) for bounds in sorted({one.bounds for one in found})}
    frames = [_Frame(before, f"Before: {before.spec or 'as it is'}.", old)]
    for number, moved in enumerate(rounds, 1):
        text = f"Step {number} of {len(rounds)}: {_text(moved, unit)}."
        new: dict[Bounds, tuple[Device, ...]] = {}
        for one in moved:
            new[one.bounds] = (*new.get(one.bounds, ()), one.device)
        frames.append(_Frame(before, text, frames[-1].all(), new))
    stayed = _amount(sum(one.count for one in found if one.source is None), unit)
    text = f"After: {after.spec or 'as given'}. "
    text += HOSTED if hosted else f"{stayed} stayed on their devices."
    ends = {bounds: _holders(after, bounds) for bounds in old}
    frames.append(_Frame(after, f"{text} {ORDER}" if len(rounds) > 1 else text, ends))
    # Boxes of one size in all steps.
    width = max(len(line) for frame in frames for bounds in old for line in frame.lines(bounds))
    return Player(title, tuple(frame.step(title, width) for frame in frames))


@dataclass(frozen=True)
class _Frame:
    """What is drawn of a step.

    Attributes:
        layout: The layout before or after the change, for the array's shape and type.
        text: What happens.
        held: Which devices have each part.
        new: Which devices get it in this step.
    """

    layout: Layout
    text: str
    held: Mapping[Bounds, Sequence[Device]]
    new: Mapping[Bounds, Sequence[Device]] = field(default_factory=dict)

    def all(self) -> dict[Bounds, tuple[Device, ...]]:
        """Return which devices have each part when the step has ended."""
        return {
            bounds: (*sorted(devices), *sorted(self.new.get(bounds, ())))
            for bounds, devices in self.held.items()
        }

    def lines(self, bounds: Bounds) -> tuple[str, ...]:
        """Return the names of the devices that have a part, as lines of its box."""
        gets = (f"+{device}" for device in sorted(self.new.get(bounds, ())))
        names = [*map(str, sorted(self.held[bounds])), *gets]
        beside = 2 if len(names) <= MOST_NAMES else MOST_NAMES
        return tuple(" ".join(names[i : i + beside]) for i in range(0, len(names), beside))

    def step(self, title: str, width: int) -> Step:
        """Return the step, with lines of at least so many characters in its boxes."""
        regions = tuple(Region(bounds, devices) for bounds, devices in self.all().items())
        drawn = layout_scene(
            replace(self.layout, regions=regions, spec="", split=()),
            label=lambda region: tuple(line.center(width) for line in self.lines(region.bounds)),
        )
        return Step(self.text, Picture(Scene(title, (self.text,), drawn.parts)))


def _holders(layout: Layout, bounds: Bounds) -> tuple[Device, ...]:
    """Return the devices that hold a part of the array, which lies within a region."""
    return next(
        region.devices
        for region in layout.regions
        if all(
            first <= begin and end <= last
            for (begin, end), (first, last) in zip(bounds, region.bounds, strict=True)
        )
    )


def _rounds(found: Sequence[Need]) -> list[list[Need]]:
    """Return what moves in each step: in one, each process sends to one process at most."""
    members = sorted(
        {
            process
            for one in found
            if one.source is not None
            for process in (one.source, one.device.process)
        }
    )
    place = {process: i for i, process in enumerate(members)}
    by_distance: dict[int, list[Need]] = {}
    for one in found:
        if one.source is not None:
            distance = (place[one.device.process] - place[one.source]) % len(members)
            by_distance.setdefault(distance, []).append(one)
    return [by_distance[distance] for distance in sorted(by_distance)]


def _text(moved: Sequence[Need], unit: int) -> str:
    count = _amount(sum(one.count for one in moved), unit)
    pairs = sorted({(one.source or 0, one.device.process) for one in moved})
    if all(source == target for source, target in pairs):
        return f"{count} between devices of one process"
    named = [f"P{source} to P{target}" for source, target in pairs[:MOST_PAIRS]]
    if len(pairs) > MOST_PAIRS:
        named.append(f"{len(pairs) - MOST_PAIRS} more pairs")
    return f"{count}{' in all' if len(pairs) > 1 else ''}, from {', '.join(named)}"


def _amount(count: int, unit: int) -> str:
    return size(count * unit) if unit else plural(count, "element", "elements")


# A page may have several of these, and one of them twice: the program finds those that have not
# begun. JupyterLab has shortcuts for keys without modifiers, such as those that move a slider.
_PAGE = """\
<div class="mcnb-play" data-mcnb-play><style>$style$theme</style>
<p><button type="button">Play</button> <input type="range" min="0" max="$last" value="0" \
aria-label="step"></p>
<div class="view mcnb-picture">$view</div>
<div class="text" role="status">$text</div>
<script type="application/json">$data</script><script>$program</script></div>"""
_STYLE = (
    ".mcnb-play .view{overflow-x:auto;min-height:12em}"
    ".mcnb-play .text{position:absolute;left:-10000px}"
    ".mcnb-play p{display:flex;gap:1em;margin:.5em 0}"
    ".mcnb-play button{min-width:5em}"
)
_PROGRAM = f"""\
for (const root of document.querySelectorAll("[data-mcnb-play]:not([data-begun])")) {{
  root.dataset.begun = "";
  const steps = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const slider = root.querySelector("input");
  const button = root.querySelector("button");
  let timer = 0;
  const draw = () => {{
    const step = steps[Number(slider.value)];
    root.querySelector(".view").innerHTML = step.svg;
    root.querySelector(".text").textContent = step.text;
  }};
  const pause = () => {{ clearInterval(timer); timer = 0; button.textContent = "Play"; }};
  const next = () => {{
    slider.value = String(Number(slider.value) + 1);
    draw();
    if (Number(slider.value) === steps.length - 1 || !root.isConnected) pause();
  }};
  root.addEventListener("keydown", (event) => {{
    const modified = event.ctrlKey || event.metaKey || event.altKey || event.shiftKey;
    if (!modified) event.stopPropagation();
  }});
  slider.addEventListener("input", () => {{ pause(); draw(); }});
  button.addEventListener("click", () => {{
    if (timer) return pause();
    if (Number(slider.value) === steps.length - 1) {{ slider.value = "-1"; next(); }}
    timer = setInterval(next, {STEP_MS});
    button.textContent = "Pause";
  }});
}}"""
