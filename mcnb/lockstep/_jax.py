"""Access JAX's private names; no other file uses them.

The file fits jax 0.8 to 0.12. It only observes these parts, and passes calls on:

- `ExecuteReplicated.__call__` runs a compiled computation, wherever the call comes from.
- `pjit._get_fastpath_data` and `MeshExecutable.create_cpp_call` hand computations to C++, which
  runs them without that call. Computations that communicate get a gate, or stay with that call.
- `UnloadedMeshExecutable.from_hlo` compiles a lowered computation, and
  `MeshExecutable.shard_const_args` passes the constants that newer JAX keeps out of the program.
- The devices and the compiled program of an executable.
- `State.initialize`, to which all ways to join the coordination service lead.
- The waits of the coordination service's client, which run in native code. Barriers are guarded
  like launches, and a thread can run the waits, so that they can be interrupted.
- The parts of arrays and shardings, to assemble new ones.
- `make_gloo_tcp_collectives`, which takes the host's address, as an argument that JAX leaves out.

If a version of JAX does not fit, `install` raises an error and changes nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import hashlib
import importlib
import inspect
import itertools
import operator
import os
import queue
import re
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from mcnb.lockstep.hlo import constants
from mcnb.lockstep.model import Launch
from mcnb.lockstep.threads import has_signal_handlers
from mcnb.lockstep.values import Replicas, takes_own_arrays

# The module in which JAX calls XLA's compiler.
COMPILER = "jax._src.compiler"
# Makes a launch by calling a function, and returns its result; it may wait before, or raise. It
# also receives the launch's arguments.
Guard = Callable[[Launch, Callable[[], Any], Replicas], Any]
# Describes a computation, from JAX's executable and its arguments.
Describe = Callable[[Any, Sequence[Any]], Launch]
# Waits, or raises, before native code makes a launch on behalf of a frame.
Before = Callable[[Launch, FrameType], None]
# Records a launch on devices of this process alone, given its name and the frame that launches it.
# Called only for computations that may take long.
Note = Callable[[str, FrameType], object]
# A computation with fewer operations than this on one device is over within milliseconds.
LASTING_FLOPS = 1e9
# Programs of more bytes than this are shown without the values of larger constants.
MOST_WRITTEN_BYTES = 4_000_000
# Returns what is known of a call of a compiled function, given its frame and the computation.
Recall = Callable[[FrameType, Any], Any]
# Reaches a barrier, given its description, its time limit in seconds, and a function that waits at
# it until a time, on the monotonic clock; may wait before, or raise.
Meet = Callable[[Launch, float, Callable[[float], Any]], Any]
# The methods that wait in native code, where no signal reaches them.
_WAITS = ("wait_at_barrier", "blocking_key_value_get", "blocking_key_value_get_bytes")
_guard: Guard | None = None
_meet: Meet | None = None
_before: Before | None = None
_note: Note | None = None
_describe: Describe | None = None
_recall: Recall | None = None
_described: weakref.WeakKeyDictionary[Any, Launch | None] = weakref.WeakKeyDictionary()
# Digests of the lowered computation, and of the constants that it is called with.
_lowered: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_closed_over: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()
_lasting: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
# How often the arguments of a computation were digested.
_digested: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_from_python = False  # whether each launch is made from Python
_interruptible = False  # whether a thread runs the waits of the coordination service's client
_wrapped: set[type] = set()  # the classes of such clients that `_wrap_waits` has changed
_left_behind: list[Any] = []
# Tokens of computations with callbacks, for a thread that waits until they are over: as long as it
# waits, `mcnb.lockstep.threads` knows that a callback may wake another thread.
_in_flight: queue.Queue[list[Any]] | None = None
# The private names that this file uses, by module; `install` probes all of them. Modules or names
# with a bar between them are alternatives, the newer one first.
PRIVATE_NAMES = {
    "jax._src.api": ("clean_up",),
    "jax._src.array": ("ArrayImpl",),
    "jax._src.callback": (),
    "jax._src.clusters": ("ClusterEnv.auto_detect_unset_distributed_params",),
    "jax._src.dispatch": ("runtime_tokens", "wait_for_tokens"),
    "jax._src.distributed": ("State.initialize", "global_state"),
    "jax._src.interpreters.pxla": (
        "ExecuteReplicated",
        "MeshExecutable._xla_in_layouts",
        "UnloadedMeshExecutable.from_hlo",
    ),
    "jax._src.layout": ("Layout._to_xla_layout",),
    "jax._src.mesh": ("get_concrete_mesh",),
    "jax._src.pjit": (
        "_cpp_pjit_cache_explicit_attributes",
        "_cpp_pjit_cache_fun_only",
        "_get_fastpath_data",
    ),
    "jax._src.sharding": ("Sharding._device_assignment",),
    "jax._src.sharding_impls": (
        "GSPMDSharding._hlo_sharding",
        "make_single_device_sharding|SingleDeviceSharding",
    ),
    "jax._src.xla_bridge": ("_backends", "backends_are_initialized"),
    "jaxlib._hlo|jaxlib._jax": ("HloPrintOptions",),
    "jaxlib._jax": ("DistributedRuntimeClient",),
}
# The logger to which JAX reports failed callbacks.
CALLBACK_LOGGER = "jax._src.callback"


class UnsupportedJaxError(Exception):
    """An error for a version of JAX whose private names differ from those that this file uses."""


def install(
    guard: Guard,
    before: Before,
    describe: Describe,
    note: Note | None = None,
    meet: Meet | None = None,
    recall: Recall | None = None,
) -> None:
    """Install a guard before each launch that spans processes, and each barrier.

    What `recall` returns of the call for which JAX's C++ is told how to launch a computation is, in
    later calls that are equal, `call` in the frame of `gate_code()`.

    Raises:
        UnsupportedJaxError: This version of JAX does not fit; nothing was changed.
    """
    global _guard, _before, _describe, _note, _meet, _recall
    try:
        originals = _check()
    except (ImportError, AttributeError, TypeError, ValueError, AssertionError) as error:
        raise UnsupportedJaxError(str(error)) from error
    if _describe is None:
        _gates_work()  # tested now, not in the middle of a launch
        _replace(*originals)
    _guard, _before, _describe, _note, _meet = guard, before, describe, note, meet
    _recall = recall
    _wrap_waits()


def _follow_callbacks() -> None:
    global _in_flight
    from jax._src import dispatch

    if _in_flight is None:
        _in_flight = queue.Queue()
        threading.Thread(target=_wait_for_callbacks, name="mcnb callbacks", daemon=True).start()
    _in_flight.put(list(dispatch.runtime_tokens.output_runtime_tokens.values()))


def _wait_for_callbacks() -> None:
    assert _in_flight is not None
    while True:
        for token in _in_flight.get():
            with contextlib.suppress(Exception):  # of the computation
                token.block_until_ready()


def replace_initialize(replacement: Callable[..., None]) -> None:
    """Replace what joins JAX's coordination service; the first replacement stays. It imports JAX.

    Programs may have imported `initialize` before, or call it where JAX itself does.

    Args:
        replacement: Called with the original function and the arguments of
            `jax.distributed.initialize`.
    """
    from jax import distributed as public
    from jax._src import distributed

    state = getattr(distributed, "State", None)
    owner = public if state is None or not hasattr(state, "initialize") else state
    original = owner.initialize
    if hasattr(original, "replacement"):
        return

    @functools.wraps(original)
    def initialize(*args: Any, **kwargs: Any) -> None:
        own = args[:1] if owner is state else ()
        replacement(partial(original, *own), *args[len(own) :], **kwargs)

    initialize.replacement = replacement  # type: ignore[attr-defined]
    owner.initialize = initialize


def answer_initialize(answer: Callable[[dict[str, Any]], None]) -> None:
    """Have a function answer the learner's calls of `jax.distributed.initialize` from now on.

    Args:
        answer: Called with the arguments of the call, by name.
    """
    from jax import distributed as public
    from jax._src import distributed

    original = original_initialize()

    @functools.wraps(original)
    def initialize(*args: Any, **kwargs: Any) -> None:
        given = inspect.signature(original).bind(*args, **kwargs)
        if distributed.global_state.client is None:  # JAX says why it can't be called
            original(*args, **kwargs)
        else:
            answer(given.arguments)

    initialize.original = original  # type: ignore[attr-defined]
    public.initialize = distributed.initialize = initialize


def original_initialize() -> Callable[..., None]:
    """Return JAX's own `jax.distributed.initialize`."""
    from jax import distributed as public

    original: Callable[..., None] = getattr(public.initialize, "original", public.initialize)
    return original


def complete_arguments(given: dict[str, Any]) -> None:
    """Add to the arguments of `jax.distributed.initialize` what JAX itself would add.

    These are the coordinator's address, the number of processes and this process's index, as far as
    JAX finds them in the environment.
    """
    names = ("coordinator_address", "num_processes", "process_id")
    if not given.get(names[0]) and (address := os.environ.get("JAX_COORDINATOR_ADDRESS")):
        given[names[0]] = address
    known = [given.get(name) for name in names]
    method = given.get("cluster_detection_method")
    if method == "deactivate" or None not in known:
        return
    # JAX raises the same error, if any, when it is called.
    with contextlib.suppress(Exception):
        from jax._src.clusters import ClusterEnv

        wait_s = given.get("initialization_timeout", 300)
        no_devices: list[int] = []  # JAX chooses them
        found = ClusterEnv.auto_detect_unset_distributed_params(*known, no_devices, method, wait_s)
        given.update((k, v) for k, v in zip(names, found, strict=False) if v is not None)


def connect_directly(address: str) -> None:
    """Have JAX connect to other processes without a proxy, of which it need not warn then.

    Args:
        address: The address on which Gloo listens; empty for that of the host's name.
    """
    import jax

    with contextlib.suppress(AttributeError):  # a version without this option
        jax.config.update("jax_check_proxy_envs", False)
    native = _first_module("jaxlib._jax")
    make = getattr(native, "make_gloo_tcp_collectives", None)
    if address and make is not None:
        native.make_gloo_tcp_collectives = partial(make, hostname=address)  # type: ignore[union-attr]


def print_own_blocks() -> None:
    """Let each process print its own blocks of an array inside a `shard_map` that is not jitted.

    JAX prints the blocks of all devices, and raises an AssertionError if other processes have some.
    """
    with contextlib.suppress(Exception):  # another version of JAX: it prints as it does
        from jax._src import core, shard_map

        tracer = shard_map.ShardMapTracer
        original = tracer.__str__
        if hasattr(original, "original"):
            return

        def own_blocks(self: Any) -> str:
            try:
                return str(original(self))
            except AssertionError:
                mesh = self._trace.mesh
                known = self.vma if hasattr(self, "vma") else self.mat.vur
                rest = tuple({*mesh.axis_names} - {*known})
                stacked = shard_map.pvary(self, rest).val
                with core.eval_context():
                    shards = {s.index[0].start or 0: np.asarray(s.data) for s in _own(stacked)}
            axes = f"({', '.join(map(str, mesh.axis_names))},)"
            return "\n".join(
                f"On {device} at mesh coordinates {axes} = {index}:\n{shards[number][0]}\n"
                for number, (index, device) in enumerate(np.ndenumerate(mesh.devices))
                if number in shards
            )

        own_blocks.original = original  # type: ignore[attr-defined]
        tracer.__str__ = tracer.__repr__ = own_blocks


def _own(array: Any) -> Sequence[Any]:
    return array.addressable_shards  # type: ignore[no-any-return]


def cpu_devices() -> int:
    """Return the number of CPU devices that this process will have, as far as it is set."""
    import jax

    if (count := getattr(jax.config, "jax_num_cpu_devices", -1)) > 0:
        return int(count)
    flag = re.search(r"host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(flag[1]) if flag else 1


def platforms() -> str:
    """Return the platforms that JAX is told to use; empty if it chooses."""
    import jax

    return jax.config.jax_platforms or ""


def backends_are_initialized() -> bool:
    """Return whether this process has initialized JAX's backends, without importing anything."""
    backends = sys.modules.get("jax._src.xla_bridge")
    return backends is not None and bool(backends.backends_are_initialized())


def missing_names() -> list[str]:
    """Return the private names that this version of JAX lacks."""
    missing = []
    for modules, attributes in PRIVATE_NAMES.items():
        module = _first_module(modules)
        if module is None:
            missing.append(modules)
        else:
            missing += [f"{module.__name__}.{one}" for one in attributes if not _has(module, one)]
    return missing


def _first_module(alternatives: str) -> ModuleType | None:
    for name in alternatives.split("|"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


def _has(module: ModuleType, alternatives: str) -> bool:
    for path in alternatives.split("|"):
        with contextlib.suppress(AttributeError):
            operator.attrgetter(path)(module)
            return True
    return False


def _check() -> tuple[ModuleType, ModuleType]:
    """Probe every private name that this file uses, and return the modules to change."""
    if missing := missing_names():
        raise UnsupportedJaxError(f"it has no {', '.join(missing)}")
    from jax._src import pjit
    from jax._src.interpreters import pxla

    execute = inspect.signature(pxla.ExecuteReplicated.__call__)
    kinds = [parameter.kind for parameter in execute.parameters.values()]
    if kinds[-1] is not inspect.Parameter.VAR_POSITIONAL or len(kinds) != 2:
        raise UnsupportedJaxError("ExecuteReplicated.__call__ takes other arguments")
    if next(iter(inspect.signature(pjit._get_fastpath_data).parameters)) != "executable":
        raise UnsupportedJaxError("_get_fastpath_data takes other arguments")
    inspect.signature(pxla.MeshExecutable.create_cpp_call)
    slots = set(pxla.ExecuteReplicated.__slots__)
    expected = {
        "xla_executable",
        "in_handler",
        "out_handler",
        "kept_var_idx",
        "name",
        "has_host_callbacks",
    }
    if no_slots := (expected | {"__weakref__"}) - slots:
        raise UnsupportedJaxError(f"ExecuteReplicated has no {', '.join(sorted(no_slots))}")
    _print_options()
    return pxla, pjit


def _replace(pxla: Any, pjit: Any) -> None:
    execute = pxla.ExecuteReplicated.__call__
    fastpath = pjit._get_fastpath_data
    create_cpp_call = pxla.MeshExecutable.create_cpp_call

    def checked_call(self: Any, *args: Any) -> Any:
        guard = _guard
        launch = _launch(self, args) if guard is not None else None
        if guard is None or launch is None:
            if _note is not None and _lasts(self):
                _note(str(self.name), sys._getframe(1))
            results = execute(self, *args)
        else:
            results = guard(launch, partial(execute, self, *args), _replicas(self, args))
        if guard is not None and self.has_host_callbacks:  # JAX's C++ launches none of these
            _follow_callbacks()
        return results

    def checked_fastpath(executable: Any, *args: Any, **kwargs: Any) -> Any:
        execute = getattr(executable, "_unsafe_call", None)
        known = _guard is not None and execute is not None
        launch = _described.get(execute) if known else None
        data = fastpath(executable, *args, **kwargs)
        if launch is not None and (_from_python or has_signal_handlers()):
            return None  # only from Python can a launch be made before a handler's
        if launch is not None and not launch.communicates and takes_own_arrays(args[1]):
            return None  # native code does not know the arguments, which are compared
        if launch is not None:
            call = None if _recall is None else _recall(sys._getframe(1), execute)
            before = partial(_pass_gate, launch, call)
        elif execute is not None and _lasting.get(execute):
            before = partial(_pass_note, str(execute.name))
        else:
            return data
        # The first arguments are the executable, the tree of results, and the list of arguments.
        gated = data and _gates_work() and _gated(executable, data, args[1], before)
        return gated or (data if launch is None else None)

    def checked_create_cpp_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _guard is not None and (_spans(self.unsafe_call) or _is_stale(self.unsafe_call)):
            return None  # only its arguments tell whether it communicates
        return create_cpp_call(self, *args, **kwargs)

    compile_lowered = pxla.UnloadedMeshExecutable.from_hlo

    def checked_from_hlo(*args: Any, **kwargs: Any) -> Any:
        executable = compile_lowered(*args, **kwargs)
        if _guard is not None:
            _note_lowered(executable, [*args, *kwargs.values()])
        return executable

    pxla.ExecuteReplicated.__call__ = checked_call
    pjit._get_fastpath_data = checked_fastpath
    pxla.MeshExecutable.create_cpp_call = checked_create_cpp_call
    pxla.UnloadedMeshExecutable.from_hlo = staticmethod(checked_from_hlo)
    shard_constants = getattr(pxla.MeshExecutable, "shard_const_args", None)  # JAX 0.8 has none
    if shard_constants is not None:

        def checked_shard_constants(self: Any, constants: Sequence[Any]) -> Any:
            if constants and _guard is not None and _spans(self.unsafe_call):
                _closed_over[self.unsafe_call] = [*map(_digest_of, constants)]
            return shard_constants(self, constants)

        pxla.MeshExecutable.shard_const_args = checked_shard_constants


def _note_lowered(executable: Any, given: Sequence[Any]) -> None:
    """Keep a digest of the computation as JAX lowered it, if it spans processes."""
    with contextlib.suppress(Exception):  # the compiled program is compared in any case
        if _spans(executable.unsafe_call):
            module = next(one for one in given if hasattr(one, "operation"))
            text = module.operation.get_asm(enable_debug_info=False)
            _lowered[executable.unsafe_call] = hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest_of(value: Any) -> str:
    """Return a digest of an array's type, and of its elements if this process has all of them."""
    import jax

    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        value = jax.random.key_data(value)
    digest = hashlib.sha256(f"{jax.typeof(value)}".encode())
    array = isinstance(value, jax.Array)
    if not array or value.is_fully_replicated or value.is_fully_addressable:
        digest.update(np.asarray(value).tobytes())
    return digest.hexdigest()[:16]


def _replicas(execute: Any, args: Sequence[Any]) -> Replicas:
    """Return what a launch's arguments have in common with those of other processes."""

    def pairs() -> Iterable[tuple[Any, Any]]:
        kept = [arg for i, arg in enumerate(args) if i in execute.kept_var_idx]
        return zip(kept, execute.in_handler.in_shardings, strict=False)

    before = _digested.get(execute, 0)
    return Replicas(pairs, before, lambda: _digested.update({execute: before + 1}))


def launch_from_python(always: bool) -> None:
    """Have each computation that communicates launched from Python, where its arguments are known.

    Args:
        always: Whether to do so until the next call; otherwise, native code makes the launches of a
            computation again after one from Python.
    """
    global _from_python
    from jax._src import pjit

    _from_python = always
    pjit._cpp_pjit_cache_fun_only.clear()
    pjit._cpp_pjit_cache_explicit_attributes.clear()


class Gate:
    """A stand-in for the layout of an argument, which C++ reads before each launch.

    Before it runs a known computation, JAX's C++ asks the layouts of arguments for XLA's form of
    them (`_to_xla_layout`, in `PrepareIfrtInputs` of jaxlib's pjit.cc). A gate makes that call
    wait. Launching from Python instead would take several times as long.
    """

    def __init__(self, layout: Any, before: Callable[[], None]) -> None:
        self._layout = layout
        self._before = before

    def _to_xla_layout(self, dtype: Any) -> Any:
        del dtype
        self._before()
        return self._layout


def _gated(executable: Any, data: Any, args: Sequence[Any], before: Callable[[], None]) -> Any:
    """Add a gate to the data with which C++ launches a computation; return None if none fits.

    The arguments are those of its first launch, to which some of them may have been donated.
    """
    from jax._src.array import ArrayImpl

    is_kept = list(data.kept_var_bitvec)[-len(args) :] if args else []
    kept = [arg for arg, kept in zip(args, is_kept, strict=True) if kept]
    layouts = list(data.in_device_local_layouts)
    constants = len(layouts) - len(kept)  # they come before the arguments
    for i, arg in enumerate(kept, constants):
        expected = executable._xla_in_layouts[i]
        if type(arg) is ArrayImpl and layouts[i] is None and expected is not None:
            layouts[i] = Gate(expected._to_xla_layout(arg.dtype), before)
            return data._replace(in_device_local_layouts=layouts)
    return None


@functools.cache
def _gates_work() -> bool:
    """Return whether C++ calls a gate exactly once for each launch."""
    import jax
    from jax._src import pjit

    x = jax.device_put(np.ones(2, np.float32), jax.local_devices()[0])
    passed: list[int] = []
    fastpath = pjit._get_fastpath_data

    def gated(executable: Any, *args: Any, **kwargs: Any) -> Any:
        data = fastpath(executable, *args, **kwargs)
        return data and _gated(executable, data, args[1], lambda: passed.append(len(passed)))

    pjit._get_fastpath_data = gated
    try:
        tried = jax.jit(lambda v: v + 1)
        results = [tried(x) for _ in range(3)]
    except Exception:  # this version of C++ rejects gates
        return False
    finally:
        pjit._get_fastpath_data = fastpath
    # Python makes the first launch.
    return passed == [0, 1] and all((np.asarray(result) == 2).all() for result in results)


# Both skip their own frame and the gate's; the gate's caller is native code.
def _pass_gate(launch: Launch, call: Any) -> None:  # noqa: ARG001  (read from the frame)
    if _before is not None:
        _before(launch, sys._getframe(2))


def _pass_note(name: str) -> None:
    if _note is not None:
        _note(name, sys._getframe(2))


def _lasts(execute: Any) -> bool:
    """Return whether a computation may take long, as it loops or has very many operations."""
    lasts = _lasting.get(execute)
    if lasts is None:
        try:
            costs = execute.xla_executable.cost_analysis()
            costs = costs[0] if isinstance(costs, list) else costs
            many = float((costs or {}).get("flops", 0.0)) > LASTING_FLOPS
            lasts = many or " while(" in program_text(execute)
        except Exception:  # no computation of JAX's, or XLA does not say: it is not noted
            lasts = False
        _lasting[execute] = lasts
    return lasts


def call_code() -> CodeType | None:
    """Return the code of the function that launches computations from Python."""
    from jax._src.interpreters import pxla

    return getattr(pxla.ExecuteReplicated.__call__, "__code__", None)


def gate_code() -> CodeType:
    """Return the code of the function that C++ calls before it launches; see `install`."""
    return _pass_gate.__code__


def is_primitive(function: Any) -> bool:
    """Return whether JAX has made a compiled function of one operation, as for `jax.reshard`."""
    return bool(getattr(function, "_apply_primitive", False))


def _spans(execute: Any) -> bool:
    """Return whether a computation runs on devices of several processes."""
    try:
        return len({device.process_index for device in devices_of(execute)}) > 1
    except Exception:  # no computation of JAX's: it passes unchecked
        return False


def devices_of(execute: Any) -> Sequence[Any]:
    """Return the devices that a computation runs on, in its order."""
    shardings = [*execute.in_handler.in_shardings, *execute.out_handler.out_shardings]
    return next(filter(None, map(devices_of_sharding, shardings)), ())


def devices_of_sharding(sharding: Any) -> tuple[Any, ...]:
    """Return the devices of a sharding, in its order; empty if it names none."""
    return tuple(getattr(sharding, "_device_assignment", None) or ())


def _launch(execute: Any, args: Sequence[Any]) -> Launch | None:
    """Describe a computation; return None if it stays within this process."""
    try:
        launch = _described[execute]
    except KeyError:
        _refuse_if_stale(execute, args)
        try:
            assert _describe is not None
            launch = _describe(execute, args) if _spans(execute) else None
        except Exception as error:
            # A computation that mcnb does not understand has to run, but not silently.
            warnings.warn(
                f"mcnb can't check {getattr(execute, 'name', 'a launch')} and lets it pass: "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            launch = None
        _described[execute] = launch
    return launch


def _is_stale(execute: Any) -> bool:
    """Return whether a computation was compiled for devices that `shut_down` has given up."""
    from jax._src import xla_bridge

    try:
        # Not the devices of its shardings, which may have been moved to new ones.
        client = execute.xla_executable.local_devices()[0].client
    except Exception:  # no computation of JAX's
        return False
    return all(client is not backend for backend in xla_bridge._backends.values())


def _refuse_if_stale(execute: Any, args: Sequence[Any]) -> None:
    """Raise an error for a computation that would crash the process."""
    deleted = any(getattr(arg, "is_deleted", bool)() for arg in args)  # JAX itself refuses these
    if _is_stale(execute) and not deleted:
        raise RuntimeError(
            f"{getattr(execute, 'name', 'This computation')} was compiled before processes were "
            "replaced, for devices that no longer exist. Lower and compile it again"
        ) from None


def _print_options() -> Any:
    hlo: Any = _first_module("jaxlib._hlo|jaxlib._jax")
    options = hlo.HloPrintOptions()
    options.print_metadata = False
    options.print_backend_config = True  # where calls of libraries keep their settings
    options.print_ids = False
    options.canonicalize_instruction_names = True
    options.canonicalize_computations = True
    return options


def make_waits_interruptible() -> None:
    """Let Ctrl-C end waits in the coordination service, such as barriers.

    Each of them runs in a thread then, which may be left behind, and which ends when the service is
    shut down.
    """
    global _interruptible
    _interruptible = True
    _wrap_waits()


def _wrap_waits() -> None:
    """Change the waits of the coordination service's client, once JAX has one.

    JAX gives the client itself to native code, so nothing can stand in for it.
    """
    from jax._src import distributed

    kind = type(distributed.global_state.client)
    if distributed.global_state.client is None or kind in _wrapped:
        return
    _wrapped.add(kind)
    for name in _WAITS:
        wait = _in_thread(getattr(kind, name))
        setattr(kind, name, _at_barrier(wait) if name == "wait_at_barrier" else wait)


def _in_thread(wait: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(wait)
    def waits(*args: Any, **kwargs: Any) -> Any:
        if not _interruptible:
            return wait(*args, **kwargs)
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(wait(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=f"mcnb {wait.__name__}", daemon=True).start()
        return future.result()

    return waits


def _at_barrier(wait: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(wait)
    def wait_at_barrier(
        client: Any, barrier_id: str, timeout_in_ms: int, process_ids: Sequence[int] | None = None
    ) -> Any:
        from jax._src import distributed

        state = distributed.global_state
        launch = Launch.barrier(barrier_id, process_ids or range(state.num_processes or 1))
        if (
            _meet is None
            or client is not state.client
            or state.process_id not in launch.participants
        ):
            return wait(client, barrier_id, timeout_in_ms, process_ids)

        def reach(until: float) -> Any:
            left_ms = max(int((until - time.monotonic()) * 1000), 1)
            return wait(client, barrier_id, left_ms, process_ids)

        return _meet(launch, timeout_in_ms / 1000, reach)

    return wait_at_barrier


def process_index() -> int:
    """Return this process's index, without creating a backend as JAX's own function would."""
    from jax._src import distributed

    return int(distributed.global_state.process_id)


def process_count() -> int:
    """Return the number of processes, also without creating a backend."""
    from jax._src import distributed

    return int(distributed.global_state.num_processes or 1)


def leave_alone() -> None:
    """Let this process exit without the others: at exit, JAX would wait for all of them."""
    from jax._src import api, dispatch

    for at_exit in (api.clean_up, dispatch.wait_for_tokens):
        atexit.unregister(at_exit)


def refuse_latecomers() -> None:
    """End the wait of communicators for processes that do not arrive.

    Gloo finds its peers by addresses that they leave with the coordination service. In place of a
    missing address, half of another one is stored, which makes its readers fail at once.
    """
    from jax._src import distributed

    client = distributed.global_state.client
    if client is None:
        return
    with contextlib.suppress(Exception):  # the service is gone, or keeps them elsewhere
        entries = dict(client.key_value_dir_get_bytes("cpu:gloo"))
        for group in {key.rpartition("/")[0] for key in entries}:
            devices = group.rpartition("/")[2].split(",")
            left = [value for key, value in entries.items() if key.rpartition("/")[0] == group]
            for rank in range(len(devices)):
                if f"{group}/{rank}" not in entries:
                    with contextlib.suppress(Exception):  # another process was faster
                        client.key_value_set_bytes(f"{group}/{rank}", left[0][:-1])


def shut_down(keep_client: bool = False) -> None:
    """Leave JAX's distributed system and forget all devices and compiled computations.

    Args:
        keep_client: Whether computations still run: destroying their client would wait for them.
    """
    import jax
    from jax._src import dispatch, distributed, xla_bridge
    from jax.extend import backend

    if keep_client:
        _left_behind.append(dict(xla_bridge._backends))
    dispatch.runtime_tokens.clear()
    distributed.shutdown()  # the public one changes nothing in a cell
    backend.clear_backends()
    for compiled in [one for one in gc.get_objects() if type(one) is jax.stages.Compiled]:
        compiled._call = None  # C++ would run it on devices that are gone
    _described.clear()
    _lowered.clear()
    _closed_over.clear()
    _lasting.clear()


def all_arrays() -> list[Any]:
    """Return all live arrays, including deleted ones."""
    from jax._src.array import ArrayImpl

    return [one for one in gc.get_objects() if type(one) is ArrayImpl]


def make_array(aval: Any, sharding: Any, parts: Sequence[Any], committed: bool) -> Any:
    """Assemble an array of a given type from arrays on single devices."""
    from jax._src.array import ArrayImpl

    return ArrayImpl(aval, sharding, list(parts), committed=committed, _skip_checks=True)


def moved_inner_sharding(old: Any, devices: Sequence[Any]) -> Any:
    """Return a sharding of one of JAX's internal kinds on other devices, or None."""
    from jax._src import sharding_impls

    if isinstance(old, sharding_impls.GSPMDSharding):
        kind, hlo = old.memory_kind, old._hlo_sharding
        return sharding_impls.GSPMDSharding(tuple(devices), hlo, memory_kind=kind)
    if len(devices) == 1:
        single = getattr(sharding_impls, "make_single_device_sharding", None)
        make = single or sharding_impls.SingleDeviceSharding
        return make(devices[0], memory_kind=old.memory_kind)
    return None


def current_mesh() -> Any:
    """Return the mesh that `jax.set_mesh` has set in this thread, or None."""
    from jax._src.mesh import get_concrete_mesh

    mesh = get_concrete_mesh()
    return None if mesh is None or mesh.empty else mesh


def program_text(execute: Any) -> str:
    """Return a computation's program as HLO text, without metadata and ids.

    The values of larger constants are left out.
    """
    modules = execute.xla_executable.hlo_modules()
    return "\n".join(module.to_string(_print_options()) for module in modules)


def program_with_constants(execute: Any) -> str:
    """Return a computation's program with the values of all constants, unless they are too many."""
    options = _print_options()
    texts = []
    for module in execute.xla_executable.hlo_modules():
        size = len(module.as_serialized_hlo_module_proto())
        options.print_large_constants = size < MOST_WRITTEN_BYTES
        texts.append(module.to_string(options))
    return "\n".join(texts)


def constants_of(execute: Any) -> list[str]:
    """Return digests of the constants of a computation's program."""
    modules = execute.xla_executable.hlo_modules()
    in_it = [constants(module.as_serialized_hlo_module_proto()) for module in modules]
    return [*itertools.chain(*in_it)]


def closed_over(execute: Any) -> list[str]:
    """Return digests of the constants that newer JAX keeps out of a computation's program."""
    return _closed_over.get(execute, [])


def lowered(execute: Any) -> str:
    """Return a digest of a computation as JAX lowered it; empty if it was loaded from a file."""
    return _lowered.get(execute, "")
