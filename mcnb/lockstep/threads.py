"""Find the threads that run the learner's code, and what each of them waits for."""

from __future__ import annotations

import asyncio
import concurrent.futures
import concurrent.futures.thread
import contextlib
import functools
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
# Guards `gc.disable()`: the first of two threads to finish would enable the collector for both.
_one = threading.RLock()


@contextmanager
def current_frames() -> Iterator[dict[int, FrameType]]:
    """Provide the frames of all other threads, by thread identifier; walk them in the block only.

    Whoever holds the frame of a function that returns meanwhile keeps its variables alive, and
    their finalizers run late, in another thread. So hold frames as briefly as possible.

    Example:
        >>> thread = threading.Thread(target=threading.Event().wait, daemon=True)
        >>> thread.start()
        >>> with current_frames() as frames:
        ...     thread.ident in frames, threading.get_ident() in frames
        (True, False)
    """
    with _one:
        off = _COLLECTS_ANYWHERE and gc.isenabled()
        if off:
            gc.disable()
        frames = sys._current_frames()
        # The frame of this function would be part of a reference cycle with the caller's, and all
        # frames would be kept until it is collected.
        del frames[threading.get_ident()]
        try:
            yield frames
        finally:
            frames.clear()
            if off:
                gc.enable()


def line_of(frame: FrameType) -> int:
    """Return the current line of a frame."""
    return frame.f_lineno or line_at(frame.f_code, frame.f_lasti)


def line_at(code: CodeType, instruction: int) -> int:
    r"""Return the line of an instruction, or of the last instruction before it that has a line.

    An interrupt may arrive at an instruction that CPython has added and that belongs to no line.
    The instruction is an offset in the code object, such as `frame.f_lasti`.

    Example:
        >>> line_at(compile("a = 1\nb = 2", "", "exec"), 0)
        1
    """
    line = code.co_firstlineno
    for start, _, number in code.co_lines():
        if start > instruction:
            break
        line = number or line
    return line


class Threads:
    """Distinguishes threads that may still launch something from threads that can't.

    A thread is *quiet* if it can't go on before a launch of this process is answered. What is not
    known to be quiet is taken to run: a late verdict is better than a false one. Quiet are:

    - threads that wait for the answer to a launch, and threads that join a quiet one;
    - idle threads of a pool, and threads of libraries that have nothing to do with the learner's
      code or with JAX, as a progress bar's;
    - threads that are blocked, without a time limit, in what another thread of Python ends:
      `Thread.join`, `Future.result` of a pool's work, `Event.wait`, `Condition.wait`, `Queue.get`
      and the like, or an event loop all of whose tasks, if any, wait for work of a pool. They are
      quiet if all other threads are, if no computation with callbacks is under way, and if no timer
      of the process is set. The thread that runs the cell or the script is so only if another
      thread waits for a launch, or has received a verdict: otherwise it may wait for native code,
      such as that of a library that writes a file.

    A lock that the learner's code acquires by itself is not seen, and neither is what waits in
    native code.

    Create it before the learner's code starts a thread.

    Args:
        is_learners: Returns whether a frame runs the learner's code.
    """

    def __init__(self, is_learners: Callable[[FrameType], bool]) -> None:
        self._is_learners = is_learners
        _follow_pools()
        # These threads never run the learner's code. Their identifiers can't be reused by other
        # threads, because they do not end before the process.
        with current_frames() as frames:
            alive = {*frames, threading.get_ident()}
            self._others = alive - {threading.main_thread().ident}

    def exist(self, waiting: Iterable[int]) -> bool:
        """Return whether a thread exists whose frames tell `others_run` whether it may launch."""
        with current_frames() as frames:
            return not frames.keys() <= self._others | {*waiting}

    def others_run(
        self, waiting: Iterable[int], main: int | None = None, *, stopped: bool = False
    ) -> bool:
        """Return whether a thread that neither is this one nor waits may launch something.

        Args:
            waiting: The threads that wait.
            main: A thread that runs the learner's code even if no frame shows it.
            stopped: Whether a thread has received a verdict in the cell.
        """
        waiting = {*waiting}
        quiet = {*waiting, threading.get_ident()}
        by_thread = self._states(waiting, quiet, main)
        doing = {*by_thread.values()}
        if "runs" in doing:
            return True
        runner = threading.main_thread().ident if main is None else main
        if runner is not None and by_thread.get(runner) == "blocked" and not (waiting or stopped):
            return True
        # A thread that only its library knows may be the one that a blocked thread waits for. So
        # may the callback of a computation, which a thread of mcnb's then waits for.
        return "blocked" in doing and ("apart" in doing or _timer_is_set())

    def _states(self, waiting: set[int], quiet: set[int], main: int | None) -> dict[int, str]:
        """Return what each thread that is not quiet does, or only one that runs; see `_doing`."""
        states = {}
        with current_frames() as frames:
            stacks = {
                thread: stack_of(frames[thread]) for thread in frames.keys() - self._others - quiet
            }
            of_waiting = [stack_of(frames.get(thread)) for thread in waiting]
            work = {id(one) for stack in (*stacks.values(), *of_waiting) for one in _work_of(stack)}
            alive = {*frames, threading.get_ident()}
            for thread, stack in stacks.items():
                states[thread] = self._doing(stack, quiet, alive, work, thread == main)
                if states[thread] == "runs":
                    return states
            # Threads go on while others are looked at: what waits is still in the same call.
            with current_frames() as now:
                for thread, doing in states.items():
                    if doing == "blocked" and now.get(thread) is not stacks[thread][0]:
                        states[thread] = "runs"
        return states

    def _doing(
        self,
        stack: list[FrameType],
        quiet: set[int],
        alive: Collection[int],
        work: Collection[int],
        is_main: bool,
    ) -> str:
        """Return `"runs"`, `"blocked"`, `"waits"`, or `"apart"` for a library's own thread.

        `work` are the ids of the futures of what pools are working on.
        """
        joined = _joined_thread(stack)
        if joined in quiet or (_is_idle(stack) and not is_main):
            return "waits"
        codes = {frame.f_code for frame in stack}
        if _POOL_WORKER in codes and _WORK_ITEM not in codes:
            return "runs"  # it is about to begin what it was given, or to look for it
        blocked = joined in alive or _is_blocked(stack, work)
        # A thread that has just started, or a timer, has not reached the learner's code yet.
        only_threading = all(module_of(frame) == "threading" for frame in stack)
        calls = (self._launches, self._calls_back)  # the second holds variables, and takes longer
        if is_main or only_threading or any(any(map(one, stack)) for one in calls):
            return "blocked" if blocked else "runs"
        return "waits" if blocked or _is_service(stack) else "apart"

    def _launches(self, frame: FrameType) -> bool:
        """Return whether a frame belongs to the learner's code or to JAX."""
        # What a pool was given counts, too.
        return self._is_learners(frame) or _uses_jax(frame) or frame.f_code is _WORK_ITEM

    def _calls_back(self, frame: FrameType) -> bool:
        """Return whether a frame may call the learner's code, by its variables."""
        return any(self._calls_learners(value) for value in list(frame.f_locals.values()))

    def _calls_learners(self, value: Any, depth: int = 2) -> bool:
        """Return whether a value is, or holds, a function of the learner's."""
        if isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, MethodType):
            if self._calls_learners(value.__func__, depth):
                return True
            held = [value.__self__]
        elif isinstance(value, FunctionType):
            if self._is_learners(_Called(value.__code__)):  # type: ignore[arg-type]
                return True
            held = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        elif isinstance(value, (type, ModuleType)):
            return False
        else:
            held = list(_attributes(value).values())
        return depth > 0 and any(self._calls_learners(one, depth - 1) for one in held)


# The packages that start threads of their own: those of a notebook kernel, at any time, and tqdm,
# whose monitor draws bars that have not moved for a while.
_SERVICES = frozenset(("zmq", "ipykernel", "ipyparallel", "tqdm"))
_WORK_ITEM = concurrent.futures.thread._WorkItem.run.__code__
_POOL_WORKER = concurrent.futures.thread._worker.__code__
_START = threading.Thread.start.__code__
_RUN_UNTIL = asyncio.BaseEventLoop.run_until_complete.__code__


@dataclass(frozen=True, slots=True)
class _Called:
    """Stands in for the frame of a function that has not been called."""

    f_code: CodeType
    f_locals: dict[str, Any] = field(default_factory=dict)


def _attributes(value: Any) -> dict[str, Any]:
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except Exception:  # it has none, or stands in for something else
        return {}


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def stack_of(frame: FrameType | None) -> list[FrameType]:
    """Return a frame and its callers, innermost first."""
    stack = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    return stack


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def _uses_jax(frame: FrameType) -> bool:
    """Return whether a frame runs code of JAX, or of a module that imports JAX."""
    module = module_of(frame)
    if module not in _using_jax:
        of_jax = module.partition(".")[0] in ("jax", "jaxlib")
        _using_jax[module] = of_jax or any(
            str(getattr(value, "__name__", "")).partition(".")[0] == "jax"
            for value in list(frame.f_globals.values())
            if isinstance(value, ModuleType)
        )
    return _using_jax[module]


# By the name of the module.
_using_jax: dict[str, bool] = {}


def _is_service(stack: list[FrameType]) -> bool:
    """Return whether a thread belongs to a package whose threads wake none of the learner's."""
    outer = next((frame for frame in reversed(stack) if module_of(frame) != "threading"), None)
    return outer is not None and module_of(outer).partition(".")[0] in _SERVICES


# The futures of work that pools were given and that is not done, by the pools' queues. A set of
# futures can be copied while other threads change it.
_given: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()


def _follow_pools() -> None:
    """Keep the futures of work that is given to pools from now on.

    A thread of a pool that has taken work from the queue may wait for the interpreter before it
    begins. Its frame then looks like that of an idle thread; only the future tells.
    """
    pool = concurrent.futures.ThreadPoolExecutor
    if pool.submit.__module__ == __name__:
        return
    original: Callable[..., Any] = pool.submit

    def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        future = original(self, fn, *args, **kwargs)
        with contextlib.suppress(AttributeError, TypeError):  # a pool of another kind
            given = _given.setdefault(self._work_queue, set())
            given.add(future)
            future.add_done_callback(given.discard)
        return future

    functools.update_wrapper(submit, original, set(functools.WRAPPER_ASSIGNMENTS) - {"__module__"})
    pool.submit = submit  # type: ignore[method-assign]


def _is_idle(stack: list[FrameType]) -> bool:
    """Return whether a thread of a pool waits for work."""
    frame = stack[0]
    if frame.f_code is not _POOL_WORKER:
        return False
    pool = frame.f_locals["executor_reference"]()
    if pool is None or pool._shutdown:
        return False  # it is about to end, which somebody may wait for
    given = frame.f_locals["work_queue"]
    if not given.empty() or any(one._state == "PENDING" for one in list(_given.get(given, ()))):
        return False
    # The thread goes on meanwhile, so look last: what it takes is pending until it is held here.
    return frame.f_locals.get("work_item") is None


def _work_of(stack: list[FrameType]) -> list[Any]:
    """Return the futures of the work that a pool's thread does."""
    items = [frame.f_locals["self"] for frame in stack if frame.f_code is _WORK_ITEM]
    return [item.future for item in items if item is not None]  # after an exception, it is None


def _is_blocked(stack: list[FrameType], work: Collection[int]) -> bool:
    """Return whether a thread waits, without a time limit, for another thread."""
    frame = stack[0]
    module, name = module_of(frame), frame.f_code.co_name
    if module == "selectors":
        return name == "select" and _only_threads_wake(stack, work)
    if (module, name) != ("threading", "wait") or "waiter" not in frame.f_locals:
        return False
    # Whoever notifies it releases the lock, and then takes it off the list.
    waiter, condition = frame.f_locals["waiter"], frame.f_locals["self"]
    waits = waiter.locked() and waiter in list(condition._waiters)
    if any(frame.f_code is _START for frame in stack):
        return False  # the thread that it starts wakes it, and may not have a frame yet
    futures = [frame.f_locals.get("self") for frame in stack]
    if any(isinstance(one, concurrent.futures.Future) and id(one) not in work for one in futures):
        return False  # it waits for work that has not begun, or that no pool of Python does
    return waits and not any(map(_has_time_limit, stack))


def _has_time_limit(frame: FrameType) -> bool:
    of_library = module_of(frame).partition(".")[0] in ("threading", "queue", "concurrent")
    return of_library and frame.f_locals.get("timeout") is not None


def _only_threads_wake(stack: list[FrameType], work: Collection[int]) -> bool:
    """Return whether all tasks of an event loop wait for work of pools, if it has any."""
    for frame in stack:
        if frame.f_code.co_name == "_run_once" and module_of(frame) == "asyncio.base_events":
            loop = frame.f_locals["self"]
            # Nothing but the loop's own pipe, through which other threads wake it. A loop that is
            # closed meanwhile has no selector, or one without a map.
            selector = loop._selector
            files = None if selector is None else selector.get_map()
            if files is None or len(files) != 1 or loop._scheduled or loop._ready:
                return False
            try:
                tasks = list(asyncio.all_tasks(loop))
            except RuntimeError:  # they change all the time
                return False
            awaited = [getattr(task, "_fut_waiter", None) for task in tasks]
            # The loop may run until a future is done that no task waits for.
            awaited += [one.f_locals["future"] for one in stack if one.f_code is _RUN_UNTIL]
            return all(_awaits_work(one, work) for one in awaited)
    return False


def _awaits_work(awaited: Any, work: Collection[int]) -> bool:
    """Return whether a future of an event loop waits for what a pool is working on.

    Native code may set a future, too, so any other future is not known to wait for a thread.
    """
    if isinstance(awaited, asyncio.Task):
        return True  # which is looked at by itself
    children = getattr(awaited, "_children", None)  # of `asyncio.gather`
    if children:
        return all(_awaits_work(one, work) for one in children if not one.done())
    callbacks = [one for one, _ in getattr(awaited, "_callbacks", None) or ()]
    # What `asyncio.wrap_future` adds refers to the future of the pool.
    held = [
        cell.cell_contents
        for one in callbacks
        if isinstance(one, FunctionType) and one.__module__ == "asyncio.futures"
        for cell in one.__closure__ or ()
        if _is_filled(cell)
    ]
    return any(isinstance(one, concurrent.futures.Future) and id(one) in work for one in held)


def _timer_is_set() -> bool:
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _joined_thread(stack: list[FrameType]) -> int | None:
    """Return the thread that a thread joins without a timeout, or None."""
    for frame in stack:
        if module_of(frame) != "threading":
            return None
        if frame.f_code.co_name == "join" and frame.f_locals.get("timeout") is None:
            joined = frame.f_locals.get("self")
            return joined.ident if isinstance(joined, threading.Thread) else None
    return None


def interrupt_main() -> None:
    """Send SIGINT to the main thread, even if the thread is blocked in a system call."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def has_signal_handlers() -> bool:
    """Return whether the learner's program handles signals by functions of its own."""
    handlers = map(signal.getsignal, signal.valid_signals())
    modules = {
        str(getattr(handler, "__module__", "")).partition(".")[0]
        for handler in handlers
        if callable(handler)
    }
    return bool(modules - {"mcnb", "_signal", "signal", "asyncio", "ipykernel", "ipyparallel"})


def raise_after_call(caller: FrameType, error: BaseException) -> None:
    """Raise an error in a frame of this thread, once the native code that it has called returns.

    Call it while that native code calls Python. Native code would fail if the error were raised at
    once.
    """
    outer: list[FrameType] = []
    frame: FrameType | None = caller
    while frame is not None:
        outer.append(frame)
        frame = frame.f_back

    def trace(inner: FrameType, event: str, _: Any) -> Any:
        if event != "call" and any(inner is one for one in outer):
            raise error  # CPython ends the tracing of a thread when its trace function raises
        return trace

    for one in outer:
        one.f_trace = trace
    sys.settrace(trace)
