"""Reading compiled programs: their collectives, who takes part, and when two are the same."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnb.lockstep.hlo import (
    Operation,
    by_process,
    fingerprint,
    operations,
    partners,
    replica_groups,
)
from mcnb.lockstep.launches import Collective

Groups = tuple[tuple[int, ...], ...]

KINDS = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "ragged-all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)
ROWS, COLUMNS = ((0, 1), (2, 3)), ((0, 2), (1, 3))
DEVICES = "P0.0 P0.1 P1.0 P1.1"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={{0,1},{2,3}}", ROWS),
        ("channel_id=1, replica_groups={{0,2},{1,3}}, to_apply=%add", COLUMNS),
        ("replica_groups={{3,1},{2,0}}", ((3, 1), (2, 0))),
        ("replica_groups={{0,1,2},{3}}", ((0, 1, 2), (3,))),
        ("replica_groups={{10,11}}, dimensions={0}", ((10, 11),)),
        ("replica_groups={}", ((0, 1, 2, 3),)),
        ("replica_groups={{}}", ((0, 1, 2, 3),)),
    ],
)
def test_lists(attributes: str, expected: Groups) -> None:
    assert replica_groups(attributes, 4) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups=[2,2]<=[4]", ROWS),
        ("replica_groups=[1,4]<=[4], dimensions={0}", ((0, 1, 2, 3),)),
        ("replica_groups=[4,1]<=[4]", ((0,), (1,), (2,), (3,))),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", COLUMNS),
        ("replica_groups=[2,2]<=[2,2]T(0,1)", ROWS),
        ("replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("replica_groups=[4,2]<=[2,2,2]T(1,2,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("replica_groups=[2,3]<=[3,2]T(1,0)", ((0, 2, 4), (1, 3, 5))),
    ],
)
def test_an_iota(attributes: str, expected: Groups) -> None:
    assert replica_groups(attributes, 4) == expected


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ("mesh['a'=2,'b'=2] {'a'}", COLUMNS),
        ("mesh['a'=2,'b'=2] {'b'}", ROWS),
        ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
        ("mesh['a'=2,'b'=2] {}", ((0,), (1,), (2,), (3,))),
        ("mesh['axis_0'=2,'axis_1'=1,'axis_2'=2] {'axis_0'}", COLUMNS),
        ("mesh['a'=2,'b'=2,'c'=2] {'a','c'}", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['a'=8] {'a':(1)2}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['a'=8] {'a':(4)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("mesh['a'=8] {'a':(2)4}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['a'=2,'b'=4] {'a','b':(2)2}", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['a'=2,'b'=4] {'b':(1)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}", ROWS),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", COLUMNS),
        ("mesh['a'=4,'b'=1], device_ids=([2,2]T(1,0)) {'a'}", ((0, 2, 1, 3),)),
        ("mesh['a'=2,'b'=2], device_ids=(3,2,1,0) {'b'}", ((3, 2), (1, 0))),
        ("mesh['a'=2,'b'=2], device_ids=(0,3,1,2) {'a'}", ((0, 1), (3, 2))),
        ("mesh['a'=4], device_ids=(0,3,1,2) {'a':(2)2}", ((0, 3), (1, 2))),
    ],
)
def test_axes_of_a_mesh(mesh: str, expected: Groups) -> None:
    attributes = f"channel_id=1, replica_groups={mesh}, use_global_device_ids=true"
    assert replica_groups(attributes, 4) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("source_target_pairs={{0,1}}", ((0, 1),)),
        ("source_target_pairs={}", ()),
        ("channel_id=1, source_target_pairs={{0,1},{1,2},{2,0}}", ((0, 1), (1, 2), (2, 0))),
        ("source_target_pairs={{0,0},{1,2},{2,1},{3,3}}", ((0, 0), (1, 2), (2, 1), (3, 3))),
    ],
)
def test_pairs_of_a_source_and_a_target(attributes: str, expected: Groups) -> None:
    assert replica_groups(attributes, 4) == expected


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
        ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
        ("mesh['a'=8] {'a':(1)2,'a':(4)2}", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['a'=8] {'a':(4)2,'a':(1)2}", ((0, 4, 1, 5), (2, 6, 3, 7))),
        ("mesh['a'=4,'b'=2] {'b','a':(2)2}", ((0, 2, 1, 3), (4, 6, 5, 7))),
    ],
)
def test_axes_go_in_the_order_in_which_they_are_named(mesh: str, expected: Groups) -> None:
    size = max(max(group) for group in expected) + 1
    assert replica_groups(f"replica_groups={mesh}", size) == expected


@pytest.mark.parametrize(
    ("line", "kind", "size"),
    [
        ("s = (f32[4]{0}, f32[8]{0}) all-gather-start(x), dimensions={0}", "all-gather", 32),
        ("s = (f32[4]{0:T(8)}, f32[8]{0:T(8)}) all-gather-start(x)", "all-gather", 32),
        (
            "s = ((f32[4]{0}, f32[2]{0}), (f32[8]{0}, f32[4]{0})) all-gather-start(x, y)",
            "all-gather",
            48,
        ),
        (
            "s = (f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(x)",
            "collective-permute",
            16,
        ),
        ("s = f32[4]{0} all-reduce-start(x), to_apply=%add", "all-reduce", 16),
        ("s = (f32[4]{0}, f32[4]{0}) all-reduce-start(x, y), to_apply=%add", "all-reduce", 32),
    ],
)
def test_bytes_of_what_is_started_are_those_of_its_result(line: str, kind: str, size: int) -> None:
    [one] = operations(line, 4)
    assert (one.kind, one.bytes) == (kind, size)


def test_what_stands_in_a_string_is_no_collective() -> None:
    line = 'c = f32[4]{0} custom-call(x), frontend_attributes={n="a = f32[] all-reduce(b)"}'
    assert operations(line, 4) == []


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "channel_id=1, to_apply=%add",
        "replica_groups={0,1}",
        "replica_groups=[2,2]<=[5]",
        "replica_groups=[2,3]<=[2,2]T(1,0)",
        "replica_groups=somehow[2]",
        "replica_groups=maximal_mesh[device_id=0] {}",
        "replica_groups=mesh['a'=2] {'z'}",
        "replica_groups=mesh[] {}",
        "replica_groups=mesh[a=2] {a}",
        "replica_groups=mesh['a'=2] {a}",
        "replica_groups=[2,2]<=[2,2]T(1,1)",
        "replica_groups=mesh['a'=8] {'a':(1)4,'a':(2)4}",
        "replica_groups=mesh['a'=4] {'a':(3)2}",
        "replica_groups=mesh['a'=2,'b'=2], device_ids=(0,1) {'a'}",
        "replica_groups=mesh['a'=2,'b'=2], device_ids=([4,2]T(1,0)) {'a'}",
    ],
)
def test_what_cannot_be_read(attributes: str) -> None:
    assert replica_groups(attributes, 4) is None


def as_lists(groups: Groups) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


@given(st.permutations(range(12)), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_random_lists(order: list[int], sizes: list[int]) -> None:
    members = iter(order)
    groups = tuple(tuple(itertools.islice(members, size)) for size in sizes)
    groups = tuple(group for group in groups if group)
    assert replica_groups(f"channel_id=1, replica_groups={as_lists(groups)}, x={{0}}", 12) == groups


@st.composite
def iotas(draw: st.DrawFn) -> tuple[str, Groups]:
    """An iota, and its groups, computed index by index."""
    dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    permutation = draw(st.permutations(range(len(dims))))
    weights = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
    flat = [
        sum(index[permutation.index(axis)] * weights[axis] for axis in range(len(dims)))
        for index in np.ndindex(*(dims[axis] for axis in permutation))
    ]
    size = draw(st.sampled_from([n for n in range(1, len(flat) + 1) if len(flat) % n == 0]))
    rows = tuple(tuple(flat[i : i + size]) for i in range(0, len(flat), size))
    turned = permutation != sorted(permutation) or draw(st.booleans())
    spelling = f"[{len(rows)},{size}]<=[{','.join(map(str, dims))}]"
    return spelling + turned * f"T({','.join(map(str, permutation))})", rows


@given(iotas())
def test_an_iota_says_what_its_lists_say(one: tuple[str, Groups]) -> None:
    spelling, groups = one
    read = replica_groups(f"replica_groups={spelling}, dimensions={{0}}", 1)
    assert read == groups
    assert read == replica_groups(f"replica_groups={as_lists(groups)}", 1)


@st.composite
def meshes(draw: st.DrawFn) -> tuple[str, Groups]:
    """Axes of a mesh, and the groups over them, computed device by device."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3))
    count = math.prod(sizes)
    ids, devices = list(range(count)), ""
    if draw(st.booleans()):
        ids = draw(st.permutations(ids))
        devices = f", device_ids=({','.join(map(str, ids))})"
    parts: list[tuple[int, int]] = []
    over = []
    for name, size in zip("xyz", sizes, strict=False):
        before = middle = 1
        if draw(st.booleans()):
            before = draw(st.sampled_from([n for n in (1, 2, 4) if size % n == 0]))
            rest = size // before
            middle = draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
            over.append(f"'{name}'" if middle == size else f"'{name}':({before}){middle}")
        parts.append((before, middle))
    groups: dict[Any, dict[Any, int]] = {}
    for device, index in zip(ids, np.ndindex(*sizes), strict=True):
        alone, together = [], []
        for i, size, (before, middle) in zip(index, sizes, parts, strict=True):
            after = size // before // middle
            alone.append((i // (middle * after), i % after))
            together.append(i // after % middle)
        groups.setdefault(tuple(alone), {})[tuple(together)] = device
    axes = ",".join(f"'{name}'={size}" for name, size in zip("xyz", sizes, strict=False))
    rows = tuple(tuple(group[key] for key in sorted(group)) for _, group in sorted(groups.items()))
    return f"mesh[{axes}]{devices} {{{','.join(over)}}}", rows


@given(meshes())
def test_random_meshes(one: tuple[str, Groups]) -> None:
    spelling, groups = one
    assert replica_groups(f"replica_groups={spelling}, to_apply=%add", 1) == groups


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["", "ROOT ", "  ", "  ROOT "])
def test_every_kind(kind: str, start: str) -> None:
    text = f"{start}%r.1 = f32[8]{{0}} {kind}(%p.1), replica_groups=[2,2]<=[4]"
    assert operations(text, 4) == [Operation(kind, 32, ROWS)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ENTRY %main (p: f32[8]) -> f32[8] {",
        "%p = f32[8]{0} parameter(0)",
        "%d = f32[8]{0} all-reduce-done(%s)",
        "%d = f32[8]{0} collective-permute-done(%s)",
        "%d = f32[8]{0} async-done(%s)",
        "%f = f32[8]{0} fusion(%all-reduce.1), kind=kLoop, calls=%all-gather",
        "%all-reduce = f32[] add(%x, %y)",
        "%r = f32[] reduce(%x, %zero), dimensions={0}, to_apply=%add",
        "all-reduce(x), replica_groups={{0,1}}",
    ],
)
def test_other_operations(line: str) -> None:
    assert operations(line, 4) == []


@pytest.mark.parametrize(
    ("result", "size"),
    [
        ("f32[8]{0}", 32),
        ("f32[8]", 32),
        ("f32[]", 4),
        ("f32[0]{0}", 0),
        ("f32[2,3,4]{2,1,0}", 96),
        ("f32[8,128]{1,0:T(8,128)(2,1)S(1)}", 4096),
        ("pred[5]{0}", 5),
        ("s8[3]{0}", 3),
        ("u16[3]{0}", 6),
        ("s64[3]{0}", 24),
        ("f16[3]{0}", 6),
        ("bf16[3,2]{1,0}", 12),
        ("f64[3]{0}", 24),
        ("s4[8]{0}", 4),
        ("u4[3]{0:E(4)}", 2),
        ("s2[5]{0}", 2),
        ("f8e4m3fn[6]{0}", 6),
        ("f8e5m2[6]{0}", 6),
        ("f4e2m1fn[6]{0}", 3),
        ("c64[3]{0}", 24),
        ("c128[3]{0}", 48),
        ("token[]", 0),
        ("(f32[2,4]{1,0}, f32[2,4]{1,0})", 64),
        ("(f32[2]{0}, bf16[3]{0}, pred[])", 15),
        ("(s32[1], s32[1], s32[1], s32[1], s32[1], /*index=5*/s32[2])", 28),
        ("(f32[4]{0}, token[])", 16),
    ],
)
def test_bytes_of_a_result(result: str, size: int) -> None:
    line = f"%r = {result} all-to-all(f32[512]{{0}} %p), replica_groups={{{{0,1}},{{2,3}}}}"
    assert operations(line, 4) == [Operation("all-to-all", size, ROWS)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "%s = f32[8]{0} all-reduce-start(%p), replica_groups={{0,1},{2,3}}, to_apply=%add",
            Operation("all-reduce", 32, ROWS),
        ),
        (
            "%s = (f32[8]{0}, bf16[4]{0}) all-reduce-start(%p, %q), replica_groups=[2,2]<=[4]",
            Operation("all-reduce", 40, ROWS),
        ),
    ],
)
def test_a_start_counts_and_its_end_does_not(line: str, expected: Operation) -> None:
    text = f"{line}\n%d = f32[8]{{0}} {expected.kind}-done(%s)\n"
    assert operations(text, 4) == [expected]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_start(kind: str) -> None:
    text = f"%s = (f32[4]{{0}}, f32[8]{{0}}) {kind}-start(%p), replica_groups=[2,2]<=[2,2]T(1,0)"
    [found] = operations(text, 4)
    assert (found.kind, found.groups) == (kind, COLUMNS)


def test_what_an_asynchronous_call_wraps_is_found_once() -> None:
    text = (
        "%wrapped (p: f32[4]) -> f32[2] {\n"
        "  %p = f32[4]{0} parameter(0)\n"
        "  ROOT %r = f32[2]{0} reduce-scatter(%p), replica_groups={{0,2},{1,3}}, to_apply=%add\n"
        "}\n"
        "ENTRY %main (q: f32[4]) -> f32[2] {\n"
        "  %q = f32[4]{0} parameter(0)\n"
        "  %s = ((f32[4]{0}), f32[2]{0}) async-start(%q), calls=%wrapped\n"
        "  ROOT %d = f32[2]{0} async-done(%s)\n"
        "}\n"
    )
    assert operations(text, 4) == [Operation("reduce-scatter", 8, COLUMNS)]


def test_operations_stand_in_the_order_of_the_text() -> None:
    text = (
        "a = f32[2] all-gather(x), replica_groups={}\n"
        "b = f32[2] negate(a)\n"
        "c = s32[] all-reduce(i), replica_groups={{0,1},{2,3}}\n"
        "ROOT d = f32[2] collective-permute(b), source_target_pairs={{1,0}}\n"
        "e = f32[1] all-gather(c), how=unknown\n"
    )
    assert operations(text, 4) == [
        Operation("all-gather", 8, ((0, 1, 2, 3),)),
        Operation("all-reduce", 4, ROWS),
        Operation("collective-permute", 8, ((1, 0),)),
        Operation("all-gather", 4, None),
    ]
    assert operations("", 4) == []


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
    ],
)
def test_equal_programs_have_one_fingerprint(old: str, new: str) -> None:
    other = PROGRAM.replace(old, new)
    assert other != PROGRAM
    assert fingerprint(other, 4, DEVICES) == fingerprint(PROGRAM, 4, DEVICES)


CHANGES = [
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
    assert partners((Collective("all-reduce", 4, one) for one in groups), process) == expected


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
    assert partners(asked, process) == expected


REAL = """
import json
from types import SimpleNamespace

import jax
import numpy as np
from jax import lax, shard_map
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from mcnb.lockstep.jax_hooks import program_text


def programs(first, second):
    mesh = jax.make_mesh((2, 2), (first, second), axis_types=(AxisType.Auto,) * 2)
    over = {"a": first, "b": second, "ab": (first, second)}

    def compiled(function, inside, dtype="float32", outside=None):
        argument = jax.ShapeDtypeStruct((8, 8), dtype, sharding=NamedSharding(mesh, inside))
        where = None if outside is None else NamedSharding(mesh, outside)
        return jax.jit(function, out_shardings=where).lower(argument).compile()

    def mapped(function, dtype="float32"):
        spec = P(first, second)
        wrapped = shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        return compiled(wrapped, spec, dtype)

    for name, axes in over.items():
        size = 4 if name == "ab" else 2
        ring = [(i, (i + 1) % size) for i in range(size)]
        yield f"psum {name}", mapped(lambda x: lax.psum(x, axes))
        yield f"pmax {name}", mapped(lambda x: lax.pmax(x, axes))
        yield f"all_gather {name}", mapped(lambda x: lax.all_gather(x, axes))
        yield f"ppermute {name}", mapped(lambda x: lax.ppermute(x, axes, ring))
        yield f"all_to_all {name}", mapped(lambda x: lax.all_to_all(x, axes, 0, 0, tiled=True))
        yield f"psum_scatter {name}", mapped(lambda x: lax.psum_scatter(x, axes, tiled=True))
    yield "psum a c64", mapped(lambda x: lax.psum(x, first), "complex64")
    yield "all_gather a s8", mapped(lambda x: lax.all_gather(x, first), "int8")
    yield "none", mapped(lambda x: x + 1)
    yield "two", mapped(lambda x: lax.psum(lax.all_gather(x, first, tiled=True), second))
    yield "reshard a", compiled(lambda x: x + 1, P(first), outside=P())
    yield "reshard b", compiled(lambda x: x + 1, P(None, second), outside=P(None, None))
    yield "reshard ba", compiled(lambda x: x + 1, P((second, first)), outside=P())


def summed(axes):
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    spec = P(("a", "b"))
    add = shard_map(lambda x: lax.psum(x, axes), mesh=mesh, in_specs=spec, out_specs=spec)
    powers = jax.device_put(np.array([1, 2, 4, 8], np.int32), NamedSharding(mesh, spec))
    return np.asarray(jax.jit(add)(powers)).tolist()


def canonical(compiled):
    return program_text(SimpleNamespace(xla_executable=compiled.runtime_executable()))


said = {name: (one.as_text(), canonical(one)) for name, one in programs("a", "b")}
renamed = {name: canonical(one) for name, one in programs("data", "model")}
sums = {"a": summed("a"), "b": summed("b"), "ab": summed(("a", "b"))}
print(json.dumps({"texts": said, "renamed": renamed, "sums": sums}))
"""


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    """What JAX compiles for four devices: texts by the name of the program."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, "-c", REAL], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def as_sets(operation: Operation) -> tuple[str, int, set[frozenset[int]]]:
    assert operation.groups is not None
    return operation.kind, operation.bytes, set(map(frozenset, operation.groups))


GROUPS = {
    "a": {frozenset({0, 2}), frozenset({1, 3})},
    "b": {frozenset({0, 1}), frozenset({2, 3})},
    "ab": {frozenset({0, 1, 2, 3})},
}


@pytest.mark.parametrize("axes", ["a", "b", "ab"])
@pytest.mark.parametrize(
    ("name", "kind", "size", "grows"),
    [
        ("psum", "all-reduce", 64, 0),
        ("pmax", "all-reduce", 64, 0),
        ("all_gather", "all-gather", 64, 1),
        ("all_to_all", "all-to-all", 64, 0),
        ("psum_scatter", "reduce-scatter", 64, -1),
    ],
)
def test_what_jax_compiles(
    real: dict[str, Any], axes: str, name: str, kind: str, size: int, grows: int
) -> None:
    members = 4 if axes == "ab" else 2
    for text in real["texts"][f"{name} {axes}"]:
        [found] = operations(text, 4)
        assert as_sets(found) == (kind, int(size * float(members) ** grows), GROUPS[axes])


@pytest.mark.parametrize(
    ("axes", "pairs"),
    [
        ("a", {(0, 2), (2, 0), (1, 3), (3, 1)}),
        ("b", {(0, 1), (1, 0), (2, 3), (3, 2)}),
        ("ab", {(0, 1), (1, 2), (2, 3), (3, 0)}),
    ],
)
def test_a_permutation_that_jax_compiles(
    real: dict[str, Any], axes: str, pairs: set[tuple[int, int]]
) -> None:
    for text in real["texts"][f"ppermute {axes}"]:
        [found] = operations(text, 4)
        assert (found.kind, found.bytes) == ("collective-permute", 64)
        assert found.groups is not None
        assert set(found.groups) == pairs


def test_other_types_and_several_collectives_that_jax_compiles(real: dict[str, Any]) -> None:
    for i in range(2):
        texts = {name: texts[i] for name, texts in real["texts"].items()}
        [one] = operations(texts["psum a c64"], 4)
        assert as_sets(one) == ("all-reduce", 128, GROUPS["a"])
        [one] = operations(texts["all_gather a s8"], 4)
        assert as_sets(one) == ("all-gather", 32, GROUPS["a"])
        assert [as_sets(one) for one in operations(texts["two"], 4)] == [
            ("all-gather", 128, GROUPS["a"]),
            ("all-reduce", 128, GROUPS["b"]),
        ]
        assert operations(texts["none"], 4) == []


def test_collectives_that_the_partitioner_puts_in(real: dict[str, Any]) -> None:
    for i in range(2):
        for axis in "ab":
            [one] = operations(real["texts"][f"reshard {axis}"][i], 4)
            assert as_sets(one) == ("all-gather", 256, GROUPS[axis])
        [one] = operations(real["texts"]["reshard ba"][i], 4)
        assert (one.kind, one.bytes, one.groups) == ("all-gather", 256, ((0, 2, 1, 3),))


@pytest.mark.parametrize("axes", ["a", "b", "ab"])
def test_who_is_said_to_take_part_is_who_is_summed(real: dict[str, Any], axes: str) -> None:
    [found] = operations(real["texts"][f"psum {axes}"][1], 4)
    assert found.groups is not None
    sums = {i: sum(1 << k for k in group) for group in found.groups for i in group}
    assert [sums[i] for i in range(4)] == real["sums"][axes]


def test_fingerprints_of_what_jax_compiles(real: dict[str, Any]) -> None:
    prints = {name: fingerprint(text, 4, DEVICES) for name, (_, text) in real["texts"].items()}
    assert prints == {name: fingerprint(text, 4, DEVICES) for name, text in real["renamed"].items()}
    assert len(set(prints.values())) == len(prints)


@settings(max_examples=50)
@given(st.text("abé{}[]()=,<'\"-> \n%", max_size=60), st.integers(1, 4))
def test_no_text_is_too_strange(text: str, partitions: int) -> None:
    assert operations(text, partitions) == []
    assert len(fingerprint(text, partitions, DEVICES)) == 32


def test_groups_that_cannot_be_read_are_told_apart_by_their_text() -> None:
    text = "HloModule m\n\nENTRY e {{\n  r = f32[8] all-reduce(x), replica_groups={}\n}}"
    prints = {
        groups: fingerprint(text.format(groups), 4, DEVICES)
        for groups in ("mesh['a'=4] {'y'}", "mesh['a'=4] {'z'}")
    }
    assert len(set(prints.values())) == 2
