"""Define `Cluster`, a set of JAX processes that run cells in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from mcnb.cluster.history import Cell, History, Push
from mcnb.cluster.lifetime import Absence, Lifetime
from mcnb.cluster.replay import Replay, replayed
from mcnb.cluster.shielding import to_the_end
from mcnb.errors import CellError, ClusterError
from mcnb.options import (
    LOCAL,
    Options,
    cell_numbers,
    host_list,
    process_set,
    seconds,
    words,
)

# The other modules are imported where they are needed, beside a fork server that preloads: they
# take as long as half of an import of JAX.
if TYPE_CHECKING:
    from mcnb.cluster.conversation import Debugger
    from mcnb.cluster.execution import Execution, Watcher
    from mcnb.cluster.result import Result
    from mcnb.cluster.workers import Processes
    from mcnb.lockstep.comparison import Question
    from mcnb.messages import DebuggerAnswer, Healed
    from mcnb.pictures.picture import Picture
    from mcnb.pictures.scene import Scene


class Cluster:
    """A cluster of JAX processes, on this machine or others, each with several devices.

    Args:
        processes: The number of processes, 1 to 512.
        devices_per_process: The number of devices per process, 1 to 2048.
        platform: `"cpu"`; `"cuda"` for NVIDIA GPUs, which are divided among the processes; or
            `"tpu"`, with one process on each host.
        env: Environment variables for the processes, in addition to this process's variables.
        checked: Whether each launch waits until all its participants have reached it.
        launcher: The launcher of the processes: `"local"` for this machine, or one of
            ipyparallel's launchers, such as `"mpi"`, `"ssh"` or `"slurm"`.
        hosts: The hosts for ssh, as a list or separated by commas; neighbouring processes share a
            host.
        launcher_options: Additional options for the launcher's command (mpiexec, ssh, sbatch), in
            shell syntax.
        listen: The address of this machine at which the processes reach the notebook kernel;
            determined automatically by default.
        values: Whether to compare the values of replicated arguments at each launch, bit for bit,
            or never; by default, at the first launch of a computation, and for a sample of the
            others, where differences of the size of rounding are accepted.
        arguments: The arguments of a program, which cells find in `sys.argv`, as a list or in
            shell syntax. In them, `{process}` and `{processes}` stand for a process's index and
            the number of processes.

    Raises:
        OptionError: A value is invalid.

    Attributes:
        options: The cluster's options.
        last: The result of the most recent cell, or None.
        replay: The summary of the most recent replay, or None.

    Example:
        >>> with Cluster(processes=2, devices_per_process=1) as cluster:
        ...     result = cluster.run("import jax; print(jax.device_count())")
        >>> print(result.text())
        [all 2] 2
    """

    def __init__(
        self,
        processes: int = Options.processes,
        devices_per_process: int = Options.devices_per_process,
        platform: str = Options.platform,
        env: Mapping[str, str] | None = None,
        checked: bool = True,
        launcher: str = LOCAL,
        hosts: str | Sequence[str] = (),
        launcher_options: str = "",
        listen: str = "",
        values: bool | None = None,
        arguments: str | Sequence[str] = (),
    ) -> None:
        self._set(
            Options(
                processes,
                devices_per_process,
                platform,
                dict(env or {}),
                checked,
                launcher,
                host_list(hosts),
                launcher_options,
                listen,
                values,
                words(arguments),
            )
        )

    @classmethod
    def of(cls, options: Options) -> Self:
        """Create a cluster from its options, without starting the processes."""
        cluster = cls.__new__(cls)
        cluster._set(options)
        return cluster

    def _set(self, options: Options) -> None:
        self.options = options
        self.last: Result | None = None
        self.replay: Replay | None = None
        self._history = History()
        self._lifetime = Lifetime(options)
        self._lock = self._lifetime.lock
        self._execution: Execution | None = None
        self._cells = 0
        # Whether the processes ran the last cell.
        self._ran = False

    @property
    def running(self) -> bool:
        """Whether the processes are running or being restarted."""
        return self._lifetime.running

    @property
    def recovering(self) -> bool:
        """Whether lost processes are being restarted; the next cell waits for the restart."""
        return self._lifetime.recovering

    def __enter__(self) -> Self:
        if self._lifetime.processes is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<mcnb.Cluster: {self.options.describe()}, {self._state()}>"

    def start(self, *, tell: Callable[[str], object] | None = None) -> None:
        """Start the processes; return when all of them have joined.

        Args:
            tell: Called each second with what the start waits for, once it has taken ten. By
                default, that is written to the standard error once, if it is a terminal.

        Raises:
            ClusterError: The processes are already running, or could not be started.
        """
        with self._lock:
            if self._lifetime.processes is not None:
                raise ClusterError(
                    f"The cluster is already running, with {self.options.describe()}. To restart "
                    "it (variables are lost): %mcjax restart. To change its size, stop it first: "
                    "%mcjax stop"
                )
            self._lifetime.start(tell)

    def run(
        self,
        source: str,
        *,
        processes: str | int | Iterable[int] | None = None,
        label: str | None = None,
        first_line: int = 1,
        checked: bool | None = None,
        values: bool | None = None,
        timeout: float | None = None,
        watcher: Watcher | None = None,
        cell_id: str = "",
        debugger: Debugger | None = None,
    ) -> Result:
        """Run a cell on the processes; return when every process has finished or can't finish.

        Args:
            source: The cell's code, which may use IPython syntax.
            processes: The processes that run it, such as `"0,2-3"` or `[0, 2, 3]`; all by default.
            label: The cell's name in tracebacks, as in a notebook's prompt. By default, the count
                of cells run so far.
            first_line: The line number, in the notebook's cell, of the first line of `source`.
            checked: Whether each launch waits until all its participants have reached it; by
                default, as the cluster was started. With the check off, launches go ahead, and a
                divergence is reported afterwards.
            values: Whether to compare the values of replicated arguments at each launch, or never;
                by default, as the cluster was started.
            timeout: The time limit of the cell in seconds; by default, none.
            watcher: Called about ten times a second while the cell runs.
            cell_id: The notebook's id of the cell. A replay runs only the last version of a cell.
            debugger: Called in this thread when a process stops at a breakpoint, with the process's
                index and what its debugger printed; returns the next command for it. Without it,
                `breakpoint()` ends the cell with an error.

        Returns:
            The result of the cell. An error in the cell is stored in the result, not raised.

        Raises:
            ClusterError: The cluster is not running, or broke.
            OptionError: `processes` names no process, or `timeout` is not a valid time.
            KeyboardInterrupt: Ctrl-C or the stop button; `last` is the result so far.
        """
        with self._lock:
            now = self._lifetime.ready()
            self._cells += 1
            cell = Cell(
                source,
                self._targets(processes),
                str(self._cells) if label is None else label,
                first_line,
                self.options.checked if checked is None else checked,
                None if timeout is None else seconds("--timeout", timeout),
                self.options.values if values is None else values,
                cell_id,
            )
            return self._run(now, cell, watcher, debugger)

    def examine(self, source: str, *, timeout: float) -> Result:
        """Run mcnb's own code on all processes, without changing the history or `last`.

        Args:
            source: The code.
            timeout: The time limit in seconds.

        Returns:
            The result of the code.

        Raises:
            ClusterError: The cluster is not running, or broke.
        """
        with self._lock:
            now, last = self._lifetime.ready(), self.last
            try:
                cell = Cell(source, self._targets(None), "", timeout=timeout)
                return self._run(now, cell, remembered=False)
            finally:
                self.last = last

    def pull(self, name: str, processes: str | int | Iterable[int] | None = None) -> dict[int, Any]:
        """Return a variable, or the value of an expression, from each process.

        JAX arrays are returned as NumPy arrays.

        Args:
            name: A variable's name, or an expression.
            processes: The processes to read from; all by default.

        Returns:
            The values by process index.

        Raises:
            CellError: A process has no such value, or the value can't be sent.
            ClusterError: The cluster is not running, or broke.
        """
        from mcnb.worker import rpc

        return self._call(rpc.pull, name, processes=processes)

    def __mcnb_picture__(
        self, args: Sequence[Any], options: dict[str, Any], keywords: Mapping[str, Any]
    ) -> list[Picture] | None:
        """Return the cluster's pictures for `mcnb.show`; None for unsupported arguments."""
        from mcnb.cluster.pictures import pictures_of

        return None if keywords else pictures_of(self.options, self.scenes, args, options)

    def scenes(self, expression: str, *args: Any, **options: Any) -> dict[int, Scene]:
        """Return the scene of a variable on each process, for `mcnb.show` to draw.

        Args:
            expression: A variable's name, or an expression.
            args: For a sharding, the global shape.
            options: The options of `mcnb.show`.

        Returns:
            The scenes by process index.

        Raises:
            CellError: A process has no such value, or the value can't be drawn.
            ClusterError: The cluster is not running, or broke.
        """
        from mcnb.worker import rpc

        return self._call(rpc.scene, expression, args, options, processes=None)

    def variables(self, processes: str | int | Iterable[int] | None = None) -> str:
        """Return a table of the variables that hold data, and where they are the same.

        Values are compared by digests; of more than 128 MB in a variable, by a part of them. Of a
        PyTree, the first 10,000 leaves are compared, and of a list with more items, nothing. It
        waits for computations that still make the values.

        Args:
            processes: The processes; all by default.

        Raises:
            ClusterError: The cluster is not running, or broke.
        """
        from mcnb.cluster.variables import table
        from mcnb.worker import survey

        return table(self._call(survey.variables, processes=processes), self.options.processes)

    def compare(self, name: str, processes: str | int | Iterable[int] | None = None) -> str:
        """Return where a variable differs between processes, in a sentence.

        First types, shapes and layouts are compared, then digests of all elements; elements are
        sent only of blocks whose digests differ. NaN equals NaN.

        Args:
            name: A variable's name, or an expression.
            processes: The processes; all by default.

        Raises:
            CellError: The expression can't be evaluated.
            ClusterError: The cluster is not running, or broke.
            OptionError: It is neither a name nor an expression.
        """
        from mcnb.cluster.variables import check_expression, difference
        from mcnb.worker import survey

        check_expression(name)
        with self._lock:

            def ask(question: Question) -> Mapping[int, Any]:
                wanted = question.name, question.blocks
                return self._call(survey.answer, *wanted, processes=question.processes)

            found = self._call(survey.variable, name, processes=processes)
            try:
                return difference(name, found, self.options.processes, ask)
            finally:
                self._call(survey.forget, processes=processes)

    def failed_process(self) -> int:
        """Return the first of the processes that caused the newest cell's error.

        Raises:
            ClusterError: The cell has ended without an error on a process, or none has run.
        """
        blamed = None if self.last is None or not self._ran else self.last.blamed
        if blamed is None:
            if self.last is None:
                why = "no cell has run yet"
            elif self._ran:
                why = "the last cell ended without one on any process"
            else:
                why = "no process ran the last cell"
            raise ClusterError(f"There is no error to look at: {why}")
        return blamed

    def debug(self, command: str, process: int | None = None) -> DebuggerAnswer:
        """Execute a command of Python's debugger in the frames of a cell's error.

        A process keeps the frames until the next cell begins on it. The commands are those of
        `pdb` that look around, such as `where`, `up`, `list` and `p x`, and lines of Python; the
        process runs them alone.

        Args:
            command: The command.
            process: The process; by default the first of those that caused the last cell's error.

        Returns:
            What the command printed, and whether it ended the debugger.

        Raises:
            ClusterError: The process has no error to look at, or the cluster is not running.
            OptionError: There is no such process.
        """
        from mcnb.messages import ProcessError
        from mcnb.worker import rpc

        with self._lock:
            self._lifetime.ready()
            if process is None:
                process = self.failed_process()
            result, answers = self._called(rpc.debug, command, processes=[process])
            if process not in answers or isinstance(answers[process], ProcessError):
                result.raise_for_errors()
            answer = answers.get(process)
            if answer is None:
                raise ClusterError(
                    f"There is no error to look at on process {process}: the last cell ended "
                    "without one there, or its variables were restored since"
                )
            return cast("DebuggerAnswer", answer)

    def push(
        self, values: Mapping[str, Any], processes: str | int | Iterable[int] | None = None
    ) -> None:
        """Set variables on each process.

        Args:
            values: The values by variable name.
            processes: The processes to write to; all by default.

        Raises:
            CellError: A value can't be sent.
            ClusterError: The cluster is not running, or broke.
        """
        from mcnb.cluster.variables import check_names, refusal_of
        from mcnb.worker import rpc

        check_names(values)
        with self._lock:
            try:
                self._call(rpc.push, dict(values), processes=processes)
            except CellError as error:
                raise refusal_of(values) or error from None
            self._history.add(Push(dict(values), self._targets(processes)))

    def ask_idle(
        self,
        function: Callable[..., Any],
        *args: Any,
        processes: Sequence[int],
        within_s: float,
    ) -> dict[int, Any]:
        """Call one of mcnb's own functions in processes, if no cell runs.

        It is for what helps to write a cell, and costs no cell more than the time of one call.

        Args:
            function: Called with the process's shell, and the arguments. It launches nothing.
            args: The arguments.
            processes: The processes.
            within_s: How long to wait for the answers, in seconds.

        Returns:
            The answers, by process, of those processes that exist and answer in time; of a process
            in which the function raised an error, a `ProcessError`. None is asked while a cell
            runs, or while one has not answered the call before.
        """
        if not self._lock.acquire(blocking=False):
            return {}
        try:
            running = self._lifetime.processes
            wanted = [k for k in processes if 0 <= k < self.options.processes]
            if running is None or running.exits or self._execution is not None or not wanted:
                return {}
            if running.asked is not None and not running.asked.answered(0):
                return {}
            running.asked = running.client.call(function, *args, processes=wanted)
            running.asked.answered(within_s)
            return dict(running.asked.answers)
        finally:
            self._lock.release()

    def status(self) -> str:
        """Return a description of the cluster's size, platform and current activity."""
        processes = self._lifetime.processes
        unforked = processes.launcher.unforked if processes is not None else ""
        if unforked:
            unforked = (
                ". The processes are not forked, so each one imports JAX and the start takes "
                f"longer: {unforked}"
            )
        return f"{self.options.describe()}: {self._state()}{unforked}"

    def interrupt(self) -> bool:
        """Interrupt the running cell, from another thread; return whether there was one.

        Raises:
            ClusterError: The cluster is not running.
        """
        execution = self._execution
        if execution is not None:
            execution.interrupt()
        elif self._lifetime.processes is None:
            raise ClusterError(self._lifetime.absence_sentence())
        return execution is not None

    def stacks(self) -> str:
        """Return where the processes of the running cell are; to be called from another thread.

        For each process that has not finished the cell, these are the functions on the stack of its
        main thread, from the cell on; equal ones are shown once. Empty if no cell runs.
        """
        execution = self._execution
        return "" if execution is None else execution.stacks()

    def heal(self) -> str:
        """Reconnect the same processes, if they run but can't compute together.

        Variables are kept, with arrays, meshes and shardings on new devices; functions are compiled
        again.

        Returns:
            A description of the restored variables, in sentences.

        Raises:
            ClusterError: The cluster is not running, or could not be healed.
        """
        from mcnb.cluster.outcome import healing

        with self._lock:
            processes = self._lifetime.ready()
            healed: dict[int, Healed] = {}
            try:
                to_the_end(lambda: healed.update(processes.heal()))
            except ClusterError:
                self._lifetime.lose()
                raise
        return ". ".join(healing(healed, self.options.processes))

    @property
    def replayable(self) -> str:
        """The cells that `restart(replay=True)` runs again, in words."""
        return self.to_replay(True)

    def to_replay(self, replay: bool | str) -> str:
        """Return the cells that `restart(replay=replay)` runs again, in words.

        Raises:
            OptionError: The text in `replay` names no cells, or cells that have not run.
        """
        ranges = _ranges(replay)
        self._history.refuse(str(replay), ranges)
        return self._history.ahead(ranges)

    def restart(
        self,
        *,
        replay: bool | str = False,
        keep_going: bool = False,
        watcher: Watcher | None = None,
        tell: Callable[[str], object] | None = None,
    ) -> Result | None:
        """Restart the processes, with the same process indices and without variables.

        Args:
            replay: Whether to re-run, in order, the cells that ran without an error since the
                cluster was started or restarted, including those before a process died. The replay
                leaves out earlier versions of cells that were changed, and cells with the comment
                `# mcnb: no-replay`, and stops at the first cell that fails. A text names the cells
                to re-run, such as `"In[1-5]"`.
            keep_going: Whether to go on after a cell that fails.
            watcher: Called about ten times a second while a cell is re-run.
            tell: As for `start`; and called before each cell that is re-run.

        Returns:
            The result of the first cell that failed in the replay, or None.

        Raises:
            OptionError: The text in `replay` names no cells, or cells that have not run.
            ClusterError: The processes could not be started, or died in the replay; or mcnb did not
                start the processes, and so can't restart them.
        """
        ranges = _ranges(replay)
        self._history.refuse(str(replay), ranges)
        if not self.options.ours:
            raise ClusterError(
                "These processes were not started by mcnb. Restart them with the tool that "
                "started them; then: %mcjax connect"
            )
        with self._lock:
            self._history.ended()
            if self._lifetime.untouched:
                self._lifetime.ready()  # the processes are new and unused
            else:
                self._lifetime.end(Absence.RESTART_INTERRUPTED)
                self._lifetime.start(tell)
            if not replay:
                return None
            self.replay, failed = replayed(
                self._history,
                ranges,
                lambda cell: self._run(self._lifetime.ready(), cell, watcher, remembered=False),
                lambda push: self.push(push.values, push.targets),
                keep_going=keep_going,
                tell=tell or (lambda _: None),
            )
            return failed

    def stop(self) -> None:
        """End the processes; return when they have ended. Further calls do nothing."""
        with self._lock:
            self._history.ended()
            self._lifetime.end(Absence.STOPPED)

    def _targets(self, processes: str | int | Iterable[int] | None) -> tuple[int, ...]:
        count = self.options.processes
        return tuple(range(count)) if processes is None else process_set(processes, count)

    def _run(
        self,
        processes: Processes,
        cell: Cell,
        watcher: Watcher | None = None,
        debugger: Debugger | None = None,
        *,
        remembered: bool = True,
    ) -> Result:
        from mcnb.cluster.execution import Execution
        from mcnb.cluster.result import Result
        from mcnb.messages import Reply
        from mcnb.worker.cellcode import syntax_error

        error = syntax_error(cell.source, cell.label, cell.first_line)
        if error is not None:
            replies = {k: Reply(error=error) for k in cell.targets}
            self._ran = False
            self.last = Result(replies, self.options.processes)
            return self.last
        execution = self._execution = Execution(processes, watcher, debugger)
        with execution.catching_ctrl_c():
            try:
                self._ran = True
                self.last = execution.run(cell)
            except ClusterError as error:
                renewed = self._lifetime.lose()
                raise ClusterError(f"{str(error).rstrip('.')}. {renewed}") from None
            finally:
                self._execution = None
            self._take_note(self.last)
            if remembered and not execution.asked_by_ctrl_c:
                if self.last.ok:
                    self._history.add(cell)
                else:
                    self._history.leave_out(cell)
        if execution.asked_by_ctrl_c:
            raise KeyboardInterrupt
        execution.raise_debugger_error()
        return self.last

    def _call(
        self, function: Any, *args: Any, processes: str | int | Iterable[int] | None
    ) -> dict[int, Any]:
        result, values = self._called(function, *args, processes=processes)
        result.raise_for_errors()
        return values

    def _called(
        self, function: Any, *args: Any, processes: str | int | Iterable[int] | None
    ) -> tuple[Result, dict[int, Any]]:
        """Call one of mcnb's own functions in processes; return its result, and the values."""
        from mcnb.cluster.execution import Execution

        with self._lock:
            targets = self._targets(processes)
            execution = self._execution = Execution(self._lifetime.ready())
            with execution.catching_ctrl_c():
                try:
                    result, values = execution.call(function, args, targets)
                finally:
                    self._execution = None
                self._take_note(result)
            if execution.asked_by_ctrl_c:
                raise KeyboardInterrupt(result.aftermath)
            return result, values

    def _take_note(self, result: Result) -> None:
        if not result.outcome.intact:
            self._lifetime.lose()
        self._history.exclude(result.outcome.endless)

    def _state(self) -> str:
        execution = self._execution
        if execution is None:
            return self._lifetime.state()
        return f"running a cell. {execution.stage}" if execution.stage else "running a cell"


def _ranges(replay: bool | str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of the cells to replay; empty for all."""
    return cell_numbers(replay) if isinstance(replay, str) else ()


# The cluster that the magics control; None if there is no cluster yet.
current: Cluster | None = None


def current_cluster() -> Cluster:
    """Return the cluster that `%mcjax` and `%%mcjax` control.

    Raises:
        ClusterError: There is no cluster yet, or this is one of its processes.
    """
    if current is None:
        from mcnb.worker.shell import is_process

        if is_process():
            raise ClusterError(
                "The notebook kernel controls the cluster, and this cell runs on its processes. "
                "Give the call a cell without %%mcjax; with %mcjax auto on, begin that cell with "
                "%%here"
            )
        raise ClusterError("There is no cluster yet. Start one: %mcjax start -n 4 -d 2")
    return current
