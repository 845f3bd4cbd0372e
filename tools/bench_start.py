"""How long a start takes, and a cell: mcnb beside what people use today, measured in one run.

    python tools/bench_start.py [PROCESSES ...] [--rounds ROUNDS] [--cells CELLS] [--side SIDE ...]

Each figure is the median of the rounds, in which the sides take turns. "From nothing" means from a
new Python to the first value of a collective of all processes; so does a restart. What was not
measured, or failed, has a dash: a loop has no cells; jupyter-distributed, where it is installed,
no pull.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SIDES = {
    "mcnb": "mcnb",
    "ipyparallel": "ipyparallel",
    "jupyter_distributed": "jupyter-dist.",
    "loop": "shell loop",
}
ROWS = {
    "cold": ("from nothing", 1, "s"),
    "start": ("start, warm", 1, "s"),
    "restart": ("restart", 1, "s"),
    "empty": ("empty cell", 1e3, "ms"),
    "line": ("cell that prints a line", 1e3, "ms"),
    "pull": ("pull of 10 MB", 1e3, "ms"),
    "memory": ("a process's own memory", 1, "MB"),
}
FLOOR = """
import time
began = time.time()
import jax
imported = time.time()
jax.distributed.initialize("127.0.0.1:{port}", 1, 0)
jax.devices()
print(imported - began, time.time() - imported)
"""
TIMEOUT_S = 600


def measure(side: str, count: int, cells: int) -> dict[str, float]:
    """Return one side's figures, from a process of its own; none where it failed."""
    script = Path(__file__).with_name("bench_sides.py")
    command = [sys.executable, str(script), side, str(count), str(cells)]
    began = time.time()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        if side == "mcnb":
            raise RuntimeError(error.stderr) from None
        print(f"{SIDES[side]} failed: {error.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return {}
    except subprocess.TimeoutExpired:
        print(f"{SIDES[side]} took more than {TIMEOUT_S} s", file=sys.stderr)
        return {}
    report: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    report["cold"] = report.pop("value") - began
    return report


def floor() -> tuple[float, float]:
    """Return how long one import of jax takes, and one process's initialization."""
    from bench_sides import settings

    port, env = settings()
    done = subprocess.run(
        [sys.executable, "-c", FLOOR.format(port=port)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    imported, initialized = map(float, done.stdout.split())
    return imported, initialized


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("processes", nargs="*", type=int, default=[4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", type=int, default=50)
    parser.add_argument("--side", action="append", choices=SIDES, help="only these sides")
    args = parser.parse_args()
    sides = args.side or list(SIDES)
    if "jupyter_distributed" in sides and not importlib.util.find_spec("jupyter_distributed"):
        sides.remove("jupyter_distributed")
    floors = [floor() for _ in range(args.rounds)]
    imported, initialized = (statistics.median(times) for times in zip(*floors, strict=True))
    print(f"floor: one import of jax {imported:.2f} s, one process initialized {initialized:.2f} s")
    for count in args.processes:
        rounds: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side in sides:
                rounds[side].append(measure(side, count, args.cells))
        print(f"\n{count} processes x 2 devices, medians of {args.rounds}")
        print(" " * 26 + "".join(f"{SIDES[side]:>16}" for side in sides))
        for key, (title, factor, unit) in ROWS.items():
            cells = ""
            for side in sides:
                values = [report[key] for report in rounds[side] if key in report]
                text = f"{statistics.median(values) * factor:.4g} {unit}" if values else "-"
                cells += f"{text:>16}"
            print(f"{title:26}{cells}", flush=True)


if __name__ == "__main__":
    main()
