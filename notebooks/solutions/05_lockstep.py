# %% 05.1
import jax
from jax.experimental import multihost_utils


def report(v):
    everything = multihost_utils.process_allgather(v, tiled=True)
    return everything if jax.process_index() == 0 else None


# %% 05.2
from jax.experimental import multihost_utils


def means(stats):
    gather = multihost_utils.process_allgather
    return {name: gather(stats[name]).mean() for name in sorted(stats)}


# %% 05.3
import numpy as np
from jax.experimental import multihost_utils


def together(tokens):
    lengths = multihost_utils.process_allgather(len(tokens))
    padded = np.pad(tokens, (0, lengths.max() - len(tokens)))
    rows = multihost_utils.process_allgather(padded)
    return np.concatenate([row[:n] for row, n in zip(rows, lengths)])


# %% 05.4
from jax.experimental import multihost_utils


def train(step, batches):
    results = []
    while True:
        batch = next(batches, None)
        if not multihost_utils.process_allgather(batch is not None).all():
            return results
        results.append(step(batch))
