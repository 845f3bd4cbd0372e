"""Ways to part in a thread, while the main thread waits for it."""

from __future__ import annotations

from tests.support.divergences import DONE, Divergence, all_at, left

RUN = """\
import asyncio, concurrent.futures as cf, queue
def run():
    (total if k else meet)(x)
    woken()
def later(): threading.Thread(target=run, daemon=True).start()
pool = cf.ThreadPoolExecutor(1)
"""
# What wakes the main thread, and what it waits in.
WAITS = {
    "a condition": ("c = threading.Condition()", "c: c.notify()", "with c: later(); c.wait()"),
    "a barrier": ("b = threading.Barrier(2)", "b.wait()", "later(); b.wait()"),
    "a semaphore": ("s = threading.Semaphore(0)", "s.release()", "later(); s.acquire()"),
    "the tasks of a queue": (
        "q = queue.Queue(); q.put(1)",
        "q.get(); q.task_done()",
        "later(); q.join()",
    ),
    "room in a queue": ("q = queue.Queue(1); q.put(1)", "q.get()", "later(); q.put(2)"),
    "a timer": ("", "pass", "t = threading.Timer(0.05, run); t.start(); t.join()"),
    "futures": ("", "pass", "cf.wait([pool.submit(run)])"),
    "the first future": ("", "pass", "list(cf.as_completed([pool.submit(run)]))"),
    "an exception of a future": ("", "pass", "pool.submit(run).exception()"),
    "the end of a pool": ("", "pass", "pool.submit(run); pool.shutdown()"),
    "a thread of asyncio": ("", "pass", "asyncio.run(asyncio.to_thread(run))"),
    "threads of asyncio": ("", "pass", "await asyncio.gather(asyncio.to_thread(run))"),
    "a pool's future of asyncio": ("", "pass", "await asyncio.wrap_future(pool.submit(run))"),
}


def _waiting(made: str, wakes: str, waits: str) -> str:
    wakes = f"with {wakes}" if wakes.startswith("c:") else wakes
    return f"{RUN}def woken():\n    {wakes}\n{made}\n{waits}"


THREADS = {
    f"in a thread, {name} waited for": Divergence(_waiting(*parts), "mismatch", all_at(3))
    for name, parts in WAITS.items()
} | {
    "one has no thread, a semaphore waited for": Divergence(
        "s = threading.Semaphore(0)\ndef run():\n    total(x)\n    s.release()\n"
        "if k != 2:\n    threading.Thread(target=run, daemon=True).start()\n    s.acquire()",
        "missing",
        **left(2, 3),
    ),
    "one awaits no thread": Divergence(
        "import asyncio\nif k != 2: await asyncio.to_thread(lambda: total(x))",
        "missing",
        **left(2, 2, DONE),
    ),
}
