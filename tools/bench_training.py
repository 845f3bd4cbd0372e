"""What the check costs a training program: `python tools/bench_training.py [PYTHON]`.

The program trains a model of flax.nnx with optax, on batches that workers of grain load, and saves
checkpoints with Orbax while it goes on. `mcnb run` runs it with the check and without it, in turn;
printed are the times of each round, their medians, and the ratio. PYTHON has these packages
installed, and what mcnb needs.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, PROCESSES, DEVICES = 5, 4, 2
PROGRAM = """\
import sys, time
from absl import flags
import grain.python as grain
import jax, jax.numpy as jnp, numpy as np, optax
import orbax.checkpoint as ocp
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

STEPS, FIRST, SAVED, BATCH, WIDTH = 120, 20, 40, 64, 256


class Rows:
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        x = np.random.default_rng(i).standard_normal(WIDTH, np.float32)
        return {"x": x, "y": np.tanh(x[:8])}


class Model(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(3)])
        self.last = nnx.Linear(WIDTH, 8, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.relu(layer(x))
        return self.last(x)


def train(folder):
    flags.FLAGS(sys.argv[:1])  # grain's workers ask for them
    jax.distributed.initialize()
    mesh = Mesh(jax.devices(), "data")
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    k, n = jax.process_index(), jax.process_count()
    loader = grain.DataLoader(
        data_source=Rows(),
        sampler=grain.IndexSampler(100_000, grain.ShardOptions(k, n), shuffle=True, seed=0),
        operations=[grain.Batch(BATCH // n)],
        worker_count=1,
    )
    graph, state = nnx.split(Model(nnx.Rngs(0)))
    state = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), whole), state)
    adam = optax.adam(1e-3)
    moments = jax.jit(adam.init, out_shardings=whole)(state)

    @jax.jit
    def step(state, moments, batch):
        def loss(state):
            return jnp.mean((nnx.merge(graph, state)(batch["x"]) - batch["y"]) ** 2)

        value, slopes = jax.value_and_grad(loss)(state)
        changes, moments = adam.update(slopes, moments)
        return optax.apply_updates(state, changes), moments, value

    keep = ocp.CheckpointManagerOptions(max_to_keep=1)
    with ocp.CheckpointManager(folder, options=keep) as saver:
        for number, rows in zip(range(STEPS), loader):
            batch = jax.tree.map(lambda v: jax.make_array_from_process_local_data(split, v), rows)
            state, moments, value = step(state, moments, batch)
            if number == FIRST:
                value.block_until_ready()
                began = time.perf_counter()
            if number % SAVED == SAVED - 1:
                saver.save(number, args=ocp.args.StandardSave(nnx.to_pure_dict(state)))
            if number % 10 == 9:
                float(value)
        value.block_until_ready()
        took = time.perf_counter() - began
        saver.wait_until_finished()
    if k == 0:
        print("seconds", took, "loss", float(value), flush=True)


if __name__ == "__main__":  # grain starts workers that import this file
    train(sys.argv[1])
"""
COMMAND = "from mcnb.cli.main import main; raise SystemExit(main())"


def run(python: str, *, checked: bool) -> tuple[float, str]:
    """Run the program; return how long its steps took, and the last loss as text."""
    with tempfile.TemporaryDirectory() as name:
        program = Path(name, "train.py")
        program.write_text(PROGRAM)
        sizes = ["-n", str(PROCESSES), "-d", str(DEVICES)]
        unchecked = [] if checked else ["--unchecked"]
        done = subprocess.run(
            [python, "-c", COMMAND, "run", *sizes, *unchecked, str(program), f"{name}/saved"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"seconds (\S+) loss (\S+)", done.stdout)
    if done.returncode or found is None:
        raise SystemExit(f"The program failed:\n{done.stdout}{done.stderr}")
    return float(found[1]), found[2]


def main(python: str) -> None:
    """Run the rounds, and print what they took."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    losses = set()
    for number in range(ROUNDS):
        for checked in (False, True) if number % 2 == 0 else (True, False):
            took, loss = run(python, checked=checked)
            seconds[checked].append(took)
            losses.add(loss)
        plain, with_check = seconds[False][-1], seconds[True][-1]
        print(f"unchecked {plain:.2f} s, checked {with_check:.2f} s", flush=True)
    medians = [statistics.median(seconds[side]) for side in (False, True)]
    print(f"medians: {medians[0]:.2f} s, {medians[1]:.2f} s, {medians[1] / medians[0]:.3f} x")
    print(f"last losses: {', '.join(sorted(losses))}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
