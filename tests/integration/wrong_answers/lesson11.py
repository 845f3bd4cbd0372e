"""Plausible wrong answers to the exercises of lesson 11, each with the hint that it gets."""

from __future__ import annotations

# What the answers to 11.2 that know torchrun begin with.
_JOIN = """
def join(environ, initialize):
    if "RANK" not in environ:
        return initialize()
    host, port = environ["MASTER_ADDR"], environ["MASTER_PORT"]
    count, rank = int(environ["WORLD_SIZE"]), int(environ["RANK"])
"""
_PLACE = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
def place(shapes, mesh):
"""
_NUMBERS = "two tuples of three whole numbers are wanted: first a process for each GPU."
_TEXT = "environment variables are strings; convert the two numbers to whole numbers."
_TOO_MUCH = "that is more than the 16 GB of a chip. Which axis cuts into more parts?"
_EVENLY = "50257 can't be cut into 2 or 4 equal parts. Which dimension of embed can?"

WRONG = {
    "11.1": {
        "plans = (1, 3, 4), (4, 12, 1)": (
            "both are right, in the other order: first a process for each GPU."
        ),
        "plans = (12, 12, 1), (1, 3, 4)": (
            "in the first plan, so many tasks on each host do not make so many processes. "
            "--ntasks-per-node counts those of one host."
        ),
        "plans = (4, 12, 1), (3, 3, 4)": (
            "in the second plan, so many tasks on each host do not make so many processes. "
            "--ntasks-per-node counts those of one host."
        ),
        "plans = (4, 4, 1), (1, 1, 4)": (
            "in the first plan, processes times devices are not all the GPUs there are."
        ),
        "plans = (4, 12, 1), (1, 1, 12)": (
            "in the second plan, so many tasks on each host do not make so many processes. "
            "--ntasks-per-node counts those of one host."
        ),
        "plans = (2, 6, 2), (1, 3, 4)": "in the first plan, each process has one GPU.",
        "plans = (4, 12, 1), (4, 12, 1)": (
            "in the second plan, a process has all the GPUs of its host."
        ),
        "plans = (4, 12, 1)": _NUMBERS,
        "plans = 4, 1": _NUMBERS,
        "plans = (4, 12), (1, 3)": _NUMBERS,
        "plans = ('4', '12', '1'), (1, 3, 4)": _NUMBERS,
    },
    "11.2": {
        # As it stands in the lesson.
        "def join(environ, initialize): initialize()": (
            "JAX does not know torchrun: there, it needs an address and two numbers."
        ),
        """
def join(environ, initialize):
    address = environ.get("MASTER_ADDR", "") + ":" + environ.get("MASTER_PORT", "")
    initialize(address, int(environ.get("WORLD_SIZE", 1)), int(environ.get("RANK", 0)))
""": "JAX knows Slurm: leave all arguments out there.",
        _JOIN + "    initialize(f'{host}:{port}', environ['WORLD_SIZE'], environ['RANK'])": _TEXT,
        _JOIN + "    initialize(f'{host}:{port}', count, int(environ['LOCAL_RANK']))": (
            "LOCAL_RANK counts the processes of one host. Which one is it of all?"
        ),
        _JOIN + "    initialize(host, count, rank)": (
            "the address is a host and a port, with a colon between them."
        ),
        _JOIN + "    initialize(f'{host}:{port}', rank, count)": (
            "the second argument is how many processes there are, the third which one this is."
        ),
        _JOIN + "    initialize(f'{host}:{port}', count, rank, local_device_ids=[0])": (
            "three arguments are enough."
        ),
        _JOIN + "    initialize(f'{host}:{port}')": _TEXT,
        "def join(environ, initialize): pass": "under torchrun, initialize is to be called once.",
        "def join(environ, initialize): initialize(environ['MASTER_ADDR'])": (
            "mcnb used join to check it, with the result above."
        ),
        "join = 4": "define a function, with def.",
    },
    "11.3": {
        # As it stands in the lesson.
        _PLACE + "    return {name: NamedSharding(mesh, P('data')) for name in shapes}": _EVENLY,
        _PLACE + "    return {name: NamedSharding(mesh, P('model')) for name in shapes}": _EVENLY,
        _PLACE
        + "    last = lambda s: P(*[None] * (len(s.shape) - 1), 'data')\n"
        + "    return {name: NamedSharding(mesh, last(s)) for name, s in shapes.items()}": (
            _TOO_MUCH
        ),
        _PLACE + "    return {name: NamedSharding(mesh, P()) for name in shapes}": _TOO_MUCH,
        _PLACE
        + "    return {name: NamedSharding(mesh, P(None, None, 'model')) for name in shapes}": (
            "embed has fewer dimensions than others, so its spec is shorter."
        ),
        _PLACE
        + "    specs = {'embed': P(), 'up': P('model'), 'down': P('model')}\n"
        + "    return {name: NamedSharding(mesh, specs[name]) for name in shapes}": (
            "it fits, but split every array, so that more is left for the rest."
        ),
        _PLACE
        + "    return {name: NamedSharding(mesh, P(None, ('data', 'model'))) for name in shapes}": (
            "it fits, but leave the axis 'data' to the batch: parameters are copied along it."
        ),
        _PLACE
        + "    four = Mesh(mesh.devices[0], 'model')\n"
        + "    return {name: NamedSharding(four, P(None, 'model')) for name in shapes}": (
            "embed: a NamedSharding over the mesh that is given is wanted."
        ),
        _PLACE + "    return {name: P(None, 'model') for name in shapes}": (
            "embed: a NamedSharding over the mesh that is given is wanted."
        ),
        _PLACE + "    return NamedSharding(mesh, P(None, 'model'))": (
            "return a dictionary with a NamedSharding for each name in shapes."
        ),
        "place = None": "define a function, with def.",
    },
}
