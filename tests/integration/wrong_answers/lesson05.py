"""Plausible wrong answers to the exercises of lesson 05, each with the hint that it gets."""

from __future__ import annotations

_IMPORTS = """
import jax, numpy as np
from jax.experimental import multihost_utils
gather = multihost_utils.process_allgather
"""


def _tried(name: str) -> str:
    return f"mcnb used {name} to check it, with the result above."


_MIXED = (
    "what was gathered under one name came from both. Does every process come to the names in the "
    "same order?"
)

WRONG = {
    "05.1": {
        # As it is given: it parts the processes.
        f"""{_IMPORTS}
def report(v):
    if jax.process_index() == 0:
        return gather(v, tiled=True)
""": _tried("report"),
        f"{_IMPORTS}\ndef report(v): ...": (
            "process 0 is to return the numbers. All processes have to help it get them."
        ),
        f"{_IMPORTS}\ndef report(v):\n    return gather(v, tiled=True)": (
            "only process 0 is to return the numbers, although all have to help it get them."
        ),
        f"""{_IMPORTS}
def report(v):
    if jax.process_index() == 0:
        return np.concatenate([shard.data for shard in v.addressable_shards])
""": "these are this process's own numbers. The others have to send theirs.",
        f"""{_IMPORTS}
def report(v):
    numbers = gather(v, tiled=True)
    return numbers.ravel() if jax.process_index() == 0 else None
""": "the array has shape (4, 2), and so should what you return.",
        f"{_IMPORTS}\ndef report(v):\n    return v if jax.process_index() == 0 else None": (
            "three ways of seeing a global array are in the lesson. Two of them give all of it."
        ),
        f"{_IMPORTS}\ndef report(v):\n    if jax.process_index() == 0: return np.asarray(v)": (
            _tried("report")
        ),
        "report = 'ready'": "define a function, with def.",
    },
    "05.2": {
        # As it is given: nothing parts, and the numbers are wrong.
        f"{_IMPORTS}\ndef means(stats):\n"
        "    return {name: gather(stats[name]).mean() for name in stats}": _MIXED,
        f"{_IMPORTS}\ndef means(stats): ...": "return a dictionary with the same names.",
        f"{_IMPORTS}\ndef means(stats):\n"
        "    return {name: stats[name].mean() for name in sorted(stats)}": (
            "these are one process's own numbers; take the mean over all processes."
        ),
        f"{_IMPORTS}\ndef means(stats):\n"
        "    return {name: gather(stats[name]) for name in sorted(stats)}": (
            "one number for each name: the mean of what was gathered."
        ),
        f"{_IMPORTS}\ndef means(stats):\n    return {{'loss': gather(stats['loss']).mean()}}": (
            "the names are loss and norm."
        ),
    },
    "05.3": {
        # As it is given: it parts the processes.
        f"{_IMPORTS}\ndef together(tokens):\n    return np.concatenate(gather(tokens))": (
            _tried("together")
        ),
        f"{_IMPORTS}\ndef together(tokens): ...": "return an array of numbers.",
        f"{_IMPORTS}\ndef together(tokens):\n    return tokens": (
            "some tokens are lost. All that the 4 processes have are to be there."
        ),
        f"""{_IMPORTS}
def together(tokens):
    longest = gather(len(tokens)).max()
    return gather(np.pad(tokens, (0, longest - len(tokens))))
""": "join the rows to one, each without its padding.",
        f"""{_IMPORTS}
def together(tokens):
    longest = gather(len(tokens)).max()
    return gather(np.pad(tokens, (0, longest - len(tokens)))).ravel()
""": "what was added to make the shapes equal has to go again. How much was it on each?",
        f"""{_IMPORTS}
def together(tokens):
    longest = gather(len(tokens)).max()
    rows = gather(np.pad(tokens, (0, longest - len(tokens))))
    return rows[rows != 0]
""": "a 0 may be a token, so it can't tell you what is padding. What can?",
        f"""{_IMPORTS}
def together(tokens):
    lengths = gather(len(tokens))
    rows = gather(np.pad(tokens, (0, lengths.max() - len(tokens))))
    return np.concatenate([row[:n] for row, n in zip(rows, lengths)][::-1])
""": "these are the right tokens. Begin with those of process 0.",
    },
    "05.4": {
        # As it is given: it parts the processes.
        f"{_IMPORTS}\ndef train(step, batches):\n    return [step(batch) for batch in batches]": (
            _tried("train")
        ),
        f"{_IMPORTS}\ndef train(step, batches): ...": "return a list with the result of each step.",
        f"{_IMPORTS}\ndef train(step, batches):\n"
        "    return [step(b) for b in list(batches)[:gather(len(batches)).min()]]": (
            _tried("train")
        ),
        f"""{_IMPORTS}
def train(step, batches):
    mine = list(batches)
    steps = gather(len(mine)).max()
    return [step(b) for b in mine + [0] * (steps - len(mine))]
""": "stop when the first process has no batch left; there is nothing to make up for it.",
        f"{_IMPORTS}\ndef train(step, batches):\n    return [step(next(batches))]": (
            "every process has a batch for one step more. None may be lost."
        ),
        f"""{_IMPORTS}
def train(step, batches):
    mine = list(batches)
    return [step(b) for b in mine[-gather(len(mine)).min() :]]
""": "in each step, every process passes on its next batch, beginning with its first.",
    },
}
