"""Make the gallery: `python tools/gallery.py [FOLDER]`.

Each picture is drawn by the code that stands above it, on a cluster of four processes with two
devices each, and written as SVG; gallery.md shows them all. A picture to scale is drawn from the
times of a cell that ran once: `python tools/gallery.py --measure` runs it again, and stores them.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mcnb
from mcnb.lockstep.model import Launch, LaunchRecord
from mcnb.lockstep.trace import Sample, Span, Trace
from mcnb.messages import Display, Reply

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
MEASURED = Path(__file__).with_name("gallery_times.json")
SETUP = """
import time
import jax, jax.numpy as jnp, numpy as np, mcnb
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

k = jax.process_index()
auto = (AxisType.Auto, AxisType.Auto)
mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=auto)

def array(shape, *spec):
    sharding = NamedSharding(mesh, P(*spec))
    return jax.make_array_from_callback(shape, sharding, lambda i: np.arange(
        np.prod(shape), dtype=np.float32).reshape(shape)[i])

def step(params, batch):
    def loss(params):
        hidden = batch[0]
        for w, b in params[:-1]:
            hidden = jnp.maximum(hidden @ w + b, 0)
        w, b = params[-1]
        return jnp.mean((hidden @ w + b - batch[1]) ** 2)
    grads = jax.grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

params = [
    (array((64, 128), None, "y"), array((128,), "y")),
    (array((128, 128), "y", None), array((128,))),
    (array((128, 8)), array((8,))),
]
batch = array((32, 64), "x", None), array((32, 8), "x", None)
"""


@dataclass(frozen=True)
class Entry:
    """A picture.

    Attributes:
        name: The file's name, without its end.
        title: What it shows, in a line.
        code: The cell that draws it.
        after: What is drawn when the cell has run: its timeline, "time" or "order".
    """

    name: str
    title: str
    code: str
    after: str = ""


ENTRIES = (
    Entry("mesh", "A mesh: a box for each device, a colour for each process", "mcnb.show(mesh)"),
    Entry(
        "mesh3",
        "A mesh of three axes, of different types, on three of four processes",
        "kinds = AxisType.Auto, AxisType.Explicit, AxisType.Auto\n"
        "some = np.array(jax.devices()[:6]).reshape(3, 2, 1)\n"
        'mcnb.show(Mesh(some, ("stage", "data", "model"), axis_types=kinds))',
    ),
    Entry(
        "array",
        "An array, split over both axes of the mesh",
        'mcnb.show(array((8, 4), "x", "y"), name="x", bounds=True)',
    ),
    Entry(
        "replicated",
        "Split over one axis, replicated over the other: stripes, with their count",
        'mcnb.show(array((8, 4), None, "y"), name="w", bounds=True)',
    ),
    Entry(
        "wide",
        "Two axes of the mesh on one axis of the array",
        'mcnb.show(array((2, 4096), None, ("x", "y")), name="wide", bounds=True)',
    ),
    Entry(
        "facets",
        "Three axes that are split: a slice for each part of the first",
        'mcnb.show(NamedSharding(jax.make_mesh((2, 2, 2), tuple("abc")), P("a", "b", "c")), '
        "(2, 4, 6))",
    ),
    Entry(
        "values",
        "Numbers where they are, as process 0 can see them",
        'if k == 0:\n    mcnb.show(array((4, 4), "x", "y"), name="x", values=True)',
    ),
    Entry("tree", "A PyTree, and what it takes", 'mcnb.show(params, name="params")'),
    Entry(
        "change",
        "Before and after: what has to move, and how XLA moves it",
        'x = array((8, 8), "x", "y")\nmcnb.show(x, NamedSharding(mesh, P("y", "x")), name="x")',
    ),
    Entry(
        "matmul",
        "What a function communicates",
        'a, b = array((512, 256), "x", "y"), array((256, 512), "y", None)\n'
        "mcnb.show(lambda a, b: a @ b, a, b)",
    ),
    Entry(
        "training",
        "A training step, data parallel over 'x' and tensor parallel over 'y'",
        'mcnb.show(step, params, batch, name="step")',
    ),
    Entry(
        "straggler",
        "A cell's time: process 2 is late, and the others wait for it",
        'x = array((2048, 2048), "x", None)\n'
        "f = jax.jit(lambda x: (x @ x.T).sum())\n"
        "if k == 2:\n"
        "    time.sleep(0.5)\n"
        "y = float(f(x))",
        "time",
    ),
    Entry(
        "missing",
        "A verdict: process 3 never comes",
        'x = array((2048, 2048), "x", None)\n'
        "total = jnp.sum(x)\n"
        "if k != 3:\n"
        "    norm = jnp.linalg.norm(x)",
        "order",
    ),
)


def to_data(result: mcnb.Result) -> dict[str, Any]:
    """Return a cell's traces and launches as JSON has them, with times since the cell began."""
    traces = {k: reply.trace for k, reply in result.replies.items() if reply.trace}
    start = min(trace.begin for trace in traces.values())

    def since_start(data: Any) -> Any:
        if isinstance(data, dict):
            return {name: since_start(value) for name, value in data.items()}
        if isinstance(data, list | tuple):
            return [since_start(value) for value in data]
        return round(data - start, 6) if isinstance(data, float) else data

    return {
        "traces": since_start({str(k): asdict(trace) for k, trace in traces.items()}),
        "launches": since_start([asdict(record) for record in result.launches]),
    }


def from_data(data: dict[str, Any]) -> mcnb.Result:
    """Return a result with the traces and launches from which `to_data` made the data."""
    launches = [
        LaunchRecord(**{**record, "launch": Launch.from_data(record["launch"])})
        for record in data["launches"]
    ]
    replies = {
        int(k): Reply(
            launches=tuple(record for record in launches if record.process == int(k)),
            trace=Trace(
                trace["begin"],
                trace["end"],
                tuple(Span(**span) for span in trace["compiled"]),
                tuple(Sample(**sample) for sample in trace["samples"]),
            ),
        )
        for k, trace in data["traces"].items()
    }
    return mcnb.Result(replies, len(replies))


def pictures(measure: bool = False) -> dict[str, str]:
    """Return the pictures as SVG, by their names.

    Args:
        measure: Whether cells whose picture is to scale run, and their times are stored.
    """
    times = {} if measure else json.loads(MEASURED.read_text())
    drawn = {}
    with mcnb.Cluster(processes=4, devices_per_process=2) as cluster:
        cluster.run(SETUP).raise_for_errors()
        for entry in ENTRIES:
            if entry.after == "time":
                if measure:
                    times[entry.name] = to_data(cluster.run(entry.code))
                drawn[entry.name] = from_data(times[entry.name]).timeline().svg()
                continue
            result = cluster.run(entry.code)
            if entry.after:
                drawn[entry.name] = result.timeline(order=True).svg()
                continue
            result.raise_for_errors()
            [block] = result.blocks
            [shown] = block.items
            assert isinstance(shown, Display)
            drawn[entry.name] = shown.data["image/svg+xml"]
    if measure:
        MEASURED.write_text(f"{json.dumps(times, indent=1)}\n")
    return drawn


def page() -> str:
    """Return the gallery as Markdown."""
    parts = [
        "# Gallery",
        "What `mcnb.show` and `%mcjax timeline` draw, each with the cell that draws it, on four "
        "processes with two devices each. `python tools/gallery.py` makes this page.",
        f"Every cell has this before it:\n\n```python\n{SETUP.strip()}\n```",
    ]
    for entry in ENTRIES:
        magic = {"": "", "time": "%mcjax timeline", "order": "%mcjax timeline --order"}[entry.after]
        code = f"```python\n{entry.code}\n```"
        then = f"\n\n```\n{magic}\n```" if magic else ""
        image = f"![{entry.title}.](images/gallery/{entry.name}.svg)"
        parts.append(f"## {entry.title}\n\n{code}{then}\n\n{image}")
    return "\n\n".join(parts) + "\n"


def main(words: list[str]) -> None:
    """Write the pictures and their page."""
    parser = argparse.ArgumentParser(
        prog="python tools/gallery.py", description="Make the gallery."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--measure", action="store_true", help="run cells to scale, store times")
    arguments = parser.parse_args(words)
    images = arguments.folder / "images" / "gallery"
    images.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures(arguments.measure).items():
        (images / f"{name}.svg").write_text(f"{svg}\n")
    (arguments.folder / "gallery.md").write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
