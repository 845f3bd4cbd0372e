"""Showing: long output is cut in the middle, and says by how much."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.cluster.result import Result
from mcnb.messages import Display, Event, ProcessError, Reply, Stream, Text
from mcnb.notebook import display as showing
from mcnb.notebook.display import MOST_CHARACTERS, MOST_LINES, shortened, show, show_table
from mcnb.output.fold import Block, Item, Line
from mcnb.output.text import text_of


def lines(count: int, first: int = 0) -> tuple[Line, ...]:
    return tuple(Line("stdout", f"{number}\n") for number in range(first, first + count))


def flat(blocks: Sequence[Block]) -> list[Item]:
    return [item for block in blocks for item in block.items]


def result_of(*events: Event, count: int = 2) -> Result:
    return Result({k: Reply(events) for k in range(count)}, count)


def test_what_fits_is_shown_whole() -> None:
    blocks = [Block((0,), lines(MOST_LINES // 2)), Block((1,), lines(MOST_LINES // 2))]
    assert shortened(blocks) == (blocks, 0, [])
    assert shortened([]) == ([], 0, [])


def test_the_middle_is_left_out() -> None:
    head, omitted, tail = shortened([Block((0,), lines(700)), Block((1,), lines(700, 700))])
    assert head == [Block((0,), lines(MOST_LINES // 2))]
    assert omitted == 400
    assert tail == [Block((1,), lines(MOST_LINES // 2, 900))]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 30)),
        max_size=30,
    )
)
def test_no_line_is_lost_uncounted(parts: list[tuple[int, int, int]]) -> None:
    most_lines, most_characters = showing.MOST_LINES, showing.MOST_CHARACTERS
    showing.MOST_LINES, showing.MOST_CHARACTERS = 40, 100_000  # so that little is much
    try:
        blocks = [Block((k,), lines(count, first)) for k, count, first in parts]
        head, omitted, tail = shortened(blocks)
    finally:
        showing.MOST_LINES, showing.MOST_CHARACTERS = most_lines, most_characters
    before, after, whole = flat(head), flat(tail), flat(blocks)
    assert len(before) + omitted + len(after) == len(whole)
    assert before == whole[: len(before)]
    assert after == whole[len(whole) - len(after) :]
    assert len(before) + len(after) <= 40
    assert (omitted > 0) == (len(whole) > 40)
    if omitted:
        assert len(before) == len(after) == 20


def test_characters_are_limited_too() -> None:
    long = Line("stdout", "x" * 9_999 + "\n")
    head, omitted, tail = shortened([Block((0,), (long,) * 50)])
    assert (len(flat(head)), omitted, len(flat(tail))) == (10, 30, 10)


@pytest.mark.parametrize("kind", ["line", "value"])
def test_one_enormous_line_is_clipped(kind: str) -> None:
    text = "x" * 10_000_000
    item: Item = Line("stdout", f"{text}\n") if kind == "line" else Display({"text/plain": text})
    head, omitted, tail = shortened([Block((0,), (*lines(1), item, *lines(1)))])
    assert (omitted, tail) == (0, [])
    shown = [text_of(item) for item in flat(head)]
    assert shown[0] == shown[2] == "0\n"
    assert shown[1].startswith("x" * (MOST_CHARACTERS // 16) + " … 9987")
    assert shown[1].endswith(" more characters; full text: mcnb.current_cluster().last.text()\n")
    assert len(shown[1]) < MOST_CHARACTERS // 8


@pytest.mark.parametrize("kind", ["line", "value"])
def test_one_item_of_many_lines_is_cut(kind: str) -> None:
    text = "\n".join(str(number) for number in range(3000))
    item: Item = Line("stdout", f"{text}\n") if kind == "line" else Display({"text/plain": text})
    head, omitted, tail = shortened([Block((0,), (item, *lines(1)))])
    assert (omitted, tail) == (0, [])
    cut, end = [text_of(item) for item in flat(head)]
    assert end == "0\n"
    assert cut.startswith("0\n1\n2\n")
    assert cut.endswith("\n499\n… 2500 more lines; full text: mcnb.current_cluster().last.text()\n")


def test_only_a_clipped_item_is_another() -> None:
    items = (Display({"text/plain": "1", "text/html": "x" * 10**6}), *lines(3))
    assert shortened([Block((0,), items)])[0] == [Block((0,), items)]


def test_show_says_how_much_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show(result_of(Text("stdout", "".join(f"{number}\n" for number in range(1100)))))
    stdout, stderr = capsys.readouterr()
    assert stderr == ""
    shown = stdout.splitlines()
    assert shown[:2] == ["[all 2] 0", "        1"]
    assert shown[499:502] == [
        "        499",
        "… 100 more lines; full text: mcnb.current_cluster().last.text() …",
        "[all 2] 600",
    ]
    assert shown[-1] == "        1099"
    assert len(shown) == 1001


def test_show_says_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(result_of(Text("stdout", "a\n" * 1001)))
    assert (
        "\n… 1 more line; full text: mcnb.current_cluster().last.text() …\n"
        in capsys.readouterr().out
    )


def test_stderr_stays_apart(capsys: pytest.CaptureFixture[str]) -> None:
    streams: tuple[Stream, ...] = ("stdout", "stderr", "stdout")
    show(result_of(*(Text(stream, f"{n}\n") for n, stream in enumerate(streams))))
    assert capsys.readouterr() == ("[all 2] 0\n[all 2] 2\n", "[all 2] 1\n")


def test_values_and_pictures_are_displayed_in_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def display(data: object, metadata: object = None, raw: bool = False) -> None:
        assert raw
        print("displayed", data, metadata)

    monkeypatch.setattr(showing, "display", display)
    show(
        result_of(
            Text("stdout", "a\n"),
            Display({"image/png": "iVBO"}, {"image/png": {"width": 3}}),
            Display({"text/plain": "8"}, is_value=True),
        )
    )
    assert capsys.readouterr().out == (
        "[all 2] a\n"
        "[all 2]\n"
        "displayed {'image/png': 'iVBO'} {'image/png': {'width': 3}}\n"
        "displayed {'text/plain': '[all 2] 8'} None\n"
    )


def test_nothing_is_shown_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show(result_of())
    assert capsys.readouterr() == ("", "")


def test_notes_follow_the_output_of_a_cell_that_went_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Result, "notes", ("one thing", "another"))
    show(result_of(Text("stdout", "a\n")))
    assert capsys.readouterr().out == "[all 2] a\nNote: one thing\nNote: another\n"
    error = ProcessError("ValueError", "mine", 1, "ValueError: mine")
    show(Result({k: Reply((Text("stdout", "a\n"),), error) for k in range(2)}, 2))
    assert "Note" not in capsys.readouterr().out


def test_the_end_is_aligned_with_the_begin(capsys: pytest.CaptureFixture[str]) -> None:
    """The widest label is in the part after the middle."""
    count = MOST_LINES + 1
    one = "".join(f"{number}\n" for number in range(count))
    show(
        Result(
            {0: Reply((Text("stdout", f"{one}end\n"),)), 1: Reply((Text("stdout", "end\n"),))}, 2
        )
    )
    shown = capsys.readouterr().out.splitlines()
    assert (shown[0], shown[1]) == ("[0]     0", "        1")
    assert shown[-2:] == [f"        {count - 1}", "[all 2] end"]


def test_a_clipped_value_is_a_value_and_keeps_its_metadata() -> None:
    value = Display({"text/plain": "x" * 10**6}, {"text/plain": {"a": 1}}, is_value=True)
    [[block], _, _] = shortened([Block((0,), (value,))])
    [clipped] = block.items
    assert isinstance(clipped, Display)
    assert (clipped.is_value, clipped.metadata) == (True, {"text/plain": {"a": 1}})


def test_pictures_without_text_count_as_lines() -> None:
    picture = Display({"image/png": "iVBO"})
    head, omitted, tail = shortened([Block((0,), (picture,) * (MOST_LINES + 1))])
    assert (len(flat(head)), omitted, len(flat(tail))) == (MOST_LINES // 2, 1, MOST_LINES // 2)


def test_a_table_is_not_broken_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    displayed: list[tuple[dict[str, str], bool]] = []
    monkeypatch.setattr(showing, "display", lambda data, raw: displayed.append((data, raw)))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    show_table("a <b>  c")
    assert (capsys.readouterr().out, displayed) == ("a <b>  c\n", [])
    monkeypatch.setenv("JPY_SESSION_NAME", "one.ipynb")
    show_table("a <b>  c")
    [(data, raw)] = displayed
    assert raw
    assert data["text/plain"] == "a <b>  c"
    assert data["text/html"].endswith(';white-space:pre;overflow-x:auto">a &lt;b&gt;  c</pre>')
    assert capsys.readouterr().out == ""
