"""What a process announces before it launches a computation: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective operation of a compiled program.

    Attributes:
        kind: XLA's name for it, such as `"all-reduce"`.
        bytes: The size of its result on each device, in bytes.
        groups: The processes whose devices take part together, one tuple for each group.
    """

    kind: str
    bytes: int
    groups: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """A compiled computation that a process is about to run.

    Attributes:
        name: What the learner knows it by, such as `"jit(matmul)"` or `"device_put"`.
        program: Equal for two launches if and only if they run the same compiled program on the
            same devices in the same order.
        participants: The processes that have to launch it together, by index, ascending. Where
            it is only one, nobody has to wait.
        arguments: The arguments' types and global shapes, such as `"f32[512,256]"`.
        shardings: How the arguments are sharded, such as `"P('a', None)"`.
        mesh: The mesh, such as `"'a': 4, 'b': 2"`.
        devices: The devices in the program's order, each as process and local position, such as
            `"P0.0 P0.1 P1.0 P1.1"`.
        collectives: What it communicates, in the program's order.
    """

    name: str
    program: str
    participants: tuple[int, ...]
    arguments: tuple[str, ...] = ()
    shardings: tuple[str, ...] = ()
    mesh: str = ""
    devices: str = ""
    collectives: tuple[Collective, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.name, *self.arguments))

    def brief(self, most: int = 36) -> str:
        """Return it with as many of its arguments as fit, and how many more there are.

        Args:
            most: How many characters the arguments may take.

        Example:
            >>> Launch("jit(f)", "1", (0, 1), arguments=("f32[784,64]",) * 9).brief()
            'jit(f) f32[784,64] f32[784,64] f32[784,64] +6'
        """
        shown = [self.name]
        for number, argument in enumerate(self.arguments):
            if len(" ".join([*shown[1:], argument])) > most:
                return " ".join([*shown, f"+{len(self.arguments) - number}"])
            shown.append(argument)
        return " ".join(shown)

    @property
    def communicates(self) -> bool:
        """Whether it needs other processes."""
        return len(self.participants) > 1

    def as_data(self) -> dict[str, Any]:
        """Return it as data that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Return what `as_data` was made from."""
        collectives = tuple(
            Collective(c["kind"], c["bytes"], tuple(map(tuple, c["groups"])))
            for c in data["collectives"]
        )
        tuples = {name: tuple(data[name]) for name in ("participants", "arguments", "shardings")}
        return cls(**{**data, **tuples, "collectives": collectives})


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A launch that a process made, or stood at.

    Attributes:
        process: The process's index.
        launch: What it launched.
        line: The line of the cell, or of the script, or None.
        announced: When it was announced, on the monotonic clock of the machine, in seconds.
        began: When its participants had all come and it began; None if they never did.
    """

    process: int
    launch: Launch
    line: int | None
    announced: float
    began: float | None

    @property
    def waited(self) -> float:
        """For how long it waited for other processes, in seconds."""
        return 0.0 if self.began is None else self.began - self.announced


class ExitSource(StrEnum):
    """Where it is known from how a process ended."""

    OBSERVED = "observed"  # its parent process saw it end
    LAUNCHER = "launcher"  # srun, mpirun or ssh wrote it
    SLURM = "slurm"  # Slurm ended the whole job
    DISCONNECTED = "disconnected"  # its ssh connection broke
    FOLLOWED = "followed"  # it ended after another process did, and nothing more is known
    NOT_STARTED = "not started"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended.

    Attributes:
        source: Where that is known from.
        status: The exit code, or minus the signal that killed the process; None if not known.
        reason: Why, where there is no status. For a process that was not started: the error. For
            Slurm: `"cancelled"`, `"time limit"`, `"preempted"` or `"node failure"`. For another
            launcher: what it wrote.
        line: The line of the cell at which the process crashed, or None.
    """

    source: ExitSource = ExitSource.UNKNOWN
    status: int | None = None
    reason: str = ""
    line: int | None = None


Kind: TypeAlias = Literal["mismatch", "missing", "not invited", "cycle", "died", "stalled"]
Happened: TypeAlias = Literal["", "hung", "crashed", "failed", "returned"]
Doing: TypeAlias = Literal[
    "runs", "hangs", "waits", "finished", "raised", "left", "died", "not invited"
]


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a process stands.

    Attributes:
        doing: `"waits"`: before a launch that others have to make too. `"runs"`: its own code.
            `"hangs"`: inside a computation, or in a wait of JAX's own.
            `"finished"`, `"raised"`, `"left"` and
            `"died"`: it is done with the cell, and how. `"not invited"`: it was not given it.
        launch: The launch that it waits before, or was told of.
        line: The line of the cell, or of the script, at which that launch is.
        place: File and line, for a script: `"train.py:7"`.
        launches: How many launches with the same partners it has made in this cell.
        error: How its error reads, for one that raised.
        exit: How it ended, for one that died.
    """

    doing: Doing
    launch: Launch | None = None
    line: int | None = None
    place: str = ""
    launches: int = 0
    error: str = ""
    exit: ProcessExit | None = None


@dataclass(frozen=True, slots=True)
class Detail:
    """What only the process itself knows of a launch that it stands at; asked for when needed.

    Attributes:
        source: The line of source at which it stands.
        condition: The `if` or `while` around that line that asks for the process index, if any.
        loop: The innermost loop around that line, if any: its first line.
        skip: What in that loop may have it skip the line: its line of source, if there is any.
        static: Static arguments of the function, by name, as text.
        program: The compiled program, line by line.
        names: The names of the arguments.
    """

    source: str = ""
    condition: str = ""
    loop: str = ""
    skip: str = ""
    static: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` made the data from."""
        return cls(**{**data, "program": tuple(data["program"]), "names": tuple(data["names"])})


@dataclass(frozen=True, slots=True)
class Verdict:
    """That processes have parted, and how.

    Attributes:
        kind: `"mismatch"`: they stand at different launches. `"missing"`: a process that is needed
            has ended. `"not invited"`: it was not given the cell. `"cycle"`: they wait for each
            other in a ring. `"died"`: a process died. `"stalled"`: nothing is proven, and the
            cell was ended by its user or by a time limit.
        stands: Where each process stands that has to do with it, by process index.
        ring: For a cycle, processes of which each waits for the next, and the last for the first.
        details: What the processes could tell about the launches that they stand at.
        happened: What became of it where launches were not held back: it `"hung"` and was cut off,
            it `"crashed"` a process, it `"failed"` with an error, or it `"returned"`, with values
            that no correct run returns.
    """

    kind: Kind
    stands: Mapping[int, Stand]
    ring: tuple[int, ...] = ()
    details: Mapping[int, Detail] = field(default_factory=dict)
    happened: Happened = ""
