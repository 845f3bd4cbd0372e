"""Define the magics `%mcjax` and `%%mcjax`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.display import display

from mcnb._cells import OFF, ON, is_implied, magic_first, with_magic
from mcnb._lessons import read_notebook, starts_processes
from mcnb._text import name_processes, plural
from mcnb.cluster import cluster as clusters
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.connecting import connect
from mcnb.cluster.notebooks import NotebookCell, NotebookRun, cells_of
from mcnb.cluster.result import Result
from mcnb.errors import CellError, ClusterError, LockstepError, OptionError
from mcnb.launchers.forkserver_client import close_idle
from mcnb.notebook.arrays import hint_on_array, spans, with_hint
from mcnb.notebook.assistance import Assistance
from mcnb.notebook.display import show, show_table, with_full_text_hint
from mcnb.notebook.live import (
    LiveView,
    OutputAbove,
    cell_id,
    is_hidden,
    place_of,
    somebody_looks,
)
from mcnb.notebook.names import hint_on_name, hint_on_place, holders
from mcnb.notebook.overview import refresh_soon
from mcnb.notebook.parsing import (
    AUTO,
    COMPARE,
    DEBUG,
    EXPRESSIONS,
    OPERANDS,
    PULL,
    PUSH,
    SentenceParser,
    cell_parser,
    first_process,
    names_of,
)
from mcnb.options import (
    CELL,
    LOCAL,
    RUN_FILE,
    Options,
    field_values,
    one_process,
    options_of,
    usage,
    whole_number,
)
from mcnb.output.log import log_text

_T = TypeVar("_T")
# How many frames above a line magic that of the cell is, whose variables IPython puts into lines.
_CELL_FRAME = 2
_A_STEP = "the number of a step"
HELP = ("--help", "-h", "help")
# A line that assigns what a command returns, and what that command is given.
_ASSIGNED = re.compile(rf"^[^#%\n]+=[ \t]*%mcjax[ \t]+{PULL}\b(.*)$", re.MULTILINE)
_IMPORTS_JAX = re.compile(r"^\s*(?:import|from)\s+jax\b", re.MULTILINE)


def imports_jax(cell: str) -> bool:
    r"""Return whether a cell of the notebook kernel imports JAX.

    Example:
        >>> imports_jax("x = 1\nimport jax.numpy as jnp"), imports_jax("%%mcjax\nimport jax")
        (True, False)
    """
    return not magic_first(cell).startswith("%%") and bool(_IMPORTS_JAX.search(cell))


def line_parser() -> SentenceParser:
    """Return the parser of the text after `%mcjax`."""
    parser = SentenceParser("%mcjax", options_of(*McjaxMagics._commands), McjaxMagics._commands)
    parser.add_argument("command", nargs="?", default="status")
    parser.add_argument("operand", nargs="?", default="")
    return parser


@magics_class
class McjaxMagics(Magics):
    """The magics, and the cluster that they control."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        # The number in the prompt of the running cell. execution_count can't be used: newer
        # versions of IPython increment it before the cell.
        self.number = max(int(shell.displayhook.prompt_count), 1)
        self.assistance = Assistance(shell, first_process, self._is_implied, self._commands)
        # Whether cells without a magic run on the processes, and whether the running cell is one.
        self.auto = False
        self._implied = False
        # The names whose values the running cell assigns, as they stand in its lines.
        self._assigned: set[str] = set()
        # Whether a cell runs. What it has IPython run in turn, as %%time does, belongs to it.
        self._runs = False
        self._above = OutputAbove()
        # Whether it was said that the notebook kernel has a JAX of its own.
        self._noted = False
        # IPython's events, and what is called then.
        self.followed = {"pre_run_cell": self.begin_cell, "post_run_cell": self.end_cell}

    def begin_cell(self, info: Any = None) -> None:
        """Count a cell that begins, also one without a history, which IPython does not count."""
        counted = getattr(info, "store_history", True)
        self.number = int(self.shell.displayhook.prompt_count) if counted else self.number + 1
        source = str(getattr(info, "raw_cell", ""))
        self._implied = self._is_implied(source)
        self._assigned = {found.strip() for found in _ASSIGNED.findall(source)}
        self._runs = True

    def _is_implied(self, cell: str) -> bool:
        """Return whether a cell runs on the processes because of `%mcjax auto on`."""
        return self.auto and not self._runs and not is_hidden(self.shell) and is_implied(cell)

    def transform(self, lines: list[str]) -> list[str]:
        """Put `%%mcjax` above the cells that it is implied for; a transformer of IPython's."""
        cell = "".join(lines)
        return with_magic(cell, auto=self._is_implied(cell)).splitlines(keepends=True)

    # Else an input in a terminal would end at a blank line only, as that of a cell magic does.
    transform.has_side_effects = True  # type: ignore[attr-defined]

    def end_cell(self, result: Any) -> None:
        """Say where a name is, if a cell of the notebook kernel lacks one of the processes'.

        And once, if such a cell imports JAX while there are processes.
        """
        self._runs = False
        refresh_soon(lambda: self._runs)
        error = result.error_in_exec
        cluster = clusters.current
        source = "" if self._implied else str(getattr(result.info, "raw_cell", ""))
        if cluster is not None and cluster.running and not self._noted and imports_jax(source):
            self._noted = somebody_looks(self.shell)
            if self._noted:
                count = plural(cluster.options.processes, "process", "processes")
                print(
                    "Note: this cell used the notebook kernel's own JAX, with devices of its own. "
                    f"To run a cell on the {count}, begin it with %%mcjax",
                    file=sys.stderr,
                    flush=True,
                )
        if type(error) is not NameError or cluster is None or not error.name:
            return
        if found := holders(cluster, error.name):
            who = name_processes(found, cluster.options.processes)
            hint = hint_on_place(error.name, who, source if self.auto else "")
            print(hint, file=sys.stderr, flush=True)

    @line_magic
    @no_var_expand
    def mcjax(self, line: str) -> Any:
        """Start, look at and stop the JAX processes that `%%mcjax` cells run on.

        Usage:
        {usage}

        Commands:
          start      start N JAX processes (default 4), each with D CPU devices (default 2), and
                     connect them to each other
          connect    connect to a running ipyparallel cluster, and make its engines JAX processes
                     that compute together
          run        run the cells of a notebook that was written for one process on all
                     processes: FILE.ipynb, Markdown, or Python with a cell after each "# %%"
          auto       on: run every cell on the processes, except those that begin with %%here,
                     another cell magic or %mcjax; off: only those that begin with %%mcjax
          status     show the state of the cluster; so does %mcjax alone
          last       show the output of the last cell again, for example after a reload of the page
          log        show the launches of the last cell that span processes
          vars       list the variables of the processes that hold data, and where they are the same
          compare    say where the variable NAME, or the value of an expression, differs
                     between the processes
          debug      look around, after an error, in its frames on one process, with the commands of
                     Python's debugger: those that you type, or only COMMAND, such as where or p x
          push       copy variables of the notebook kernel to all processes
          pull       copy variables of the processes to the notebook kernel: of each a dictionary
                     with the value on each process; under another name: y = %mcjax pull x
          timeline   draw what each process did in the last cell, and when: a lane for each process,
                     joined where processes launch a computation together
          interrupt  interrupt the running cell
          heal       reconnect the same processes; variables are kept
          restart    restart the processes; variables are lost
          stop       end the processes

        {options}

        Example:
          %mcjax start -n 4 -d 2
        """
        self._above.begin(self.shell, implied=self._implied, loaded=self._runs)
        words = line.split()
        if (len(words) == 1 and words[0] in HELP) or (len(words) == 2 and words[1] in HELP[:2]):
            self.shell.run_line_magic("pinfo", "%mcjax")
            return None
        parser = line_parser()
        if not line.lstrip().startswith(EXPRESSIONS):
            line = self.shell.var_expand(line, _CELL_FRAME)
        args = parser.parse(line)
        for option in parser.known:
            if getattr(args, option.name) and args.command not in option.commands:
                raise OptionError(
                    f"{parser.given}: {option.flags[-1]} is only accepted by %mcjax "
                    f"{option.commands[0]}. Help: %mcjax?"
                )
        return self._commands[args.command](self, args)

    @cell_magic("mcjax")
    def mcjax_cell(self, line: str, cell: str) -> None:
        """Run the cell on all JAX processes at once, and show their outputs as one.

        Usage:
        {usage}

        Identical output is shown once, labelled [all 4]; output that differs is labelled by
        process. If no cluster is running, a cluster of 4 processes with 2 CPU devices each is
        started.

        Options:
        {options}

        Example:
          %%mcjax
          import jax
          print(jax.process_index(), jax.local_devices())
        """
        self._above.begin(self.shell, implied=self._implied, loaded=self._runs)
        args = cell_parser().parse(line)
        live = self._live()
        cluster = clusters.current or self._started(Options())
        before = cluster.last
        first_line = 1 if self._implied else 2  # the first line may be the magic's own
        if cluster.recovering:
            live.show("The processes are being restarted. The cell runs when they are ready …")
        try:
            result = cluster.run(
                cell,
                processes=args.processes,
                label=str(self.number),
                first_line=first_line,
                **field_values(CELL, vars(args)),
                timeout=args.timeout,
                watcher=live,
                cell_id=cell_id(self.shell),
                debugger=_typing(live) if somebody_looks(self.shell) else None,
            )
        except KeyboardInterrupt:
            live.remove()
            if cluster.last is before:
                raise keyboard_interrupt("The cell did not run") from None
            raise self._interrupted(cluster.last) from None
        live.remove()
        if result.interrupted:
            raise self._interrupted(result)
        show(result)
        error = result.error()
        if error is not None:
            error.lines = with_full_text_hint(error.lines)
            hint = hint_on_name(
                result, self.shell.user_ns, functools.partial(holders, cluster)
            ) or hint_on_array(result, cell, first_line, functools.partial(spans, cluster))
            if hint:
                ends = result.aftermath if isinstance(error, LockstepError) else ""
                error.lines = with_hint(error.lines, hint, ends)
            raise error

    @cell_magic
    def here(self, line: str, cell: str) -> None:
        """Run the cell in the notebook kernel, also while `%mcjax auto` is on."""
        if line.strip():
            raise OptionError(f"%%here {line}: expected nothing after %%here")
        self.shell.run_cell(cell)  # a cell of the notebook arrives here only with such a line

    def _interrupted(self, result: Result | None) -> KeyboardInterrupt:
        """Show the output of an interrupted cell, and return the interrupt to raise."""
        assert result is not None
        show(result)
        why = result.aftermath or "The cell had ended before it could be interrupted"
        return keyboard_interrupt(why)

    def _live(self) -> LiveView:
        cluster = clusters.current
        count = Options().processes if cluster is None else cluster.options.processes
        return LiveView(count, place_of(self.shell, cluster, below=self._above.exists))

    def _start(self, args: Any) -> None:
        wanted = Options(**field_values("start", vars(args)))
        cluster = clusters.current
        if cluster is None or not cluster.running:
            self._started(wanted)
            print(f"Ready: {wanted.describe()}")
        elif cluster.options == wanted:
            print(f"Ready: {wanted.describe()} (already running)")
        else:
            alike = cluster.options.describe() == wanted.describe()
            raise _already_running(cluster, ", with other settings" if alike else "")

    def _started(self, options: Options) -> Cluster:
        """Start a cluster that the magics control."""
        cluster = Cluster.of(options)
        clusters.current = cluster
        self._while_starting(cluster, lambda _, tell: cluster.start(tell=tell))
        return cluster

    def _while_starting(
        self,
        cluster: Cluster,
        start: Callable[[LiveView, Callable[[str], object]], _T],
        then: str = "",
    ) -> _T:
        live = self._live()
        what = f"Starting {cluster.options.describe()}{then} …"
        live.show(what)

        def tell(text: str) -> None:
            live.title = text
            live.show(f"{what}\n{text}")

        try:
            return start(live, tell)
        except KeyboardInterrupt:
            raise keyboard_interrupt(_of_an_interrupted_start(cluster)) from None
        finally:
            live.remove()

    def _run_file(self, args: Any) -> None:
        if not args.operand:
            raise OptionError(
                "%mcjax run: the notebook's file is missing. For example: %mcjax run train.ipynb"
            )
        path = Path(args.operand).expanduser()
        if not path.is_file():
            raise OptionError(f"%mcjax run {args.operand}: there is no such file")
        notebook = read_notebook(path)
        if starts_processes(notebook):
            raise OptionError(
                f"%mcjax run {args.operand}: the notebook starts its own processes. Open it, or "
                f"run it in a terminal: mcnb run {args.operand}"
            )
        cells = cells_of(notebook, path.name)
        cluster = clusters.current or self._started(Options())
        run = NotebookRun(
            cluster,
            cells,
            path.name,
            prefix=f"{self.number}.",
            first_only=cluster.options.launcher == LOCAL,
        )
        # No live view: it would clear the output of the cells before.
        run.run(_show_prompted, _show_whole, timeout=args.timeout)
        lines = run.report(cluster.options.describe())
        print(flush=True)
        if run.interrupted:
            raise keyboard_interrupt(". ".join(lines))
        if run.failed:
            raise CellError(lines[0], lines)
        print("\n".join(lines))

    def _status(self, _: Any) -> None:
        cluster = clusters.current
        print("No cluster yet. Start one: %mcjax start" if cluster is None else cluster.status())

    def _interrupt(self, _: Any) -> None:
        ran = clusters.current_cluster().interrupt()
        print("The running cell is interrupted" if ran else "No cell runs")

    def _show_last(self, _: Any) -> None:
        _show_whole(self._last())

    def _log(self, args: Any) -> None:
        last = self._last()
        if last.launches:
            show_table(log_text(last.launches, last.count, full=args.full))
        else:
            print("The last cell launched nothing that spans processes")

    def _vars(self, _: Any) -> None:
        show_table(clusters.current_cluster().variables())

    def _auto(self, args: Any) -> None:
        if args.operand not in ("", ON, OFF):
            raise OptionError(
                f"%mcjax auto {args.operand}: expected on or off. For example: %mcjax auto on"
            )
        if args.operand:
            self.auto = args.operand == ON
        print(
            "Every cell runs on the processes, except those that begin with %%here, another cell "
            "magic or %mcjax"
            if self.auto
            else "Cells run in the notebook kernel, except those that begin with %%mcjax"
        )

    def _compare(self, args: Any) -> None:
        if not args.operand:
            raise OptionError(
                "%mcjax compare: the variable's name is missing. For example: %mcjax compare params"
            )
        print(clusters.current_cluster().compare(args.operand))

    def _debug(self, args: Any) -> None:
        cluster = clusters.current_cluster()
        count = cluster.options.processes
        process = None if args.process is None else one_process(args.process, count)
        if args.operand:
            print(cluster.debug(args.operand, process).text, end="")
            return
        if not somebody_looks(self.shell):
            raise OptionError(
                "%mcjax debug: nobody can type here. Give the command of the debugger with it, for "
                "example: %mcjax debug where"
            )
        k = cluster.failed_process() if process is None else process
        print(cluster.debug("where", k).text, end="", flush=True)
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            while True:
                answer = cluster.debug(input(_prompt(k)), k)
                print(answer.text, end="", flush=True)
                if answer.ended:
                    break

    def debugger(self, original: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Look at the processes, in place of IPython's `%debug`, if the error was theirs.

        A command of mcnb's that was refused since then has nothing to look at.
        """
        error, cluster = getattr(sys, "last_value", None), clusters.current
        last = None if cluster is None else cluster.last
        refused = isinstance(error, ClusterError) and last is not None and last.errors
        if cluster and (isinstance(error, CellError) or refused):
            return self._debug(line_parser().parse(DEBUG))
        return original(*args, **keywords)

    def _push(self, args: Any) -> None:
        names = names_of(PUSH, args.operand)
        for name in names:
            if name not in self.shell.user_ns:
                raise OptionError(
                    f"%mcjax push {args.operand}: {name} is not defined in the notebook kernel"
                )
        cluster = clusters.current_cluster()
        cluster.push({name: self.shell.user_ns[name] for name in names})
        everybody = name_processes(range(cluster.options.processes), cluster.options.processes)
        print(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} on {everybody} now")

    def _pull(self, args: Any) -> Any:
        names = names_of(PULL, args.operand)
        cluster = clusters.current_cluster()
        values = {name: cluster.pull(name) for name in names}
        if args.operand in self._assigned:
            return values[names[0]] if len(names) == 1 else tuple(values.values())
        for name in names:
            instead = ". It replaces what it was here before" * (name in self.shell.user_ns)
            print(
                f"{name}: a dictionary with the value on each process, such as {name}[0]{instead}"
            )
        self.shell.user_ns.update(values)
        return None

    def _timeline(self, args: Any) -> None:
        given = {"--step": args.step, "--from": getattr(args, "from"), "--to": args.to}
        numbers = {
            option: None if text is None else whole_number(option, text, _A_STEP, 10**9, 20)
            for option, text in given.items()
        }
        one, first, last = numbers.values()
        if one is not None and (first, last) != (None, None):
            raise OptionError(f"--step {one} is one step; for several, use --from and --to only")
        several = None if (first, last) == (None, None) else (first, last)
        steps = several if one is None else one
        display(self._last().timeline(order=args.order, steps=steps))

    def _last(self) -> Result:
        last = clusters.current_cluster().last
        if last is None:
            raise ClusterError("No cell has run yet. First run a cell that begins with %%mcjax")
        return last

    def _heal(self, _: Any) -> None:
        try:
            print(clusters.current_cluster().heal())
        except KeyboardInterrupt:
            why = "The interrupt had no effect: the cluster was healed"
            raise keyboard_interrupt(why) from None

    def _restart(self, args: Any) -> None:
        cluster = clusters.current_cluster()
        if args.keep_going and not args.replay:
            raise OptionError("%mcjax restart --keep-going: only with --replay. Help: %mcjax?")
        replay = args.replay or False
        aim = f", then replaying {cluster.to_replay(replay)}" if replay else ""
        failed = self._while_starting(
            cluster,
            lambda live, tell: cluster.restart(
                replay=replay, keep_going=args.keep_going, watcher=live, tell=tell
            ),
            aim,
        )
        if args.replay:
            print(cluster.replay)
        if failed is not None:
            show(failed)
            failed.raise_for_errors()
        what = "" if args.replay else ". The variables are lost"
        print(f"Ready: {cluster.options.describe()}{what}")

    def _connect(self, args: Any) -> None:
        cluster = clusters.current
        if cluster is not None and cluster.running:
            if cluster.options.ours:
                raise _already_running(cluster)
            print(f"Already connected: {cluster.options.describe()}")
            return
        joined = connect(**field_values("connect", vars(args)))
        clusters.current = joined
        print(f"Ready: {joined.options.describe()}")

    def _stop(self, _: Any) -> None:
        cluster = clusters.current_cluster()
        if not cluster.running:
            print(f"Nothing to stop: the cluster ({cluster.options.describe()}) has no processes")
            return
        try:
            cluster.stop()
        except KeyboardInterrupt:
            raise keyboard_interrupt(f"Stopped: {cluster.options.describe()}") from None
        if cluster.options.ours:
            print(f"Stopped: {cluster.options.describe()}")
        else:
            print(
                f"Disconnected from {cluster.options.describe()}. The processes still run, but "
                "you can't connect to them again. To end them: ipcluster stop"
            )

    _commands = {  # noqa: RUF012
        "start": _start,
        "connect": _connect,
        RUN_FILE: _run_file,
        AUTO: _auto,
        "status": _status,
        "last": _show_last,
        "log": _log,
        "vars": _vars,
        COMPARE: _compare,
        DEBUG: _debug,
        PUSH: _push,
        PULL: _pull,
        "timeline": _timeline,
        "interrupt": _interrupt,
        "heal": _heal,
        "restart": _restart,
        "stop": _stop,
    }


def _line_options() -> str:
    """Return the help on the options of `%mcjax`, grouped by command."""
    sections = []
    for command in McjaxMagics._commands:
        own = options_of(command)
        new = [option for option in own if option.commands[0] == command]
        shared = [option.flags[0] for option in own if option not in new]
        if new:
            also = f" (and {', '.join(shared)}, as above)" if shared else ""
            title = f"Option{'s' if len(own) > 1 else ''} of {command}{also}:"
            sections.append("\n".join([title, *(option.explain(option.flags) for option in new)]))
    return "\n\n".join(sections)


def _fill_in(magic: Callable[..., None], lines: Iterable[str], options: str) -> None:
    """Insert usage lines and the help on options into a magic's docstring, which is its help."""
    usages = textwrap.indent("\n".join(lines), "  ")
    magic.__doc__ = inspect.cleandoc(magic.__doc__ or "").format(usage=usages, options=options)


_fill_in(
    McjaxMagics.mcjax,
    [
        usage(f"%mcjax {command} {OPERANDS.get(command, '')}".rstrip(), command)
        for command in McjaxMagics._commands
    ],
    _line_options(),
)
_fill_in(
    McjaxMagics.mcjax_cell,
    [usage("%%mcjax", CELL)],
    "\n".join(option.explain(option.flags) for option in options_of(CELL)),
)


def _typing(live: LiveView) -> Callable[[int, str], str]:
    """Return what asks a person for a command to the debugger of a process that has stopped."""

    def ask(process: int, text: str) -> str:
        live.end_with(text)
        try:
            return input(_prompt(process))
        finally:
            live.begin_again()

    return ask


def _prompt(process: int) -> str:
    return f"process {process} (pdb) "


def _show_prompted(cell: NotebookCell) -> None:
    """Show a cell of another notebook, before its output."""
    print(f"\n{cell.prompted}", flush=True)


def _show_whole(result: Result) -> None:
    """Show a result with its error."""
    show(result)
    error = result.error()
    if error is not None:
        sys.stdout.flush()
        print("\n".join(with_full_text_hint(error.lines)), file=sys.stderr, flush=True)


def _already_running(cluster: Cluster, difference: str = "") -> ClusterError:
    return ClusterError(
        f"A cluster of {cluster.options.describe()} is already running{difference}. To start "
        "another one, stop this one first: %mcjax stop"
    )


def _of_an_interrupted_start(cluster: Cluster) -> str:
    """Describe the outcome of an interrupted start or restart."""
    if cluster.recovering:
        return "The processes are still being started. The next cell waits for them"
    if cluster.running and cluster.last is not None:
        aftermath = cluster.last.aftermath
        return "The replay was interrupted" + (f". {aftermath}" if aftermath else "")
    return (
        "The start was interrupted. The cluster has no processes and no variables. To start it: "
        "%mcjax start"
    )


def keyboard_interrupt(message: str) -> KeyboardInterrupt:
    """Return a KeyboardInterrupt that a notebook shows as this message alone."""
    interrupt = KeyboardInterrupt(message)
    # IPython shows these lines in place of a traceback through mcnb.
    lines = [f"KeyboardInterrupt: {message}"]
    interrupt._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    return interrupt


def register(shell: Any) -> None:
    """Register the magics in an IPython shell, with completion of their arguments."""
    magics = McjaxMagics(shell)
    shell.register_magics(magics)
    magics.assistance.install()
    shell.input_transformers_cleanup.append(magics.transform)
    shell.debugger = functools.partial(magics.debugger, shell.debugger)
    for event, call in magics.followed.items():
        shell.events.register(event, call)
    for parser, commands in ((line_parser(), McjaxMagics._commands), (cell_parser(), ())):
        words = [word for action in parser._actions for word in action.option_strings]
        words += commands
        shell.set_hook("complete_command", lambda _, __, words=words: words, str_key=parser.prog)


def unregister(shell: Any) -> None:
    """Stop the cluster and remove the magics."""
    cluster = clusters.current
    if cluster is not None:
        cluster.stop()
        clusters.current = None
    close_idle()
    magics = shell.magics_manager.registry.get(McjaxMagics.__name__)
    if magics is not None:
        with contextlib.suppress(ValueError):  # already unregistered
            for event, call in magics.followed.items():
                shell.events.unregister(event, call)
            magics.assistance.remove()
            shell.input_transformers_cleanup.remove(magics.transform)
            del shell.debugger  # the method is found again
    for kind, name in (("line", "mcjax"), ("cell", "mcjax"), ("cell", "here")):
        shell.magics_manager.magics[kind].pop(name, None)
