"""Describe launches, the states of processes, and verdicts as plain data."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation of a compiled program.

    Attributes:
        kind: XLA's name for it, such as `"all-reduce"`.
        bytes: The size of its result on each device, in bytes.
        groups: The groups of processes whose devices communicate, each as a tuple.
    """

    kind: str
    bytes: int
    groups: tuple[tuple[int, ...], ...] = ()


# How the programs of barriers begin; those of computations are digests.
_BARRIER = "barrier "


@dataclass(frozen=True, slots=True)
class Launch:
    """A compiled computation that a process is about to run, or a barrier; see `barrier`.

    Attributes:
        name: The name that the learner knows, such as `"jit(matmul)"` or `"device_put"`.
        program: Equal for two launches if and only if they run the same compiled program on the
            same devices in the same order; see also `same`.
        participants: The processes that must launch it together, by index, ascending. A single
            participant does not wait.
        arguments: The arguments' types and global shapes, such as `"f32[512,256]"`.
        shardings: The shardings of the arguments, such as `"P('a', None)"`.
        mesh: The mesh, such as `"'a': 4, 'b': 2"`.
        devices: The devices in the program's order, each as process and local position, such as
            `"P0.0 P0.1 P1.0 P1.1"`.
        collectives: Its collective operations, in the program's order.
        lowered: Equal for two launches if JAX lowered them to the same program, from which XLA may
            have compiled different ones; empty if unknown.
        donated: The arguments whose memory is used for results, by position.
        label: The name of the barrier, as Python writes it, if the computation is the one of
            `jax.experimental.multihost_utils.sync_global_devices`. Processes that pass different
            names do not meet.
        cause: Where what it computes begins to differ from process to process, as a sentence; empty
            if that is not known. It is searched only for launches that do not communicate, though
            they run on several processes.
    """

    name: str
    program: str
    participants: tuple[int, ...]
    arguments: tuple[str, ...] = ()
    shardings: tuple[str, ...] = ()
    mesh: str = ""
    devices: str = ""
    collectives: tuple[Collective, ...] = ()
    lowered: str = ""
    donated: tuple[int, ...] = ()
    label: str = ""
    cause: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.title if self.label else " ".join((self.name, *self.arguments))

    @property
    def title(self) -> str:
        """The name, with the label if it has one.

        Example:
            >>> Launch("sync_global_devices", "1", (0, 1), label="'saved'").title
            "sync_global_devices('saved')"
        """
        return f"{self.name}({self.label})" if self.label else self.name

    def brief(self, most: int = 36, keep: Container[int] = ()) -> str:
        """Return the name, as many arguments as fit, and the number of others in their place.

        Args:
            most: The most characters for the arguments.
            keep: The positions of arguments that are shown in any case.

        Example:
            >>> launch = Launch("jit(f)", "1", (0, 1), arguments=("f32[784,64]",) * 9)
            >>> launch.brief()
            'jit(f) f32[784,64] f32[784,64] f32[784,64] +6'
            >>> launch.brief(most=11, keep=[7])
            'jit(f) f32[784,64] +6 f32[784,64] +1'
        """
        shown, hidden, used = [self.name], 0, -1
        for position, argument in enumerate(self.arguments):
            used += 1 + len(argument)
            if used > most and position not in keep:
                hidden += 1
                continue
            if hidden:
                shown.append(f"+{hidden}")
            shown.append(argument)
            hidden = 0
        return " ".join([*shown, f"+{hidden}"] if hidden else shown)

    @classmethod
    def barrier(cls, name: str, participants: Iterable[int]) -> Self:
        """Return what stands for a barrier of the coordination service, which is no computation.

        Args:
            name: The barrier's name.
            participants: The processes that meet at the barrier.

        Example:
            >>> barrier = Launch.barrier("saved", [1, 0])
            >>> barrier.name, barrier.participants, barrier.is_barrier
            ("wait_at_barrier('saved')", (0, 1), True)
        """
        meet = tuple(sorted(participants))
        return cls(f"wait_at_barrier({name!r})", f"{_BARRIER}{name}", meet)

    @property
    def is_barrier(self) -> bool:
        """Whether this is no computation, but a barrier of the coordination service."""
        return self.program.startswith(_BARRIER)

    @property
    def communicates(self) -> bool:
        """Whether the launch involves other processes."""
        return len(self.participants) > 1

    @property
    def processes(self) -> set[int]:
        """The processes on whose devices it runs, whether or not they communicate.

        Example:
            >>> sorted(Launch("jit(f)", "1", (0,), devices="P0.0 P0.1 P2.0").processes)
            [0, 2]
        """
        return {int(name[1:].partition(".")[0]) for name in self.devices.split()}

    @staticmethod
    def differing(launches: Sequence[Launch]) -> list[int] | None:
        """Return at which positions launches of one function have different arguments.

        Return None if they are launches of several functions, or have more or fewer arguments.

        Example:
            >>> f = Launch("jit(f)", "1", (0, 1), ("f32[8]", "f32[30,8]"))
            >>> Launch.differing([f, Launch("jit(f)", "2", (0, 1), ("f32[8]", "f32[32,8]"))])
            [1]
        """
        if len({(one.name, len(one.arguments)) for one in launches}) > 1:
            return None
        each = zip(*(one.arguments for one in launches), strict=True)
        return [position for position, texts in enumerate(each) if len({*texts}) > 1]

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Return the launch from which `dataclasses.asdict` made the data."""
        collectives = tuple(
            Collective(c["kind"], c["bytes"], tuple(map(tuple, c["groups"])))
            for c in data["collectives"]
        )
        names = ("participants", "arguments", "shardings", "donated")
        tuples = {name: tuple(data[name]) for name in names}
        return cls(**{**data, **tuples, "collectives": collectives})


# The most launches that a process records for one cell.
MOST_RECORDS = 100_000


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A launch that a process made, or waited at.

    Attributes:
        process: The process's index.
        launch: The launch.
        line: The line of the cell, or of the script, or None.
        announced: The time of its announcement, on the machine's monotonic clock, in seconds.
        began: The time when all participants had reached it and it began; None if it never did.
        place: The file and line, if the place is not in the cell itself.
    """

    process: int
    launch: Launch
    line: int | None
    announced: float
    began: float | None
    place: str = ""

    @property
    def waited(self) -> float:
        """The time for which the launch waited for other processes, in seconds."""
        return 0.0 if self.began is None else self.began - self.announced


class ExitSource(StrEnum):
    """The source of the information on how a process ended."""

    OBSERVED = "observed"  # its parent process saw it end
    LAUNCHER = "launcher"  # srun, mpirun or ssh reported it
    SLURM = "slurm"  # Slurm ended the whole job
    DISCONNECTED = "disconnected"  # its ssh connection broke
    FOLLOWED = "followed"  # it ended after another process did, and nothing more is known
    NOT_STARTED = "not started"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LastLaunch:
    """The last launch with other processes that a process announced before it ended.

    Attributes:
        name: The name of the launch.
        where: The line, in words; empty if it is not known.
        made: Whether the process made the launch; otherwise, it waited for other processes.
        times: How often it has reached that line in the cell, if the line itself makes the launch.
    """

    name: str
    where: str
    made: bool
    times: int = 1


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The exit of a process.

    Attributes:
        source: The source of this information.
        status: The exit code, or minus the signal that killed the process; None if not known.
        reason: The reason, if there is no status. For a process that was not started: the error.
            For Slurm: `"cancelled"`, `"time limit"`, `"preempted"` or `"node failure"`. For a
            broken connection: the host. For another launcher: its message.
        line: The line of the cell at which the process crashed, or None.
        last: The last launch with other processes in the cell, if the line is not known, and there
            was one.
    """

    source: ExitSource = ExitSource.UNKNOWN
    status: int | None = None
    reason: str = ""
    line: int | None = None
    last: LastLaunch | None = None


Kind: TypeAlias = Literal["mismatch", "missing", "not invited", "cycle", "died", "stalled"]
Happened: TypeAlias = Literal["", "hung", "crashed", "failed", "returned"]
Doing: TypeAlias = Literal[
    "runs", "hangs", "waits", "finished", "raised", "left", "died", "not invited"
]


@dataclass(frozen=True, slots=True)
class SharedValue:
    """A process's value of what should be equal on several processes, and is not.

    Attributes:
        argument: The position of the argument of the launch.
        index: An index at which the values differ; empty for a scalar, or if not known.
        text: The value as text.
    """

    argument: int
    index: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class UnequalInput:
    """A value that processes passed to the same launch, and that is not equal on all of them.

    Attributes:
        launch: The launch, which involves no communication.
        name: The name of the argument, or its position.
        where: The line of the launch, in words.
        values: The value of each process.
    """

    launch: Launch
    name: str
    where: str
    values: Mapping[int, SharedValue]


@dataclass(frozen=True, slots=True)
class Caught:
    """Exceptions of one type, from one line, that the learner's code caught.

    Attributes:
        text: The last of them, in one line.
        error: The name of their type.
        place: The line, in words; empty if it is not the learner's.
        times: How many there were.
        launches: The number of launches that the process made after the last of them.
    """

    text: str
    error: str
    place: str
    times: int
    launches: int

    @classmethod
    def all_from_data(cls, data: Iterable[Mapping[str, Any]]) -> tuple[Self, ...]:
        """Return those of which `dataclasses.asdict` made the data."""
        return tuple(cls(**one) for one in data)


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of a process in a cell.

    Attributes:
        doing: `"waits"`: at a launch that other processes must make, too. `"runs"`: its own code.
            `"hangs"`: inside a computation, or in a wait of JAX's own. `"finished"`, `"raised"`,
            `"left"` and `"died"`: the end of its cell. `"not invited"`: it was not given the cell.
        launch: The launch at which it waits, or for which it received a verdict.
        line: The line of that launch in the cell or the script.
        place: File and line, for a script: `"train.py:7"`.
        launches: The number of its launches in this cell with the participants of that launch; if
            it does not wait, with those of the first process that does.
        error: The text of its error, if it raised one.
        exit: How it ended, if it died.
        value: Its value of a replicated argument of the launch, if the processes' values differ.
        visits: The number of its earlier launches from the stack of the first process that waits.
        times: The number of its earlier launches from the line at which it waits; if it does not
            wait, from that of the first process that does.
        caught: The exceptions that it caught, from the newest, if it has ended.
    """

    doing: Doing
    launch: Launch | None = None
    line: int | None = None
    place: str = ""
    launches: int = 0
    error: str = ""
    exit: ProcessExit | None = None
    value: SharedValue | None = None
    visits: int = 0
    times: int = 0
    caught: tuple[Caught, ...] = ()

    @property
    def where(self) -> str:
        """The line in words; empty if it is not known."""
        return self.place or ("" if self.line is None else f"line {self.line}")


@dataclass(frozen=True, slots=True)
class Meeting:
    """A launch that processes made together from different lines.

    Attributes:
        launch: The launch.
        number: The number of this launch among those of the same name and participants.
        lines: The outermost line of each process that is not the same on all, by process.
        own: The line of each process's launch, by process.
        stacks: All lines on each process's stack, from the outermost, by process.
    """

    launch: Launch
    number: int
    lines: Mapping[int, str]
    own: Mapping[int, str]
    stacks: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Race:
    """Two launches that processes announced in different orders, each from two threads.

    They are made in one order, because each was held until all its participants had announced it.

    Attributes:
        process: A process that announced the first launch before the second one.
        others: The processes that had announced the second launch, and not yet the first one.
        names: The names of the two launches.
        lines: The lines of the two launches, on `process`.
    """

    process: int
    others: tuple[int, ...]
    names: tuple[str, str]
    lines: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition around a launch that depends on the process.

    Attributes:
        words: The condition, in Python.
        at: The line of the condition.
        line: The line that runs only if the condition holds, if it is not the launch's own, but on
            the way to it, or from it.
        asks: The line in a function or a module that the condition refers to, where it begins to
            depend on the process, if it does so elsewhere.
        loops: The number of loops around the launch that are inside the condition.
        near: Whether the condition is found at a glance: it stands where that line is, or on the
            line before.
        part: The part of the condition that depends on the process, if the rest does not.
        leaves: "return" or "exit", if the line is not inside the condition's block, but after it,
            and others leave there.
        within: Whether that line is called by the launch's own, which is then one of a cell.
    """

    words: str
    at: str = ""
    line: str = ""
    asks: str = ""
    loops: int = 0
    near: bool = True
    part: str = ""
    leaves: str = ""
    within: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """A name on a line of a stack, and what it refers to in one process.

    Attributes:
        place: The line.
        name: The name, or an attribute of one, as in `self.log`.
        value: Its value or its type, in words.
        asks: The line where it begins to depend on the process; empty if it does not.
    """

    place: str
    name: str
    value: str
    asks: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value begins to differ from process to process.

    The value is an argument of a launch, decides how often a loop runs, or is used by the function
    that is launched.

    Attributes:
        name: What the learner's code calls the value, or the function.
        place: The line.
        source: The line of source.
        of_elements: Whether only its elements differ there, and not its shape.
    """

    name: str
    place: str
    source: str = ""
    of_elements: bool = False


@dataclass(frozen=True, slots=True)
class Detail:
    """The details of a launch that only its process knows, requested when needed.

    Attributes:
        source: The line of source of the launch.
        conditions: The conditions around that line, and around the lines that call it, that depend
            on the process, from the innermost.
        loops: The first lines of the loops around these lines, from the innermost.
        skip: The line of source in the innermost loop that may skip the launch, if any.
        loops_at: The line of each loop; empty for one that is found at a glance.
        loops_from: For each loop, where what decides how often it runs the launch begins to differ
            from process to process; None if it does not, or on a line that is shown anyway.
        skip_at: The line that may skip the launch.
        skip_ends: Whether that line may end the loop, so that it skips all further launches.
        variables: What the names on these lines refer to, from the innermost line.
        caught: The exceptions that the process caught before, from the newest.
        origins: Where arguments of the function begin to differ from process to process, by
            parameter; `""` stands for the only one that does, of whatever parameter.
        inside: Where what the function computes begins to differ from process to process; None if
            that is not known.
        library: The function of a library that the learner calls there, in the learner's words, if
            a library other than JAX makes the launch.
        static: Static arguments of the function, by name, as text; None if they are not known.
        program: The compiled program, line by line.
        names: The names of the arguments, in the learner's words where JAX has its own.
        passed: The learner's expressions for arguments of the function, by its name in `names`.
        handling: The exception that the learner's code handles there, with its place, if any.
        before: The conditions around the lines of the launch at which processes parted, from the
            innermost; see `Verdict.parted`.
        direct: Whether none of these lines is called by a library, which may have loops of its own.
        ended: How the test ended after which a process of a suite waits, as the end of a sentence
            about the test; empty if it passed.
    """

    source: str = ""
    conditions: tuple[Condition, ...] = ()
    loops: tuple[str, ...] = ()
    skip: str = ""
    static: Mapping[str, str] | None = None
    program: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    handling: str = ""
    before: tuple[Condition, ...] = ()
    direct: bool = True
    loops_at: tuple[str, ...] = ()
    loops_from: tuple[Origin | None, ...] = ()
    skip_at: str = ""
    skip_ends: bool = False
    variables: tuple[Variable, ...] = ()
    library: str = ""
    passed: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    inside: Origin | None = None
    caught: tuple[Caught, ...] = ()
    ended: str = ""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the detail from which `dataclasses.asdict` made the data."""
        tuples = {name: tuple(data[name]) for name in ("loops", "loops_at", "program", "names")}
        conditions = {
            name: tuple(Condition(**one) for one in data[name]) for name in ("conditions", "before")
        }
        variables = tuple(Variable(**one) for one in data["variables"])
        origins = {name: Origin(**one) for name, one in data["origins"].items()}
        found = {
            "variables": variables,
            "caught": Caught.all_from_data(data["caught"]),
            "origins": origins,
            "inside": data["inside"] and Origin(**data["inside"]),
            "loops_from": tuple(one and Origin(**one) for one in data["loops_from"]),
        }
        return cls(**{**data, **tuples, **conditions, **found})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The finding that processes diverged, and how.

    Attributes:
        kind: `"mismatch"`: they wait at different launches, or at a launch with different values of
            a replicated argument. `"missing"`: a participant has ended.
            `"not invited"`: a participant was not given the cell. `"cycle"`: they wait for each
            other in a ring. `"died"`: a process died. `"stalled"`: nothing is proven, and the user
            or a time limit ended the cell.
        states: The states of the processes that are involved, by process index.
        ring: For a cycle, processes each of which waits for the next, and the last for the first.
        details: The details that processes sent of their launches, by process index.
        happened: The outcome with the check off: the cell `"hung"` and was aborted, it `"crashed"`
            a process, it `"failed"` with an error, or it `"returned"` values that no correct run
            returns.
        parted: The launch from which on the processes that are involved may have paired off
            launches of different steps, if one of them has already made, with others, the launch
            for which another one waits.
        over: Whether the processes have caught the verdict, and then made a launch together.
    """

    kind: Kind
    states: Mapping[int, ProcessState]
    ring: tuple[int, ...] = ()
    details: Mapping[int, Detail] = field(default_factory=dict)
    happened: Happened = ""
    parted: Meeting | None = None
    over: bool = False

    @property
    def only_names(self) -> bool:
        """Whether all meet at JAX's barrier, and only the names that they pass to it differ.

        Processes that have not arrived yet do not count.

        Example:
            >>> each = [Launch("sync_global_devices", "1", (0, 1), label=one) for one in "ab"]
            >>> states = {k: ProcessState("waits", one) for k, one in enumerate(each)}
            >>> states[2] = ProcessState("runs")
            >>> Verdict("mismatch", states).only_names, Verdict("missing", states).only_names
            (True, False)
        """
        launches = [state.launch for state in self.states.values() if state.doing != "runs"]
        met = {(one.name, one.program) if one and one.label else None for one in launches}
        return self.kind == "mismatch" and len(met) == 1 and None not in met
