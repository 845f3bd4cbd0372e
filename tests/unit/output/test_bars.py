"""Progress bars of several processes: which are equal but for their pace, and what is shown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm.std import tqdm

from mcnb.messages import Text
from mcnb.output.bars import is_bar, merged, plain, settled, without_pace
from mcnb.output.fold import Block, Line, fold_events
from mcnb.output.text import entries

RICH = (
    "\x1b[?25l\r\x1b[2KWorking... \x1b[91m━━━\x1b[0m\x1b[90m╺━━━━━━\x1b[0m \x1b[35m 30%\x1b[0m "
    "\x1b[36m0:00:01\x1b[0m\r\x1b[2KWorking... \x1b[90m━━━━━━━━━━\x1b[0m \x1b[35m100%\x1b[0m "
    "\x1b[33m0:00:0{}\x1b[0m\n\x1b[?25h"
)
KERAS = (
    "\r\x1b[1m1/9\x1b[0m \x1b[32m━\x1b[0m\x1b[37m━━━━\x1b[0m \x1b[1m2s\x1b[0m 250ms/step - loss: "
    "0.9\b\b\b\b\b\b\r\x1b[1m9/9\x1b[0m \x1b[32m━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m{}s\x1b[0m "
    "{}ms/step - loss: 0.5 \n"
)


def bar(n: int, total: int | None, seconds: float, **options: Any) -> str:
    """Return what tqdm writes."""
    return f"\r{tqdm.format_meter(n, total, seconds, **options)}"


@given(
    st.integers(0, 10**7),
    st.integers(0, 10**7) | st.none(),
    st.just(0.0) | st.floats(1e-3, 400_000),
    st.fixed_dictionaries(
        {},
        optional={
            "prefix": st.sampled_from(["train", "epoch 1/3", "a [b] | c", "50%"]),
            "unit": st.sampled_from(["it", " steps", "B", "batch"]),
            "unit_scale": st.booleans(),
            "postfix": st.sampled_from(["loss=0.5", "loss=0.5, lr=1e-3"]),
            "ascii": st.booleans(),
            "ncols": st.sampled_from([120, 200]),
        },
    ),
)
def test_whatever_tqdm_writes_is_a_bar(
    n: int, total: int | None, seconds: float, options: dict[str, Any]
) -> None:
    text = bar(n, total, seconds, **options)
    assert is_bar(text)
    assert is_bar(f"{text}\n")
    assert not is_bar(text[1:])  # printed as a line, it stays what it is
    shown = plain(text)
    pace = without_pace(shown)
    assert pace != shown
    assert pace.endswith(options.get("postfix", ""))
    assert without_pace(plain(bar(n, total, seconds + 1, **options))) == pace
    assert without_pace(plain(bar(n + 1, total, seconds, unit_scale=False))) != pace
    assert merged([shown, shown]) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\r",
        "\rstep 3 of 5",
        "\r[00:05] waiting",
        "\rdownloaded 5/5 [done, 1.0]",
        "50 of 100 [00:05]",
        "\r5it [00:05, 1.2.3it/s]",
        "\r5it [00:05, .it/s]",
        "\r" + "1" * 10**6 + " [00:05, 1it/s]",
    ],
)
def test_other_lines_are_no_bars(text: str) -> None:
    assert not is_bar(text)
    assert without_pace(text.strip()) == text.strip()


@pytest.mark.parametrize(
    ("paces", "expected"),
    [
        ((5, 4, 8), "[00:08<00:00,  1.25 to 2.50it/s]"),
        ((40, 80), "[01:20<00:00,  8.00 to 4.00s/it]"),
        ((8, 12), "[00:12<00:00,  1.20s/it to 1.25it/s]"),
        ((5, 5), "[00:05<00:00,  2.00it/s]"),
    ],
)
def test_equal_bars_are_one_with_the_range_of_their_rates(
    paces: tuple[float, ...], expected: str
) -> None:
    lines = [plain(bar(10, 10, seconds, prefix="train")) for seconds in paces]
    said = {k: [Text("stderr", f"\r{line}\n")] for k, line in enumerate(lines)}
    whole = f"train: 100%|██████████| 10/10 {expected}"
    assert merged(lines) == whole
    everyone = tuple(range(len(paces)))
    blocks = fold_events(said)
    assert blocks == [Block(everyone, (Line("stderr", f"\r{whole}\n"),))]
    # It is no error.
    [entry] = entries(blocks, len(paces))
    assert (entry.kind, entry.text) == ("stdout", f"[all {len(paces)}] {whole}\n")


def test_rates_with_prefixes_are_put_in_order() -> None:
    slow, fast = (plain(bar(10**7, 10**7, s, unit="B", unit_scale=True)) for s in (20_000.0, 2.0))
    assert merged([fast, slow]).endswith("[5:33:20<00:00, 500B/s to 5.00MB/s]")
    unknown = plain(bar(0, 10, 0))
    assert merged([unknown, unknown]) == unknown


def test_what_differs_is_shown_for_each() -> None:
    said = {
        k: [Text("stderr", bar(n, 10, 5, postfix=f"loss={loss}") + "\n")]
        for k, (n, loss) in enumerate([(10, 1), (10, 2), (9, 1), (10, 1)])
    }
    assert [(block.processes, len(block.items)) for block in fold_events(said)] == [
        ((0, 3), 1),
        ((1,), 1),
        ((2,), 1),
    ]


def test_bars_between_other_lines() -> None:
    said = {
        k: [
            Text("stdout", "begin\n"),
            Text("stderr", "".join(bar(n, 3, n * (k + 1)) for n in range(4)) + "\n"),
            Text("stdout", f"mine {k}\n"),
            Text("stderr", bar(2, 3, k + 1)),
        ]
        for k in range(2)
    }
    shown = "".join(entry.text for entry in entries(fold_events(said), 2))
    assert shown == (
        "[all 2] begin\n"
        "        100%|██████████| 3/3 [00:06<00:00,  2.00s/it to 1.00it/s]\n"
        "[0]     mine 0\n"
        "[1]     mine 1\n"
        "[all 2]  67%|██████▋   | 2/3 [00:02<00:01,  1.00 to 2.00it/s]\n"
    )


def test_lines_of_a_log_between_bars() -> None:
    """A handler of logging knows nothing of the bar behind which it writes."""
    said = {
        k: [
            Text(
                "stderr",
                "".join(
                    bar(n, 3, n * (k + 1), prefix="a long name", postfix="loss=0.5")
                    + f"INFO [a/b]step {n}\n" * (n in (1, 2))
                    for n in range(4)
                )
                + "\n",
            )
        ]
        for k in range(2)
    }
    shown = "".join(entry.text for entry in entries(fold_events(said), 2))
    assert shown == (
        "[all 2] INFO [a/b]step 1\n"
        "        INFO [a/b]step 2\n"
        "[all 2] a long name: 100%|██████████| 3/3 [00:06<00:00,  2.00s/it to 1.00it/s, loss=0.5]\n"
    )
    colored = f"{bar(1, 3, 1.0, prefix='Epoch [1/10]')}\x1b[31mERROR\x1b[0m lost\n"
    assert settled(colored) == "\x1b[31mERROR\x1b[0m lost\n"
    own = f"{bar(1, 3, 1.0)} eta soon\n"  # a format of the learner's own
    assert settled(own) == own[1:]


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (RICH.format(4), RICH.format(5), "Working... ━━━━━━━━━━ 100% 0:00:04"),
        (KERAS.format(1, 90), KERAS.format(2, 110), "9/9 ━━━━━ 1s 90ms/step - loss: 0.5"),
    ],
)
def test_bars_of_rich_and_keras(one: str, other: str, shown: str) -> None:
    blocks = fold_events({0: [Text("stdout", one)], 1: [Text("stdout", other)]})
    [entry] = entries(blocks, 2)
    assert re.sub(r"\x1b\[[\d;]*m", "", entry.text) == f"[all 2] {shown}\n"


def test_nested_bars_leave_what_they_leave_on_a_terminal() -> None:
    outer, inner = (
        [bar(n, 2, n, prefix="epochs") for n in range(3)],
        [bar(n, 30, n, prefix="steps") for n in (0, 15, 30)],
    )
    steps = "".join(f"\n{line}\x1b[A" for line in inner[:-1])
    gone = f"\n\r{' ' * len(inner[-1])}\x1b[A"
    kept = f"{outer[0]}{steps}{inner[-1]}\n{outer[1]}{steps}{inner[-1]}\n{outer[2]}\n"
    assert settled(kept).split("\n") == [inner[-1], inner[-1], outer[2], ""]
    removed = f"{outer[0]}{steps}{gone}{outer[1]}{steps}{gone}{outer[2]}\n"
    assert [line.strip() for line in settled(removed).split("\n")] == [outer[2].strip(), ""]
