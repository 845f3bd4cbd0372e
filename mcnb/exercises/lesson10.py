"""The exercises of lesson 10, When a process dies."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, of_function, sharded, shared_folder
from mcnb.exercises.predictions import Prediction

# 10.1: a death while a checkpoint is being written.
SAVED_EVERY, WRITING, DONE = 8, 3, 25


def _again(*_: int) -> tuple[int, int]:
    whole = (DONE - WRITING) // SAVED_EVERY * SAVED_EVERY
    return whole, DONE - whole


@hint_for(
    (int, int), "two whole numbers are wanted: the step to go on from, and how many are done twice."
)
def _again_hint(seen: tuple[int, int], expected: tuple[int, int], *_: int) -> str:
    step, twice = seen
    begun = DONE // SAVED_EVERY * SAVED_EVERY
    if step == begun:
        return f"checkpoint {begun} was begun. Was it whole when the process died?"
    if step == DONE:
        return "the variables are gone with the processes. What is on disk?"
    if step == 0:
        return "not everything is lost: what was saved before?"
    if step == expected[0]:
        return f"the step is right. All that came after it, up to step {DONE}, is done again."
    if step + twice != DONE:
        return "the two numbers together are the steps that were done."
    return "after which steps does it save, and which of these checkpoints were whole?"


# 10.2: Young's interval, in steps.
STEP_S, COST_S, MACHINES, DAYS = 2, 24, 400, 200


def _best(between_s: float, cost: float = 2 * COST_S, step_s: float = STEP_S) -> int:
    return round(math.sqrt(cost * between_s) / step_s)


@hint_for(int, "a whole number of steps is wanted.")
def _every_hint(seen: int, *_: int) -> str:
    if abs(seen - _best(DAYS * 86400)) <= 1:
        return "that would be right for one machine. How often does one of all the machines die?"
    if abs(seen - _best(DAYS * 86400 / MACHINES, step_s=1)) <= 1:
        return "that is the interval in seconds. How many steps is it?"
    if abs(seen - _best(DAYS * 86400 / MACHINES, cost=COST_S)) <= 1:
        return "the cost counts twice under the root."
    if abs(seen - _best(DAYS * 24 / MACHINES)) <= 1 or abs(seen - _best(DAYS / MACHINES)) <= 1:
        return "put all times into seconds first."
    return (
        "how many seconds pass between two deaths, wherever they happen? Then take the root, and "
        "divide by the time of a step."
    )


# 10.3: a loop that saves.
FIRST, LAST, KEPT = 10, 14, (4, 8, 12)


@dataclass(frozen=True)
class SeenRun:
    """What a loop saved and returned that was called twice: anew, and to go on.

    Attributes:
        steps: Under which steps it saved.
        held: How many updates each checkpoint holds; -1 for what no number of updates gives.
        returned: How many updates came out at last; -1 as above, None where it did not come to it.
    """

    steps: tuple[int, ...]
    held: tuple[int, ...]
    returned: int | None

    def __str__(self) -> str:
        if not self.steps:
            return "nothing was saved"
        held = ", ".join(map(_updates, self.held))
        last = "" if self.returned is None else f"; at last, {_updates(self.returned)} updates"
        return f"saved as {', '.join(map(str, self.steps))}, with {held} updates done{last}"


def _updates(count: int) -> str:
    return "a wrong number of" if count < 0 else str(count)


def _after(count: int) -> list[int]:
    """Return the value after 0, 1, 2 ... updates."""
    values = [1]
    for step in range(count):
        values.append(2 * values[-1] + step)
    return values


def _checkpoints(path: Path) -> Any:
    """Return a manager of the checkpoints in a folder, which has saved each when `save` returns."""
    ocp = importlib.import_module("orbax.checkpoint")  # it brings no types
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    return ocp.CheckpointManager(path, options=options)


@looks.function
def _run_look(run: Any) -> object:
    import jax
    from jax.experimental import multihost_utils

    ocp = importlib.import_module("orbax.checkpoint")
    count = jax.device_count()
    w = sharded(np.ones(count, np.int32), mesh_of(("data",), (count,), explicit=True), "data")
    update = jax.jit(lambda w, step: 2 * w + step)
    like = {"w": jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=w.sharding)}
    with shared_folder() as folder:
        keeper = _checkpoints(folder / "run")
        run(keeper, update, w, 0, FIRST)
        newest = keeper.latest_step()
        if newest is None:
            return SeenRun((), (), None)
        found = keeper.restore(newest, args=ocp.args.StandardRestore(like))["w"]
        returned = run(keeper, update, found, newest, LAST)
        steps = tuple(sorted(keeper.all_steps()))
        held = [keeper.restore(step, args=ocp.args.StandardRestore(like))["w"] for step in steps]
        keeper.close()
        multihost_utils.sync_global_devices("looked at")
    if not isinstance(returned, jax.Array):
        return looks.kind(returned, "jax.Array, as run returned")
    return SeenRun(steps, tuple(_done(one) for one in held), _done(returned))


def _done(array: Any) -> int:
    """Return how many updates an array has had."""
    known, value = _after(2 * LAST), _single(array)
    return known.index(value) if value in known else -1


def _single(*arrays: Any) -> int:
    """Return the number that is everywhere in arrays; -1 if they have different numbers."""
    shards = [shard.data.ravel() for array in arrays for shard in array.addressable_shards]
    values = {int(value) for shard in shards for value in shard}
    return values.pop() if len(values) == 1 else -1


@of_function
@hint_for(SeenRun, "return the parameters after the last step.")
def _run_hint(seen: SeenRun, expected: SeenRun, *_: int) -> str:
    if not seen.steps:
        return "no process saved anything. Who has to call save?"
    if seen.steps != seen.held:
        return (
            "a checkpoint's number and what it holds do not agree. After step 0, how "
            "many steps are done?"
        )
    if seen.steps != expected.steps:
        return "save after every fourth step: when 4, 8, 12 ... are done."
    return "what was saved is right, what is returned is not."


# 10.4: back to before it went wrong.
SAVED, UNFINISHED, BAD = (4, 8, 12), 16, (99, 12, 4)


@dataclass(frozen=True)
class SeenReturn:
    """What was found before each of several steps.

    Attributes:
        found: For each: the step before which it was asked for, the step that was returned, the
            one whose parameters were (-1 if of none), and whether they were laid out as given.
    """

    found: tuple[tuple[int, int, int, bool], ...]

    def __str__(self) -> str:
        return "; ".join(
            f"before {bad}: step {step}, parameters of "
            f"{'no step' if held < 0 else f'step {held}'}{'' if same else ', laid out otherwise'}"
            for bad, step, held, same in self.found
        )


@looks.function
def _last_good_look(last_good: Any) -> object:
    import jax
    from jax.experimental import multihost_utils

    ocp = importlib.import_module("orbax.checkpoint")
    count = jax.device_count()
    mesh = mesh_of(("data",), (count,), explicit=True)

    def state(step: int, spec: str | None) -> dict[str, Any]:
        whole = np.full(count, step, np.int32)
        return {name: sharded(whole, mesh, spec) for name in ("b", "w")}

    initial = state(0, "data")
    found = []
    with shared_folder() as folder:
        path = folder / "run"
        with _checkpoints(path) as keeper:
            for step in SAVED:
                keeper.save(step, args=ocp.args.StandardSave(state(step, None)))
        if jax.process_index() == 0:
            (path / f"{UNFINISHED}.orbax-checkpoint-tmp").mkdir()
        multihost_utils.sync_global_devices("saved")
        for bad in BAD:
            pair = last_good(path, initial, bad)
            if not isinstance(pair, tuple) or len(pair) != 2:
                return looks.kind(pair, "pair of a step and a PyTree")
            number, params = looks.number(pair[0]), pair[1]
            if not isinstance(number, int):
                return number
            if not isinstance(params, dict) or not all(
                isinstance(params.get(name), jax.Array) for name in initial
            ):
                return looks.kind(params, "PyTree like initial")
            same = all(params[name].sharding == initial[name].sharding for name in initial)
            found.append((bad, number, _single(params["b"], params["w"]), same))
        multihost_utils.sync_global_devices("looked at")
    return SeenReturn(tuple(found))


def _last_good(*_: int) -> SeenReturn:
    newest = [max((step for step in SAVED if step < bad), default=0) for bad in BAD]
    return SeenReturn(tuple((bad, k, k, True) for bad, k in zip(BAD, newest, strict=True)))


@of_function
@hint_for(SeenReturn, "return two things: the step, and the PyTree.")
def _last_good_hint(seen: SeenReturn, expected: SeenReturn, *_: int) -> str:
    for (bad, step, held, same), (_bad, wanted, *_rest) in zip(
        seen.found, expected.found, strict=True
    ):
        if step == bad:
            return "checkpoint bad itself is useless, too."
        if step > bad:
            return "the newest of all is not wanted. all_steps() knows the others."
        if step != wanted and not wanted:
            return f"nothing was saved before step {bad}: then it is 0, and initial itself."
        if step != wanted:
            return "another whole checkpoint is newer. Compare steps as numbers, not as names."
        if held != step:
            return "the parameters are not those of the step that is returned."
        if not same:
            return (
                "the arrays have other layouts than those of initial. A jax.ShapeDtypeStruct can "
                "carry a sharding."
            )
    return ""


EXERCISES = {
    "10.1": Exercise("again", looks.items(looks.number), _again, _again_hint),
    "10.2": Exercise("every", looks.number, lambda *_: _best(DAYS * 86400 / MACHINES), _every_hint),
    "10.3": Exercise("run", _run_look, lambda *_: SeenRun(KEPT, KEPT, LAST), _run_hint),
    "10.4": Exercise("last_good", _last_good_look, _last_good, _last_good_hint),
}

PREDICTIONS = {
    "10.a": Prediction(
        "do the processes survive, and is `v` still there?",
        {
            "All survive, and v is still there": "The cluster is intact; all variables are kept",
            "All survive, but v is lost": None,
            "Process 2 ends, and v is lost": "processes are being restarted",
        },
    ),
}
