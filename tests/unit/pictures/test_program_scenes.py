"""How a compiled program is read, and the rows and the title that tell of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb._text import plural
from mcnb.lockstep.hlo import Operation
from mcnb.pictures import program as reader
from mcnb.pictures.model import Axis, Device, Layout, MeshModel, Region
from mcnb.pictures.program import Use, axes_of, sent_bytes, uses, wire_bytes
from mcnb.pictures.scene import Table
from mcnb.pictures.scenes.program import ProgramModel, program_scene
from mcnb.pictures.scenes.rows import MOST_LINES
from mcnb.pictures.svg import svg_of
from mcnb.pictures.text import text_of

PAIRS, COLUMNS = ((0, 1), (2, 3)), ((0, 2), (1, 3))
# A loop of five times around one of three, which also communicates in its condition; a branch; and
# a loop of unknown length. The second frame is one of mcnb's own.
PROGRAM = (
    """HloModule jit_f, num_partitions=4

FileNames
1 "/home/me/train.py"
2 "MCNB/show.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=4 end_column=9}
2 {file_name_id=2 function_name_id=1 line=99 end_line=99 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %c = f32[] add(f32[] %a, f32[] %b)
}

%once (p: f32[2]) -> f32[2] {
  ROOT %r = f32[2]{0} all-reduce(f32[2]{0} %p), replica_groups={{0,1},{2,3}}, to_apply=%add, \
metadata={op_name="f" stack_frame_id=1}
}

%helper (p: f32[2]) -> f32[2] {
  ROOT %r = f32[2]{0} call(f32[2]{0} %p), to_apply=%once
}

%limit (p: f32[2]) -> pred[] {
  %g = f32[4]{0} all-gather(f32[2]{0} %p), replica_groups={{0,1},{2,3}}, dimensions={0}, \
metadata={op_name="g" stack_frame_id=2}
  ROOT %r = pred[] constant(true)
}

%inner (p: f32[2]) -> f32[2] {
  ROOT %r = f32[2]{0} while(f32[2]{0} %p), condition=%limit, body=%helper, \
backend_config={"known_trip_count":{"n":"3"}}
}

%outer (p: f32[2]) -> f32[2] {
  ROOT %r = f32[2]{0} call(f32[2]{0} %p), to_apply=%helper
}

%same (p: f32[2]) -> f32[2] {
  ROOT %r = f32[2]{0} negate(f32[2]{0} %p)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %l = f32[2]{0} while(f32[2]{0} %p), condition=%same, body=%inner, \
backend_config={"known_trip_count":{"n":"5"}}
  %m = f32[2]{0} conditional(pred[] %t, f32[2]{0} %l, f32[2]{0} %l), \
true_computation=%helper, false_computation=%same
  %n = f32[2]{0} while(f32[2]{0} %m), condition=%same, body=%outer
  ROOT %r = f32[2]{0} all-reduce(f32[2]{0} %n), replica_groups={{0,1,2,3}}, to_apply=%add
}
"""
).replace("MCNB", str(Path(reader.__file__).parent))


def test_loops_multiply_and_branches_are_marked() -> None:
    summed = Operation("all-reduce", 8, PAIRS)
    line = ("/home/me/train.py", 12)
    assert uses(PROGRAM, 4) == [
        Use(Operation("all-gather", 16, PAIRS), 5 * (3 + 1)),  # mcnb's own line is not told
        Use(summed, 5 * 3, source=line),
        Use(summed, 1, branch=True, source=line),
        Use(summed, None, source=line),
        Use(Operation("all-reduce", 8, ((0, 1, 2, 3),))),
    ]
    assert sent_bytes(uses(PROGRAM, 4)) == 20 * 8 + 15 * 8 + 8 + 8 + 12


@pytest.mark.parametrize(
    ("groups", "sizes", "axes"),
    [
        (PAIRS, {"a": 2, "b": 2}, ("b",)),
        (((0, 1, 2, 3),), {"a": 2, "b": 2}, ("a", "b")),
        (((0,), (1,)), {"a": 2}, None),
        (((0, 2),), {"a": 2}, None),
        (((0, 1),), {}, None),
    ],
)
def test_the_axes_along_which_groups_lie(
    groups: tuple[tuple[int, ...], ...], sizes: dict[str, int], axes: tuple[str, ...] | None
) -> None:
    assert axes_of(groups, sizes) == axes


def test_of_unequal_groups_the_largest_counts() -> None:
    assert wire_bytes(Operation("all-gather", 8, ((0,), (1, 2)))) == 4.0


FOUR = tuple(Device(i // 2, i % 2) for i in range(4))
MESH = MeshModel((Axis("a", 2), Axis("b", 2)), FOUR, 2, 4)
HALVES = (Region(((0, 3),), FOUR[:2]), Region(((3, 4),), FOUR[2:]))
RESULT = Layout((4,), "float32", 4, HALVES, "P('a')", MESH, (("a",),))
IN_A_BRANCH = Use(
    Operation("all-gather", 2000, PAIRS), branch=True, source=("/home/me/train.py", 12)
)
STEP = ProgramModel(
    "step",
    (
        *[Use(Operation("all-reduce", 8, COLUMNS), 5, source=("<In[3]>", 2))] * 2,
        IN_A_BRANCH,
        Use(Operation("all-to-all", 16, None), None),
        Use(Operation("collective-permute", 16, ((0, 1), (1, 2), (2, 3), (3, 3)))),
    ),
    FOUR,
    MESH,
    (("[0]", RESULT), ("[1]", RESULT)),
    (("arguments", 100), ("results", 2000)),
)
STEP_TEXT = """\
step: at least 13 collectives, 1.1 KB sent by each device
     collective          along     among                         result  sent   times  from
1-2  all-reduce          'a'       P0-1                             8 B   8 B       5  In[3], line 2
  3  all-gather          'b'       each process by itself          2 KB  1 KB  0 or 1  train.py:12
  4  all-to-all                    not told                        16 B     ?       ?
  5  collective-permute  'a', 'b'  4 pairs, 1 between processes    16 B  16 B       1
result  shape           split   copies  on each device
[0,1]   2 x float32[4]  P('a')       2            24 B
Result: bytes on each device. Sent: bytes that each device sends on a ring.
Times ?: in a loop whose trip count XLA does not know.
0 or: in a branch that may not be taken.
Each device needs 100 B for arguments, 2 KB for results."""
BRANCH_TEXT = """\
f: up to 1 collective, 1 KB sent by each device
   collective  along  among                   result  sent   times  from
1  all-gather         each process by itself    2 KB  1 KB  0 or 1  train.py:12
Result: bytes on each device. Sent: bytes that each device sends on a ring.
0 or: in a branch that may not be taken."""
QUIET_TEXT = """\
f: no communication
result      shape       split   copies  on each device
the result  float32[4]  P('a')       2            12 B"""


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (STEP, STEP_TEXT),
        (ProgramModel("f", (IN_A_BRANCH,), FOUR, None, ()), BRANCH_TEXT),
        (ProgramModel("f", (), FOUR, MESH, (("the result", RESULT),)), QUIET_TEXT),
    ],
    ids=["everything", "a branch alone", "no communication"],
)
def test_the_whole_text_of_a_program(program: ProgramModel, text: str) -> None:
    assert text_of(program_scene(program)) == text


@pytest.mark.parametrize(
    ("groups", "among"),
    [
        (tuple((i, i + 2) for i in (0, 4, 8, 12)), "P0-1; P2-3; P4-5; P6-7"),
        ((*((i, i + 1, i + 2) for i in range(0, 20, 4)), (0, 2, 3)), "5 groups of 2 processes"),
        (((0, 2), (1, 3), (4, 5)), "P0-1; P2"),
    ],
    ids=["four", "five", "equal ones"],
)
def test_the_processes_of_a_few_groups_are_named(
    groups: tuple[tuple[int, ...], ...], among: str
) -> None:
    devices = tuple(Device(i // 2, i % 2) for i in range(24))
    used = Use(Operation("all-gather", 8, groups))
    [table] = program_scene(ProgramModel("f", (used,), devices, None, ())).parts
    assert isinstance(table, Table)
    assert table.rows[0][3] == among


def other(i: int) -> Use:
    return Use(Operation("all-gather", 8 * i, PAIRS))


@pytest.mark.parametrize(
    ("uses", "results", "kept", "note"),
    [
        (10, 11, [10, 11], ()),
        (30, 3, [17, 3], ("More, with full=True: 13 collectives.",)),
        (1, 30, [1, 19], ("More, with full=True: 11 results.",)),
        (42, 41, [10, 10], ("More, with full=True: 32 collectives and 31 results.",)),
    ],
)
def test_of_very_many_collectives_and_results_the_first_are_listed(
    uses: int, results: int, kept: list[int], note: tuple[str, ...]
) -> None:
    used = tuple(map(other, range(1, uses + 1)))
    outputs = tuple(("." + "x" * i, RESULT) for i in range(results))
    program = ProgramModel("f", used, FOUR, None, outputs)
    scene = program_scene(program)
    assert scene.title.startswith(f"f: {plural(uses, 'collective', 'collectives')}, ")
    assert scene.notes[: len(note)] == note
    assert [len(part.rows) for part in scene.parts if isinstance(part, Table)] == kept
    whole = program_scene(program, full=True)
    assert [len(part.rows) for part in whole.parts if isinstance(part, Table)] == [uses, results]
    assert whole.notes == scene.notes[len(note) :]


REPEATED = """\
f: 1202 collectives, 11.2 KB sent by each device
                      collective  along  among                   result  sent  times  from
                   1  all-gather         each process by itself     8 B   4 B      1
2-3, 5-6 … 1199-1200  all-gather         each process by itself    16 B   8 B      1
         4, 7 … 1201  all-gather         each process by itself    24 B  12 B      1
                1202  all-gather         each process by itself     8 B   4 B      1
Result: bytes on each device. Sent: bytes that each device sends on a ring."""


def test_collectives_that_come_in_turn_share_their_rows() -> None:
    turn = [other(2), other(2), other(3)]
    used = (other(1), *turn * 400, other(1))
    text = text_of(program_scene(ProgramModel("f", used, FOUR, None, ())))
    assert text == REPEATED


# A step of 500 layers: each gathers its weights, and sums what it computes.
GATHER = Use(Operation("all-gather", 4096, PAIRS), source=("/home/me/train.py", 12))
REDUCE = Use(Operation("all-reduce", 512, COLUMNS), source=("/home/me/train.py", 13))
THOUSAND_LEAVES = ProgramModel(
    "step",
    (*[GATHER, REDUCE] * 500, GATHER),
    FOUR,
    MESH,
    (("[0]", RESULT), *((f"[1]['layer{i // 2}']['{'wb'[i % 2]}']", RESULT) for i in range(1000))),
)
THOUSAND_TEXT = """\
step: 1001 collectives, 1.28 MB sent by each device
             collective  along  among                   result     sent  times  from
 1, 3 … 999  all-gather  'b'    each process by itself  4.1 KB  2.05 KB      1  train.py:12
2, 4 … 1000  all-reduce  'a'    P0-1                     512 B    512 B      1  train.py:13
       1001  all-gather  'b'    each process by itself  4.1 KB  2.05 KB      1  train.py:12
result                  shape             split   copies  on each device
[0]                     float32[4]        P('a')       2            12 B
[1]['layer0-499']['w']  500 x float32[4]  P('a')       2            6 KB
[1]['layer0-499']['b']  500 x float32[4]  P('a')       2            6 KB
Result: bytes on each device. Sent: bytes that each device sends on a ring."""


def test_a_step_of_a_model_with_a_thousand_leaves() -> None:
    scene = program_scene(THOUSAND_LEAVES)
    assert text_of(scene) == THOUSAND_TEXT
    assert len(svg_of(scene)) < 60_000
    whole = text_of(program_scene(THOUSAND_LEAVES, full=True)).splitlines()
    assert len(whole) == 1 + (1 + 1001) + (1 + 1001) + 1


USES = st.builds(other, st.integers(1, 60))
OUTPUTS = st.tuples(st.text(".ab01", min_size=1, max_size=6), st.just(RESULT))


@given(st.lists(USES, max_size=60), st.lists(OUTPUTS, max_size=60))
def test_every_program_fits(used: list[Use], outputs: list[tuple[str, Layout]]) -> None:
    scene = program_scene(ProgramModel("f", tuple(used), FOUR, None, tuple(outputs)))
    assert len(text_of(scene).splitlines()) <= MOST_LINES
