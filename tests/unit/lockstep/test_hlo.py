"""Reading collectives and their groups from a program's text."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep.hlo import Operation, operations, replica_groups
from tests.support.hlo_texts import COLUMNS, ROWS, Groups, as_lists, iotas

KINDS = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "ragged-all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)


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


@given(st.permutations(range(12)), st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_random_lists(order: list[int], sizes: list[int]) -> None:
    members = iter(order)
    groups = tuple(tuple(itertools.islice(members, size)) for size in sizes)
    groups = tuple(group for group in groups if group)
    assert replica_groups(f"channel_id=1, replica_groups={as_lists(groups)}, x={{0}}", 12) == groups


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
