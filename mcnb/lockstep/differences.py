"""Find the first difference between launches that do not match, and put it into words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mcnb._text import name_processes, plural
from mcnb.lockstep.model import Collective, Detail, Launch, LaunchRecord, Verdict

_LONGEST_LINE = 100
# What a barrier is called in messages as the argument that differs.
_NAME = "name"
# The longest list of arguments that is shown whole, and the most arguments that are named.
_LONGEST_ARGUMENTS, _MOST_ARGUMENTS = 60, 3
# The longest text that names all devices of meshes.
_LONGEST_DEVICES = 160
# A constant of a compiled program: its type, its values, and what follows them.
_CONSTANT = re.compile(r".* = (\w+\[[\d,]*\])(?:\{[^ ]*\})? constant\((.*)\)([^()]*)")
# A call of a library: its name, and its settings.
_CALL = re.compile(r'custom_call_target="([^"]*)".*, backend_config=\{(.*)\}$')
_SETTING = re.compile(r"(\w+) = ([^,]*)")
_COMMENT = re.compile(r"/\*.*?\*/")
_ELEMENT = re.compile(r"\([^()]*\)|[^\s{},]+")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between launches that do not match.

    Attributes:
        words: The difference in words; empty if there is none.
        aspect: What differs, such as `"shape"` or `"order"`; the keys of hints.
        argument: The argument that differs, such as `"params['w']"`, if one does.
        in_names: Whether the names of the launches say it already.
        of_compiler: Whether the words are the compiler's, if they say more than that something
            differs.
    """

    words: str
    aspect: str
    argument: str = ""
    in_names: bool = False
    of_compiler: bool = False


NO_DIFFERENCE = Difference("", "")


def difference_of(verdict: Verdict, count: int) -> Difference:
    """Return the first difference between the launches of a verdict.

    Example:
        >>> from mcnb.lockstep.model import ProcessState
        >>> launches = (Launch("max", "1", (0, 1)), Launch("sum", "2", (0, 1)))
        >>> states = {k: ProcessState("waits", one) for k, one in enumerate(launches)}
        >>> difference_of(Verdict("mismatch", states), 2).words
        'the computation: max on process 0; sum on process 1'
    """
    if found := _value(verdict, count):
        return found
    stood: dict[object, tuple[list[int], Launch]] = {}
    for k, state in sorted(verdict.states.items()):
        if state.launch is not None:
            key = (state.launch.title, state.launch.program, state.launch.participants)
            stood.setdefault(key, ([], state.launch))[0].append(k)
    waiting = list(stood.values())
    launches = [launch for _, launch in waiting]
    if len({(one.program, one.participants, one.label) for one in launches}) < 2:
        return NO_DIFFERENCE

    def told(texts: Iterable[str]) -> str:
        """Tell which launch has which text; empty if all launches have the same."""
        by_text: dict[str, list[int]] = {}
        for (ks, _), text in zip(waiting, texts, strict=True):
            by_text.setdefault(text, []).extend(ks)
        if len(by_text) < 2:
            return ""
        return "; ".join(
            f"{text or 'none'} on {name_processes(sorted(ks), count)}"
            for text, ks in by_text.items()
        )

    barriers = [launch.is_barrier for launch in launches]
    if say := told(launch.title for launch in launches):
        what = "call" if any(barriers) else "computation"
        met = all(barriers) or verdict.only_names
        aspect, argument = ("barrier", _NAME) if met else ("order", "")
        return Difference(f"the {what}: {say}", aspect, argument, in_names=True)
    if all(barriers):
        say = told(",".join(map(str, one.participants)) for one in launches)
        return Difference(f"the processes that meet: {say}", "participants")
    if say := told(plural(len(one.arguments), "argument", "arguments") for one in launches):
        return Difference(f"the number of arguments: {say}", "shape")
    called = argument_names(verdict, len(launches[0].arguments))
    for name, *arguments in zip(called, *(one.arguments for one in launches), strict=False):
        if say := told(arguments):
            shapes = {argument.partition("[")[2] for argument in arguments}
            aspect = "dtype" if len(shapes) == 1 else "shape"
            # What JAX's function was given has no name of its own.
            given = f"what is passed to {launches[0].name}"
            words = f"argument {name}" if name else given
            return Difference(f"the {aspect} of {words}: {say}", aspect, name or given)
    for name, *shardings in zip(called, *(one.shardings for one in launches), strict=False):
        if say := told(shardings):
            return Difference(f"the sharding of argument {name}: {say}", "sharding", name)
    if say := told(launch.mesh for launch in launches):
        return Difference(f"the mesh: {say}", "mesh")
    if say := told(launch.devices for launch in launches):
        devices = [launch.devices.split() for launch in launches]
        same = len({frozenset(one) for one in devices}) == 1
        what = "the order of the devices" if same else "the devices"
        if len(say) > _LONGEST_DEVICES:
            for at, names in enumerate(zip(*devices, strict=False)):
                if first := told(names):
                    return Difference(f"{what}, first at position {at}: {first}", "mesh")
        return Difference(f"{what}: {say}", "mesh")
    for i, name in enumerate(called):
        if say := told("donated" if i in one.donated else "kept" for one in launches):
            return Difference(f"the donation of argument {name}: {say}", "donation")
    if len({one.lowered for one in launches}) == 1 and launches[0].lowered:
        texts = [", ".join(map(_collective, one.collectives)) for one in launches]
        if say := told(texts):
            return Difference(
                f"the collectives that XLA compiled from one program: {say}", "compiler"
            )
    details = [detail for ks, _ in waiting if (detail := detail_of(verdict, ks)) is not None]
    if len(details) < len(waiting):  # a process was too busy to send its details
        return Difference("the compiled program", "program")
    static = [detail.static for detail in details if detail.static is not None]
    if len(static) == len(details):
        for name in sorted({n for known in static for n in known}):
            if say := told(known.get(name, "none") for known in static):
                return Difference(f"the static argument {name}: {say}", "static")
    if not all(detail.program for detail in details):
        return Difference("the compiled program", "program")
    for lines in itertools.zip_longest(*(detail.program for detail in details)):
        if told("nothing" if line is None else line for line in lines):
            texts = [line or "" for line in lines]
            if part := _constant(texts) or _setting(texts):
                what, values = part
                return Difference(f"{what}: {told(values)}", "program")
            shown = excerpts(texts)
            say = told(f"`{line}`" if line else "nothing" for line in shown)
            what = f"the compiled program; first different line: {say}"
            return Difference(what, "program", of_compiler=True)
    return Difference("the compiled program", "program")


def launched_alone(verdict: Verdict, records: Iterable[LaunchRecord]) -> dict[int, Launch]:
    """Return launches that do not communicate, but have the name and line of a waiting launch.

    Returns:
        The first one of each process that has made any, by process index.
    """
    records = list(records)
    for state in verdict.states.values():
        if state.doing != "waits" or state.launch is None:
            continue
        alone: dict[int, Launch] = {}
        for record in records:
            same = (record.launch.name, record.line) == (state.launch.name, state.line)
            if same and record.began is not None and not record.launch.communicates:
                alone.setdefault(record.process, record.launch)
        if alone:
            return dict(sorted(alone.items()))
    return {}


def difference_of_alone(verdict: Verdict, alone: Mapping[int, Launch], count: int) -> Difference:
    """Return how launches that do not communicate differ from the one that others wait in.

    Args:
        verdict: The verdict.
        alone: The launches that do not communicate, by process; see `launched_alone`.
        count: The number of processes.
    """
    if not alone:
        return NO_DIFFERENCE
    other = next(iter(alone.values()))
    waiting = [(state, state.launch) for state in verdict.states.values() if state.launch]
    state, own = next(pair for pair in waiting if pair[1].name == other.name)
    names = argument_names(verdict, len(own.arguments))
    aspect, argument, how = "program", "", ""
    if other.arguments != own.arguments:
        differ = (Launch.differing([other, own]) or [])[:_MOST_ARGUMENTS]
        texts = [
            replace(one, name="").brief(_LONGEST_ARGUMENTS, differ)[1:] for one in (other, own)
        ]
        aspect, how = "shape", f", with {' instead of '.join(texts)}"
        argument = names[differ[0]] if differ else ""
    else:
        each = zip(names, other.shardings, own.shardings, strict=False)
        for argument, *specs in (one for one in each if one[1] != one[2]):
            aspect = "sharding"
            how = f", with argument {argument} sharded as {' instead of '.join(specs)}"
            break
    launch = "launch does" if len(alone) == 1 else "launches do"
    words = (
        f"{name_processes(sorted(alone), count)} launched {other.name} at {state.where}, too{how}, "
        f"but without communication, so {'this' if len(alone) == 1 else 'these'} {launch} not match"
    )
    return Difference(words, aspect, argument)


def argument_names(
    verdict: Verdict, count: int, processes: Iterable[int] | None = None
) -> list[str]:
    """Return the names of a launch's arguments, of which there are `count`.

    An argument has its position for a name if none is known, or if processes have several for it:
    the first one of `x @ y` on a process may be that of `y @ x` on another one. By default, all
    processes that wait are asked.
    """
    if processes is None:
        processes = (k for k, state in verdict.states.items() if state.launch is not None)
    known = [verdict.details[k].names for k in processes if k in verdict.details]
    names = itertools.zip_longest(*(each[:count] for each in known if each))
    found = [one[0] if len({*one}) == 1 else str(i) for i, one in enumerate(names)]
    return [*found, *map(str, range(len(found), count))]


def told_apart(verdict: Verdict, launches: Sequence[Launch]) -> list[str]:
    """Name launches, with all arguments if they are few, and else with those that tell them apart.

    Example:
        >>> from mcnb.lockstep.model import ProcessState
        >>> arguments = ("f32[16,16]",) * 9
        >>> other = (*arguments, "f32[30]"), (*arguments, "f32[32]")
        >>> launches = [Launch("jit(f)", str(n), (0, 1), one) for n, one in enumerate(other)]
        >>> states = {k: ProcessState("waits", one) for k, one in enumerate(launches)}
        >>> told_apart(Verdict("mismatch", states), launches)[0]
        'jit(f) with argument 9 f32[30] and 9 arguments that match'
    """
    if max(len(" ".join(one.arguments)) for one in launches) <= _LONGEST_ARGUMENTS:
        return [*map(str, launches)]
    differ = Launch.differing(launches)
    if differ is None:
        return [one.brief(_LONGEST_ARGUMENTS) for one in launches]
    number = len(launches[0].arguments)
    if not differ:
        return [f"{one.name} with {number} arguments" for one in launches]
    shown = differ[:_MOST_ARGUMENTS]
    names = argument_names(verdict, number)
    called = [f"argument {name}" if name.isdecimal() else name for name in names]
    others = len(differ) - len(shown)
    rest = [plural(others, "other", "others")] if others else []
    if alike := number - len(differ):
        rest.append(plural(alike, "argument that matches", "arguments that match"))
    texts = []
    for one in launches:
        said = [f"{called[i]} {one.arguments[i]}" for i in shown] + rest
        head = ", ".join(said[:-1])
        texts.append(f"{one.name} with {f'{head} and ' if head else ''}{said[-1]}")
    return texts


def _value(verdict: Verdict, count: int) -> Difference | None:
    """Return which replicated argument differs, where, and its values; None if none does."""
    by_text: dict[str, list[int]] = {}
    values = {k: state.value for k, state in sorted(verdict.states.items())}
    known = {k: value for k, value in values.items() if value is not None}
    for k, value in known.items():
        by_text.setdefault(value.text, []).append(k)
    if not known:
        return None
    first = next(iter(known.values()))
    name = argument_names(verdict, first.argument + 1, known)[first.argument]
    where = f" at [{', '.join(map(str, first.index))}]" if first.index else ""
    said = "; ".join(f"{text} on {name_processes(ks, count)}" for text, ks in by_text.items())
    return Difference(f"the value of argument {name}{where}: {said}", "value", name)


def _collective(one: Collective) -> str:
    groups = " ".join(f"({','.join(map(str, group))})" for group in one.groups)
    return f"{one.kind} of {one.bytes} B among {groups}"


def _constant(lines: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return which element of a constant differs between lines, and its value in each.

    Return None if the lines differ in more than the values of a constant.
    """
    found = [_CONSTANT.fullmatch(_COMMENT.sub("", line)) for line in lines]
    matches = [match for match in found if match is not None]
    if len(matches) < len(lines) or len({(match[1], match[3]) for match in matches}) > 1:
        return None
    elements = [_ELEMENT.findall(match[2]) for match in matches]
    if len({len(one) for one in elements}) > 1:
        return None
    at = next((i for i, values in enumerate(zip(*elements, strict=True)) if len({*values}) > 1), -1)
    if at < 0:
        return None
    sizes = [int(size) for size in re.findall(r"\d+", matches[0][1].partition("[")[2])]
    index = ", ".join(str(i) for i in np.unravel_index(at, sizes))
    where = f" at [{index}]" if index else ""
    return f"a constant, {matches[0][1]}{where}", [one[at] for one in elements]


def _setting(lines: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return which setting of a library's call differs between lines, and its value in each.

    Return None if the lines differ in more than such settings.
    """
    calls = [_CALL.search(line) for line in lines]
    matches = [match for match in calls if match is not None]
    if len(matches) < len(lines) or len({match.string[: match.start(2)] for match in matches}) > 1:
        return None
    settings = [dict(_SETTING.findall(match[2])) for match in matches]
    for name in dict.fromkeys(itertools.chain(*settings)):
        values = [one.get(name, "none") for one in settings]
        if len({*values}) > 1:
            return f"the setting {name} of {matches[0][1]}", [*map(_as_letter, values)]
    return None


def _as_letter(value: str) -> str:
    """Return a value of a setting; BLAS and LAPACK name their options by letters."""
    number, _, kind = value.partition(" : ")
    letter = kind == "ui8" and number.isdigit() and 65 <= int(number) <= 90
    return f"'{chr(int(number))}'" if letter else number


def excerpts(lines: Sequence[str]) -> list[str]:
    """Return what fits into a message of long lines, from shortly before they begin to differ.

    Example:
        >>> excerpts(["f32[8] add(a, b)", "f32[8] add(b, a)"])
        ['f32[8] add(a, b)', 'f32[8] add(b, a)']
        >>> [len(one) for one in excerpts(["a" * 200 + "b" * 90, "a" * 200 + "c" * 90])]
        [108, 108]
    """
    if max(map(len, lines)) <= _LONGEST_LINE:
        return list(lines)
    columns = enumerate(zip(*lines, strict=False))
    same = next((i for i, letters in columns if len({*letters}) > 1), min(map(len, lines)))
    begin = max(0, same - _LONGEST_LINE // 3) if same > _LONGEST_LINE // 2 else 0
    end = begin + _LONGEST_LINE
    return [
        f"{'... ' * (begin > 0)}{line[begin:end]}{' ...' * (len(line) > end)}" for line in lines
    ]


def detail_of(verdict: Verdict, ks: Iterable[int]) -> Detail | None:
    """Return the first of these processes' details that were received."""
    return next((verdict.details[k] for k in ks if k in verdict.details), None)
