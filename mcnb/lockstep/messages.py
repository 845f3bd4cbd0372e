"""Put verdicts into words: the state of each process, the first difference, and a hint."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mcnb._text import a_or_an, grouped, label, name_processes, ordinal, plural
from mcnb.lockstep.caught import CAUGHT
from mcnb.lockstep.differences import (
    NO_DIFFERENCE,
    Difference,
    detail_of,
    difference_of,
    difference_of_alone,
    told_apart,
)
from mcnb.lockstep.hints import (
    SAME_SEED,
    SAME_SOURCE,
    WITHOUT_CAUSE,
    Group,
    advise,
    belongs_to,
    is_key,
    is_uncertain,
    loop_targets,
    origin_of_rounds,
    with_cause,
)
from mcnb.lockstep.independent import LONGEST_NAME, depends
from mcnb.lockstep.model import (
    Caught,
    Detail,
    ExitSource,
    Kind,
    Launch,
    LaunchRecord,
    Meeting,
    ProcessExit,
    ProcessState,
    Race,
    UnequalInput,
    Verdict,
)

_CAUSES = {
    "SIGKILL": " (sent by a program, or by the system because memory ran out)",
    "SIGSEGV": " (a fault in native code)",
    "SIGABRT": " (native code called abort())",
    "SIGBUS": " (a fault in native code, or a full disk)",
}
# Where the end of a process may have to do with what it was about to do.
_BY_ITSELF = (ExitSource.OBSERVED, ExitSource.LAUNCHER, ExitSource.UNKNOWN)
_SLURM_REASONS = {
    "cancelled": "the job was cancelled",
    "time limit": "the job reached its time limit",
    "preempted": "the job was preempted",
    "node failure": "a node failed",
}


def exit_text(how: ProcessExit, *, plural: bool = False) -> str:
    """Describe how a process ended, to follow its name in a sentence.

    Args:
        how: The exit of the process.
        plural: Whether several processes ended in this way.

    Example:
        >>> exit_text(ProcessExit(ExitSource.OBSERVED, status=1))
        'ended with exit code 1'
        >>> exit_text(ProcessExit(ExitSource.OBSERVED, status=-11, line=4), plural=True)
        'were killed by SIGSEGV (a fault in native code) at line 4'
        >>> from mcnb.lockstep.model import LastLaunch
        >>> last = LastLaunch("jit(step)", "line 7", made=True)
        >>> exit_text(ProcessExit(ExitSource.OBSERVED, status=1, last=last))
        'ended with exit code 1, after it had launched jit(step) at line 7'
    """
    was = "were" if plural else "was"
    if how.status is None:
        text = {
            ExitSource.OBSERVED: f"{was} killed",
            ExitSource.LAUNCHER: f"ended ({how.reason})",
            ExitSource.SLURM: f"{was} ended by Slurm: {_SLURM_REASONS.get(how.reason)}",
            ExitSource.DISCONNECTED: f"{was} lost: the ssh connection to {how.reason} broke",
            ExitSource.FOLLOWED: "exited after another process had died",
            ExitSource.NOT_STARTED: f"could not be started ({how.reason})",
            ExitSource.UNKNOWN: "ended, and the reason is not known",
        }[how.source]
    elif how.status >= 0:
        text = f"ended with exit code {how.status}"
    else:
        try:
            name = signal.Signals(-how.status).name
        except ValueError:
            name = f"signal {-how.status}"
        text = f"{was} killed by {name}{_CAUSES.get(name, '')}"
    if how.line is not None:
        return f"{text} at line {how.line}"
    if how.last is None or how.source not in _BY_ITSELF:
        return text
    they, at = "they" if plural else "it", f" at {how.last.where}" if how.last.where else ""
    does = f"after {they} had launched" if how.last.made else f"while {they} waited in"
    again = f" for the {ordinal(how.last.times)} time" if how.last.times > 1 else ""
    return f"{text}, {does} {how.last.name}{at}{again}"


def other_lines(records: Sequence[LaunchRecord], count: int) -> str:
    """Report a launch that processes made together from different lines, if there is one.

    Both branches of a condition may intentionally contain the same computation. The lines may also
    be different steps of the program, and then the values are wrong. The records are a cell's, in
    order of time; the text is empty if there is no such launch.

    Example:
        >>> from mcnb.lockstep.model import Launch
        >>> f = Launch("jit(f)", "1", (0, 1))
        >>> print(other_lines([LaunchRecord(0, f, 3, 0, 1), LaunchRecord(1, f, 6, 0, 1)], 2))
        process 0 launched jit(f) at line 3, and process 1 at line 6. The lines launch the same \
computation, so no process hung. If they are different steps of the program, the results are wrong
    """
    made: dict[tuple[str, tuple[int, ...]], dict[int, list[LaunchRecord]]] = {}
    for record in records:
        launch = record.launch
        if record.began is not None and launch.communicates and not launch.is_barrier:
            key = record.launch.program, record.launch.participants
            made.setdefault(key, {}).setdefault(record.process, []).append(record)
    odd = [
        together
        for by_process in made.values()
        for together in zip(*by_process.values(), strict=False)
        if len({record.line for record in together}) > 1
        and all(record.line is not None for record in together)
    ]
    if not odd:
        return ""
    first = min(odd, key=lambda together: min(record.announced for record in together))
    lines = {record.process: f"line {record.line}" for record in first}
    return _same_from(first[0].launch.name, lines, count)


def other_places(meetings: Iterable[Meeting], count: int) -> str:
    """Report the first launch that processes of a script made together from different lines.

    The text is empty if there is none; see `other_lines`.

    Example:
        >>> from mcnb.lockstep.model import Launch
        >>> f = Launch("jit(f)", "1", (0, 1))
        >>> lines = {0: "train.py:3", 1: "train.py:6"}
        >>> other_places([Meeting(f, 1, lines, lines)], 2)[:69]
        'process 0 launched jit(f) at train.py:3, and process 1 at train.py:6.'
    """
    odd = [one for one in meetings if len({*one.own.values()}) > 1 and not one.launch.is_barrier]
    return _same_from(odd[0].launch.name, odd[0].own, count) if odd else ""


def _same_from(name: str, lines: Mapping[int, str], count: int) -> str:
    (line, ks), *others = grouped(dict(sorted(lines.items())))
    said = [f"{name_processes(ks, count)} launched {name} at {line}"]
    said += [f"and {name_processes(ks, count)} at {line}" for line, ks in others]
    return (
        f"{', '.join(said)}. The lines launch the same computation, so no process hung. If they "
        "are different steps of the program, the results are wrong"
    )


def in_two_orders(races: Iterable[Race], count: int) -> str:
    """Report the first two launches that processes made in different orders, if there are any.

    Example:
        >>> names, lines = ("max", "jit(step)"), ("train.py:8", "train.py:5")
        >>> in_two_orders([Race(0, (1, 2), names, lines)], 3)[:130]
        'process 0 launched max (train.py:8) in one thread before jit(step) (train.py:5) in \
another, and processes 1,2 the other way around'
    """
    for race in races:
        first, second = (
            f"{name} ({line})" if line else name
            for name, line in zip(race.names, race.lines, strict=True)
        )
        process, others = race.process, race.others
        if others[0] < process:  # which of them was seen first depends on time
            process, others, first, second = others[0], (process,), second, first
        return (
            f"process {process} launched {first} in one thread before {second} in another, "
            f"and {name_processes(others, count)} the other way around. mcnb had all "
            "processes run them in one order, so the program went on. Without mcnb, the devices "
            "may run them in different orders, and hang or compute wrong results: make all "
            "launches that communicate from one thread, in an order that is the same on all "
            "processes"
        )
    return ""


def unequal_inputs(found: Sequence[UnequalInput], count: int, *, diverged: bool = False) -> str:
    """Report the first unequal value that processes passed to a launch, if there is any.

    Args:
        found: The unequal values.
        count: The number of processes.
        diverged: Whether a process was then found to be missing.

    Example:
        >>> from mcnb.lockstep.model import SharedValue
        >>> values = {k: SharedValue(0, (), "[0 1]" if k == 2 else "[0 0]") for k in range(4)}
        >>> one = UnequalInput(Launch("jit(init)", "1", (0,)), "key", "line 3", values)
        >>> unequal_inputs([one], 4)[:113]
        'processes 0,1,3 passed key = [0 0] to jit(init), line 3, and process 2 passed [0 1]. \
JAX takes the value as equal'
    """
    if not found:
        return ""
    one, *others = found
    value = next(iter(one.values.values()))
    name = f"argument {one.name}" if one.name.isdecimal() else one.name
    # The learner's expressions have backticks, unless they are names.
    words = name.strip("`")
    is_own = words != name or words.replace(".", "").isidentifier()
    index = f"[{', '.join(map(str, value.index))}]" if value.index else ""
    where = f", {one.where}" if one.where else ""
    (text, first), *groups = grouped({k: value.text for k, value in one.values.items()})
    passed = [
        f"{name_processes(first, count)} passed {name}{index} = {text} to {one.launch.name}{where}",
        *(f"{name_processes(ks, count)} passed {text}" for text, ks in groups),
    ]
    more = plural(len(others), "other launch", "other launches")
    if is_key(one.launch, value.argument):
        mend = SAME_SEED
    elif diverged:
        mend = "Perhaps the processes were in different steps of the program then"
    elif len(one.values) < count:
        mend = SAME_SOURCE
    else:
        mend = "Use the value of one process: multihost_utils.broadcast_one_to_all"
        mend += f"({words})" if is_own else ""
    return (
        f"{', '.join(passed[:-1])}, and {passed[-1]}. JAX takes the value as equal on all "
        "processes, and this launch does not communicate, so each process made its part of the "
        f"result from its own value. {mend}"
        f"{f'. The same holds for {more}' if others else ''}"
    )


def caught_before(verdicts: Sequence[Verdict], count: int) -> str:
    """Tell of the first divergence, if the processes went on, and diverged once more.

    Example:
        >>> from mcnb.lockstep.model import Launch
        >>> launch = Launch("device_put", "1", (0, 1))
        >>> waits, finished = ProcessState("waits", launch, line=4), ProcessState("finished")
        >>> verdict = Verdict("missing", {0: waits, 1: finished})
        >>> caught_before([verdict], 2), caught_before([verdict, verdict], 2)[:70]
        ('', 'before that, the program caught a LockstepError and went on: missing: ')
    """
    return f"before that, {CAUGHT}{explain(verdicts[0], count).sentence}" if verdicts[1:] else ""


_HEADINGS = {
    "mismatch": "Processes diverged: their launches do not match",
    "missing": "Processes diverged: a participant is missing",
    "not invited": "Processes diverged: a participant was not given this cell",
    "cycle": "Processes diverged: they wait for each other in a cycle",
    "died": "A process died",
    "stalled": "The cell did not finish within its time limit",
}
_DIFFERENT_VALUES = "Processes diverged: a replicated argument differs"
_HAPPENED = {
    "hung": "the processes hung until mcnb aborted the computations",
    "crashed": "the processes crashed",
    "failed": "a computation failed with an error",
    "returned": (
        "the launches do not match, but they ran and exchanged data. Their results may be wrong"
    ),
}


@dataclass(frozen=True)
class Wording:
    """A verdict in words.

    Attributes:
        sentence: The verdict in a few sentences, the same on every run.
        lines: The verdict with labels and lines of source, as it is shown.
    """

    sentence: str
    lines: tuple[str, ...]

    @property
    def block(self) -> str:
        """The verdict for a terminal: its lines in one text."""
        return "\n".join(self.lines)


def explain(
    verdict: Verdict,
    count: int,
    consequence: str = "",
    notes: Iterable[str] = (),
    alone: Mapping[int, Launch] | None = None,
) -> Wording:
    """Put a verdict into words.

    Args:
        verdict: The verdict.
        count: The number of processes.
        consequence: The state of the cluster, in sentences.
        notes: What else is suspicious, each in sentences.
        alone: Launches that do not communicate, in place of one that does; see `launched_alone`.

    Example:
        >>> from mcnb.lockstep.model import Launch
        >>> launch = Launch("device_put", "1", (0, 1))
        >>> states = {0: ProcessState("waits", launch, line=4), 1: ProcessState("finished")}
        >>> explain(Verdict("missing", states), 2).sentence
        'missing: process 0 is waiting in device_put, line 4; process 1 finished the cell without \
reaching it'
    """
    alone = alone or {}
    groups = _groups(verdict, alone)
    kind = verdict.kind
    names = _names(verdict, groups, count)
    difference = NO_DIFFERENCE
    if kind == "mismatch":
        difference = difference_of(verdict, count)
    elif kind == "missing":
        difference = difference_of_alone(verdict, alone, count)
    why = difference.aspect
    # Without mcnb, processes that pass different values to the same launch would not wait.
    only_values = why == "value" and all(state.value is not None for _, state in groups)
    waits = "about to launch" if only_values else "waiting in"
    does = [
        _does(state, ks, kind, f"{waits} {name}", _library(verdict, ks))
        + again
        + _handles(verdict, ks)
        for (ks, state), name, again in zip(
            groups, names, _again(verdict, groups, alone), strict=True
        )
    ]
    said = [
        f"{name_processes(ks, count)} {what}" for (ks, _), what in zip(groups, does, strict=True)
    ]
    if kind == "cycle":
        said.append(_ring(verdict.ring))
    differs = "" if difference.in_names else difference.words  # the states have the names
    hint = advise(verdict, groups, why, count)
    led = _caught(verdict, count) if is_uncertain(hint) else ""
    if not led and kind == "mismatch" and hint in WITHOUT_CAUSE:
        led = _variable(verdict, count)
        hint = with_cause(hint, verdict) if led else hint
    if not led and (difference.argument or why == "mesh"):
        led = _origin(verdict, difference)
    one_line = len({state.where for _, state in groups if state.launch is not None}) == 1
    if not led and why == "program" and one_line:
        each = (detail.inside for _, detail in sorted(verdict.details.items()))
        led = next((depends(origin) for origin in each if origin is not None), "")
    if not led and (origin := origin_of_rounds(hint, verdict)) is not None:
        led = depends(origin)
    happened = _HAPPENED.get(verdict.happened, "")
    parted = _parted(verdict, count)
    differ, cause = ("What differs: ", differs), ("Likely cause: ", led)
    parts: tuple[tuple[str, str], ...] = (
        ("What happened: ", happened),
        # Lines of the compiler tell less than the learner's.
        *((cause, differ) if difference.of_compiler else (differ, cause)),
        ("What came before: ", parted),
        ("Hint: ", hint),
        *(("Note: ", note) for note in notes),
        ("", consequence),
    )
    rest = [heading + text for heading, text in parts if text]
    sentence = ". ".join([f"{kind}: {'; '.join(said)}", *rest])
    width = max(len(label(ks, count)) for ks, _ in groups)
    heading = _DIFFERENT_VALUES if why == "value" else _HEADINGS["mismatch" if alone else kind]
    lines = [heading, ""]
    quoted = [_quoted(verdict, group) for group in groups]
    for (ks, _), what, quote, after in zip(groups, does, quoted, [*quoted[1:], ""], strict=True):
        lines.append(f"{label(ks, count):<{width}} {what}")
        if quote and quote != after:  # one line for all groups that are there
            lines.append(f"{'':<{width}} ----> {quote}")
    if kind == "cycle":
        lines.append(said[-1])
    if rest:
        lines += ["", *rest]
    return Wording(sentence, tuple(lines))


def _parted(verdict: Verdict, count: int) -> str:
    """Tell where processes that wait got out of step; empty if that is not known."""
    if verdict.parted is None:
        return ""
    groups = grouped(dict(sorted(verdict.parted.lines.items())))
    said = "; ".join(f"{line} on {name_processes(ks, count)}" for line, ks in groups)
    number, name = verdict.parted.number, verdict.parted.launch.name
    return (
        f"the {ordinal(number)} launch of {name} came from different lines: {said}. Since then, "
        "these processes may have been in different steps of the program, and results may be wrong"
    )


def _caught(verdict: Verdict, count: int) -> str:
    """Tell which exceptions some processes have caught more often than others."""
    if any(state.doing in ("raised", "died") for state in verdict.states.values()):
        return ""
    found = {
        k: {(one.error, one.place): one for one in caught}
        for k, state in sorted(verdict.states.items())
        if (caught := _caught_by(verdict, k, state)) is not None
    }
    each = [(one.launches, kind) for ones in found.values() for kind, one in ones.items()]
    for _, kind in sorted(each, key=lambda one: one[0]):  # stable: the newest first
        of_kind = {k: ones.get(kind) for k, ones in found.items()}
        if len({one and one.times for one in of_kind.values()}) > 1:
            texts = {k: _text_of(one) for k, one in of_kind.items() if one is not None}
            return "; ".join(
                f"{name_processes(ks, count)} caught {text}" for text, ks in grouped(texts)
            )
    return ""


def _caught_by(verdict: Verdict, k: int, state: ProcessState) -> Sequence[Caught] | None:
    """Return which exceptions a process caught; None if that is not known."""
    if k in verdict.details:
        return verdict.details[k].caught
    return state.caught if state.doing in ("finished", "left") else None


def _text_of(caught: Caught) -> str:
    text = f"{caught.text} ({caught.place})" if caught.place else caught.text
    if caught.times > 1:
        text += f", {caught.times} times"
    if caught.launches:
        text += f", {plural(caught.launches, 'launch', 'launches')} earlier"
    return text


def _variable(verdict: Verdict, count: int) -> str:
    """Tell which name differs on the innermost line that all waiting processes share, if any."""
    known = {
        k: {(one.place, one.name): one.value for one in detail.variables}
        for k, detail in sorted(verdict.details.items())
    }
    if len(known) < 2:
        return ""
    for place, name in next(iter(known.values())):
        values = {k: found[place, name] for k, found in known.items() if (place, name) in found}
        is_index = all(value == str(k) for k, value in values.items())
        if len(values) == len(known) and len({*values.values()}) > 1 and not is_index:
            said = (f"{value} on {name_processes(ks, count)}" for value, ks in grouped(values))
            asks = {
                one.asks
                for detail in verdict.details.values()
                for one in detail.variables
                if (one.place, one.name) == (place, name)
            }
            asked = asks.pop() if len(asks) == 1 else ""
            why = f"it depends on the process ({asked})" if asked else _why_in_loop(verdict, name)
            return f"`{name}` ({place}) is {'; '.join(said)}{', because ' if why else ''}{why}"
    return ""


def _why_in_loop(verdict: Verdict, name: str) -> str:
    """Tell where what a loop takes a name from begins to differ; empty if that is not known."""
    for _, detail in sorted(verdict.details.items()):
        for words, origin in zip(detail.loops, detail.loops_from, strict=False):
            if origin is not None and name in loop_targets(words):
                return depends(origin)
    return ""


def _origin(verdict: Verdict, difference: Difference) -> str:
    """Tell where an argument that differs begins to do so; empty if that is not known."""
    lines = {state.where for state in verdict.states.values() if state.launch is not None}
    for _, detail in sorted(verdict.details.items()):
        each = detail.origins.items()
        own = (one for words, one in each if belongs_to(difference.argument, words))
        origin = next(own, None) or detail.origins.get("")
        if difference.aspect == "mesh" and len(each) == 1:  # that of its only argument
            [(_, origin)] = each
        if origin is None or (origin.of_elements and difference.aspect != "value"):
            continue
        # A long expression on a line that is quoted anyway says nothing more.
        return "" if origin.place in lines and len(origin.name) > LONGEST_NAME else depends(origin)
    return ""


def _ring(ring: Sequence[int]) -> str:
    waits = [
        f"process {k} {'waits ' if k == ring[0] else ''}for process {after}"
        for k, after in zip(ring, (*ring[1:], ring[0]), strict=True)
    ]
    return f"{', '.join(waits[:-1])}, and {waits[-1]}"


def _groups(verdict: Verdict, alone: Mapping[int, Launch]) -> list[Group]:
    """Group the processes by state: failed processes first, then waiting ones."""
    groups: dict[object, Group] = {}
    for k, state in sorted(verdict.states.items()):
        alike = replace(state, launch=None, launches=0, value=None, caught=()), str(state.launch)
        key: tuple[object, ...] = (
            *alike,
            _handles(verdict, [k]),
            _library(verdict, [k]),
            k in alone,
        )
        if state.launch is not None and verdict.kind == "cycle":
            key = *key, state.launch.participants
        groups.setdefault(key, ([], state))[0].append(k)
    order = {"waits": 0, "raised": -1, "died": -1}
    return sorted(groups.values(), key=lambda group: (order.get(group[1].doing, 1), group[0]))


def _names(verdict: Verdict, groups: Sequence[Group], count: int) -> list[str]:
    """Name the launch of each group, with arguments where launches differ; empty without one."""
    launches = [state.launch for _, state in groups if state.launch is not None]
    if verdict.kind in ("mismatch", "cycle") and launches:
        names = iter(told_apart(verdict, launches))
    else:
        names = iter([launch.title for launch in launches])
    named = ["" if state.launch is None else next(names) for _, state in groups]
    for i, (_, state) in enumerate(groups):
        if state.launch is not None and verdict.kind == "cycle":
            named[i] += f" of {name_processes(state.launch.participants, count)}"
    return named


def _again(verdict: Verdict, groups: Sequence[Group], alone: Mapping[int, Launch]) -> list[str]:
    """Tell of each group, as the end of a sentence, how often it has been at the launch before."""
    waits = next((k for k, one in sorted(verdict.states.items()) if one.doing == "waits"), None)
    return [
        " after launching it without communication"
        if state.doing == "finished" and ks[0] in alone
        else _how_often(state, waits, verdict)
        for ks, state in groups
    ]


def _how_often(state: ProcessState, waits: int | None, verdict: Verdict) -> str:
    """Tell how often a process has been at its line, or at that of the first one that waits."""
    first = None if waits is None else verdict.states[waits]
    times = state.times if first is not None else 0
    if state.doing in ("finished", "left") and state.exit is None:
        if first is not None and times > first.times:
            # It has paired off launches of different steps with those that wait.
            if state.launches == first.launches > 0:
                made = plural(state.launches, "launch", "launches")
                return f" after {made}, as many as process {waits} has made"
            return f" after reaching that line {'once' if times == 1 else f'{times} times'}"
        again = a_or_an(f"{ordinal(times + 1)} time").lower()
        return f" without reaching it {again}" if times else " without reaching it"
    if times and state.doing == "waits" and state.where:
        return f", for the {ordinal(times + 1)} time"
    return ""


def _quoted(verdict: Verdict, group: Group) -> str:
    """Return the line of source of a group's launch with its number; empty if not known."""
    ks, state = group
    detail = detail_of(verdict, ks)
    if detail is None or not detail.source or state.line is None:
        return ""
    return f"{state.line} {detail.source}"


def _does(state: ProcessState, ks: list[int], kind: Kind, waits: str, library: str) -> str:
    one = len(ks) == 1
    was = "was" if one else "were"
    stalled = f"{was} still running, at an unknown line"
    missing = stalled if kind == "stalled" else "had not reached it yet"
    if state.exit is not None:
        return exit_text(state.exit, plural=not one)
    if state.doing == "waits" and state.launch is not None:
        where = f", {state.where}" if state.where else ""
        by = f", called by {library}" if library else ""
        now = was if kind == "stalled" else "is" if one else "are"
        return f"{now} {waits}{by}{where}"
    where = f" at {state.where}" if state.where else ""
    return {
        "runs": f"{was}{where}" if where else missing,
        "hangs": f"waited inside JAX{where}",
        "finished": "finished the cell",
        "left": "exited",
        "raised": f"raised {state.error}",
        "not invited": f"{was} not given this cell",
    }[state.doing]


def _handles(verdict: Verdict, ks: Iterable[int]) -> str:
    """Return which exception brought the first of these processes there, as a sentence's end."""
    detail = detail_of(verdict, ks) or Detail()
    ended = f", which {detail.ended}" if detail.ended else ""
    return ended + (f", while handling {detail.handling}" if detail.handling else "")


def _library(verdict: Verdict, ks: Iterable[int]) -> str:
    """Return which function of a library makes the launch of the first of these processes."""
    detail = detail_of(verdict, ks)
    return detail.library if detail is not None else ""


def left_waiting(states: Mapping[int, ProcessState], count: int) -> str:
    """Name the processes that waited for a failed process; empty if there are none.

    Example:
        >>> from mcnb.lockstep.model import Launch
        >>> launch = Launch("device_put", "1", (0, 1))
        >>> left_waiting({0: ProcessState("waits", launch, line=4), 1: ProcessState("raised")}, 2)
        'process 0 waited at line 4 in device_put'
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for k, state in sorted(states.items()):
        if state.doing == "waits" and state.launch is not None:
            groups.setdefault((state.where, state.launch.title), []).append(k)
    return "; ".join(
        f"{name_processes(ks, count)} waited{f' at {where}' if where else ''} in {name}"
        for (where, name), ks in groups.items()
    )
