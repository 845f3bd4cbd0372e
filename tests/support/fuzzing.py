"""Random programs whose outcome is known: a model of the launches says whether they diverge.

A program is a list of actions for each process. An action is a launch, or several of them in
threads. The model knows the participants of each launch and nothing of mcnb: it lets processes go
on where all participants of a launch have arrived, and sees whether all come to the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeAlias

Truth: TypeAlias = Literal["right", "divergent", "raises"]

SETUP = """
import asyncio, contextlib, functools, os, queue, signal, sys, threading, time, weakref
from concurrent.futures import ThreadPoolExecutor
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax._src import distributed
from jax.experimental import multihost_utils as mu
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
k, count = jax.process_index(), jax.process_count()

def mesh_of(processes):
    chosen = np.array([d for d in jax.devices() if d.process_index in processes])
    shape = len(processes), len(chosen) // len(processes)
    return Mesh(chosen.reshape(shape), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

class Ready(dict):
    def __missing__(self, processes):
        mesh = mesh_of(processes)
        value = np.ones((mesh.devices.size, 2), np.float32)
        sharding = NamedSharding(mesh, P(("a", "b")))
        made = jax.make_array_from_callback(value.shape, sharding, lambda i: value[i])
        return self.setdefault(processes, made)

ready = Ready()
reduce = [jax.jit(lambda v, i=i: (i + 1) * jnp.sum(v)) for i in range(3)]
static = jax.jit(lambda v, n: n * jnp.sum(v), static_argnames="n")
together = jax.jit(lambda v, w: jnp.sum(v) * jnp.sum(w))
def body(v):
    return lax.psum(v, ("a", "b"))

class Mapped(dict):
    def __missing__(self, processes):
        made = jax.jit(jax.shard_map(
            body, mesh=mesh_of(processes), in_specs=P(("a", "b")), out_specs=P()))
        return self.setdefault(processes, made)
mapped = Mapped()

class Shifted(dict):
    def __missing__(self, processes):
        mesh = mesh_of(processes)
        n = mesh.devices.size
        def shift(v):
            v = lax.ppermute(v, ("a", "b"), [(i, (i + 1) % n) for i in range(n)])
            return jnp.sum(lax.all_gather(v, ("a", "b")))
        made = jax.jit(jax.shard_map(
            shift, mesh=mesh, in_specs=P(("a", "b")), out_specs=P(), check_vma=False))
        return self.setdefault(processes, made)
shifted = Shifted()

def closing_over(table):
    return jax.jit(lambda v: jnp.sum(table) * jnp.sum(v))
several = jax.jit(lambda v, n: lax.fori_loop(0, n, lambda i, s: s + jnp.sum(v), 0.0))
consumed = jax.jit(lambda v: (v + 1, jnp.sum(v)), donate_argnums=0)
def consume(processes):
    mine = ready[processes] + 0  # no collective
    return consumed(mine)[1]
heard = []
@jax.jit
def telling(v):
    total = jnp.sum(v)
    jax.debug.callback(lambda t: heard.append(float(t)), total)
    return total

def number(result):
    return int(np.asarray(result.addressable_shards[0].data).ravel()[0])
def barrier(name, processes):
    distributed.global_state.client.wait_at_barrier(name, 600_000, list(processes))
    return 1

pool = ThreadPoolExecutor(8)
def in_thread(work):
    box = []
    thread = threading.Thread(target=lambda: box.append(work()))
    thread.start()
    thread.join()
    return box[0] if box else 0
def in_pool(work):
    return pool.submit(work).result()
def by_queue(work):
    results = queue.Queue()
    threading.Thread(target=lambda: results.put(work()), daemon=True).start()
    return results.get()
def by_event(work):
    box, done = [], threading.Event()
    def run():
        box.append(work())
        done.set()
    threading.Thread(target=run, daemon=True).start()
    done.wait()
    return box[0]
def in_loop(work):
    async def main(): return await asyncio.to_thread(work)
    return asyncio.run(main())
def in_handler(work):
    box = []
    before = signal.signal(signal.SIGUSR1, lambda *_: box.append(work()))
    try: signal.raise_signal(signal.SIGUSR1)
    finally: signal.signal(signal.SIGUSR1, before)
    return box[0]
def in_timer(work):
    box = []
    timer = threading.Timer(0.002, lambda: box.append(work()))
    timer.start()
    timer.join()
    return box[0]
def by_condition(work):
    box, ready = [], threading.Condition()
    def run():
        found = work()
        with ready:
            box.append(found)
            ready.notify()
    threading.Thread(target=run, daemon=True).start()
    with ready:
        ready.wait_for(lambda: box)
    return box[0]
class Holder: pass
def in_finalizer(work):
    box, holder = [], Holder()
    weakref.finalize(holder, lambda: box.append(work()))
    del holder
    return box[0]
def after_an_error(work):
    try: raise KeyError("own")
    except KeyError: return work()
def at_the_end(work):
    box = []
    try: pass
    finally: box.append(work())
    return box[0]
def swallowing(work):
    try: return work()
    except Exception: return 0
def in_generator(work):
    def give(): yield work()
    return next(give())
def cached(work):
    return functools.cache(work)()
def plainly(work):
    return work()

def waits(thread):
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_name != "_hear_or_sleep":
        frame = frame.f_back
    return frame is not None
def during(first, second):  # a signal handler makes the second launch while the first waits
    called, lock, main = [], threading.RLock(), threading.main_thread().ident
    def call(*_):
        with lock:
            if called: return
            called.append(None)
        called.append(second())
    def watch():
        while not called:
            with lock:
                if not called and waits(main): signal.pthread_kill(main, signal.SIGUSR1)
            time.sleep(0.001)
    before = signal.signal(signal.SIGUSR1, call)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        found = first()
        call()  # unless it was called: nothing had to wait
    finally:
        with lock: called.append(0)
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    return found + called[1]
"""
WRAPPERS = (
    "in_thread",
    "in_pool",
    "by_queue",
    "by_event",
    "by_condition",
    "in_timer",
    "in_loop",
    "in_handler",
    "in_finalizer",
    "after_an_error",
    "at_the_end",
    "swallowing",
    "in_generator",
    "cached",
)
# The beginnings of the keys of launches whose programs are equal, and whose values may not be.
OF_VALUES = ("together", "several", "closing over")
# What makes such a value another one than that of the other processes.
ODD = {
    "np.full(2,": "1 + np.full(2,",
    "np.int32(": "1 + np.int32(",
    "np.full(40,": "(np.arange(40) == 7) + np.full(40,",
}


@dataclass(frozen=True)
class Action:
    """A launch.

    Attributes:
        call: The expression that makes it, and whose value is an integer.
        key: Equal for two actions if they are the same launch.
        processes: The participants.
        value: What the expression returns.
        wrapper: The function that calls it, in this or in another thread.
        odd: Whether a replicated argument differs from that of the other processes.
        error: Whether an error is raised instead.
    """

    call: str
    key: str
    processes: tuple[int, ...]
    value: int
    wrapper: str = "plainly"
    odd: bool = False
    error: bool = False

    def source(self) -> str:
        return (
            "raise ValueError('own')" if self.error else f"t += {self.wrapper}(lambda: {self.call})"
        )


@dataclass
class Program:
    """A random program.

    Attributes:
        seed: The seed that it was made from.
        count: The number of processes.
        actions: The actions of each process.
        pending: For each process, the numbers of actions that a pool runs, and of the actions
            before which their results are awaited.
        handled: For each process, the numbers of actions during which a signal handler makes the
            next one.
        truth: What the model says.
    """

    seed: int
    count: int
    actions: dict[int, list[Action]]
    pending: dict[int, dict[int, int]] = field(default_factory=dict)
    handled: dict[int, set[int]] = field(default_factory=dict)

    @property
    def truth(self) -> Truth:
        if any(action.error for one in self.actions.values() for action in one):
            return "raises"
        odd = any(action.odd for one in self.actions.values() for action in one)
        return "divergent" if odd or not self._ends() else "right"

    def total(self, k: int) -> int:
        return sum(action.value for action in self.actions[k])

    def source(self) -> str:
        lines = ["t = 0"]
        for k in range(self.count):
            lines.append(f"{'if' if k == 0 else 'elif'} k == {k}:")
            waits = self.pending.get(k, {})
            for number, action in enumerate(self.actions[k]):
                lines += [f"    t += f{n}.result()" for n, at in waits.items() if at == number]
                handled = self.handled.get(k, set())
                if number in handled:
                    second = self.actions[k][number + 1]
                    lines.append(f"    t += during(lambda: {action.call}, lambda: {second.call})")
                elif number - 1 in handled:
                    pass
                elif number in waits:
                    lines.append(f"    f{number} = pool.submit(lambda: {action.call})")
                else:
                    lines.append(f"    {action.source()}")
            last = len(self.actions[k])
            lines += [f"    t += f{n}.result()" for n, at in waits.items() if at == last]
            lines.append("    pass")
        return "\n".join([*lines, "print(t)"])

    def _ends(self) -> bool:
        """Return whether all processes come to the end of the program."""
        at = dict.fromkeys(range(self.count), 0)
        flying: dict[int, list[int]] = {k: [] for k in at}
        while True:
            moved = False
            for k in at:
                while at[k] in self.pending.get(k, {}) and not self._awaited(k, at[k], flying):
                    flying[k].append(at[k])
                    at[k] += 1
                    moved = True
            arrived: dict[tuple[str, tuple[int, ...]], dict[int, int | None]] = {}
            for k in at:
                waiting: list[int | None] = [*flying[k]]
                if at[k] < len(self.actions[k]) and not self._awaited(k, at[k], flying):
                    waiting.append(None)
                for number in waiting:
                    action = self.actions[k][at[k] if number is None else number]
                    arrived.setdefault((action.key, action.processes), {}).setdefault(k, number)
            for (_, processes), together in arrived.items():
                if {*processes} == together.keys():
                    for k, number in together.items():
                        if number is None:
                            at[k] += 1
                        else:
                            flying[k].remove(number)
                    moved = True
                    break
            if not moved:
                break
        return all(at[k] == len(self.actions[k]) and not flying[k] for k in at)

    def _awaited(self, k: int, number: int, flying: dict[int, list[int]]) -> bool:
        """Return whether process k waits for a result of its pool before an action."""
        waits = self.pending.get(k, {})
        return any(waits[n] <= number for n in flying[k])


def program(seed: int, count: int, devices: int) -> Program:
    """Return a random program for processes with a number of devices each."""
    chance = random.Random(seed)
    steps = [_action(chance, count, devices, f"{seed}.{i}") for i in range(chance.randint(1, 6))]
    wrapped = [
        replace(one, wrapper=chance.choice(WRAPPERS)) if chance.random() < 0.3 else one
        for one in steps
    ]
    beside = chance.choices(["nothing", "thread", "handler"], [5, 3, 2])[0]
    if beside == "handler":
        at = chance.randrange(len(wrapped))
        wrapped[at] = replace(wrapped[at], wrapper="plainly")
        wrapped.insert(at, _closing_over(chance.randrange(3), wrapped[at].processes, devices))
    made = Program(seed, count, {k: [s for s in wrapped if k in s.processes] for k in range(count)})
    if beside == "thread":
        _let_run(chance, made)
    elif beside == "handler":
        _let_handle(chance, made)
    if chance.random() < 0.6:
        _mutate(chance, made, count, devices)
    return made


def _action(chance: random.Random, count: int, devices: int, name: str) -> Action:
    everyone = tuple(range(count))
    size = count if chance.random() < 0.6 else chance.randint(2, count)
    processes = tuple(sorted(chance.sample(everyone, size)))
    total = size * devices * 2
    i = chance.randrange(3)
    # The first two compile to the same programs, and the sum to that of one time the sum.
    kinds = [
        Action(
            f"number(reduce[{i}](ready[{processes}]))", f"times {i + 1}", processes, (i + 1) * total
        ),
        Action(f"number(static(ready[{processes}], n={i}))", f"times {i}", processes, i * total),
        Action(f"number(mapped[{processes}](ready[{processes}]))", "mapped", processes, total // 2),
        Action(
            f"number(together(ready[{processes}], np.full(2, {i}, np.float32)))",
            f"together {i}",
            processes,
            2 * i * total,
        ),
        Action(f"barrier('{name}', {processes})", f"barrier {name}", processes, 1),
        Action(f"number(jnp.sum(ready[{processes}]))", "times 1", processes, total),
        Action(f"number(shifted[{processes}](ready[{processes}]))", "shifted", processes, total),
        _closing_over(i, processes, devices),
        Action(
            f"number(several(ready[{processes}], np.int32({i})))",
            f"several {i}",
            processes,
            i * total,
        ),
        Action(f"number(consume({processes}))", "consume", processes, total),
        Action(f"number(telling(ready[{processes}]))", "telling", processes, total),
        Action(
            "int(mu.process_allgather(np.ones(3, np.int32)).sum())", "gather", everyone, 3 * count
        ),
        Action("mu.sync_global_devices('all') or 1", "sync", everyone, 1),  # JAX compares the names
    ]
    return chance.choice(kinds)


def _closing_over(i: int, processes: tuple[int, ...], devices: int) -> Action:
    return Action(
        f"number(closing_over(np.full(40, {i}, np.float32))(ready[{processes}]))",
        f"closing over {i}",
        processes,
        40 * i * len(processes) * devices * 2,
    )


def _let_run(chance: random.Random, made: Program) -> None:
    """Let a pool run one action of all its participants, beside those that follow it."""
    actions = list(dict.fromkeys(a for one in made.actions.values() for a in one))
    # In which order two threads launch one computation isn't known, and its values may differ.
    computations = [
        a.key.partition(" ")[0] if a.key.startswith(OF_VALUES) else a.key for a in actions
    ]
    counted = zip(actions, map(computations.count, computations), strict=True)
    alone = [a for a, count in counted if count == 1 and a.wrapper == "plainly"]
    if alone:
        chosen = chance.choice(alone)
        for k in chosen.processes:
            number = made.actions[k].index(chosen)
            made.pending[k] = {number: chance.randint(number + 1, len(made.actions[k]))}


def _let_handle(chance: random.Random, made: Program) -> None:
    """Let signal handlers make launches while the ones before them wait."""
    for k, own in made.actions.items():
        # JAX's C++ would launch what was launched before, and a handler can't launch below it.
        firsts = [
            number
            for number, (one, other) in enumerate(pairwise(own))
            if one.key.startswith("closing over") and one.wrapper == other.wrapper == "plainly"
        ]
        if firsts and chance.random() < 0.7:
            made.handled[k] = {chance.choice(firsts)}


def _mutate(chance: random.Random, made: Program, count: int, devices: int) -> None:
    """Change the actions of one process."""
    k = chance.choice([k for k in range(count) if made.actions[k]])
    own = made.actions[k]
    made.pending.pop(k, None)
    made.handled.pop(k, None)
    at = chance.randrange(len(own))
    action = own[at]
    kind = chance.choice(
        ["skip", "twice", "other", "swap", "value", "raise", "wrapper", "line", "late"]
    )
    if kind == "skip":
        del own[at]
    elif kind == "twice":
        own.insert(at, action)
    elif kind == "other":
        own[at] = _action(chance, count, devices, f"other {made.seed}")
        if k not in own[at].processes:
            del own[at]
    elif kind == "swap":
        own[at], own[at - 1] = own[at - 1], own[at]
    elif kind == "value" and action.key.startswith(OF_VALUES):
        call = action.call
        for usual, other in ODD.items():
            call = call.replace(usual, other)
        own[at] = replace(action, call=call, odd=True)
    elif kind == "raise":
        own[at] = replace(action, error=True)
    elif kind == "wrapper":
        own[at] = replace(action, wrapper=chance.choice(WRAPPERS))
    elif kind == "line":
        own[at] = replace(action, call=f"(lambda: {action.call})()")
    elif kind == "late":
        own[at] = replace(action, call=f"[time.sleep(0.02), {action.call}][1]")
