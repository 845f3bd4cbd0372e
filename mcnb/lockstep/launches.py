"""What a process announces before it launches a computation: plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self


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
