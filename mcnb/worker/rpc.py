"""Run cells and other requests of the notebook kernel in a process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mcnb.lockstep import _jax
from mcnb.messages import DebuggerAnswer, Reply, Text
from mcnb.worker import signals
from mcnb.worker.capture import RecordedStream
from mcnb.worker.join import numbers_are_right
from mcnb.worker.tracebacks import learner_entries

if TYPE_CHECKING:
    from mcnb.worker.shell import WorkerShell


@dataclass(frozen=True)
class Call:
    """A call of a function in a process, with the process's shell and further arguments.

    Args:
        target: The function's full name.
    """

    target: str

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse the call: only mcnb's own engines execute it."""
        raise RuntimeError("this engine was not started by mcnb")


def run_cell(
    shell: WorkerShell,
    number: int,
    source: str,
    label: str,
    first_line: int,
    checked: bool,
    values: bool | None,
    typed: bool,
) -> Reply:
    """Run a cell and return the reply."""
    with shell.worker.monitor.watching(label):
        shell.worker.session.begin(number, label, checked=checked, values=values)
        signals.begin(number)
        reply: Reply = shell.run(source, label, first_line, typed)
    return replace(reply, **shell.worker.session.end()._asdict())


def pull(shell: WorkerShell, number: int, expression: str) -> Any:
    """Return a value in a form that can leave the process: JAX arrays as NumPy arrays."""
    import jax

    with interruptible(shell, number):
        value = eval(expression, shell.user_ns)  # noqa: S307  (the learner's own expression)
        jax.block_until_ready(value)  # an interrupt ends this wait, but not that of NumPy below
        return jax.tree.map(partial(_to_host, expression), value)


@contextmanager
def interruptible(shell: WorkerShell, number: int) -> Iterator[None]:
    """Treat the code inside as a cell for the referee and for interrupts."""
    try:
        with shell.worker.monitor.watching():
            shell.worker.session.begin(number)
            signals.begin(number)
            with signals.armed():
                yield
    finally:
        shell.worker.session.end()


def _to_host(expression: str, leaf: Any) -> Any:
    import jax
    import numpy as np

    if not isinstance(leaf, jax.Array):
        return leaf
    if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        raise ValueError(
            f"{expression} is not fully addressable: this process holds only some of its shards. "
            "Pull one shard, for example x.addressable_shards[0].data, or first gather the array "
            "in a cell: jax.experimental.multihost_utils.process_allgather(x, tiled=True)"
        )
    array = np.asarray(leaf)
    # No buffer can have a type of ml_dtypes, such as bfloat16.
    return _Bytes(array) if array.dtype.isbuiltin == 2 else array


class _Bytes:
    """An array that crosses as bytes, and arrives as an array.

    Args:
        array: An array of a type that NumPy knows by ml_dtypes, and only by its name.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __reduce__(self) -> tuple[Any, ...]:
        array = self._array
        return _from_bytes, (array.tobytes(), array.dtype.name, array.shape)


def _from_bytes(data: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    import ml_dtypes  # noqa: F401  (by it NumPy knows the type's name)
    import numpy as np

    return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()


def debug(shell: WorkerShell, number: int, line: str) -> DebuggerAnswer | None:
    """Execute a command of the debugger in the frames of the newest cell's error.

    Args:
        shell: The process's shell.
        number: The number of the call, which counts as a cell.
        line: The command, as it is typed.

    Returns:
        The answer; None if there is no error with frames of the cell.
    """
    failure, record = shell.worker.failure, shell.worker.record
    if failure is None or not learner_entries(failure.error):
        return None
    try:
        with interruptible(shell, number):
            ended = failure.execute(line, RecordedStream(record, "stdout"))
    finally:
        said = "".join(one.text for one in record.take() if isinstance(one, Text))
    return DebuggerAnswer(said, ended)


def scene(
    shell: WorkerShell,
    number: int,
    expression: str,
    args: Sequence[Any],
    options: Mapping[str, Any],
) -> Any:
    """Return the contents of a picture of a value, as plain data."""
    from mcnb.pictures.show import scene_of

    try:
        with interruptible(shell, number):
            value = eval(expression, shell.user_ns)  # noqa: S307  (the learner's own expression)
            return scene_of(value, *args, **{**options, "name": options.get("name") or expression})
    finally:
        shell.worker.record.take()  # the output of the expression belongs to no cell


def push(shell: WorkerShell, number: int, values: Mapping[str, Any]) -> None:
    """Set variables."""
    with interruptible(shell, number):
        shell.user_ns.update(values)


def settle(shell: WorkerShell) -> bool:
    """Wait until all launched computations have ended; return whether all of them succeeded."""
    import jax

    try:
        with shell.worker.monitor.watching(), signals.armed():
            jax.effects_barrier()
            fates = [_succeeds(array) for array in _jax.all_arrays()]
            return all(fates)
    except KeyboardInterrupt:
        return False


def _succeeds(array: Any) -> bool:
    import jax

    try:
        if not array.is_deleted():
            jax.block_until_ready(array)
    except Exception:
        return False
    return True


def probe(shell: WorkerShell, salt: int, budget_s: float) -> bool:
    """Return whether this process can compute together with all others.

    Every process contributes known numbers to a gather, and checks those of the others.

    Args:
        shell: The process's shell.
        salt: Changes the numbers from call to call.
        budget_s: The most seconds to wait for the other processes.
    """
    try:
        with shell.worker.monitor.watching(), shell.worker.session.suspended(), signals.armed():
            return numbers_are_right(salt, budget_s)
    except (KeyboardInterrupt, RuntimeError):  # a stop, or what JAX raises for a lost connection
        return False
