"""Random programs: right ones compute the right numbers, divergent ones get a verdict.

A failure names the seed, of which `program(seed, count, devices)` makes the same program again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import mcnb
from tests.conftest import once
from tests.support.fuzzing import SETUP, Program, program

# How many new random programs are run, in all. Every night, there are 10,000.
PROGRAMS = int(os.environ.get("MCNB_PROGRAMS", "60"))
# A program that takes longer than this hangs, in seconds.
HANG_S = 120.0
# The number of processes, and of devices of each. Each has an equal share of the programs.
SIZES = [(2, 2), (3, 1), (4, 1)]
# Seeds of programs of which mcnb and the model said different things, by size.
FOUND = {(2, 2): [2650, 4098], (3, 1): [2612, 3010, 3651, 4143, 4144, 4472]}


class Fuzzer:
    """Runs random programs on a cluster, and compares what comes of them with the model."""

    def __init__(self, cluster: mcnb.Cluster, count: int, devices: int) -> None:
        self.cluster, self.count, self.devices = cluster, count, devices
        self.truths: Counter[str] = Counter()
        cluster.run(SETUP).raise_for_errors()
        self.pids = cluster.pull("os.getpid()")

    def wrong(self, seed: int) -> str:
        """Run the program of a seed; return what is wrong with its outcome, empty if nothing is."""
        made = program(seed, self.count, self.devices)
        self.truths[made.truth] += 1
        result = self.cluster.run(made.source(), values=True, timeout=HANG_S)
        found = self._wrong(made, result)
        everyone = "float(jnp.sum(ready[tuple(range(count))]))"
        total = float(2 * self.count * self.devices)
        if (text := self.cluster.run(everyone).text()) != f"[all {self.count}] {total}\n":
            found.append(f"the next cell: {text}")
        if self.cluster.pull("os.getpid()") != self.pids:
            found.append("processes were replaced")
        if not found:
            return ""
        size = f"{self.count} x {self.devices}"
        return "\n".join([f"seed {seed}, {size}: {', '.join(found)}", made.source(), result.text()])

    def _wrong(self, made: Program, result: mcnb.Result) -> list[str]:
        verdict = result.verdict
        if verdict is not None and verdict.kind == "stalled":
            return ["a hang"]
        if made.truth == "right":
            if verdict is not None or not result.ok:
                return ["a false alarm"]
            totals = {k: made.total(k) for k in range(self.count)}
            return [] if self.cluster.pull("t") == totals else ["a wrong number"]
        if made.truth == "divergent":
            return [] if verdict is not None else ["a divergence that nobody saw"]
        error = result.error()
        return [] if "ValueError: own" in str(error) else [f"an error that is not told: {error}"]


@contextmanager
def fuzzer(count: int, devices: int) -> Iterator[Fuzzer]:
    with mcnb.Cluster(processes=count, devices_per_process=devices) as cluster:
        yield Fuzzer(cluster, count, devices)


@pytest.mark.promise("what diverges gets a verdict, and nothing else does")
def test_some_random_programs() -> None:
    with fuzzer(3, 1) as fuzz:
        failures = [wrong for seed in range(60) if (wrong := fuzz.wrong(seed))]
    assert failures == []
    assert fuzz.truths.keys() == {"right", "divergent", "raises"}


@pytest.mark.thorough("many programs")
@pytest.mark.timeout(0)
@once
@pytest.mark.parametrize(("count", "devices"), SIZES)
def test_many_random_programs(count: int, devices: int) -> None:
    with fuzzer(count, devices) as fuzz:
        new = range(1000, 1000 + PROGRAMS // len(SIZES))
        seeds = [*FOUND.get((count, devices), []), *new]
        failures = [wrong for seed in seeds if (wrong := fuzz.wrong(seed))]
    print(f"{count} x {devices}: {dict(fuzz.truths)}")
    assert failures == [], "\n\n".join(failures)
