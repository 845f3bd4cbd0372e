"""What a verdict says of launches that differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mcnb.lockstep.differences import difference_of, excerpts
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import (
    Collective,
    Detail,
    Launch,
    Origin,
    ProcessState,
    SharedValue,
    Verdict,
)
from tests.support.verdicts import FINISHED, MAX, ORDER, PROGRAM, SUM, at, launch, sentence, states

SHAPE = (
    "all processes must pass the same global shape. Pad to a common length and mask the padding, "
    "or give every process the same number of full batches"
)


DTYPE = "all processes must pass the same dtype. Set the dtype where the array is created"


SHARDING = (
    "all processes must use the same sharding. Create the sharding once, from one PartitionSpec"
)


MESH = (
    "all processes must use the same mesh, with the same devices in the same order. Create it "
    "from jax.devices() or with jax.make_mesh, and let nothing in it depend on the process"
)


STATIC = (
    "a static argument is compiled into the program, so it must be equal on all processes. Data "
    "that is meant to differ belongs in a sharded array: jax.make_array_from_process_local_data"
)


FULL = launch(
    "jit(f)",
    arguments=("f32[8,4]", "i32[3]"),
    shardings=("P('a',)", "P()"),
    mesh="{'a': 2}",
    devices="P0.0 P1.0",
)


OTHERS = {
    "name": "jit(g)",
    "arguments": ("f32[8,8]", "i32[3]"),
    "shardings": ("P('a',)", "P('b',)"),
    "mesh": "{'b': 2}",
    "devices": "P1.0 P0.0",
}


def other(**more: Any) -> Launch:
    return replace(FULL, program="2", **more)


def constants(kind: str, *values: str) -> dict[int, Detail]:
    lines = [f"tmp_1 = {kind} constant({value})" for value in values]
    return {k: Detail(program=("same", line)) for k, line in enumerate(lines)}


def whole_lines(one: str, two: str) -> tuple[dict[int, Detail], str, str]:
    """Return the details of programs that differ in a line, which is shown, and what is said."""
    details = {k: Detail(program=("same", f"a = {line}")) for k, line in enumerate((one, two))}
    said = f"first different line: `a = {one}` on process 0; `a = {two}` on process 1"
    return details, f"the compiled program; {said}", PROGRAM


def calls(*settings: str) -> dict[int, Detail]:
    call = 'tmp_1 = f32[4] custom-call(tmp_0), custom_call_target="solve", api_version=1'
    lines = [f"{call}, backend_config={{{one}}}" for one in settings]
    return {k: Detail(program=("same", line)) for k, line in enumerate(lines)}


@pytest.mark.parametrize(
    ("one", "two", "details", "differs", "hint"),
    [
        (
            FULL,
            other(name="jit(g)"),
            {},
            "",  # the names of the launches say it
            ORDER,
        ),
        (
            FULL,
            other(arguments=("f32[8,4]",)),
            {},
            "the number of arguments: 2 arguments on process 0; 1 argument on process 1",
            SHAPE,
        ),
        (
            FULL,
            other(arguments=("f32[8,8]", "i32[3]")),
            {},
            "the shape of argument 0: f32[8,4] on process 0; f32[8,8] on process 1",
            SHAPE,
        ),
        (
            FULL,
            other(arguments=("f32[8,4]", "i32[]")),
            {1: Detail(names=("v", "n"))},
            "the shape of argument n: i32[3] on process 0; i32[] on process 1",
            SHAPE,
        ),
        (
            FULL,
            other(arguments=("f32[8,4]", "f32[4]")),
            {0: Detail(names=("v",)), 1: Detail(names=("v",))},
            "the shape of argument 1: i32[3] on process 0; f32[4] on process 1",
            SHAPE,
        ),
        (
            FULL,
            other(arguments=("f16[8,4]", "i32[4]")),
            {},
            "the dtype of argument 0: f32[8,4] on process 0; f16[8,4] on process 1",
            DTYPE,
        ),
        (
            replace(FULL, arguments=("key<fry>[]",)),
            other(arguments=("u32[]",)),
            {0: Detail(names=("key",))},
            "the dtype of argument key: key<fry>[] on process 0; u32[] on process 1",
            DTYPE,
        ),
        (
            FULL,
            other(shardings=("P('a',)", "P('b',)")),
            {},
            "the sharding of argument 1: P() on process 0; P('b',) on process 1",
            SHARDING,
        ),
        (
            FULL,
            other(shardings=("", "P()")),
            {1: Detail(names=("v",))},
            "the sharding of argument v: P('a',) on process 0; none on process 1",
            SHARDING,
        ),
        (
            FULL,
            other(mesh="{'b': 2}"),
            {},
            "the mesh: {'a': 2} on process 0; {'b': 2} on process 1",
            MESH,
        ),
        (
            FULL,
            other(mesh=""),
            {},
            "the mesh: {'a': 2} on process 0; none on process 1",
            MESH,
        ),
        (
            FULL,
            other(devices="P1.0 P0.0"),
            {},
            "the order of the devices: P0.0 P1.0 on process 0; P1.0 P0.0 on process 1",
            MESH,
        ),
        (
            FULL,
            other(),
            {0: Detail(static={"m": "1", "n": "2"}), 1: Detail(static={"m": "1", "n": "3"})},
            "the static argument n: 2 on process 0; 3 on process 1",
            STATIC,
        ),
        (
            FULL,
            other(),
            {0: Detail(static={"z": "1", "n": "2"}), 1: Detail(static={"z": "2"})},
            "the static argument n: 2 on process 0; none on process 1",
            STATIC,
        ),
        (
            FULL,
            other(),
            {
                0: Detail(static={"z": "1"}, program=("a", "b")),
                1: Detail(program=("a", "c")),  # its static arguments are not known
            },
            "the compiled program; first different line: `b` on process 0; `c` on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            {0: Detail(static={}, program=("a", "b")), 1: Detail(static={})},
            "the compiled program",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            {0: Detail(program=("a", "b", "c")), 1: Detail(program=("a", "d", "e"))},
            "the compiled program; first different line: `b` on process 0; `d` on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            {0: Detail(program=("a", "b")), 1: Detail(program=("a",))},
            "the compiled program; first different line: `b` on process 0; nothing on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            constants("f32[2,3]{1,0}", "{ {1, 2, 3}, {4, 5, 6} }", "{ {1, 2, 3}, {4, 7, 6} }"),
            "a constant, f32[2,3] at [1, 1]: 5 on process 0; 7 on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            constants("c64[2]{0}", "{(1, -0.5), (0, 2)}", "{(1, -0.5), (0, 3)}"),
            "a constant, c64[2] at [1]: (0, 2) on process 0; (0, 3) on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            constants("s8[1,1,2]{2,1,0}", "{ { /*i1=0*/ {1, 2} } }", "{ { /*i1=0*/ {3, 2} } }"),
            "a constant, s8[1,1,2] at [0, 0, 0]: 1 on process 0; 3 on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            constants("pred[]", "true", "false"),
            "a constant, pred[]: true on process 0; false on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            calls("diag = 78 : ui8, uplo = 76 : ui8", "diag = 78 : ui8, uplo = 85 : ui8"),
            "the setting uplo of solve: 'L' on process 0; 'U' on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            calls("axes = 2 : i64", "axes = 3 : i64"),
            "the setting axes of solve: 2 on process 0; 3 on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            {k: Detail(program=("a = f32[8] add(" + "b, " * 60 + f"{k})",)) for k in range(2)},
            "the compiled program; first different line: "
            f"`... {'b, ' * 11}0)` on process 0; `... {'b, ' * 11}1)` on process 1",
            PROGRAM,
        ),
        (
            replace(FULL, donated=(1,)),
            other(donated=(0, 1)),
            {1: Detail(names=("v", "n"))},
            "the donation of argument v: kept on process 0; donated on process 1",
            "donate the argument on all processes, or on none: what XLA compiles depends on it",
        ),
        (
            replace(FULL, lowered="a", collectives=(Collective("all-reduce", 4, ((0, 1),)),)),
            other(lowered="a", collectives=(Collective("all-gather", 8, ((0, 1),)),)),
            {},
            "the collectives that XLA compiled from one program: all-reduce of 4 B among (0,1) on "
            "process 0; all-gather of 8 B among (0,1) on process 1",
            "XLA compiled one program in two ways: compare the versions of jaxlib and the "
            "XLA_FLAGS of the processes",
        ),
        (
            replace(FULL, lowered="a", collectives=(Collective("all-reduce", 4, ((0, 1),)),)),
            other(lowered="b", collectives=(Collective("all-gather", 8, ((0, 1),)),)),
            {},
            "the compiled program",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            calls("axes = 65 : i64, mode = 1 : i64", "axes = 65 : i64"),
            "the setting mode of solve: 1 on process 0; none on process 1",
            PROGRAM,
        ),
        (
            FULL,
            other(),
            calls("axes = 65 : i64", "axes = 66 : i64"),
            "the setting axes of solve: 65 on process 0; 66 on process 1",
            PROGRAM,
        ),
        # More than the elements of a constant differs.
        (FULL, other(), *whole_lines("f32[2] constant({...})", "f32[2] constant({1, 2})")),
        (FULL, other(), *whole_lines("f32[1] constant({ 1 })", "f32[1] constant({1})")),
        (
            FULL,
            other(),
            *whole_lines("f32[] constant(1)", "f32[] constant(2), sharding=maximal"),
        ),
        (
            FULL,
            other(),
            *whole_lines(
                'call(a), custom_call_target="f", backend_config={n = 1}',
                'call(b), custom_call_target="f", backend_config={n = 2}',
            ),
        ),
        (FULL, other(), {}, "the compiled program", PROGRAM),
        (
            FULL,
            other(),
            {k: Detail(static={"n": "1"}, program=("a", "b")) for k in range(2)},
            "the compiled program",
            PROGRAM,
        ),
    ],
)
def test_what_differs(
    one: Launch, two: Launch, details: dict[int, Detail], differs: str, hint: str
) -> None:
    texts = {str(one), str(two)}
    stood = (
        f"both processes are waiting in {one}, line 4"
        if len(texts) == 1
        else f"process 0 is waiting in {one}, line 4; process 1 is waiting in {two}, line 4"
    )
    found = f". What differs: {differs}" if differs else ""
    assert sentence("mismatch", at(what=one), at(what=two), details=details) == (
        f"mismatch: {stood}{found}. Hint: {hint}"
    )


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "the computation:"),
        (1, "the shape of argument 0:"),
        (2, "the sharding of argument 1:"),
        (3, "the mesh:"),
        (4, "the order of the devices:"),
        (5, "the static argument n:"),
        (6, "the compiled program; first different line:"),
    ],
)
def test_what_differs_first(number: int, expected: str) -> None:
    two = other(**dict(list(OTHERS.items())[number:]))
    details = {
        k: Detail(static={} if number > 5 else {"n": str(k)}, program=(f"line of {k}",))
        for k in range(2)
    }
    each = states(at(what=FULL), at(what=two))
    found = difference_of(Verdict("mismatch", each, details=details), 2)
    assert found.words.startswith(f"{expected} ")
    said = sentence("mismatch", *each.values(), details=details)
    assert (f". What differs: {expected} " in said) == (not found.in_names) == (number > 0)


def test_nothing_differs_between_launches_that_are_the_same() -> None:
    assert sentence("mismatch", at(4), at(5)) == (
        "mismatch: process 0 is waiting in sum, line 4; process 1 is waiting in sum, line 5"
    )
    assert "What differs" not in sentence("missing", at(what=SUM), at(what=MAX), FINISHED)


def test_launches_with_other_partners_differ() -> None:
    two = replace(SUM, participants=(0, 1, 2), devices="P0.0 P1.0 P2.0")
    one = replace(SUM, devices="P0.0 P1.0")
    assert ". What differs: the devices: P0.0 P1.0 on process 0; P0.0 P1.0 " in (
        sentence("mismatch", at(what=one), at(what=two), FINISHED)
    )


BARRIER = (
    "all participants of a barrier must pass the same name, and reach barriers in the same order. "
    "A name must not hold what differs between processes, such as the process index, or a counter "
    "that one process advanced more often"
)
SAVED = Launch.barrier("saved", (0, 1))
SYNC = Launch("sync_global_devices", "1", (0, 1), label="'saved'")


@pytest.mark.parametrize(
    ("one", "two", "differs", "hint"),
    [
        (
            SAVED,
            Launch.barrier("loaded", (0, 1)),
            "",
            BARRIER,
        ),
        (
            SAVED,
            Launch.barrier("saved", (0, 1, 2)),
            "the processes that meet: 0,1 on process 0; 0,1,2 on process 1",
            "all participants of a barrier must pass the same process_ids",
        ),
        (SUM, SAVED, "", ORDER),
        (SYNC, replace(SYNC, label="'loaded'"), "", BARRIER),
        (SYNC, replace(SYNC, label="'loaded'", program="2"), "", ORDER),
        (SYNC, SUM, "", ORDER),
    ],
)
def test_barriers_that_differ(one: Launch, two: Launch, differs: str, hint: str) -> None:
    said = sentence("mismatch", at(what=one), at(what=two))
    found = f". What differs: {differs}" if differs else ""
    assert said.rpartition(", line 4")[2] == f"{found}. Hint: {hint}"


def test_where_the_name_of_a_barrier_begins_to_differ() -> None:
    each = [at(what=SYNC), at(what=replace(SYNC, label="'loaded'"))]
    origin = Origin("name", "train.py:3", "name = names[k]")
    details = {0: Detail(origins={"": origin}), 1: Detail()}
    assert sentence("mismatch", *each, details=details) == (
        "mismatch: process 0 is waiting in sync_global_devices('saved'), line 4; process 1 is "
        "waiting in sync_global_devices('loaded'), line 4. Likely cause: `name` depends on a value "
        f"that differs between processes: `name = names[k]` (train.py:3). Hint: {BARRIER}"
    )


def test_barriers_that_differ_explain_more_than_an_error_elsewhere() -> None:
    each = [at(what=SAVED), at(what=Launch.barrier("loaded", (0, 1)))]
    said = sentence("mismatch", *each, ProcessState("raised", error="KeyError"))
    assert said.partition(". Hint: ")[2] == BARRIER


@pytest.mark.parametrize(
    ("names", "called"),
    [
        ({0: ("x", "y"), 1: ("y", "x")}, "1"),
        ({0: ("x", "y"), 1: ("z", "y")}, "y"),
        ({0: ("x", "y")}, "y"),
        ({0: (), 1: ("x", "y")}, "y"),
        ({0: ("x",), 1: ("x", "y")}, "1"),
        ({0: ("x", "y"), 1: ("x", "y"), 2: ("other", "names")}, "y"),  # of one that raised
    ],
)
def test_an_argument_of_several_names_is_named_by_its_position(
    names: dict[int, tuple[str, ...]], called: str
) -> None:
    each = [
        at(what=replace(FULL, program=d, arguments=("f32[8]", d))) for d in ("i32[3]", "i32[4]")
    ]
    details = {k: Detail(names=own) for k, own in names.items()}
    said = sentence("mismatch", *each, ProcessState("finished"), details=details)
    assert f"the shape of argument {called}: i32[3] on process 0; i32[4] on process 1" in said


def test_any_process_of_a_group_may_know_its_program() -> None:
    details = {1: Detail(program=("a", "b")), 2: Detail(program=("a", "c"))}
    each = [at(what=FULL), at(what=FULL), at(what=other())]
    assert (
        ". What differs: the compiled program; first different line: `b` on processes 0,1; `c` on "
        "process 2. "
    ) in sentence("mismatch", *each, details=details)


VALUE = (
    "a replicated argument must be equal on all processes; otherwise the results are wrong, "
    "without an error. Compute it from the same seed or file on every process, or send it from "
    "process 0 to the others: "
    "jax.experimental.multihost_utils.broadcast_one_to_all"
)
ON_SOME = (
    "what several processes hold of an argument must be equal on all of them; otherwise the "
    "results are wrong, without an error. Compute it from the same seed or file on each of them"
)


def holds(text: str, argument: int = 0, index: tuple[int, ...] = ()) -> ProcessState:
    return replace(at(what=FULL), value=SharedValue(argument, index, text))


def test_keys_that_differ() -> None:
    launch = replace(FULL, arguments=("f32[8]", "key<fry>[]"))
    each = [replace(at(what=launch), value=SharedValue(1, (), text)) for text in ("[0 0]", "[0 1]")]
    hint = f"{VALUE.partition('Compute it')[0]}Make the key from the same seed on every process"
    assert f". Hint: {hint}" in sentence("mismatch", *each)


@pytest.mark.parametrize(
    ("argument", "index", "names", "where"),
    [
        (0, (), {}, "argument 0"),
        (1, (3,), {}, "argument 1 at [3]"),
        (1, (0, 3), {1: ("v", "n")}, "argument n at [0, 3]"),
        (1, (), {0: ("v",)}, "argument 1"),
        (0, (), {2: ("w",), 1: ("v",)}, "argument v"),  # process 2 waits in another function
    ],
)
def test_values_that_differ(
    argument: int, index: tuple[int, ...], names: dict[int, tuple[str, ...]], where: str
) -> None:
    each = [holds(text, argument, index) for text in ("1.0", "2.0")]
    details = {k: Detail(names=own) for k, own in names.items()}
    verdict = Verdict("mismatch", states(*each, at(5, MAX)), details=details)
    wording = explain(verdict, 3)
    assert wording.sentence == (
        "mismatch: processes 0,1 are waiting in jit(f) f32[8,4] i32[3], line 4; process 2 is "
        f"waiting in max, line 5. What differs: the value of {where}: 1.0 on process 0; 2.0 on "
        f"process 1. Hint: {ON_SOME}"
    )
    assert wording.lines[0] == "Processes diverged: a replicated argument differs"


@pytest.mark.parametrize(
    ("names", "passed", "words"),
    [
        (("w",), {}, ""),
        (("w",), {"w": "weights"}, "(weights)"),
        (("w['a'][0]",), {"w": "`load(k)['x']`"}, "(load(k)['x'])"),
        (("w.a",), {"w": "w"}, "(w)"),
        (("w2",), {"w": "weights"}, ""),
        ((), {"w": "weights"}, ""),
    ],
)
def test_what_is_sent_has_the_name_of_the_call(
    names: tuple[str, ...], passed: dict[str, str], words: str
) -> None:
    details = {0: Detail(names=names, passed=passed)}
    assert sentence("mismatch", holds("1"), holds("2"), details=details).endswith(VALUE + words)


def test_nothing_is_sent_to_processes_that_take_no_part() -> None:
    some = [replace(holds(text), launch=replace(FULL, participants=(1, 3))) for text in "12"]
    verdict = Verdict("mismatch", {1: some[0], 3: some[1]})
    assert explain(verdict, 4).sentence == (
        "mismatch: processes 1,3 are about to launch jit(f) f32[8,4] i32[3], line 4. What differs: "
        f"the value of argument 0: 1 on process 1; 2 on process 3. Hint: {ON_SOME}"
    )


def test_arrays_that_are_gathered() -> None:
    each = [
        replace(FULL, name="process_allgather", program=n, arguments=(f"i32[4,{n}]",)) for n in "48"
    ]
    assert sentence("mismatch", *(at(what=one) for one in each)).endswith(
        "Hint: process_allgather takes an array of the same shape from every process. Pad to a "
        "common length, which all processes know, and mask the padding"
    )


def test_processes_that_pass_other_values_would_not_wait() -> None:
    assert sentence("mismatch", holds("1"), holds("2")).startswith(
        "mismatch: both processes are about to launch jit(f) f32[8,4] i32[3], line 4. What "
        "differs: the value of argument 0: 1 on process 0; 2 on process 1. "
    )


def test_values_that_differ_explain_more_than_an_error_elsewhere() -> None:
    said = sentence("mismatch", holds("1"), holds("2"), ProcessState("raised", error="KeyError"))
    assert said.endswith(
        f"the value of argument 0: 1 on process 0; 2 on process 1. Hint: {ON_SOME}"
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a" * 40 + "b" * 80, "a" * 40 + "c" * 60], ["a" * 40 + "b" * 60 + " ...", 0]),
        (["a" * 150, "a" * 20], ["a" * 100 + " ...", 0]),
        (["a" * 150, "a" * 90], ["... " + "a" * 93, "... " + "a" * 33]),
    ],
)
def test_long_lines_are_cut_around_their_difference(
    lines: list[str], expected: list[str | int]
) -> None:
    assert excerpts(lines) == [lines[i] if one == 0 else one for i, one in enumerate(expected)]


def test_of_many_devices_only_the_first_that_differs_is_shown() -> None:
    names = [f"P{k}.{local}" for k in range(4) for local in range(8)]
    orders = [names, names, [*names[:3], *names[:2:-1]]]
    launches = [launch(program=str(k), devices=" ".join(one)) for k, one in enumerate(orders)]
    waiting = states(*(at(what=one) for one in launches))
    assert difference_of(Verdict("mismatch", waiting), 3).words == (
        "the order of the devices, first at position 3: P0.3 on processes 0,1; P3.7 on process 2"
    )
