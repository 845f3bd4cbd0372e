"""Plausible wrong answers to the exercises of lesson 10, each with the hint that it gets."""

from __future__ import annotations

# What the answers to 10.3 begin with.
_RUN = """
import jax
import orbax.checkpoint as ocp
def run(keeper, update, w, start, until):
    for step in range(start, until):
"""
_SAVE = "keeper.save({}, args=ocp.args.StandardSave({{'w': w}}))\n"

# What the answers to 10.4 begin with.
_GOOD = """
import jax
import orbax.checkpoint as ocp
def likes(start):
    struct = jax.ShapeDtypeStruct
    return jax.tree.map(lambda x: struct(x.shape, x.dtype, sharding=x.sharding), start)
def load(path, step, *like):
    with ocp.CheckpointManager(path) as keeper:
        return step, keeper.restore(step, args=ocp.args.StandardRestore(*like))
def steps(path):
    with ocp.CheckpointManager(path) as keeper:
        return sorted(keeper.all_steps())
"""

_TWO_NUMBERS = "two whole numbers are wanted: the step to go on from, and how many are done twice."
_PARTED = "mcnb used run to check it, with the result above."
_NUMBER_AND_CONTENT = (
    "a checkpoint's number and what it holds do not agree. After step 0, how many steps are done?"
)

WRONG = {
    "10.1": {
        "again = (24, 1)": "checkpoint 24 was begun. Was it whole when the process died?",
        "again = (25, 0)": "the variables are gone with the processes. What is on disk?",
        "again = (0, 25)": "not everything is lost: what was saved before?",
        "again = (16, 10)": (
            "the step is right. All that came after it, up to step 25, is done again."
        ),
        "again = (8, 9)": "the two numbers together are the steps that were done.",
        "again = (17, 8)": "after which steps does it save, and which of these checkpoints were "
        "whole?",
        "again = 16": _TWO_NUMBERS,
        "again = ('16', '9')": _TWO_NUMBERS,
    },
    "10.2": {
        "every = round((2 * 24 * 200 * 86400) ** 0.5 / 2)": (
            "that would be right for one machine. How often does one of all the machines die?"
        ),
        "every = 1440": "that is the interval in seconds. How many steps is it?",
        "every = int((24 * 43200) ** 0.5 / 2)": "the cost counts twice under the root.",
        "every = int((2 * 24 * 12) ** 0.5 / 2)": "put all times into seconds first.",
        "every = 720.0": "a whole number of steps is wanted.",
        "every = 100": (
            "how many seconds pass between two deaths, wherever they happen? Then take the root, "
            "and divide by the time of a step."
        ),
    },
    "10.3": {
        # As it stands in the lesson.
        _RUN
        + "        w = update(w, step)\n"
        + "        if jax.process_index() == 0 and step % 4 == 0:\n            "
        + _SAVE.format("step")
        + "    return w": _PARTED,
        # Only the condition mended.
        _RUN
        + "        w = update(w, step)\n"
        + "        if step % 4 == 0:\n            "
        + _SAVE.format("step")
        + "    return w": _NUMBER_AND_CONTENT,
        # The right steps, saved under the number of the step that was just done.
        _RUN
        + "        w = update(w, step)\n"
        + "        if step % 4 == 3:\n            "
        + _SAVE.format("step")
        + "    return w": _NUMBER_AND_CONTENT,
        # Number and content agree, but it saves at other times.
        _RUN
        + "        w = update(w, step)\n"
        + "        if step % 4 == 0:\n            "
        + _SAVE.format("step + 1")
        + "    return w": "save after every fourth step: when 4, 8, 12 ... are done.",
        _RUN + "        w = update(w, step)\n    return w": (
            "no process saved anything. Who has to call save?"
        ),
        _RUN
        + "        w = update(w, step)\n"
        + "        if step % 4 == 3:\n            "
        + _SAVE.format("step + 1")
        + "    return w + 1": "what was saved is right, what is returned is not.",
        _RUN
        + "        w = update(w, step)\n"
        + "        if step % 4 == 3:\n            "
        + _SAVE.format("step + 1"): "return the parameters after the last step.",
        "run = 'training.py'": "define a function, with def.",
    },
    "10.4": {
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    return load(path, steps(path)[-1], likes(start))": (
            "checkpoint bad itself is useless, too."
        ),
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    good = [step for step in steps(path) if step <= bad]\n"
        + "    return load(path, good[-1], likes(start)) if good else (0, start)": (
            "checkpoint bad itself is useless, too."
        ),
        # The folder's names, in the alphabet's order.
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    names = sorted(one.name for one in path.iterdir() if one.name.isdigit())\n"
        + "    good = [int(name) for name in names if int(name) < bad]\n"
        + "    return load(path, good[-1], likes(start)) if good else (0, start)": (
            "another whole checkpoint is newer. Compare steps as numbers, not as names."
        ),
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    good = [step for step in steps(path) if step < bad] or steps(path)[:1]\n"
        + "    return load(path, good[-1], likes(start))": (
            "checkpoint bad itself is useless, too."
        ),
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    good = [step for step in steps(path) if step < bad]\n"
        + "    return load(path, good[-1]) if good else (0, start)": (
            "the arrays have other layouts than those of initial. A jax.ShapeDtypeStruct can carry "
            "a sharding."
        ),
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    good = [step for step in steps(path) if step < bad]\n"
        + "    return (good[-1] if good else 0), start": (
            "the parameters are not those of the step that is returned."
        ),
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    good = [step for step in steps(path) if step < bad]\n"
        + "    if good and jax.process_index() == 0:\n"
        + "        return load(path, good[-1], likes(start))\n"
        + "    return 0, start": "mcnb used last_good to check it, with the result above.",
        # The temporary folder of a checkpoint that was never finished.
        _GOOD
        + "def last_good(path, start, bad):\n"
        + "    good = [int(one.name.partition('.')[0]) for one in path.iterdir()]\n"
        + "    good = [step for step in good if step < bad]\n"
        + "    return load(path, max(good), likes(start)) if good else (0, start)": (
            "mcnb used last_good to check it, with the result above."
        ),
        "def last_good(path, start, bad): return start": (
            "return two things: the step, and the PyTree."
        ),
        "def last_good(path, start, bad): return bad - 1, None": (
            "return two things: the step, and the PyTree."
        ),
        "last_good = 8": "define a function, with def.",
    },
}
