"""Equal programs have one fingerprint; who has to launch a program together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep.hlo import Operation, by_process, constants, fingerprint, partners
from mcnb.lockstep.model import Collective
from tests.support.hlo_texts import COLUMNS, DEVICES, ROWS, Groups, as_lists, iotas

PROGRAM = """\
HloModule , is_scheduled=true, entry_computation_layout={(f32[4,4]{1,0})->f32[4,4]{1,0}}, \
num_partitions=4

%(x: f32[], y: f32[]) -> f32[] {
  tmp_0 = f32[] parameter(0)
  tmp_1 = f32[] parameter(1)
  ROOT tmp_2 = f32[] add(tmp_0, tmp_1)
}

ENTRY %(param: f32[4,4]) -> f32[4,4] {
  tmp_0 = f32[4,4]{1,0} parameter(0), sharding={devices=[2,2]<=[4]}
  tmp_1 = f32[4,4]{1,0} copy(tmp_0)
  tmp_8 = f32[4,4]{1,0} custom-call(tmp_1), custom_call_target="f", backend_config={uplo = 76 : ui8}
  tmp_9 = () custom-call(tmp_1), custom_call_target="python_callback", backend_config={index = 0}
  tmp_2 = f32[4,4]{1,0} collective-permute(tmp_1), source_target_pairs={{0,1},{1,0}}
  ROOT tmp_3 = f32[4,4]{1,0} all-reduce(tmp_2), channel_id=1, \
replica_groups=mesh['a'=2,'b'=2] {'a'}, use_global_device_ids=true, to_apply=%region_0
}
"""


ROOT = "use_global_device_ids=true, to_apply=%region_0"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mesh['a'=2,'b'=2] {'a'}", "mesh['rows'=2,'columns'=2] {'rows'}"),
        ("mesh['a'=2,'b'=2] {'a'}", "mesh['a'=2,'one'=1,'b'=2] {'a'}"),
        ("mesh['a'=2,'b'=2] {'a'}", "mesh['a'=4] {'a':(1)2}"),
        ("mesh['a'=2,'b'=2] {'a'}", "mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}"),
        ("mesh['a'=2,'b'=2] {'a'}", "mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}"),
        ("mesh['a'=2,'b'=2] {'a'}", "[2,2]<=[2,2]T(1,0)"),
        ("mesh['a'=2,'b'=2] {'a'}", "{{0,2},{1,3}}"),
        ("%(x: f32[], y: f32[])", "%(left: f32[], right: f32[])"),
        ("ENTRY %(param: f32[4,4])", "ENTRY %(weights: f32[4,4])"),
        ("ENTRY %(param: f32[4,4])", "ENTRY %main.5(param: f32[4,4])"),
        (", sharding={devices=[2,2]<=[4]}", ""),
        ("sharding={devices=[2,2]<=[4]}", "sharding={replicated}"),
        (ROOT, f'{ROOT}, frontend_attributes={{_name="a"}}'),
        (ROOT, f'{ROOT}, sharding={{replicated}}, frontend_attributes={{x="1",y={{2}}}}'),
        ("HloModule ,", "HloModule jit_step,"),
        ("HloModule ,", "HloModule , input_output_alias={ {}: (0, {}, may-alias) },"),
        ('"f", backend', '"f", sharding={replicated}, frontend_attributes={x="{1}"}, backend'),
        ("index = 0", "index = 1"),
    ],
)
def test_equal_programs_have_one_fingerprint(old: str, new: str) -> None:
    other = PROGRAM.replace(old, new)
    assert other != PROGRAM
    assert fingerprint(other, 4, DEVICES) == fingerprint(PROGRAM, 4, DEVICES)


CHANGES = [
    ("uplo = 76", "uplo = 85"),
    ('"f", backend', '"g", backend'),
    ("f32", "bf16"),
    ("[4,4]", "[4,8]"),
    ("f32[4,4]{1,0} copy", "f32[4,4]{0,1} copy"),
    ("copy(", "negate("),
    ("add(", "maximum("),
    ("add(tmp_0, tmp_1)", "add(tmp_1, tmp_0)"),
    ("all-reduce(", "all-gather("),
    ("{'a'}", "{'b'}"),
    ("{'a'}", "{'a','b'}"),
    ("mesh['a'=2,'b'=2] {'a'}", "{{2,0},{1,3}}"),
    ("mesh['a'=2,'b'=2] {'a'}", "{{1,3},{0,2}}"),
    ("mesh['a'=2,'b'=2] {'a'}", "mesh['a'=2,'b'=2], device_ids=(2,0,1,3) {'a'}"),
    ("{{0,1},{1,0}}", "{{0,1}}"),
    ("channel_id=1", "channel_id=2"),
    ("collective-permute(tmp_1)", "collective-permute(tmp_0)"),
    ("(f32[4,4]{1,0})->", "(f32[4,4]{0,1})->"),
    ("->f32[4,4]{1,0}}", "->f32[4,4]{0,1}}"),
    ("  tmp_1 = f32[4,4]{1,0} copy(tmp_0)\n", ""),
]


def test_different_programs_have_different_fingerprints() -> None:
    texts = [PROGRAM, *(PROGRAM.replace(old, new) for old, new in CHANGES)]
    assert (
        len({fingerprint(text, 4, DEVICES) for text in texts})
        == len(set(texts))
        == 1 + len(CHANGES)
    )


def test_other_values_make_another_program() -> None:
    prints = {fingerprint(PROGRAM, 4, DEVICES, values) for values in ((), ("1",), ("1", "2"))}
    assert len(prints) == 3


def field(number: int, content: bytes | int) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    size, rest = len(content) & 0x7F, len(content) >> 7
    length = bytes([size | 0x80, rest]) if rest else bytes([size])
    return bytes([number << 3 | 2]) + length + content


@given(st.lists(st.lists(st.binary(min_size=1, max_size=300), max_size=4), max_size=4))
def test_the_constants_of_a_serialized_program(computations: list[list[bytes]]) -> None:
    module = field(1, b"jit_f") + b"\x09" + bytes(8) + b"\x0d" + bytes(4)
    for literals in computations:
        instructions = [field(1, b"name") + field(9, 3) + field(8, one) for one in literals]
        module += field(3, b"".join(field(2, one) for one in instructions))
    flat = [literal for literals in computations for literal in literals]
    found = constants(module)
    assert len(found) == len(flat)
    assert [found.index(one) for one in found] == [flat.index(one) for one in flat]


def test_a_serialized_program_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"^a field of kind 3 in a serialized program$"):
        constants(b"\x0b")


def test_other_devices_or_another_order_of_them_make_another_program() -> None:
    devices = [DEVICES, "P0.1 P0.0 P1.0 P1.1", "P1.0 P1.1 P0.0 P0.1", "P2.0 P2.1 P3.0 P3.1", ""]
    assert len({fingerprint(PROGRAM, 4, one) for one in devices}) == 5


def test_all_devices_are_one_group_of_all() -> None:
    everyone = PROGRAM.replace("mesh['a'=2,'b'=2] {'a'}", "{}")
    written = PROGRAM.replace("mesh['a'=2,'b'=2] {'a'}", "{{0,1,2,3}}")
    assert fingerprint(everyone, 4, DEVICES) == fingerprint(written, 4, DEVICES)
    assert fingerprint(everyone, 2, DEVICES) != fingerprint(written, 2, DEVICES)


@given(iotas(), iotas())
def test_fingerprints_are_equal_where_the_groups_are(
    one: tuple[str, Groups], other: tuple[str, Groups]
) -> None:
    def of(groups: str) -> str:
        return fingerprint(PROGRAM.replace("mesh['a'=2,'b'=2] {'a'}", groups), 4, DEVICES)

    assert of(one[0]) == of(as_lists(one[1]))
    assert (of(one[0]) == of(other[0])) == (one[1] == other[1])


@pytest.mark.parametrize(
    ("groups", "owners", "expected"),
    [
        (ROWS, (0, 0, 1, 1), ((0,), (1,))),
        (COLUMNS, (0, 0, 1, 1), ((0, 1),)),
        (((0, 1, 2, 3),), (0, 0, 1, 1), ((0, 1),)),
        (COLUMNS, (0, 1, 2, 3), ((0, 2), (1, 3))),
        (((3, 1), (2, 0)), (0, 1, 2, 3), ((0, 2), (1, 3))),
        (ROWS, (1, 0, 3, 2), ((0, 1), (2, 3))),
        (((0, 1), (1, 0), (2, 3)), (0, 1, 2, 3), ((0, 1), (2, 3))),
        (((0, 0), (1, 2)), (5, 6, 5), ((5,), (5, 6))),
        (None, (0, 0, 1, 1), ((0, 1),)),
        (None, (2, 2), ((2,),)),
        ((), (0, 1), ()),
    ],
)
def test_groups_as_processes(groups: Groups | None, owners: tuple[int, ...], expected: Any) -> None:
    found = [Operation("all-gather", 12, groups)]
    assert by_process(found, owners) == (Collective("all-gather", 12, expected),)


def test_collectives_keep_their_order() -> None:
    found = [Operation("all-reduce", 4, ROWS), Operation("all-gather", 8, COLUMNS)]
    assert by_process(iter(found), (0, 0, 1, 1)) == (
        Collective("all-reduce", 4, ((0,), (1,))),
        Collective("all-gather", 8, ((0, 1),)),
    )
    assert by_process([], (0, 1)) == ()


@pytest.mark.parametrize(
    ("groups", "process", "expected"),
    [
        ([], 3, (3,)),
        ([((0, 1), (2, 3))], 0, (0, 1)),
        ([((0, 1), (2, 3))], 4, (4,)),
        ([((2,), (0, 1))], 2, (2,)),
        ([((3, 4), (2, 3), (1, 2), (0, 1))], 0, (0, 1, 2, 3, 4)),
        ([((0, 1), (2, 3)), ((1, 2),)], 3, (0, 1, 2, 3)),
        ([((0, 1), (2, 3)), ((4, 5),)], 5, (4, 5)),
    ],
)
def test_partners(groups: list[Groups], process: int, expected: tuple[int, ...]) -> None:
    found = (Collective("all-reduce", 4, one) for one in groups)
    assert partners(found, process, range(6)) == expected


@pytest.mark.parametrize("pairs", [((0, 1),), ((0,), (1,)), ()])
def test_all_processes_are_partners_in_a_collective_permute(pairs: Groups) -> None:
    found = [
        Collective("collective-permute", 4, pairs),
        Collective("all-reduce", 4, ((0, 1), (2, 3))),
    ]
    assert partners(found, 3, (0, 0, 1, 1, 2, 2, 3, 3)) == (0, 1, 2, 3)
    assert partners(found[:1], 0, (0, 0)) == (0,)


@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 7), max_size=4, unique=True).map(tuple), max_size=3),
        max_size=4,
    ),
    st.integers(0, 7),
)
def test_partners_are_all_that_are_joined_by_groups(
    collectives: list[list[tuple[int, ...]]], process: int
) -> None:
    roots = list(range(8))

    def root(k: int) -> int:
        while roots[k] != k:
            k = roots[k]
        return k

    for group in itertools.chain.from_iterable(collectives):
        for one, other in itertools.pairwise(group):
            roots[root(one)] = root(other)
    expected = tuple(k for k in range(8) if root(k) == root(process))
    asked = [Collective("all-reduce", 4, tuple(groups)) for groups in collectives]
    assert partners(asked, process, range(8)) == expected
