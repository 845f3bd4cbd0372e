"""JAX's private names: the only file that knows them.

It fits jax 0.8 to 0.12. What it reaches into, each time only to look and to pass on:

- `ExecuteReplicated.__call__` runs a compiled computation, from wherever it is called.
- `pjit._get_fastpath_data` and `MeshExecutable.create_cpp_call` hand computations to C++, which
  runs them without that call. For those that communicate they are told not to.
- What an executable runs on, and its compiled program.
- The client of the coordination service, whose waits can't be interrupted.
- How arrays, meshes and shardings are made, for those that are made anew.

Where a version of JAX does not fit, `install` says so, and nothing is changed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import inspect
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from mcnb.lockstep.hlo import by_process, fingerprint, operations, partners
from mcnb.lockstep.launches import Launch

# Returns a context in which a launch is made; entering it may wait, or raise.
Guard = Callable[[Launch], AbstractContextManager[None]]
# Waits, or raises, before native code makes a launch in the name of a frame.
Before = Callable[[Launch, FrameType], None]

# Modules whose functions a learner calls by name; a launch inside is told by that name.
_PUBLIC = ("jax", "jax.numpy", "jax.experimental.multihost_utils", "jax.lax", "jax.random")

_guard: Guard | None = None
_before: Before | None = None
_installed = False
_described: weakref.WeakKeyDictionary[Any, Launch | None] = weakref.WeakKeyDictionary()


class UnsupportedJaxError(Exception):
    """This version of JAX has other inner names than this file knows."""


def install(guard: Guard, before: Before) -> None:
    """Have a guard stand before each launch that spans processes.

    Args:
        guard: Returns a context in which a launch is made from Python.
        before: Called before a launch is made from native code.

    Raises:
        UnsupportedJaxError: This version of JAX does not fit; nothing was changed.
    """
    global _guard, _before, _installed
    try:
        originals = _check()
    except (ImportError, AttributeError, TypeError, ValueError, AssertionError) as error:
        raise UnsupportedJaxError(str(error)) from error
    if not _installed:
        _gates_work()  # tried now: not in the middle of a launch
        _replace(*originals)
        _installed = True
    _guard, _before = guard, before


def remove() -> None:
    """Let all launches pass without being looked at."""
    global _guard, _before
    _guard = _before = None


def _check() -> tuple[ModuleType, ModuleType]:
    """Look whether everything is there that is needed, and is what it should be."""
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
    missing = {"xla_executable", "in_handler", "out_handler", "kept_var_idx", "name"} - slots
    if missing or "__weakref__" not in slots:
        raise UnsupportedJaxError(f"ExecuteReplicated has no {', '.join(sorted(missing))}")
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
            return execute(self, *args)
        with guard(launch):
            return execute(self, *args)

    def checked_fastpath(executable: Any, *args: Any, **kwargs: Any) -> Any:
        execute = getattr(executable, "_unsafe_call", None)
        launch = _described.get(execute) if execute is not None else None
        if _guard is None or launch is None:
            return fastpath(executable, *args, **kwargs)
        if not _gates_work():
            return None
        # Its first arguments: the executable, the tree of results, the arguments as a list.
        data = fastpath(executable, *args, **kwargs)
        return data and _gated(data, args[1], functools.partial(_pass_gate, launch))

    def checked_create_cpp_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _guard is not None and _spans(self.unsafe_call):
            return None  # whether it communicates is known when it has its arguments
        return create_cpp_call(self, *args, **kwargs)

    pxla.ExecuteReplicated.__call__ = checked_call
    pjit._get_fastpath_data = checked_fastpath
    pxla.MeshExecutable.create_cpp_call = checked_create_cpp_call


class Gate:
    """Stands in for the layout of an argument, where C++ looks before it launches.

    Before it runs a computation that it knows, JAX's C++ asks the layouts that arguments must
    have for XLA's form of them (`_to_xla_layout`, in `PrepareIfrtInputs` of jaxlib's pjit.cc). This
    one lets it wait meanwhile. Launching from Python instead would take several times as long.

    Args:
        layout: What to answer.
        before: Called before each launch.
    """

    def __init__(self, layout: Any, before: Callable[[], None]) -> None:
        self._layout = layout
        self._before = before

    def _to_xla_layout(self, dtype: Any) -> Any:
        del dtype
        self._before()
        return self._layout


def _gated(data: Any, args: Sequence[Any], before: Callable[[], None]) -> Any:
    """Return what C++ needs to launch a computation, with a gate before it.

    Args:
        data: What it needs without.
        args: The arguments.
        before: Called before each launch.

    Returns:
        The same with a gate; None if there is no place for one.
    """
    from jax._src.array import ArrayImpl

    is_kept = list(data.kept_var_bitvec)[-len(args) :]
    kept = [arg for arg, kept in zip(args, is_kept, strict=True) if kept]
    layouts = list(data.in_device_local_layouts)
    constants = len(layouts) - len(kept)  # they come before the arguments
    for i, arg in enumerate(kept, constants):
        if type(arg) is ArrayImpl and layouts[i] is None:
            layouts[i] = Gate(arg.format.layout._to_xla_layout(arg.dtype), before)
            return data._replace(in_device_local_layouts=layouts)
    return None


@functools.cache
def _gates_work() -> bool:
    """Return whether C++ stops at gates, once for each launch."""
    import jax
    from jax._src import pjit

    x = jax.device_put(np.ones(2, np.float32), jax.local_devices()[0])
    passed: list[int] = []
    fastpath = pjit._get_fastpath_data

    def gated(executable: Any, *args: Any, **kwargs: Any) -> Any:
        data = fastpath(executable, *args, **kwargs)
        return data and _gated(data, args[1], lambda: passed.append(len(passed)))

    pjit._get_fastpath_data = gated
    try:
        tried = jax.jit(lambda v: v + 1)
        results = [tried(x) for _ in range(3)]
    except Exception:  # it does not know what a gate is
        return False
    finally:
        pjit._get_fastpath_data = fastpath
    # The first time, Python launches it.
    return passed == [0, 1] and all((np.asarray(result) == 2).all() for result in results)


def _pass_gate(launch: Launch) -> None:
    before = _before
    if before is not None:
        # This frame and the gate's are between; what calls the gate is native code.
        before(launch, sys._getframe(2))


def _spans(execute: Any) -> bool:
    """Return whether a computation runs on devices of several processes."""
    try:
        return len({device.process_index for device in _devices(execute)}) > 1
    except Exception:  # not one of ours: it goes its own way
        return False


def _devices(execute: Any) -> Sequence[Any]:
    """Return the devices that a computation runs on, in its order."""
    shardings = [*execute.in_handler.in_shardings, *execute.out_handler.out_shardings]
    for sharding in shardings:
        devices = getattr(sharding, "_device_assignment", None)
        if devices:
            return tuple(devices)
    return ()


def _launch(execute: Any, args: Sequence[Any]) -> Launch | None:
    """Return what a computation is; None if it stays within this process."""
    try:
        launch = _described[execute]
    except KeyError:
        try:
            launch = _describe(execute, args) if _spans(execute) else None
        except Exception as error:
            # It must not be stopped for what is not understood, but it must not be hidden either.
            warnings.warn(
                f"mcnb can't check {getattr(execute, 'name', 'a launch')} and lets it pass: "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            launch = None
        _described[execute] = launch
    return launch


def _describe(execute: Any, args: Sequence[Any]) -> Launch:
    devices = _devices(execute)
    owners = [int(device.process_index) for device in devices]
    process = int(devices[0].client.process_index())
    text = program_text(execute)
    where = " ".join(device_names(devices))
    collectives = by_process(operations(text, len(devices)), owners)
    kept = [arg for i, arg in enumerate(args) if i in execute.kept_var_idx]
    shardings = execute.in_handler.in_shardings
    return Launch(
        name=str(execute.name),
        program=fingerprint(text, len(devices), where),
        participants=partners(collectives, process),
        arguments=tuple(_argument(arg) for arg in kept),
        shardings=tuple(_spec(sharding) for sharding in shardings),
        mesh=next((str(dict(s.mesh.shape)) for s in shardings if hasattr(s, "mesh")), ""),
        devices=where,
        collectives=collectives,
    )


def device_names(devices: Sequence[Any]) -> list[str]:
    """Return devices' names, each by its process and its position there, such as `"P0.1"`."""
    local: dict[int, list[int]] = {}
    for device in sorted(devices[0].client.devices(), key=lambda device: device.id):
        local.setdefault(device.process_index, []).append(device.id)
    return [f"P{d.process_index}.{local[d.process_index].index(d.id)}" for d in devices]


def _spec(sharding: Any) -> str:
    return str(getattr(sharding, "spec", "")).replace("PartitionSpec", "P")


def _argument(arg: Any) -> str:
    import jax

    aval = jax.typeof(arg) if hasattr(jax, "typeof") else jax.core.get_aval(arg)
    with contextlib.suppress(Exception):
        return f"{aval.dtype.name if _extended(aval) else _short(aval.dtype)}{_dims(aval.shape)}"
    return str(aval)


def _extended(aval: Any) -> bool:
    return not isinstance(aval.dtype, np.dtype)


def _short(dtype: np.dtype) -> str:
    return str(dtype).replace("float", "f").replace("uint", "u").replace("int", "i")


def _dims(shape: Sequence[Any]) -> str:
    return f"[{','.join(str(size) for size in shape)}]"


def _print_options() -> Any:
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_metadata = False
    options.print_backend_config = False
    options.print_ids = False
    options.canonicalize_instruction_names = True
    options.canonicalize_computations = True
    return options


def program_text(execute: Any) -> str:
    """Return a computation's compiled program as HLO text, without what does not matter."""
    modules = execute.xla_executable.hlo_modules()
    return "\n".join(module.to_string(_print_options()) for module in modules)


def call_under_way(frame: FrameType | None) -> tuple[Any, dict[str, str], tuple[str, ...]]:
    """Return what is about to be launched in a thread.

    Args:
        frame: The thread's innermost frame.

    Returns:
        The computation, the static arguments of the function by name, and the names of the other
        arguments.
    """
    execute = None
    while frame is not None:
        local = frame.f_locals
        if frame.f_code.co_name == "checked_call" and frame.f_globals is globals():
            execute = local["self"]
        elif frame.f_code.co_name == "cache_miss" and "p" in local and "fun" in local:
            names = tuple(local["p"].arg_names or ())
            return execute, _static(local["fun"], local["args"], local["kwargs"], names), names
        frame = frame.f_back
    return execute, {}, ()


def _static(function: Any, args: Any, kwargs: Any, names: Sequence[str]) -> dict[str, str]:
    import jax

    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {}
    dynamic = {str(name).partition("[")[0].partition(".")[0] for name in names}
    return {
        name: repr(value)[:100]
        for name, value in given.items()
        if name not in dynamic
        and not any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))
    }


@functools.cache
def is_public(name: str) -> bool:
    """Return whether JAX has a function of that name that learners call."""
    return not name.startswith("_") and any(
        callable(getattr(importlib.import_module(module), name, None)) for module in _PUBLIC
    )


class InterruptibleClient:
    """The coordination service's client, with waits that Ctrl-C ends.

    JAX's own waits in native code, where no signal reaches it. Here it waits in a thread that may
    be left behind; it ends when the service is shut down.
    """

    _WAITS = ("wait_at_barrier", "blocking_key_value_get", "blocking_key_value_get_bytes")

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.client, name)
        if name not in self._WAITS:
            return attribute

        @functools.wraps(attribute)
        def wait(*args: Any, **kwargs: Any) -> Any:
            future: Future[Any] = Future()

            def run() -> None:
                try:
                    future.set_result(attribute(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

            threading.Thread(target=run, name=f"mcnb {name}", daemon=True).start()
            return future.result()

        return wait


def make_waits_interruptible() -> None:
    """Have Ctrl-C end waits in the coordination service, such as barriers."""
    from jax._src import distributed

    client = distributed.global_state.client
    if client is not None and not isinstance(client, InterruptibleClient):
        distributed.global_state.client = InterruptibleClient(client)


def shut_down(keep_client: bool = False) -> None:
    """Leave JAX's distributed system and forget all devices and compiled computations.

    Args:
        keep_client: Whether computations are still under way: destroying their client would wait
            for them.
    """
    import jax
    from jax._src import dispatch, distributed, xla_bridge
    from jax.extend import backend

    if isinstance(distributed.global_state.client, InterruptibleClient):
        distributed.global_state.client = distributed.global_state.client.client
    if keep_client:
        _left_behind.append(dict(xla_bridge._backends))
    dispatch.runtime_tokens.clear()
    jax.distributed.shutdown()
    backend.clear_backends()
    _described.clear()


_left_behind: list[Any] = []


def all_arrays() -> list[Any]:
    """Return all arrays that are alive, deleted ones too."""
    from jax._src.array import ArrayImpl

    return [one for one in gc.get_objects() if type(one) is ArrayImpl]


def all_shardings() -> list[Any]:
    """Return all shardings that are alive."""
    import jax

    return [one for one in gc.get_objects() if isinstance(one, jax.sharding.Sharding)]


def moved_mesh(old: Any, new: Mapping[int, tuple[Any, Any]]) -> Any:
    """Return a mesh on new devices; None for what is no mesh of old ones."""
    import jax

    if not isinstance(old, jax.sharding.Mesh) or old.empty:
        return None
    if not all(id(device) in new for device in old.devices.flat):
        return None
    devices = np.array([new[id(device)][1] for device in old.devices.flat])
    return jax.sharding.Mesh(
        devices.reshape(old.devices.shape), old.axis_names, axis_types=old.axis_types
    )


def moved_sharding(old: Any, new: Mapping[int, tuple[Any, Any]]) -> Any:
    """Return a sharding on new devices; None for what is not on old ones."""
    import jax
    from jax._src.sharding_impls import GSPMDSharding, make_single_device_sharding

    mesh = getattr(old, "mesh", None)
    if isinstance(old, jax.sharding.NamedSharding):
        if id(mesh) not in new:
            return None
        return jax.sharding.NamedSharding(new[id(mesh)][1], old.spec, memory_kind=old.memory_kind)
    devices = tuple(getattr(old, "_device_assignment", None) or ())
    if not devices or not all(id(device) in new for device in devices):
        return None
    moved = tuple(new[id(device)][1] for device in devices)
    if isinstance(old, GSPMDSharding):
        return GSPMDSharding(moved, old._hlo_sharding, memory_kind=old.memory_kind)
    if len(moved) == 1:
        return make_single_device_sharding(moved[0], memory_kind=old.memory_kind)
    return None


@dataclass(frozen=True)
class ArrayForm:
    """All of an array but its values.

    Attributes:
        aval: Its type.
        sharding: Its sharding.
        committed: Whether it is bound to its devices.
        devices: The devices of its addressable shards, in order.
    """

    aval: Any
    sharding: Any
    committed: bool
    devices: tuple[Any, ...]

    @classmethod
    def of(cls, array: Any) -> ArrayForm:
        """Return an array's form."""
        devices = tuple(shard.device for shard in array.addressable_shards)
        return cls(array.aval, array.sharding, array._committed, devices)

    def build(self, shards: Sequence[np.ndarray], new: dict[int, tuple[Any, Any]]) -> Any:
        """Return an array of that form on new devices, with these values."""
        import jax
        from jax._src.array import ArrayImpl

        if id(self.sharding) not in new:
            new[id(self.sharding)] = (self.sharding, moved_sharding(self.sharding, new))
        sharding = new[id(self.sharding)][1]
        places = [new[id(device)][1] for device in self.devices]
        parts = jax.device_put(list(shards), places)
        return ArrayImpl(self.aval, sharding, parts, committed=self.committed, _skip_checks=True)


@dataclass(frozen=True)
class MeshContext:
    """What `jax.set_mesh` and `jax_default_device` are set to.

    Attributes:
        mesh: The mesh, or None.
        device: The device, or None.
    """

    mesh: Any
    device: Any

    @classmethod
    def current(cls) -> MeshContext:
        """Return what they are set to in this thread."""
        import jax
        from jax._src.mesh import get_concrete_mesh

        mesh = get_concrete_mesh()
        return cls(None if mesh is None or mesh.empty else mesh, jax.config.jax_default_device)

    def restore(self, new: Mapping[int, tuple[Any, Any]]) -> None:
        """Set them to the same on new devices."""
        import jax

        if id(self.mesh) in new:
            jax.set_mesh(new[id(self.mesh)][1])
        if id(self.device) in new:
            jax.config.update("jax_default_device", new[id(self.device)][1])
