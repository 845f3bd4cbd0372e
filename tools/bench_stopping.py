"""How long it takes until cells of each kind are stopped, and whether what is said then is true.

`python -m tools.bench_stopping [--tries N] [--busy N] [KIND ...]`: a table of kinds of cells x (one
process, all processes) x (stop, time limit, second stop).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import mcnb
from tests.conftest import BUSY
from tests.support.healing import SETUP
from tests.support.stopping import (
    HOWS,
    KINDS,
    OVER_S,
    OVER_UNDER_LOAD_S,
    TOLD_S,
    Stopped,
    stop_cell,
)


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """Have other processes keep the cores busy."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def row(name: str, processes: str, how: str, seen: list[Stopped]) -> str:
    """Return a row of the table."""
    over = [one.over_s for one in seen]
    fates = ", ".join(f"{fate} {n}" for fate, n in Counter(one.fate for one in seen).items())
    return (
        f"{name:38} {processes:4} {how:12} {statistics.median(over):5.2f} {max(over):5.2f} "
        f"{max(one.told_s for one in seen):5.2f}  {fates}"
    )


def main() -> int:
    """Print the table; return how many rows say what is not true, or came too late."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--how", action="append")
    parser.add_argument("kinds", nargs="*")
    args = parser.parse_args()
    limit = OVER_UNDER_LOAD_S if args.busy else OVER_S
    bad = 0
    began = time.monotonic()
    print(f"{'kind':38} {'on':4} {'how':12} {'med':>5} {'max':>5} {'told':>5}  what came of it")
    with load(args.busy), mcnb.Cluster(processes=4, devices_per_process=2) as cluster:
        cluster.run(SETUP).raise_for_errors()
        for name, kind in KINDS.items():
            if args.kinds and not any(word in name for word in args.kinds):
                continue
            for processes in ("one", "all"):
                for how in HOWS:
                    if (processes == "one" and not kind.alone) or how not in (args.how or HOWS):
                        continue
                    seen = [stop_cell(cluster, kind, processes, how) for _ in range(args.tries)]
                    print(row(name, processes, how, seen), flush=True)
                    for one in seen:
                        late = one.over_s > limit or (not args.busy and one.told_s > TOLD_S)
                        odd = how != "second stop" and one.fate not in kind.fates
                        if one.wrong or late or odd:
                            bad += 1
                            print(f"  {one}", flush=True)
    print(f"{bad} of them wrong or late, in {time.monotonic() - began:.0f} s")
    return bad


if __name__ == "__main__":
    sys.exit(main())
