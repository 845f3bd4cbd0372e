"""Add a sentence to an error of JAX whose cause is several processes, or a newer JAX.

Code that a reader copies from a page was often written for one process, or for an older JAX. A rule
recognizes such an error by its type and text, as JAX 0.8 to 0.12 raise it, and says what does it
today. The error itself stays as it is: the sentence is shown below it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from types import FrameType, TracebackType
from typing import Any

from mcnb._text import cell_label
from mcnb.lockstep.callee import operands_at
from mcnb.lockstep.source import is_installed
from mcnb.lockstep.syntax import arguments_read, parsed

# How to get the elements of an array whose shards are in several processes.
_ALL = "jax.experimental.multihost_utils.process_allgather(x, tiled=True)"
_MESH = "jax.make_mesh((8,), ('x',))"
# What JAX no longer has, by its full name: since which version, and what does it today.
REMOVED = {
    "jax.sharding.PositionalSharding": (
        "0.7",
        f"use a mesh with named axes: jax.NamedSharding({_MESH}, jax.P('x'))",
    ),
    "jax.sharding.PmapSharding": ("0.10", "use jax.NamedSharding, as jax.pmap itself does"),
    "jax.sharding.MeshPspecSharding": ("0.4", "it is called jax.NamedSharding now"),
    "jax.sharding.OpShardingSharding": ("0.4.12", "use jax.NamedSharding"),
    "jax.sharding.use_mesh": ("0.7.1", "use jax.set_mesh(mesh)"),
    "jax.experimental.maps": (
        "0.4.36",
        "use jax.shard_map for xmap, and jax.make_mesh or jax.sharding.Mesh for Mesh",
    ),
    "jax.experimental.sharded_jit": ("0.4", "use jax.jit with in_shardings and out_shardings"),
    "jax.interpreters.sharded_jit": ("0.4", "use jax.jit with in_shardings and out_shardings"),
    "jax.interpreters.pxla.Mesh": ("0.8", "use jax.sharding.Mesh"),
    "jax.interpreters.pxla.PartitionSpec": ("0.8", "use jax.P"),
    "jax.experimental.PartitionSpec": ("0.4.14", "use jax.P, or jax.sharding.PartitionSpec"),
    "jax.experimental.global_device_array": (
        "0.4",
        "jax.Array may have shards in several processes: jax.make_array_from_callback makes one",
    ),
    "jax.experimental.host_callback": ("0.8", "use jax.debug.print, or jax.pure_callback"),
    "jax.device_put_sharded": (
        "0.10",
        "stack the shards of this process's devices: jax.device_put(numpy.stack(shards), "
        "jax.NamedSharding(jax.sharding.Mesh(devices, ('x',)), jax.P('x')))",
    ),
    "jax.device_put_replicated": (
        "0.10",
        "use jax.device_put(x, jax.NamedSharding(jax.sharding.Mesh(devices, ('x',)), jax.P()))",
    ),
    "jax.tree_map": ("0.6", "use jax.tree.map"),
    "jax.tree_leaves": ("0.6", "use jax.tree.leaves"),
    "jax.tree_flatten": ("0.6", "use jax.tree.flatten"),
    "jax.tree_unflatten": ("0.6", "use jax.tree.unflatten"),
    "jax.tree_structure": ("0.6", "use jax.tree.structure"),
    "jax.tree_multimap": ("0.3.16", "use jax.tree.map, which takes several trees"),
    "jax.tree_util.tree_multimap": ("0.3.16", "use jax.tree.map, which takes several trees"),
    "jax.linear_util": ("0.4.24", "use jax.extend.linear_util"),
    "jax.lib.xla_bridge": ("0.8", "use jax.devices(), or jax.extend.backend.get_backend()"),
    "jax.xla_computation": ("0.4.34", "use jax.jit(f).lower(...).compiler_ir('hlo')"),
    "jax.random.KeyArray": ("0.4.24", "a key is a jax.Array: jax.random.key(0)"),
}
# Other packages that pages import, and what to do without them.
PACKAGES = {
    "mpi4py": (
        "mpi4py is not installed, and is not needed here: jax.process_index() is the rank, "
        "jax.process_count() is the size. With multihost_utils of jax.experimental, "
        "comm.bcast(x) is multihost_utils.broadcast_one_to_all(x), and comm.allgather(x) is "
        "multihost_utils.process_allgather(x). Instead of comm.scatter, make the array on every "
        "process, and take its part: np.array_split(x, jax.process_count())[jax.process_index()]"
    ),
    "rich": "JAX draws with the package rich, which is not installed: pip install rich",
}
# Modules of the standard library whose names are hardly used for anything else.
_MODULES = (
    *("asyncio", "collections", "contextlib", "dataclasses", "functools", "itertools", "json"),
    *("logging", "math", "os", "pathlib", "re", "subprocess", "sys", "tempfile", "threading"),
    *("time", "traceback", "warnings"),
)
# Names that pages about JAX use without an import in each block, and their usual imports.
IMPORTS = {
    **{name: f"import {name}" for name in _MODULES},
    "Path": "from pathlib import Path",
    "dataclass": "from dataclasses import dataclass",
    "partial": "from functools import partial",
    "pd": "import pandas as pd",
    "plt": "import matplotlib.pyplot as plt",
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "np": "import numpy as np",
    "numpy": "import numpy",
    "lax": "from jax import lax",
    "P": "from jax.sharding import PartitionSpec as P",
    "Mesh": "from jax.sharding import Mesh",
    "NamedSharding": "from jax.sharding import NamedSharding",
    "PartitionSpec": "from jax.sharding import PartitionSpec",
    "AxisType": "from jax.sharding import AxisType",
    "shard_map": "from jax import shard_map",
    "mesh_utils": "from jax.experimental import mesh_utils",
    "multihost_utils": "from jax.experimental import multihost_utils",
    "create_device_mesh": "from jax.experimental.mesh_utils import create_device_mesh",
    "create_hybrid_device_mesh": (
        "from jax.experimental.mesh_utils import create_hybrid_device_mesh"
    ),
    "process_allgather": "from jax.experimental.multihost_utils import process_allgather",
    "sync_global_devices": "from jax.experimental.multihost_utils import sync_global_devices",
    "broadcast_one_to_all": "from jax.experimental.multihost_utils import broadcast_one_to_all",
    "mcnb": "import mcnb",
}
# What a program says that was given too few arguments, or others than it expects.
_ARGUMENTS = re.compile(r"list index out of range$|invalid literal for int\(\) with base 10: '")
# What stands for a process's index and for the number of processes, in options and in code.
_WORDS = {"process": "{process}", "processes": "{processes}"}
_CODE = {"process": "str(jax.process_index())", "processes": "str(jax.process_count())"}
_MODULE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_DEPRECATED = re.compile(r"^(jax\.[\w.]+) (?:is|was|has been) (?:deprecated|removed)")


@dataclass(frozen=True)
class Rule:
    """A rule for errors of one kind.

    Attributes:
        kinds: The names of the errors' types.
        pattern: What is found in their text.
        says: The advice. In it, `$x` and `$y` stand for the operands of the own line that raises
            the error, and `$spec` for a spec of their product.
        file: The end of the name of the file that raises it; empty for any.
        line: What is found in the line that raises it; empty for any.
        shards: Whether this process has shards of the array whose method raises it; None for any
            error, of arrays or not.
    """

    kinds: tuple[str, ...]
    pattern: re.Pattern[str]
    says: str
    file: str = ""
    line: str = ""
    shards: bool | None = None


def _rule(kinds: str, pattern: str, says: str, **where: Any) -> Rule:
    return Rule(tuple(kinds.split()), re.compile(pattern), says, **where)


_NO_SHARD = (
    "this process has no shard of the array, whose devices belong to other processes. Only those "
    f"processes can read it: if x.sharding.addressable_devices: print({_ALL}). For an array with "
    "shards in every process, make a mesh of all devices"
)
_EXPLICIT = (
    "; or let the compiler choose, by a mesh with Auto axes (since JAX 0.9, make_mesh makes "
    "Explicit ones): jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * "
    "len(names))"
)
RULES = (
    _rule(
        "IndexError",
        r"^list index out of range",
        "the spec has more entries than the array has dimensions. Name at most one entry for each "
        "dimension, such as jax.P('x') for an array of one dimension; or reshape the array before",
        file="jax/_src/named_sharding.py",
    ),
    _rule(
        "RuntimeError",
        r"^jax_num_cpu_devices config should be updated before backends are initialized",
        "mcnb starts the processes with their devices. Their number is an option: "
        "%mcjax start -n 4 -d 8, or mcnb run -n 4 -d 8, gives each of 4 processes 8 devices",
    ),
    _rule(
        "RuntimeError",
        r"^jax\.distributed\.initialize\(\) must be called before any JAX ",
        "a program calls it first, before it asks for devices or makes an array. In a notebook, "
        "the processes of mcnb have joined already",
    ),
    _rule(
        "RuntimeError AssertionError",
        r"^Fetching value for `jax.Array` that spans non-addressable|^$",
        _NO_SHARD,
        file="jax/_src/array.py",
        shards=False,
    ),
    _rule(
        "JaxRuntimeError",
        r"^FAILED_PRECONDITION: FullyReplicatedShard: Array has no addressable shards",
        _NO_SHARD,
    ),
    _rule(
        "IndexError",
        r"^list index out of range",
        "addressable_shards has a shard for each device of this process that holds a part of the "
        "array, so its length depends on the process, and may be 0. Go through them: for shard in "
        "x.addressable_shards: ...",
        line=r"\.addressable_shards\[",
    ),
    _rule(
        "RuntimeError",
        r"^Fetching value for `jax.Array` that spans non-addressable",
        f"the array has shards in other processes. {_ALL} returns all of it, if every process "
        "calls it; x.addressable_shards has the shards of this process",
    ),
    _rule(
        "ValueError",
        r"^When the second argument to `device_put` is a Device, the first argument must be",
        "the array has shards in other processes. To have all of it on every device: "
        "jax.device_put(x, jax.NamedSharding(mesh, jax.P())). To have a copy on one device of each "
        f"process: jax.device_put({_ALL}, jax.local_devices()[0])",
    ),
    _rule(
        "AssertionError",
        r"^sync_global_devices name mismatch",
        "all processes must pass the same name, so it must not hold what differs between them, "
        "such as the process index",
    ),
    _rule(
        "ValueError",
        r"^Gathering global non-fully-addressable arrays only supports tiled=True",
        f"the array has shards in other processes: {_ALL} returns all of it",
    ),
    _rule(
        "AssertionError",
        r"^$",
        f"the array has shards in other processes. {_ALL} returns all of it, if every process "
        "calls it; x.addressable_shards has the shards of this process",
        file="jax/_src/array.py",
    ),
    _rule(
        "ValueError JaxRuntimeError",
        r"does not support cross-host device transfers|^UNIMPLEMENTED: Cross-host transfers are not"
        r"|^For a cross-host reshard in multi-controller JAX, input and target sharding should",
        "CPU devices of different processes do not copy arrays to each other by device_put, "
        "whatever option JAX's text names. On one process that has all devices, the program runs "
        "as it is: %mcjax stop, then %mcjax start -n 1 -d 8, and the cells above again. On "
        "several, let all devices hold one array, whose first dimension is the stage, with zeros "
        "where a stage has no data yet: mesh = jax.make_mesh((2, 4), ('stage', 'device')); spec = "
        "jax.P('stage', 'device'); x = jax.device_put(np.stack([data, 0 * data]), "
        "jax.NamedSharding(mesh, spec)). Then this passes the data to the other stage: y = "
        "jax.shard_map(lambda part: jax.lax.ppermute(part, 'stage', [(0, 1)]), mesh=mesh, "
        "in_specs=spec, out_specs=spec)(x)",
    ),
    _rule(
        "ValueError",
        r"^Mesh for all inputs should be equal",
        "put the arrays on one mesh first: y = jax.device_put(y, x.sharding). Meshes also differ "
        "if their axes have other types: jax.make_mesh makes explicit axes since JAX 0.9, and "
        "jax.sharding.Mesh does not",
    ),
    _rule(
        "ValueError",
        r"^Received incompatible devices for jitted computation.* of reshard with ",
        "jax.reshard keeps the devices of an array, and changes only how it is split over them. "
        "Put the array on the devices of the other mesh when it is made: "
        "jax.device_put(numpy.arange(64), jax.NamedSharding(mesh, jax.P('x')))",
    ),
    _rule(
        "ValueError",
        r"^Received incompatible devices for jitted computation.* and jit's context mesh with ",
        "while a mesh is set, every computation runs on all its devices. For a part of this "
        "process, use NumPy: numpy.asarray(shard.data). For equal values on every process: "
        "jax.device_put(numpy.asarray(y), jax.P())",
    ),
    _rule(
        "ValueError",
        r"^Received incompatible devices for jitted computation",
        "all arguments have to be on the same devices, in the same order: "
        "jax.device_put(y, x.sharding). If y is on devices of this process alone: "
        "jax.device_put(numpy.asarray(y), x.sharding), with equal values on every process",
    ),
    _rule(
        "ValueError",
        r"`jax.make_mesh` does not support multi-slice topologies",
        "JAX takes each host for a slice here. For devices in JAX's order: "
        "jax.sharding.Mesh(numpy.array(jax.devices()).reshape(4, 2), ('x', 'y')). For a mesh whose "
        "first axis goes over the hosts: jax.experimental.mesh_utils.create_hybrid_device_mesh("
        "(1, 4), (2, 1), process_is_granule=True), with as many granules as there are processes",
    ),
    _rule(
        "ValueError",
        r"^Number of slices \d+ must equal the product of dcn_mesh_shape",
        "the product of the second shape is the number of slices. CPU devices are one slice, and "
        "so may be the GPUs of several hosts; with process_is_granule=True, each process is one: "
        "jax.experimental.mesh_utils.create_hybrid_device_mesh((1, 2), (4, 1), "
        "process_is_granule=True), for 4 processes with 2 devices each",
    ),
    _rule(
        "AssertionError",
        r"passed to device_put is not the same on each process",
        "device_put takes the same values on every process, of a type that JAX keeps: float64 "
        "that is rounded to float32 counts as different. Make them from one seed, such as "
        "np.random.default_rng(0).random(8, np.float32), or send those of process 0 to the others: "
        "x = jax.experimental.multihost_utils.broadcast_one_to_all(x). If each process has its own "
        "part of the array: jax.make_array_from_process_local_data(sharding, part)",
    ),
    _rule(
        "ShardingTypeError",
        r"^(Contracting dimensions are sharded|dot_general requires contracting dimensions)",
        "with explicit axes, JAX does not choose how a product is sharded. Name it: "
        "jnp.matmul($x, $y, out_sharding=jax.NamedSharding(jax.typeof($x).sharding.mesh, "
        f"jax.P($spec))){_EXPLICIT}",
    ),
    _rule(
        "ShardingTypeError",
        r"^\w+ got incompatible shardings for broadcasting",
        "with explicit axes, JAX does not choose which array moves. Give both one sharding: "
        f"jax.reshard($y, jax.typeof($x).sharding){_EXPLICIT}",
    ),
    _rule(
        "ShardingTypeError",
        r"^Use `\.at\[\.\.\.\]\.",
        "with explicit axes, JAX does not choose how the result of indexing is sharded. Name it: "
        "x.at[i].get(out_sharding=jax.NamedSharding(mesh, jax.P())), or "
        f"x.at[i].set(v, out_sharding=jax.typeof(x).sharding){_EXPLICIT}",
    ),
    _rule(
        "ShardingTypeError",
        r"^This reshape is not supported",
        "with explicit axes, JAX does not choose how the result is sharded. Name it: "
        "jax.lax.reshape(x, shape, out_sharding=jax.NamedSharding(mesh, jax.P('x', None)))"
        f"{_EXPLICIT}",
    ),
    _rule(
        "ValueError",
        r"^The spec of NamedSharding passed to with_sharding_constraint can only refer to Auto ",
        "with explicit axes, the sharding belongs to the type, and jax.reshard changes it: "
        f"jax.reshard(x, jax.NamedSharding(mesh, jax.P('x', None))){_EXPLICIT}",
    ),
    _rule(
        "ValueError",
        r"^For primitive \w+, context mesh AbstractMesh\(.* should match the aval mesh",
        "the array is on another mesh than the one of jax.set_mesh. Compute on the array's own: "
        "with jax.set_mesh(x.sharding.mesh): ...; or put the array on the other first: "
        "x = jax.device_put(x, jax.NamedSharding(mesh, jax.P('x')))",
    ),
    _rule(
        "AttributeError",
        r"^'(\S+\.)?NamedSharding' object has no attribute '(reshape|replicate|transpose|T)'",
        "a PositionalSharding had a shape; now the mesh has it, and the spec names its axes: "
        "jax.NamedSharding(jax.make_mesh((4, 2), ('x', 'y')), jax.P('x', 'y')). To replicate over "
        "an axis, leave it out of the spec: jax.P('x')",
    ),
    _rule(
        "TypeError",
        r"^shard_map\(\) got an unexpected keyword argument 'check_rep'",
        "jax.shard_map calls it check_vma",
    ),
    _rule(
        "TypeError",
        r"^shard_map\(\) got an unexpected keyword argument 'auto'",
        "jax.shard_map takes the manual axes instead of the automatic ones: axis_names={'x'}",
    ),
    _rule(
        "TypeError",
        r"^make_mesh\(\) got an unexpected keyword argument 'axis_(shapes|sizes)'",
        "newer versions of JAX call it axis_sizes, older ones axis_shapes. Pass it by its "
        "position: jax.make_mesh((4, 2), ('x', 'y'))",
    ),
    _rule(
        "TypeError",
        r"^p?jit\(\) got an unexpected keyword argument '(in|out)_axis_resources'",
        "they are called in_shardings and out_shardings since JAX 0.4.14: "
        "jax.jit(f, in_shardings=jax.NamedSharding(mesh, jax.P('x')))",
    ),
)


def advice_on(error: BaseException) -> str:
    """Return what to do about an error, if a rule is about it; empty otherwise.

    Args:
        error: The error, with its traceback.

    Example:
        >>> advice_on(AttributeError("module 'jax' has no attribute 'tree_map'"))
        'jax.tree_map was removed in JAX 0.6: use jax.tree.map'
        >>> advice_on(AttributeError("module 'jax' has no attribute 'tree'"))
        ''
    """
    for find in _FINDERS:
        if found := find(error):
            return found
    return ""


def _by_rule(error: BaseException) -> str:
    kind = type(error).__name__
    candidates = [rule for rule in RULES if kind in rule.kinds]
    if not candidates:
        return ""
    text = str(error)
    frame, line = _innermost(error.__traceback__)
    file = frame.f_code.co_filename if frame else ""
    source = linecache.getline(file, line)
    for rule in candidates:
        found = rule.pattern.search(text) and re.search(rule.line, source)
        if found and file.endswith(rule.file) and rule.shards in (None, _has_shards(frame)):
            return Template(rule.says).safe_substitute(_operands(error))
    return ""


def _operands(error: BaseException) -> dict[str, str]:
    """Return the words for the operands of the learner's line that raised an error.

    Operands that are not names are called x and y, and axes that are not known 'x'.
    """
    words = {"x": "x", "y": "y", "spec": "'x', None"}
    frame, at, trace = None, 0, error.__traceback__
    while trace is not None:
        if not is_installed(trace.tb_frame.f_code.co_filename):
            frame, at = trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next
    pair = operands_at(frame.f_code, at) if frame else None
    if frame is None or pair is None:
        return words
    words |= {"x": ast.unparse(pair[0]), "y": ast.unparse(pair[1])}
    with contextlib.suppress(Exception):  # of any kind: a value that is no array of two dimensions
        import jax  # here, because a program may set up its environment before it imports JAX

        left = {**frame.f_globals, **frame.f_locals}[words["x"]]
        rows, _ = jax.typeof(left).sharding.spec
        words["spec"] = f"{rows!r}, None"
    return words


def _innermost(trace: TracebackType | None) -> tuple[FrameType | None, int]:
    """Return the frame that raised an error, and its line."""
    frame, line = None, 0
    while trace is not None:
        frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return frame, line


def _has_shards(frame: FrameType | None) -> bool | None:
    """Return whether this process has shards of the array whose method a frame runs, if it does."""
    array = frame.f_locals.get("self") if frame else None
    sharding = getattr(array, "sharding", None)
    return bool(sharding.addressable_devices) if sharding is not None else None


def _by_name(error: BaseException) -> str:
    """Return advice on a name that JAX no longer has, or that is not imported."""
    names: list[str] = []
    if isinstance(error, NameError):
        if error.name in IMPORTS:
            undefined = _undefined(error)
            imports = [line for name, line in IMPORTS.items() if name in undefined]
            it = "it" if len(imports) == 1 else "them"
            return f"import {it} first: {'; '.join(imports)}; or run the cell that does"
        names = [name for name in REMOVED if name.rpartition(".")[2] == error.name]
    elif isinstance(error, ModuleNotFoundError):
        names = [error.name or ""]
    elif isinstance(error, ImportError) and (found := _NAME.search(str(error))):
        names = [f"{found[2]}.{found[1]}"]
    elif isinstance(error, AttributeError):
        if found := _MODULE.search(str(error)):
            names = [f"{found[1]}.{found[2]}"]
        elif found := _DEPRECATED.search(str(error)):
            names = [found[1]]
    for name in names:
        if name in REMOVED:
            since, instead = REMOVED[name]
            return f"{name} was removed in JAX {since}: {instead}"
    return ""


def _undefined(error: NameError) -> set[str]:
    """Return the global names that the code of an error reads, and that nothing defines.

    A block from a page often lacks several imports, and Python reports one at a time.
    """
    found = {error.name or ""}
    frame, _ = _innermost(error.__traceback__)
    if frame is not None:
        with contextlib.suppress(SyntaxError):  # a cell with IPython's own syntax
            tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
            read: set[str] = set()
            bound: set[str] = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.Name):
                    if isinstance(node.ctx, ast.Load):
                        read.add(node.id)
                    elif isinstance(node.ctx, ast.Store):
                        bound.add(node.id)
                elif isinstance(node, (ast.alias, ast.FunctionDef, ast.ClassDef, ast.arg)):
                    name = node.arg if isinstance(node, ast.arg) else node.name
                    bound.add(getattr(node, "asname", None) or name.partition(".")[0])
            found |= read - bound - {*frame.f_globals} - {*vars(builtins)}
    return found


def _by_arguments(error: BaseException) -> str:
    """Return advice on a program that reads arguments that it was not given."""
    frame, line = _innermost(error.__traceback__)
    file = frame.f_code.co_filename if frame else ""
    if not (
        isinstance(error, (IndexError, ValueError))
        and _ARGUMENTS.match(str(error))
        and re.search(r"\bargv\b", linecache.getline(file, line))
    ):
        return ""
    read = arguments_read(parsed(file))
    words = " ".join(_WORDS.get(one, one) for one in read)
    if cell_label(file) is None:
        return (
            "the program reads other arguments than it was given. {process} stands for the index "
            "of each process, and {processes} for their number: "
            f"mcnb run {Path(file).name} -n 4 {words}"
        )
    code = ", ".join(_CODE.get(one, repr(one)) for one in read)
    return (
        "the cell reads other arguments than it was given. Above the first line that reads them: "
        f"sys.argv[1:] = [{code}]. Or, if the cell is to stay as it is, and the variables need "
        f"not: %mcjax stop, and then %mcjax start -n 4 -d 2 --args '{words}', where {{process}} "
        "stands for the index of each process, and {processes} for their number"
    )


def _by_package(error: BaseException) -> str:
    """Return advice on a package that is not installed."""
    missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0]
    return PACKAGES.get(missing, "") if missing else ""


_FINDERS: tuple[Callable[[BaseException], str], ...] = (
    _by_name,
    _by_package,
    _by_arguments,
    _by_rule,
)
