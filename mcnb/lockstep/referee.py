"""The referee: announcements in, rulings out. Pure: no socket, no clock, no JAX.

Each process announces a launch before it makes it, and waits. A launch goes ahead when all of its
participants stand at it. That makes no correct program wait for ever: the devices of a process
execute launches in the order in which it made them, so whatever finishes unchecked finishes with
this meeting, too.

A process is *free* while one of its threads may still announce something: it runs its own code. A
waiting process has hope if everybody that it waits for stands at the same launch, or is free, or
has hope itself. Hope is the least relation for which that is so; a process without it will never
go on, however long one waits, and that is what a verdict states. Nothing here depends on time.

A process may wait in several threads at once. It has hope if one of them has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mcnb.lockstep.model import Doing, Kind, Launch, ProcessExit, Stand, Verdict

# Launches meet if they are the same program on the same participants.
_Key: TypeAlias = tuple[str, tuple[int, ...]]
_GONE: frozenset[Doing] = frozenset(("raised", "left", "died"))


@dataclass(frozen=True, slots=True)
class Go:
    """A launch may go ahead.

    Attributes:
        waiters: Process and thread of each that waits before it.
    """

    waiters: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Processes will never go on.

    Attributes:
        waiters: Process and thread of each that has to be told.
        verdict: Why.
    """

    waiters: tuple[tuple[int, int], ...]
    verdict: Verdict


Ruling: TypeAlias = Go | Stop


@dataclass(slots=True)
class _Waiting:
    launch: Launch
    line: int | None
    place: str

    @property
    def key(self) -> _Key:
        return self.launch.program, self.launch.participants


@dataclass(slots=True)
class _Process:
    """What is known of a process.

    Attributes:
        doing: "runs", or how it ended.
        free: Whether a thread that does not wait may still announce something.
        waiting: What its threads wait before.
        parted: What it stood at when it was told that it will never go on.
        error: How its error reads, if it raised.
        exit: How it ended, if it died.
        made: How often it launched something in this cell, by partners.
    """

    doing: Doing = "runs"
    free: bool = True
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    parted: _Waiting | None = None
    error: str = ""
    exit: ProcessExit | None = None
    made: dict[tuple[int, ...], int] = field(default_factory=dict)


class Referee:
    """Watches over n processes.

    Args:
        count: How many processes there are. All run from the start, as those of a script do; a
            notebook begins cells.

    Attributes:
        verdict: What is known of how the processes parted in this cell, or None.

    Example:
        >>> referee = Referee(2)
        >>> both = Launch("jit(f)", "1", (0, 1))
        >>> referee.announce(0, 0, both, line=3)
        []
        >>> [stop] = referee.finish(1)
        >>> stop.verdict.kind, stop.verdict.stands[0].line, stop.verdict.stands[1].doing
        ('missing', 3, 'finished')
    """

    def __init__(self, count: int) -> None:
        self._processes = [_Process() for _ in range(count)]
        self._waiting: dict[_Key, dict[int, int]] = {}  # by launch: process -> thread
        self.verdict: Verdict | None = None

    def begin(self, processes: Iterable[int]) -> list[Ruling]:
        """Begin a cell on these processes; the others are not invited.

        What threads of an earlier cell still wait before is kept.
        """
        invited = set(processes)
        self.verdict = None
        for k, process in enumerate(self._processes):
            if process.doing in ("left", "died"):
                continue
            busy = process.doing != "runs" and process.free
            process.doing = "runs" if k in invited else "not invited"
            process.free = k in invited or busy
            process.parted, process.error = None, ""
            process.made.clear()
        return self._stuck()

    def announce(
        self,
        k: int,
        thread: int,
        launch: Launch,
        *,
        line: int | None = None,
        place: str = "",
        alone: bool = True,
    ) -> list[Ruling]:
        """Take note that a thread of process k waits before a launch.

        Args:
            k: The process.
            thread: A number for the thread, unlike that of any other of the process that waits.
            launch: What it is about to launch.
            line: The line at which it does so.
            place: The file and line, for a script.
            alone: Whether no other thread of the process may announce something meanwhile.
        """
        process = self._processes[k]
        waiting = _Waiting(launch, line, place)
        if process.parted is not None and process.doing == "runs":
            assert self.verdict is not None
            return [Stop(((k, thread),), self.verdict)]
        process.waiting[thread] = waiting
        self._waiting.setdefault(waiting.key, {}).setdefault(k, thread)
        process.free = not alone
        together = self._waiting[waiting.key]
        if len(together) == len(launch.participants):
            return [self._release(waiting.key)]
        if process.free or not self._suspicious():
            return []
        return self._stuck()

    def quiet(self, k: int) -> list[Ruling]:
        """Take note that only those threads of process k are left that wait."""
        self._processes[k].free = False
        return self._stuck()

    def withdraw(self, k: int, thread: int) -> list[Ruling]:
        """Take note that a thread no longer waits: it was interrupted."""
        process = self._processes[k]
        if self._forget(k, thread) is None:
            return []
        process.free = True
        return []

    def finish(self, k: int, *, busy: bool = False) -> list[Ruling]:
        """Take note that process k has finished the cell.

        Args:
            k: The process.
            busy: Whether threads of it still run the learner's code.
        """
        return self._end(k, "finished", busy=busy)

    def fail(self, k: int, error: str, *, busy: bool = False) -> list[Ruling]:
        """Take note that the cell ended on process k with an error.

        Args:
            k: The process.
            error: How the error reads.
            busy: Whether threads of it still run the learner's code.
        """
        return self._end(k, "raised", busy=busy, error=error)

    def leave(self, k: int) -> list[Ruling]:
        """Take note that process k has ended, as it wanted to."""
        return self._end(k, "left")

    def die(self, k: int, how: ProcessExit) -> list[Ruling]:
        """Take note that process k died."""
        return self._end(k, "died", how=how)

    def ended(self, k: int) -> bool:
        """Return whether process k does not run the cell, or not any more."""
        return self._processes[k].doing != "runs"

    def stands(self) -> dict[int, Stand]:
        """Return where every process stands."""
        return {k: self._stand(k) for k in range(len(self._processes))}

    def _end(
        self,
        k: int,
        doing: Doing,
        *,
        busy: bool = False,
        error: str = "",
        how: ProcessExit | None = None,
    ) -> list[Ruling]:
        process = self._processes[k]
        if process.doing in ("left", "died"):
            return []
        process.free = busy
        process.doing, process.error, process.exit = doing, error, how
        if doing in ("left", "died"):
            for thread in list(process.waiting):
                self._forget(k, thread)
        if self.verdict is not None and k in self.verdict.stands:
            self.verdict = replace(self.verdict, stands={**self.verdict.stands, k: self._stand(k)})
        return self._stuck()

    def _forget(self, k: int, thread: int) -> _Waiting | None:
        process = self._processes[k]
        waiting = process.waiting.pop(thread, None)
        if waiting is None:
            return None
        together = self._waiting[waiting.key]
        if together.get(k) == thread:
            del together[k]
            # Another thread of the process may wait before the same.
            for other, also in process.waiting.items():
                if also.key == waiting.key:
                    together[k] = other
                    break
        if not together:
            del self._waiting[waiting.key]
        return waiting

    def _release(self, key: _Key) -> Go:
        waiters = tuple(sorted(self._waiting[key].items()))
        for k, thread in waiters:
            self._forget(k, thread)
            process = self._processes[k]
            process.free = process.parted is None or process.doing != "runs"
            process.made[key[1]] = process.made.get(key[1], 0) + 1
        return Go(waiters)

    def _suspicious(self) -> bool:
        """Return whether anybody can be stuck: most often nobody is, and that is quickly seen."""
        return any(
            not self._processes[p].free and p not in together
            for key, together in self._waiting.items()
            for p in key[1]
        )

    def _hope(self) -> set[int]:
        """Return the processes that may still announce something."""
        hopeful = {k for k, process in enumerate(self._processes) if process.free}
        grown = True
        while grown:
            grown = False
            for k, process in enumerate(self._processes):
                if k not in hopeful and any(
                    not self._blockers(waiting, hopeful) for waiting in process.waiting.values()
                ):
                    hopeful.add(k)
                    grown = True
        return hopeful

    def _blockers(self, waiting: _Waiting, hopeful: set[int]) -> list[int]:
        """Return for whom a launch waits in vain."""
        together = self._waiting[waiting.key]
        return [p for p in waiting.launch.participants if p not in together and p not in hopeful]

    def _stuck(self) -> list[Ruling]:
        """Return a ruling for those that will never go on."""
        if not self._waiting:
            return []
        hopeful = self._hope()
        blocked = {
            (k, thread): blockers
            for k, process in enumerate(self._processes)
            for thread, waiting in process.waiting.items()
            if (blockers := self._blockers(waiting, hopeful))
        }
        if not blocked:
            return []
        kind, ring = self._kind(blocked)
        involved = sorted(
            {p for k, thread in blocked for p in self._at(k, thread).launch.participants}
        )
        for k, thread in blocked:
            process = self._processes[k]
            process.parted = process.parted or process.waiting[thread]
        stands = {p: self._stand(p) for p in involved}
        waiters = tuple(sorted(blocked))
        for k, thread in waiters:
            self._forget(k, thread)
            # It is told, and may run on: but what it announces in this cell is refused.
            self._processes[k].free = False
        if self.verdict is None:
            self.verdict = Verdict(kind, stands, ring)
        else:
            self.verdict = replace(self.verdict, stands={**self.verdict.stands, **stands})
        return [Stop(waiters, self.verdict), *self._stuck()]

    def _at(self, k: int, thread: int) -> _Waiting:
        return self._processes[k].waiting[thread]

    def _kind(self, blocked: dict[tuple[int, int], list[int]]) -> tuple[Kind, tuple[int, ...]]:
        """Return what kind of parting it is, and the ring if it is one."""
        awaited = {p for blockers in blocked.values() for p in blockers}
        ended = {
            self._processes[p].doing
            for p in awaited
            if self._processes[p].doing != "runs" and not self._processes[p].waiting
        }
        if "died" in ended:
            return "died", ()
        if ended & {"finished", "raised", "left"}:
            return "missing", ()
        if "not invited" in ended:
            return "not invited", ()
        ring = self._ring(blocked)
        launches = [self._at(k, thread).key for k, thread in blocked]
        keys_by_set: dict[tuple[int, ...], set[str]] = {}
        for program, participants in launches:
            keys_by_set.setdefault(participants, set()).add(program)
        if len(ring) < 3 or any(len(programs) > 1 for programs in keys_by_set.values()):
            return "mismatch", ()
        return "cycle", ring

    def _ring(self, blocked: dict[tuple[int, int], list[int]]) -> tuple[int, ...]:
        """Return the shortest ring of processes that wait for each other."""
        waits_for: dict[int, list[int]] = {}
        for (k, _), blockers in blocked.items():
            waits_for.setdefault(k, []).extend(blockers)
        best: tuple[int, ...] = ()
        for start in waits_for:
            paths: list[tuple[int, ...]] = [(start,)]
            seen = {start}
            while paths and (not best or len(paths[0]) < len(best)):
                path = paths.pop(0)
                for p in waits_for.get(path[-1], ()):
                    if p == start:
                        best, paths = path, []
                        break
                    if p not in seen:
                        seen.add(p)
                        paths.append((*path, p))
        return best

    def _stand(self, k: int) -> Stand:
        process = self._processes[k]
        at = process.parted or next(iter(process.waiting.values()), None)
        doing = process.doing
        # What a process does that was told of the parting, or left a thread waiting, says less.
        if at is not None and (process.parted is not None or doing not in _GONE):
            doing = doing if doing == "died" else "waits"
        made = process.made.get(at.launch.participants, 0) if at else sum(process.made.values())
        error = process.error if doing == "raised" else ""
        if at is None:
            return Stand(doing, launches=made, error=error, exit=process.exit)
        return Stand(doing, at.launch, at.line, at.place, made, error, process.exit)
