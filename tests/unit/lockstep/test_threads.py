"""Which threads may still launch something."""

from __future__ import annotations

import asyncio
import functools
import queue
import selectors
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from mcnb.lockstep import threads as threads_of
from mcnb.lockstep.threads import Threads, _given, has_signal_handlers
from tests.conftest import wait_until

LATE_S = 60


def is_learners(frame: FrameType) -> bool:
    return frame.f_code.co_name.startswith("learner")


class Scene:
    """Threads of a learner's program, one of which waits for the answer to a launch."""

    def __init__(self) -> None:
        self.threads = Threads(is_learners)
        self.answer = threading.Event()
        self.waiting: list[int] = []
        self.begun: list[threading.Thread] = []
        self.called = False

    def learner_launches(self, *_: object) -> int:
        self.waiting.append(threading.get_ident())
        self.answer.wait(LATE_S)
        return 1

    def learner_calls(self, function: Callable[[], object]) -> None:
        self.called = True
        function()

    def begin(self, target: Callable[..., object], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        self.begun.append(thread)
        thread.start()

    def is_quiet(self) -> bool:
        return not self.threads.others_run(self.waiting)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(signal, "getitimer", lambda _: (0.0, 0.0))  # a test has a time limit
    scene = Scene()
    yield scene
    scene.answer.set()
    for thread in scene.begun:
        thread.join(LATE_S)
        assert not thread.is_alive()


def result_of(scene: Scene) -> None:
    with ThreadPoolExecutor(1) as pool:
        scene.learner_calls(pool.submit(scene.learner_launches).result)


def taken_from_a_queue(scene: Scene) -> None:
    filled: queue.Queue[int] = queue.Queue()
    scene.begin(lambda: filled.put(scene.learner_launches()))
    scene.learner_calls(filled.get)


def an_event(scene: Scene) -> None:
    event = threading.Event()
    scene.begin(lambda: scene.learner_launches() and event.set())
    scene.learner_calls(event.wait)


def a_barrier(scene: Scene) -> None:
    barrier = threading.Barrier(2)
    scene.begin(lambda: scene.learner_launches() and barrier.wait())
    scene.learner_calls(barrier.wait)


def a_thread_that_joins_another(scene: Scene) -> None:
    first = threading.Thread(target=scene.learner_launches)
    first.start()
    second = threading.Thread(target=scene.learner_calls, args=(first.join,))
    second.start()
    scene.learner_calls(second.join)


def awaited_in_a_loop(scene: Scene) -> None:
    async def learner_awaits() -> None:
        scene.called = True
        await asyncio.get_running_loop().run_in_executor(None, scene.learner_launches)

    asyncio.run(learner_awaits())


def mapped_by_a_pool(scene: Scene) -> None:
    with ThreadPoolExecutor(1) as pool:
        scene.learner_calls(lambda: list(pool.map(scene.learner_launches, [0])))


@pytest.mark.parametrize(
    "waits",
    [
        result_of,
        taken_from_a_queue,
        an_event,
        a_barrier,
        a_thread_that_joins_another,
        awaited_in_a_loop,
        mapped_by_a_pool,
    ],
    ids=lambda waits: waits.__name__,
)
def test_who_waits_for_a_launch_of_another_thread_is_quiet(
    scene: Scene, waits: Callable[[Scene], None]
) -> None:
    scene.begin(waits, scene)
    assert wait_until(lambda: scene.waiting and scene.called)
    assert wait_until(scene.is_quiet)


@pytest.mark.parametrize(
    "waits", [result_of, taken_from_a_queue, an_event], ids=lambda waits: waits.__name__
)
def test_a_timer_of_the_process_may_wake_it(
    scene: Scene, waits: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin(waits, scene)
    assert wait_until(lambda: scene.waiting and scene.called)
    assert wait_until(scene.is_quiet)
    monkeypatch.setattr(signal, "getitimer", lambda _: (LATE_S, 0.0))
    assert not scene.is_quiet()


def test_a_wait_with_a_time_limit_is_not_quiet(scene: Scene) -> None:
    event = threading.Event()
    scene.begin(scene.learner_launches)
    scene.begin(scene.learner_calls, functools.partial(event.wait, LATE_S))
    assert wait_until(lambda: scene.waiting and scene.called)
    assert not wait_until(scene.is_quiet, 0.3)
    event.set()


def test_a_thread_of_a_library_may_be_the_one_that_is_waited_for(scene: Scene) -> None:
    event, end = threading.Event(), threading.Event()

    def listens() -> None:  # as a client of a server does: not the learner's, and blocked outside
        while not end.is_set():
            time.sleep(0.01)

    scene.begin(listens)
    scene.begin(scene.learner_launches)
    assert wait_until(lambda: scene.waiting)
    assert wait_until(scene.is_quiet)  # by itself it launches nothing
    scene.begin(scene.learner_calls, event.wait)
    assert wait_until(lambda: scene.called)
    assert not wait_until(scene.is_quiet, 0.3)
    event.set()
    end.set()


@pytest.mark.parametrize("module", ["zmq.utils.garbage", "tqdm._monitor"])
def test_a_thread_of_the_kernel_or_of_a_bar_is_not(scene: Scene, module: str) -> None:
    event, end = threading.Event(), threading.Event()
    source = "def collects(end):\n    while not end.wait(0.01): pass"
    names: dict[str, Any] = {"__name__": module}
    exec(source, names)  # as if that module had started it
    scene.begin(names["collects"], end)
    scene.begin(scene.learner_launches)
    scene.begin(scene.learner_calls, event.wait)
    assert wait_until(lambda: scene.waiting and scene.called)
    assert wait_until(scene.is_quiet)
    event.set()
    end.set()


def test_work_that_has_not_begun_is_not_quiet(scene: Scene) -> None:
    begun: Future[int] = Future()
    scene.begin(scene.learner_launches)
    scene.begin(scene.learner_calls, begun.result)
    assert wait_until(lambda: scene.waiting and scene.called)
    assert not wait_until(scene.is_quiet, 0.3)
    begun.set_running_or_notify_cancel()  # by what is no pool of Python's
    assert not wait_until(scene.is_quiet, 0.3)
    begun.set_result(1)


def test_the_main_thread_may_wait_for_native_code(scene: Scene) -> None:
    event = threading.Event()
    scene.begin(scene.learner_calls, event.wait)
    main = scene.begun[0].ident
    assert wait_until(lambda: scene.called)
    quiet = functools.partial(scene.threads.others_run, (), main)
    assert not wait_until(lambda: not quiet(), 0.3)
    assert wait_until(lambda: not quiet(stopped=True))
    scene.begin(scene.learner_launches)
    assert wait_until(lambda: scene.waiting)
    assert wait_until(lambda: not scene.threads.others_run(scene.waiting, main))
    event.set()


@pytest.mark.parametrize("by_a_task", [True, False])
def test_native_code_may_wake_an_event_loop(scene: Scene, by_a_task: bool) -> None:
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def learner_awaits() -> None:
        loop = asyncio.get_running_loop()
        loops.append((loop, loop.create_future()))
        await loops[0][1]

    def learner_waits() -> None:
        loop = asyncio.new_event_loop()
        loops.append((loop, loop.create_future()))
        loop.run_until_complete(loops[0][1])
        loop.close()

    scene.begin(scene.learner_launches)
    scene.begin((lambda: asyncio.run(learner_awaits())) if by_a_task else learner_waits)
    assert wait_until(lambda: scene.waiting and loops and loops[0][0].is_running())
    assert not wait_until(scene.is_quiet, 0.3)
    [(loop, future)] = loops
    loop.call_soon_threadsafe(future.set_result, None)


def test_a_loop_whose_tasks_all_wait_for_pools_is_quiet(scene: Scene) -> None:
    done: list[int] = []

    async def learner_awaits() -> None:
        loop = asyncio.get_running_loop()
        both = (loop.run_in_executor(None, scene.learner_launches) for _ in range(2))
        one = asyncio.create_task(asyncio.to_thread(scene.learner_launches))
        done.extend(await asyncio.gather(*both, one))

    scene.begin(lambda: asyncio.run(learner_awaits()))
    assert wait_until(lambda: len(scene.waiting) == 3)
    assert wait_until(scene.is_quiet)
    scene.answer.set()
    assert wait_until(lambda: done == [1, 1, 1])


def test_who_starts_a_thread_goes_on_once_it_runs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then, nothing shows that there is such a thread."""
    name = next(n for n in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, n))
    begin, asked = getattr(threading, name), []

    def as_if_the_system_were_slow(*arguments: Any, **options: Any) -> None:
        asked.append(functools.partial(begin, *arguments, **options))

    scene.begin(scene.learner_launches)
    assert wait_until(lambda: scene.waiting)
    started = threading.Thread(target=int)
    with monkeypatch.context() as patch:
        ready, go = threading.Event(), threading.Event()
        scene.begin(lambda: ready.set() or (go.wait() and scene.learner_calls(started.start)))
        assert ready.wait(LATE_S)
        patch.setattr(threading, name, as_if_the_system_were_slow)
        go.set()
        assert wait_until(lambda: asked)
    assert not wait_until(scene.is_quiet, 0.3)
    asked[0]()
    assert wait_until(scene.is_quiet)
    started.join()


@pytest.mark.parametrize("given_up", ["shut down", "forgotten"])
def test_a_thread_of_a_pool_that_is_given_up_is_about_to_end(given_up: str) -> None:
    pool = ThreadPoolExecutor(1)
    kept = SimpleNamespace(_shutdown=given_up == "shut down")
    reference = (lambda: kept) if given_up == "shut down" else (lambda: None)
    worker: Any = SimpleNamespace(
        f_code=threads_of._POOL_WORKER,
        f_locals={"work_queue": pool._work_queue, "executor_reference": reference},
    )
    assert not threads_of._is_idle([worker])
    worker.f_locals["executor_reference"] = lambda: pool
    assert threads_of._is_idle([worker])
    pool.shutdown()
    assert not threads_of._is_idle([worker])


def test_an_event_loop_without_tasks_waits_for_another_thread(scene: Scene) -> None:
    """Libraries keep loops in threads of their own, to which they give work now and then."""
    loop = asyncio.new_event_loop()

    def learner_serves() -> None:
        try:
            loop.run_forever()
        finally:
            loop.close()

    scene.begin(scene.learner_launches)
    scene.begin(learner_serves)
    assert wait_until(lambda: scene.waiting and loop.is_running())
    assert wait_until(scene.is_quiet)
    later = asyncio.run_coroutine_threadsafe(asyncio.sleep(LATE_S), loop)
    assert not wait_until(scene.is_quiet, 0.3)
    later.cancel()
    assert wait_until(scene.is_quiet)
    loop.call_soon_threadsafe(loop.stop)


def test_a_thread_that_goes_on_while_it_is_looked_at_runs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: queue.Queue[None] = queue.Queue()
    went_on, over = threading.Event(), threading.Event()

    def learner_gets() -> None:
        given.get()
        went_on.set()
        while not over.is_set():
            pass

    def is_blocked(stack: list[FrameType], work: Collection[int]) -> bool:
        blocked = looks(stack, work)
        given.put(None)
        assert went_on.wait(LATE_S)
        return blocked

    looks = threads_of._is_blocked
    scene.begin(scene.learner_launches)
    scene.begin(learner_gets)
    assert wait_until(scene.is_quiet)
    monkeypatch.setattr(threads_of, "_is_blocked", is_blocked)
    try:
        assert not scene.is_quiet()
    finally:
        over.set()


def retried(function: Callable[[], object], began: threading.Event, go: threading.Event) -> None:
    """Wait before calling a function, as a library that tries again does."""
    began.set()
    while not go.is_set():
        time.sleep(0.01)
    function()


def held(function: Callable[[], object]) -> list[Callable[[], object]]:
    class Step:
        def __init__(self) -> None:
            self.run = function

        def call(self) -> object:
            return self.run()

    wrapped = functools.wraps(function)(lambda: function())
    return [function, functools.partial(function), wrapped, Step().call]


@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize("pool", [False, True])
def test_a_library_that_will_call_the_learners_function_is_not_quiet(
    scene: Scene, way: int, pool: bool
) -> None:
    began, go = threading.Event(), threading.Event()
    work = functools.partial(retried, held(scene.learner_launches)[way], began, go)
    executor = ThreadPoolExecutor(1)
    if pool:
        executor.submit(work)
    else:
        scene.begin(work)
    assert began.wait(LATE_S)
    assert not wait_until(scene.is_quiet, 0.2)
    go.set()
    assert wait_until(scene.is_quiet)
    scene.answer.set()
    executor.shutdown()


def test_an_idle_pool_is_quiet(scene: Scene) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda n: n + 1, range(3))) == [1, 2, 3]
        assert wait_until(scene.is_quiet)


def test_handlers_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, object] = {signal.SIGINT: signal.default_int_handler}
    monkeypatch.setattr(signal, "getsignal", lambda one: handlers.get(one, signal.SIG_DFL))
    assert not has_signal_handlers()
    handlers[signal.SIGTERM] = None  # of native code, as JAX's own
    assert not has_signal_handlers()
    handlers[signal.SIGUSR2] = functools.partial(print)
    assert has_signal_handlers()


def test_work_that_a_thread_of_a_pool_has_only_just_taken(scene: Scene) -> None:
    """Such a thread is not idle, even while it waits for the interpreter to begin."""
    begun = threading.Event()

    def learner_works() -> None:
        begun.set()

    interval = sys.getswitchinterval()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(3000):
                begun.clear()
                work = pool.submit(learner_works)
                while not work.done():
                    quiet = scene.is_quiet()
                    assert begun.is_set() or not quiet
        finally:
            sys.setswitchinterval(interval)


def test_pools_are_followed_once() -> None:
    submit = ThreadPoolExecutor.submit
    Threads(is_learners)
    assert ThreadPoolExecutor.submit is submit
    assert submit.__name__ == "submit"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(divmod, 7, 2).result() == (3, 1)
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 7, 0).result()
        given = _given[pool._work_queue]
    assert given == set()


@pytest.mark.parametrize("closed", ["the loop", "its selector"])
def test_an_event_loop_that_is_closed_meanwhile_is_not_known_to_wait(closed: str) -> None:
    selector = selectors.DefaultSelector()
    selector.close()
    left = None if closed == "the loop" else selector
    loop = SimpleNamespace(_selector=left, _scheduled=[], _ready=[])
    run_once: Any = SimpleNamespace(
        f_code=asyncio.BaseEventLoop._run_once.__code__,  # type: ignore[attr-defined]
        f_globals={"__name__": "asyncio.base_events"},
        f_locals={"self": loop},
    )
    assert not threads_of._only_threads_wake([run_once], ())


def test_work_that_has_failed_is_no_work() -> None:
    # `concurrent.futures.thread` breaks a reference cycle in this way.
    def frame(item: object) -> Any:
        return SimpleNamespace(f_code=threads_of._WORK_ITEM, f_locals={"self": item})

    future: Future[None] = Future()
    assert threads_of._work_of([frame(None), frame(SimpleNamespace(future=future))]) == [future]


def test_looking_at_a_thread_keeps_none_of_its_variables(scene: Scene) -> None:
    class Held:
        pass

    begun, goes_on = threading.Event(), threading.Event()
    finalized_in: list[int] = []

    def learner_holds(held: Held) -> None:
        weakref.finalize(held, lambda: finalized_in.append(threading.get_ident()))
        begun.set()
        goes_on.wait(LATE_S)

    scene.begin(lambda: learner_holds(Held()))
    assert begun.wait(LATE_S)
    assert not scene.is_quiet()
    goes_on.set()
    (thread,) = scene.begun
    thread.join(LATE_S)
    assert finalized_in == [thread.ident]
