"""`%mcjax` and `%%mcjax`."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Container, Mapping
from typing import Any, NoReturn

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import display
from IPython.utils.process import arg_split

from mcnb.cluster import cluster as clusters
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.connect import connect
from mcnb.cluster.result import Result
from mcnb.errors import ClusterError, OptionError
from mcnb.launchers.forkserver_client import close_idle
from mcnb.messages import ProcessError
from mcnb.notebook.display import show
from mcnb.notebook.live import LiveView, somebody_looks
from mcnb.options import Options, environment, host_list
from mcnb.output.log import log_text


def missing_name(errors: Mapping[int, ProcessError], count: int, notebook: Container[str]) -> str:
    """Return what to do where all processes lack the same name; empty where that is not so.

    Args:
        errors: The errors that ended the cell, by process index.
        count: How many processes ran it.
        notebook: The names that the notebook's own Python knows.

    Example:
        >>> error = ProcessError("NameError", "name 'jnp' is not defined", 2, "", "jnp")
        >>> missing_name({0: error, 1: error}, 2, {})
        'Hint: run the cell first that defines jnp'
    """
    found = {error.undefined for error in errors.values()}
    if len(errors) < count or len(found) != 1 or "" in found:
        return ""
    (name,) = found
    if name in notebook:
        return (
            f"Hint: {name} is defined in the notebook's own Python, which is none of the "
            f"processes. Define it in a cell that begins with %%mcjax"
        )
    return f"Hint: run the cell first that defines {name}"


class SentenceParser(MagicArgumentParser):
    """A parser whose complaints are sentences: what was given, what is allowed, what to do."""

    def __init__(self, magic: str) -> None:
        super().__init__(prog=magic)
        self.allow_abbrev = False
        self.given = ""

    def options(self, command: str | None = None) -> list[str]:
        """Return the options' names, one for each; those of a command, if one is given."""
        return [
            action.option_strings[0]
            for action in self._actions
            if action.option_strings
            and (command not in _WITH_OPTIONS or command in OWNERS.get(action.dest, ()))
        ]

    def parse(self, line: str) -> Any:
        """Return the parsed line.

        Raises:
            OptionError: It can't be parsed.
        """
        self.given = f"{self.prog} {line}".strip()
        try:
            words = arg_split(line, posix=True, strict=True)
        except ValueError as error:  # a quote that is not closed
            raise OptionError(f"{self.given}: {error}. Help: {self.prog}?") from None
        args, unknown = self.parse_known_args(_joined(words))
        if unknown:
            command = getattr(args, "command", None)
            raise OptionError(
                f"{self.given}: there is no option {unknown[0]}. Options: "
                f"{', '.join(self.options(command))}. Help: {self.prog}?"
            )
        return args

    def error(self, message: str) -> NoReturn:
        """Raise an error of ours in place of argparse's."""
        complaint = message.removeprefix("argument ")
        raise OptionError(f"{self.given}: {complaint}. Help: {self.prog}?")


def _joined(words: list[str]) -> list[str]:
    """Return words with what follows `--options` joined to it: it begins with a dash, as a rule."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--options":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def cell_parser() -> SentenceParser:
    """Return the parser of what stands after `%%mcjax`."""
    parser = SentenceParser("%%mcjax")
    parser.add_argument("-p", "--processes", metavar="PROCESSES")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--timeout", metavar="SECONDS")
    return parser


def line_parser() -> SentenceParser:
    """Return the parser of what stands after `%mcjax`."""
    parser = SentenceParser("%mcjax")
    parser.add_argument("command", nargs="?", default="status")
    parser.add_argument("-n", "--processes")
    parser.add_argument("-d", "--devices")
    parser.add_argument("--platform")
    parser.add_argument("--env", action="append", metavar="NAME=VALUE")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--engines", metavar="LAUNCHER")
    parser.add_argument("--hosts", metavar="HOST,...")
    parser.add_argument("--options", metavar="'WORDS'")
    parser.add_argument("--listen", metavar="ADDRESS")
    parser.add_argument("--profile", metavar="PROFILE")
    parser.add_argument("--cluster-id", metavar="ID")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--order", action="store_true")
    return parser


# Which commands have an option.
OWNERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("processes", "platform", "engines", "hosts", "options"), ("start",)),
    **dict.fromkeys(("devices", "env", "unchecked", "listen"), ("start", "connect")),
    **dict.fromkeys(("profile", "cluster_id"), ("connect",)),
    "replay": ("restart",),
    "order": ("timeline",),
}
_WITH_OPTIONS = {owner for owners in OWNERS.values() for owner in owners}


@magics_class
class McjaxMagics(Magics):
    """The magics, and the cluster that they drive."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        # What stands in the prompt of the cell that runs. execution_count can't be asked: newer
        # versions of IPython count it up before the cell.
        self.number = max(int(shell.displayhook.prompt_count), 1)

    def begin_cell(self, info: Any = None) -> None:
        """Count a cell that begins: also where IPython does not, for one that keeps no history."""
        counted = getattr(info, "store_history", True)
        self.number = int(self.shell.displayhook.prompt_count) if counted else self.number + 1

    @line_magic
    def mcjax(self, line: str) -> None:
        """Start, look at and stop the JAX processes that `%%mcjax` cells run on.

        Usage:
          %mcjax start [-n PROCESSES] [-d DEVICES] [--platform P] [--env NAME=VALUE ...]
                       [--unchecked] [--engines LAUNCHER] [--hosts HOST,...] [--options 'WORDS']
                       [--listen ADDRESS]
          %mcjax connect [--profile PROFILE] [--cluster-id ID] [-d DEVICES] [--env NAME=VALUE ...]
                         [--unchecked] [--listen ADDRESS]
          %mcjax status
          %mcjax log
          %mcjax timeline [--order]
          %mcjax interrupt
          %mcjax heal
          %mcjax restart [--replay]
          %mcjax stop

        Commands:
          start      start PROCESSES JAX processes (default 4), each with DEVICES CPU devices
                     (default 2), and have them join into one system
          connect    make the engines of an ipyparallel cluster that runs already JAX processes of
                     one system
          status     say what runs; so does %mcjax alone
          log        show what the processes launched in the last cell that spans processes
          timeline   draw what the processes did in the last cell, and when: a lane for each, joined
                     where they launch something together
          interrupt  interrupt the cell that runs
          heal       have the same processes join anew, with their variables
          restart    end the processes and start as many anew; their variables are gone
          stop       end the processes

        Options of start:
          -n, --processes N   how many processes, 1 to 512
          -d, --devices D     how many devices each process has, 1 to 2048
          --platform P        cpu, or cuda: then the devices are NVIDIA's GPUs, and each process has
                              its own
          --env NAME=VALUE    an environment variable for the processes; may be repeated
          --unchecked         let launches go ahead without looking whether all processes are there

          --engines LAUNCHER  who starts the processes: local, or one of ipyparallel's launchers,
                              such as mpi, ssh, slurm, pbs, sge, lsf, htcondor
          --hosts HOST,...    on which hosts, for ssh: alice@one,two
          --options 'WORDS'   more options for the launcher's command: mpiexec, ssh, sbatch, ...
          --listen ADDRESS    at which of this machine's addresses processes of others reach it;
                              found out by default

        Options of connect, and -d, --env, --unchecked and --listen:
          --profile PROFILE   the IPython profile under which the cluster was started (default)
          --cluster-id ID     its id, where several run under one profile

        Option of timeline:
          --order             draw only the order of the launches, without times: the same on every
                              run

        Option of restart:
          --replay            run the cells again that had succeeded, up to the first that fails

        Example:
          %mcjax start -n 4 -d 2
        """
        parser = line_parser()
        args = parser.parse(line)
        command = self._commands.get(args.command)
        if command is None:
            close = difflib.get_close_matches(args.command, self._commands, 1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise OptionError(
                f"{parser.given}: there is no command {args.command}.{hint} "
                f"Commands: {', '.join(self._commands)}. Help: %mcjax?"
            )
        for option, owners in OWNERS.items():
            if getattr(args, option) and args.command not in owners:
                raise OptionError(
                    f"{parser.given}: the option --{option.replace('_', '-')} belongs to %mcjax "
                    f"{owners[0]}. Help: %mcjax?"
                )
        command(self, args)

    @cell_magic("mcjax")
    def mcjax_cell(self, line: str, cell: str) -> None:
        """Run the cell on all JAX processes at once, and show their outputs as one.

        Usage:
          %%mcjax [-p PROCESSES] [--unchecked] [--timeout SECONDS]

        What all processes say is shown once and labelled [all 4]; what they say differently is
        shown for each, in order. Where no cluster runs yet, one of 4 processes with 2 CPU devices
        each is started.

        Options:
          -p, --processes LIST  run the cell on these processes only, such as 0 or 0,2-3
          --unchecked           let launches go ahead without looking whether all processes are
                                there, to see what becomes of processes that part
          --timeout SECONDS     end the cell when it has taken so long

        Example:
          %%mcjax
          import jax
          print(jax.process_index(), jax.local_devices())
        """
        args = cell_parser().parse(line)
        live = self._live()
        cluster = clusters.current()
        if cluster is None:
            cluster = Cluster()
            clusters.set_current(cluster)
            self._while_starting(cluster, lambda _: cluster.start())
        before = cluster.last
        if cluster.recovering:
            live.show("The processes are being restarted. The cell runs when they are ready …")
        try:
            result = cluster.run(
                cell,
                processes=args.processes,
                label=str(self.number),
                first_line=2,  # the magic's own line is the first
                checked=False if args.unchecked else None,
                timeout=args.timeout,
                watcher=live,
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
            if hint := missing_name(result.errors, len(result.replies), self.shell.user_ns):
                error.lines += ["", hint]
            raise error

    def _interrupted(self, result: Result | None) -> KeyboardInterrupt:
        """Show what an interrupted cell said until then, and return the interrupt to raise."""
        assert result is not None
        show(result)
        return keyboard_interrupt(
            result.aftermath or "The cell had ended before it could be interrupted"
        )

    def _live(self) -> LiveView:
        cluster = clusters.current()
        count = Options().processes if cluster is None else cluster.options.processes
        return LiveView(count, somebody_looks(self.shell))

    def _start(self, args: Any) -> None:
        given = {
            "processes": args.processes,
            "devices_per_process": args.devices,
            "platform": args.platform,
            "env": environment(args.env) if args.env else None,
            "checked": False if args.unchecked else None,
            "engines": args.engines,
            "hosts": host_list(args.hosts) if args.hosts else None,
            "launcher_options": args.options,
            "listen": args.listen,
        }
        wanted = Options.of(**given)
        cluster = clusters.current()
        if cluster is not None and cluster.running:
            if cluster.options != wanted:
                raise ClusterError(
                    f"A cluster of {cluster.options.describe()} runs already"
                    + (
                        ""
                        if cluster.options.describe() != wanted.describe()
                        else ", with other settings"
                    )
                    + ". To have another, first: %mcjax stop"
                )
            print(f"Ready: {cluster.options.describe()}, running already")
            return
        cluster = Cluster.of(wanted)
        clusters.set_current(cluster)
        self._while_starting(cluster, lambda _: cluster.start())
        print(f"Ready: {wanted.describe()}")

    def _while_starting(
        self, cluster: Cluster, start: Callable[[LiveView], None], then: str = ""
    ) -> None:
        live = self._live()
        live.show(f"Starting {cluster.options.describe()}{then} …")
        try:
            start(live)
        except KeyboardInterrupt:
            raise keyboard_interrupt(_of_an_interrupted_start(cluster)) from None
        finally:
            live.remove()

    def _status(self, _: Any) -> None:
        cluster = clusters.current()
        print("No cluster yet. Start one: %mcjax start" if cluster is None else cluster.status())

    def _interrupt(self, _: Any) -> None:
        clusters.current_cluster().interrupt()

    def _log(self, _: Any) -> None:
        last = self._last()
        if not last.launches:
            print("The last cell launched nothing that spans processes")
            return
        print(log_text(last.launches, last.count))

    def _timeline(self, args: Any) -> None:
        display(self._last().timeline(order=args.order))

    def _last(self) -> Result:
        last = clusters.current_cluster().last
        if last is None:
            raise ClusterError("No cell has run yet. Run one that computes: %%mcjax")
        return last

    def _heal(self, _: Any) -> None:
        try:
            print(clusters.current_cluster().heal())
        except KeyboardInterrupt:
            raise keyboard_interrupt("The cluster was healed all the same") from None

    def _restart(self, args: Any) -> None:
        cluster = clusters.current_cluster()
        failed: list[Result | None] = []
        aim = f", then replaying {cluster.replayable}" if args.replay else ""
        self._while_starting(
            cluster,
            lambda live: failed.append(cluster.restart(replay=args.replay, watcher=live)),
            aim,
        )
        if args.replay:
            print(cluster.replay)
        if failed[0] is not None:
            show(failed[0])
            failed[0].raise_for_errors()
        what = "with" if args.replay else "without"
        print(f"Ready: {cluster.options.describe()}, {what} variables")

    def _connect(self, args: Any) -> None:
        cluster = clusters.current()
        if cluster is not None and cluster.running and not cluster.options.ours:
            print(f"Connected already: {cluster.options.describe()}")
            return
        if cluster is not None and cluster.running:
            raise ClusterError(
                f"A cluster of {cluster.options.describe()} runs already. To have another, first: "
                "%mcjax stop"
            )
        given = {
            "profile": args.profile,
            "cluster_id": args.cluster_id,
            "devices_per_process": args.devices,
            "env": environment(args.env) if args.env else None,
            "checked": False if args.unchecked else None,
            "listen": args.listen,
        }
        joined = connect(**{name: v for name, v in given.items() if v is not None})
        clusters.set_current(joined)
        print(f"Ready: {joined.options.describe()}")

    def _stop(self, _: Any) -> None:
        cluster = clusters.current_cluster()
        if not cluster.running:
            print(f"Nothing to stop. {cluster.status()}")
            return
        try:
            cluster.stop()
        except KeyboardInterrupt:
            raise keyboard_interrupt(f"Stopped: {cluster.options.describe()}") from None
        if cluster.options.ours:
            print(f"Stopped: {cluster.options.describe()}")
        else:
            print(
                f"Left: {cluster.options.describe()}. They run on, and can't be connected again; "
                "ipcluster stop ends them"
            )

    _commands = {  # noqa: RUF012
        "start": _start,
        "connect": _connect,
        "status": _status,
        "log": _log,
        "timeline": _timeline,
        "interrupt": _interrupt,
        "heal": _heal,
        "restart": _restart,
        "stop": _stop,
    }


def _of_an_interrupted_start(cluster: Cluster) -> str:
    """Say what came of a start, or of a restart, that was interrupted."""
    if cluster.recovering:
        return "The processes are still being started. The next cell waits for them"
    if cluster.running and cluster.last is not None:
        aftermath = cluster.last.aftermath
        return "The replay was interrupted" + (f". {aftermath}" if aftermath else "")
    return "The start was interrupted: no process of the cluster is left, and no variable"


def keyboard_interrupt(message: str) -> KeyboardInterrupt:
    """Return a KeyboardInterrupt that a notebook shows as this message alone."""
    interrupt = KeyboardInterrupt(message)
    # IPython shows this in place of a traceback through mcnb.
    interrupt._render_traceback_ = lambda: [  # type: ignore[attr-defined]
        f"KeyboardInterrupt: {message}"
    ]
    return interrupt


def register(shell: Any) -> None:
    """Register the magics in an IPython shell, with completion of what stands after them."""
    magics = McjaxMagics(shell)
    shell.register_magics(magics)
    shell.events.register("pre_run_cell", magics.begin_cell)
    for key, parser in (("%mcjax", line_parser()), ("%%mcjax", cell_parser())):
        words = [word for action in parser._actions for word in action.option_strings]
        if key == "%mcjax":
            words += McjaxMagics._commands
        shell.set_hook("complete_command", lambda _, __, words=words: words, str_key=key)


def unregister(shell: Any) -> None:
    """Stop the cluster and take the magics away."""
    cluster = clusters.current()
    if cluster is not None:
        cluster.stop()
        clusters.set_current(None)
    close_idle()
    magics = shell.magics_manager.registry.get(McjaxMagics.__name__)
    if magics is not None:
        with contextlib.suppress(ValueError):  # it is there once
            shell.events.unregister("pre_run_cell", magics.begin_cell)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("mcjax", None)
