"""Rule on announced launches, and detect divergence, without sockets, clocks or JAX.

Each process announces a launch and waits before it makes the launch. A launch goes ahead when all
participants have announced it. A correct program never hangs because of this wait: the devices of
a process execute launches in the order in which the process made them, so a program that finishes
unchecked also finishes with the check.

A process is *free* while it runs its own code, because one of its threads may still announce a
launch. A waiting process is *hopeful* if every participant that it waits for has announced the
same launch, is free, or is hopeful. The hopeful processes are the least set for which this rule
holds. Any other waiting process will never continue, and a verdict says so. No rule uses time.

A process that catches its verdict may go on, to launches that all others make, too. Every process
that the divergence involves receives the verdict once: without that, a process that had not reached
its launch yet could meet the others one launch later, with a wrong result. Once they all have made
a launch together, the divergence is over, and what follows is another one, with its own verdict.

A process may wait in several threads at once, and is hopeful if one of its threads is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mcnb.lockstep.comparison import differing_slices
from mcnb.lockstep.model import (
    Caught,
    Doing,
    Kind,
    LastLaunch,
    Launch,
    Meeting,
    ProcessExit,
    ProcessState,
    Race,
    SharedValue,
    Verdict,
)
from mcnb.lockstep.sameness import Sameness

# Announcements match if they are of the same computation, and of the same barrier if they are of
# one, and have the same participants.
_Key: TypeAlias = tuple[str, tuple[int, ...]]
# The names of the lines on a stack, from the outermost.
Stack: TypeAlias = tuple[str, ...]
# The most launches made from different lines that are remembered, of each combination the first.
MOST_MEETINGS = 100
_GONE: frozenset[Doing] = frozenset(("raised", "left", "died"))


@dataclass(frozen=True, slots=True)
class Go:
    """The ruling that a launch may go ahead.

    Attributes:
        waiters: Process and thread of each participant that waits for the launch.
    """

    waiters: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The ruling that processes will never continue.

    Attributes:
        waiters: Process and thread of each wait that the ruling ends.
        verdict: How the processes diverged.
    """

    waiters: tuple[tuple[int, int], ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Compare:
    """The ruling that values must be compared before a launch may go ahead; see `compared`.

    Attributes:
        waiters: Process and thread of each participant that waits for the launch.
        digests: The digests of what the processes have in common, by process and slice.
    """

    waiters: tuple[tuple[int, int], ...]
    digests: Mapping[int, Mapping[str, str]]


Ruling: TypeAlias = Go | Stop | Compare


@dataclass(slots=True)
class _Waiting:
    launch: Launch
    line: int | None
    place: str
    stack: Stack
    key: _Key
    digests: Mapping[str, str]
    value: SharedValue | None = None

    @property
    def where(self) -> str:
        return self.place or ("" if self.line is None else f"line {self.line}")


@dataclass(slots=True)
class _Process:
    """The referee's state of a process.

    Attributes:
        doing: `"runs"`, `"not invited"`, or how the process ended.
        free: Whether a thread that does not wait may still announce a launch.
        waiting: The announcements of its waiting threads, by thread.
        diverged: The announcement for which the process received its first verdict on a divergence
            that is not over, or None.
        told: Whether the process has received a verdict in this cell.
        apart: The processes that diverged from it while it had not reached their launches yet, for
            each of these verdicts: its next launch with one of them is refused, too.
        error: The text of its error, if the process raised one.
        caught: The exceptions that it caught, if it has ended.
        exit: How the process ended, if it died.
        made: The number of its launches in this cell, by participants.
        visits: The number of its launches in this cell from each stack.
        last: The announcement of its last launch in this cell, or None.
    """

    doing: Doing = "runs"
    free: bool = True
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    diverged: _Waiting | None = None
    told: bool = False
    apart: list[set[int]] = field(default_factory=list)
    error: str = ""
    caught: Sequence[Caught] = ()
    exit: ProcessExit | None = None
    made: dict[tuple[int, ...], int] = field(default_factory=dict)
    visits: dict[Stack, int] = field(default_factory=dict)
    last: _Waiting | None = None


def first_differing(stacks: Mapping[int, Stack]) -> dict[int, str]:
    """Return the outermost lines, by process, at which stacks begin to differ.

    Example:
        >>> first_differing({0: ("a.py:9", "b.py:2"), 1: ("a.py:7", "b.py:2"), 2: ("a.py:9",)})
        {0: 'a.py:9', 1: 'a.py:7', 2: 'a.py:9'}
    """
    depth = 0
    while len({stack[depth : depth + 1] for stack in stacks.values()}) == 1:
        depth += 1
    return {k: (stack[depth:] or stack[-1:])[0] for k, stack in stacks.items()}


class Referee:
    """Rules on the launches of n processes.

    Args:
        count: The number of processes. All run from the start, as in a script; for a notebook,
            `begin` starts each cell.

    Attributes:
        verdicts: How the processes diverged in this cell, as far as known: each time that they did,
            after they had caught the verdict before and were in step again.
        meetings: Launches of this cell that processes made together from different lines. That may
            be intended: both branches of a condition may have the same launch.
        races: Launches of this cell that processes announced in different orders.

    Example:
        >>> referee = Referee(2)
        >>> both = Launch("jit(f)", "1", (0, 1))
        >>> referee.announce(0, 0, both, line=3)
        []
        >>> [stop] = referee.end(1, "finished")
        >>> stop.verdict.kind, stop.verdict.states[0].line, stop.verdict.states[1].doing
        ('missing', 3, 'finished')
    """

    def __init__(self, count: int) -> None:
        self._processes = [_Process() for _ in range(count)]
        self._same = Sameness()
        self._waiting: dict[_Key, dict[int, int]] = {}  # launch -> process -> thread
        self.verdicts: list[Verdict] = []
        self._parts = False  # whether the last divergence is not over
        # Of the first process that waits in the verdict.
        self._stack: Stack = ()
        self._participants: tuple[int, ...] = ()
        self.meetings: list[Meeting] = []
        self.races: list[Race] = []
        self._stacks: dict[tuple[tuple[int, Stack], ...], Meeting] = {}  # of each process
        # The number of launches with these participants, by name.
        self._together: dict[tuple[str, tuple[int, ...]], int] = {}

    def begin(self, processes: Iterable[int]) -> list[Ruling]:
        """Begin a cell on these processes; the others are not invited.

        Announcements of threads that still wait in an earlier cell are kept.
        """
        invited = set(processes)
        self.verdicts.clear()
        self._parts = False
        self.meetings.clear()
        self.races.clear()
        self._stacks.clear()
        self._together.clear()
        for k, process in enumerate(self._processes):
            if process.doing in ("left", "died"):
                continue
            busy = process.doing != "runs" and process.free
            process.doing = "runs" if k in invited else "not invited"
            process.free = k in invited or busy
            process.diverged, process.told, process.error = None, False, ""
            process.apart.clear()
            process.made.clear()
            process.visits.clear()
            process.last = None
        return self._stuck()

    @property
    def verdict(self) -> Verdict | None:
        """How the processes diverged last in this cell, as far as known, or None."""
        return self.verdicts[-1] if self.verdicts else None

    def announce(
        self,
        k: int,
        thread: int,
        launch: Launch,
        line: int | None = None,
        place: str = "",
        stack: Stack = (),
        *,
        alone: bool = True,
        digests: Mapping[str, str] | None = None,
    ) -> list[Ruling]:
        """Record that a thread of process k announces a launch and waits.

        Args:
            k: The process.
            thread: A number for the thread, unique among the waiting threads of the process.
            launch: The launch.
            line: The line that makes the launch.
            place: The file and line, for a script.
            stack: The lines on the thread's stack, from the outermost, if known.
            alone: Whether no other thread of the process may announce a launch meanwhile.
            digests: Digests of what the process has in common with others, by slice, if it made
                them for this launch.
        """
        process = self._processes[k]
        merged = self._same.add(launch)
        if merged:
            self._sort_anew()
        key = self._key(launch)
        process.waiting[thread] = waiting = _Waiting(launch, line, place, stack, key, digests or {})
        self._waiting.setdefault(waiting.key, {}).setdefault(k, thread)
        process.free = not alone
        refused: list[Ruling] = []
        owed = process.apart[0] if process.apart else set()
        if process.doing == "runs" and owed & {*launch.participants}:
            refused = self._refuse([(k, thread)], "mismatch", (), late=True)
        complete = [
            one
            for one in (list(self._waiting) if merged else [waiting.key])
            if len(self._waiting.get(one, ())) == len(one[1])
        ]
        if refused or complete:
            return [*refused, *(self._compare(one) or self._release(one) for one in complete)]
        if process.free or not self._suspicious():
            return []
        return self._stuck()

    def compared(
        self, waiters: Iterable[tuple[int, int]], values: Mapping[int, SharedValue]
    ) -> list[Ruling]:
        """Record that the values of a launch's arguments were compared.

        Args:
            waiters: Process and thread of each participant, from the ruling `Compare`. If a thread
                no longer waits, there is nothing to rule on.
            values: The value on each process; empty if the values are equal.
        """
        waiters = tuple(waiters)
        waiting = [self._processes[k].waiting.get(thread) for k, thread in waiters]
        if not all(waiting):
            return []
        (first, *_) = waiting
        assert first is not None
        if not values:
            return [self._release(first.key)]
        for (k, _), one in zip(waiters, waiting, strict=True):
            assert one is not None
            one.value = values.get(k)
        return self._refuse(waiters, "mismatch", ())

    def quiet(self, k: int) -> list[Ruling]:
        """Record that all remaining threads of process k wait."""
        self._processes[k].free = False
        return self._stuck()

    def withdraw(self, k: int, thread: int) -> None:
        """Record that a thread was interrupted and no longer waits."""
        if self._forget(k, thread):
            self._processes[k].free = True

    def waiting_at(self, k: int, thread: int) -> tuple[Launch, dict[int, int]] | None:
        """Return the launch at which a thread of process k waits, with all who wait at it.

        Returns:
            The launch, and for each process that waits at it, one of its threads; None if the
            thread does not wait.
        """
        waiting = self._processes[k].waiting.get(thread)
        return None if waiting is None else (waiting.launch, dict(self._waiting[waiting.key]))

    def diverged(self, k: int) -> bool:
        """Return whether process k runs a cell in which it received a verdict."""
        return self._processes[k].told and not self.ended(k)

    def ended(self, k: int) -> bool:
        """Return whether process k does not, or no longer, run the cell."""
        return self._processes[k].doing != "runs"

    def last_launch(self, k: int) -> LastLaunch | None:
        """Return the launch at which process k waits, or else its last one; None without one."""
        process = self._processes[k]
        if process.exit is not None:
            return process.exit.last
        at = next(iter(process.waiting.values()), process.last)
        if at is None:
            return None
        made = at is process.last
        own = at.stack[-1:] == (at.where,)  # else a function there makes it, and maybe others, too
        times = process.visits.get(at.stack, 0) + (not made) if own else 1
        return LastLaunch(at.launch.title, at.where, made, times)

    def states(self) -> dict[int, ProcessState]:
        """Return the position of every process."""
        return {k: self._state(k) for k in range(len(self._processes))}

    def end(
        self,
        k: int,
        doing: Doing,
        *,
        busy: bool = False,
        error: str = "",
        caught: Sequence[Caught] = (),
        how: ProcessExit | None = None,
    ) -> list[Ruling]:
        """Record that process k no longer runs the cell.

        Args:
            k: The process.
            doing: `"finished"` or `"raised"`; `"left"` or `"died"` if the process itself has ended.
            busy: Whether threads of the process still run the learner's code.
            error: The text of the error that it raised.
            caught: The exceptions that it caught, from the newest.
            how: How it died.
        """
        process = self._processes[k]
        if process.doing in ("left", "died"):
            return []
        process.free = busy
        if how is not None and how.line is None:
            how = replace(how, last=self.last_launch(k))
        process.doing, process.error, process.exit = doing, error, how
        process.caught = caught
        if doing in ("left", "died"):
            for thread in list(process.waiting):
                self._forget(k, thread)
        if self._parts and k in self.verdicts[-1].states:
            state = self._state_in_verdict(k)
            self._add_to_verdict({k: state})
        return self._stuck()

    def _key(self, launch: Launch) -> _Key:
        return self._same.program(launch) + launch.label, launch.participants

    def _sort_anew(self) -> None:
        """Sort the announcements anew, after two classes of launches became one."""
        self._waiting.clear()
        for k, process in enumerate(self._processes):
            for thread, waiting in process.waiting.items():
                waiting.key = self._key(waiting.launch)
                self._waiting.setdefault(waiting.key, {}).setdefault(k, thread)

    def _forget(self, k: int, thread: int) -> bool:
        """Remove an announcement; return whether there was one."""
        process = self._processes[k]
        waiting = process.waiting.pop(thread, None)
        if waiting is None:
            return False
        together = self._waiting[waiting.key]
        if together.get(k) == thread:
            del together[k]
            # Another thread of the process may have announced the same launch.
            for other, also in process.waiting.items():
                if also.key == waiting.key:
                    together[k] = other
                    break
        if not together:
            del self._waiting[waiting.key]
        return True

    def _compare(self, key: _Key) -> Compare | None:
        """Return a ruling if digests of what processes have in common differ."""
        together = self._waiting[key].items()
        if not any(self._processes[k].waiting[thread].digests for k, thread in together):
            return None
        waiters = tuple(sorted(together))
        digests = {k: self._processes[k].waiting[thread].digests for k, thread in waiters}
        return Compare(waiters, digests) if differing_slices(digests) else None

    def _release(self, key: _Key) -> Go:
        waiters = tuple(sorted(self._waiting[key].items()))
        self._count(waiters)
        if not self.races:  # one is enough for a person
            self._look_for_races(waiters)
        for k, thread in waiters:
            process = self._processes[k]
            process.last = process.waiting[thread]
            self._forget(k, thread)
            process.free = True
            process.made[key[1]] = process.made.get(key[1], 0) + 1
        if self._parts and self._in_step(key[1]):
            self._parts = False
            self.verdicts[-1] = replace(self.verdicts[-1], over=True)
            for process in self._processes:
                process.diverged = None
        return Go(waiters)

    def _in_step(self, together: tuple[int, ...]) -> bool:
        """Return whether a divergence is over, given which processes have made a launch together.

        A process that has not received the verdict yet, or has ended because of it, is not.
        """
        involved = self.verdicts[-1].states
        return {*involved} <= {*together} and not any(self._processes[k].apart for k in involved)

    def _count(self, waiters: tuple[tuple[int, int], ...]) -> None:
        """Count a launch, and remember it if it is made from different lines."""
        made = [self._processes[k].waiting[thread] for k, thread in waiters]
        first = made[0]
        common = first.launch.name, first.key[1]
        number = self._together[common] = self._together.get(common, 0) + 1
        differ = False
        for (k, _), one in zip(waiters, made, strict=True):
            visits = self._processes[k].visits
            visits[one.stack] = visits.get(one.stack, 0) + 1
            differ = differ or one.stack != first.stack
        if not differ or len(self._stacks) >= MOST_MEETINGS or not all(one.stack for one in made):
            return
        stacks = tuple((k, one.stack) for (k, _), one in zip(waiters, made, strict=True))
        if stacks not in self._stacks:
            lines = first_differing(dict(stacks))
            own = {k: stack[-1] for k, stack in stacks}
            self._stacks[stacks] = Meeting(first.launch, number, lines, own, dict(stacks))
            self.meetings.append(self._stacks[stacks])

    def _look_for_races(self, waiters: tuple[tuple[int, int], ...]) -> None:
        """Remember a launch that waits on a process, and comes after this one on another."""
        for k, thread in waiters:
            waiting = self._processes[k].waiting
            now = waiting[thread]
            for ticket, before in waiting.items():  # in the order in which they were announced
                if ticket == thread:
                    break
                if now.launch.is_barrier or before.launch.is_barrier:
                    continue  # a barrier waits for no device
                common = sorted({*now.key[1]} & {*before.key[1]})
                if others := tuple(p for p in common if self._comes_later(p, before, now)):
                    names = before.launch.name, now.launch.name
                    self.races.append(Race(k, others, names, (before.where, now.where)))
                    return

    def _comes_later(self, k: int, one: _Waiting, other: _Waiting) -> bool:
        """Return whether a process has announced the other of two launches before this one."""
        keys = [waiting.key for waiting in self._processes[k].waiting.values()]
        return one.key not in keys or keys.index(other.key) < keys.index(one.key)

    def _parted(self, waiters: tuple[tuple[int, int], ...], involved: set[int]) -> Meeting | None:
        """Return the launch at which a process got ahead of one that waits, if one did.

        It is ahead if it has made more launches from the stack on which the other one waits. The
        process that waits may have been behind before: what it launched then, the other one had
        launched just before.
        """
        for k, thread in waiters:
            stack = self._processes[k].waiting[thread].stack
            own = self._processes[k].visits.get(stack, 0)
            ahead = {p for p in involved if self._processes[p].visits.get(stack, 0) > own}
            for stacks, meeting in self._stacks.items():
                met = dict(stacks)
                if k in met and met[k] != stack and any(met.get(p) == stack for p in ahead):
                    return self._first_behind(meeting, k, ahead)
        return None

    def _first_behind(self, meeting: Meeting, k: int, ahead: set[int]) -> Meeting:
        """Return the first of the launches up to a meeting for which process k came too late."""
        alike = {
            one.number: one
            for one in self.meetings
            if (one.launch.name, one.launch.participants)
            == (meeting.launch.name, meeting.launch.participants)
        }
        while before := alike.get(meeting.number - 1):
            if all(before.stacks.get(p) != meeting.stacks[k] for p in ahead):
                break
            meeting = before
        return meeting

    def _suspicious(self) -> bool:
        """Return whether a process can be stuck: a fast test for the usual case that none is."""
        return any(
            not self._processes[p].free and p not in together
            for key, together in self._waiting.items()
            for p in key[1]
        )

    def _hope(self) -> set[int]:
        """Return the free and hopeful processes, which may still announce a launch."""
        hopeful = {k for k, process in enumerate(self._processes) if process.free}
        while more := {
            k
            for k, process in enumerate(self._processes)
            if k not in hopeful
            and any(not self._blockers(one, hopeful) for one in process.waiting.values())
        }:
            hopeful |= more
        return hopeful

    def _blockers(self, waiting: _Waiting, hopeful: set[int]) -> list[int]:
        """Return the participants that will never announce a waiting launch."""
        together = self._waiting[waiting.key]
        return [p for p in waiting.launch.participants if p not in together and p not in hopeful]

    def _stuck(self) -> list[Ruling]:
        """Return the rulings for processes that will never continue."""
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
        return self._refuse(blocked, *self._kind(blocked))

    def _refuse(
        self,
        waiters: Iterable[tuple[int, int]],
        kind: Kind,
        ring: tuple[int, ...],
        *,
        late: bool = False,
    ) -> list[Ruling]:
        """End waits by a verdict; return it, and the rulings that follow from it.

        Args:
            waiters: Process and thread of each wait.
            kind: The kind of the verdict, if it is the first one in this cell.
            ring: The ring of a cycle.
            late: Whether other processes have received this verdict before.
        """
        waiters = tuple(sorted(waiters))
        involved: set[int] = set()
        for k, thread in waiters:
            process = self._processes[k]
            process.diverged = process.diverged or process.waiting[thread]
            process.told = True
            involved.update(process.waiting[thread].launch.participants)
        if not self._parts:
            (k, thread), *_ = waiters
            first = self._processes[k].waiting[thread]
            self._stack, self._participants = first.stack, first.key[1]
        states = {p: self._state_in_verdict(p) for p in sorted(involved)}
        parted = self._parted(waiters, involved)
        told = {k for k, _ in waiters}
        for p in involved - told:
            if not late:  # also if it waits at another launch, which may yet go ahead
                self._processes[p].apart.append(told)
        for k, thread in waiters:
            apart = self._processes[k].apart
            del apart[: 1 if late else len(apart)]
            self._forget(k, thread)
            # A process that catches its verdict may go on, to launches that all others make.
            self._processes[k].free = self._processes[k].doing == "runs"
        if self._parts:
            self._add_to_verdict(states)
        else:
            self._parts = True
            self.verdicts.append(Verdict(kind, states, ring, parted=parted))
        return [Stop(waiters, self.verdicts[-1]), *self._stuck()]

    def _add_to_verdict(self, states: Mapping[int, ProcessState]) -> None:
        last = self.verdicts[-1]
        self.verdicts[-1] = replace(last, states={**last.states, **states})

    def _kind(self, blocked: dict[tuple[int, int], list[int]]) -> tuple[Kind, tuple[int, ...]]:
        """Return the kind of divergence, and the ring of a cycle."""
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
        keys = {self._processes[k].waiting[thread].key for k, thread in blocked}
        if len(ring) < 3 or len({participants for _, participants in keys}) < len(keys):
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

    def _state_in_verdict(self, k: int) -> ProcessState:
        """Return the state of a process with the number of its launches before the verdict.

        They are those from its own line if it waits, and else from that of the first that does.
        """
        state, process = self._state(k), self._processes[k]
        known = self.verdicts[-1].states.get(k) if self._parts else None
        if known is not None and (known.launch is not None or state.launch is None):
            made = known.launches
            return replace(state, launches=made, visits=known.visits, times=known.times)
        at = process.diverged or next(iter(process.waiting.values()), None)
        line, made = self._stack[-1:], process.made.get(self._participants, 0)
        if at is not None and state.doing == "waits":
            line, made = at.stack[-1:], state.launches
        each = process.visits.items()
        times = sum(number for stack, number in each if line and stack[-1:] == line)
        visits = process.visits.get(self._stack, 0) if known is None else known.visits
        return replace(state, launches=made, visits=visits, times=times)

    def _state(self, k: int) -> ProcessState:
        process = self._processes[k]
        at = process.diverged or next(iter(process.waiting.values()), None)
        doing = process.doing
        # The announcement says more than the state if the process diverged or a thread waits.
        if at is not None and (process.diverged is not None or doing not in _GONE):
            doing = doing if doing == "died" else "waits"
        made = process.made.get(at.launch.participants, 0) if at else sum(process.made.values())
        error = process.error if doing == "raised" else ""
        launch, line, place = (at.launch, at.line, at.place) if at else (None, None, "")
        launch = launch and self._same.common(launch)
        value = at.value if at else None
        caught = () if at else tuple(process.caught)
        ends = error, process.exit
        return ProcessState(doing, launch, line, place, made, *ends, value, caught=caught)
