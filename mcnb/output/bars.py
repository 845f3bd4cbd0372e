"""Compare the progress bars of several processes, and show equal ones as one.

The formats are those of tqdm (its `format_meter`), and of bars drawn with "━" (rich, Keras).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcnb.output.terminal import overwritten, without_escapes

# "train: 100%|██████████| 50/50 [00:05<00:00, 9.85it/s, loss=0.5]", or without a total
# "50it [00:05, 9.85it/s]".
_TQDM = re.compile(
    r"(?P<head>.*?)(?:\|[^|]*\| )?(?P<count>\d[^\[\]|]*) \[[\d:]+(?:<[\d:?]+)?, *"
    r"(?:[^,\]]+ to )?(?P<rate>\?|\d+(?:\.\d+)?)(?P<unit>(?:[^,\]/\d.][^,\]/]*)?/[^,\]/]+)"
    r"(?P<rest>(?:, [^\]]*)?)\]",
    re.ASCII,
)
# No bar is longer. The time that a line takes to be compared with the pattern is quadratic.
_LONGEST = 500
_WRITTEN = re.compile(
    r"\r[^\r\n\x1b]{0,500}\[[\d:]+(?:<[\d:?]+)?, [^\]\r\n\x1b]{0,500}\](?=[\r\n\x1b]|$)", re.ASCII
)
# A bar behind which, on its line, something else was written, such as a line of a log.
_BEHIND = re.compile(
    r"\r[^\r\n\x1b]{0,500}?\[[\d:]+(?:<[\d:?]+)?, [^\]\r\n\x1b]{1,200}\]"
    r"(?=[^\s\x1b,|]|\x1b\[[\d;]*m)",
    re.ASCII,
)
_LINE, _TIME = "━", re.compile(r"\b\d+:\d\d(?::\d\d)?\b|-:--:--|\b\d+(?:m|u)?s\b(?:/\w+)?")
# What a prefix of SI, as tqdm writes it before the unit, multiplies.
_PREFIXES = {prefix: 1000.0**power for power, prefix in enumerate("kMGTPE", 1)}


def settled(text: str) -> str:
    r"""Return a text as a terminal shows it; a line that is a bar still begins with "\r".

    Each bar erases a longer one before it. tqdm erases only what the same bar has written, and
    nested bars change their lines. Of a line with something behind a bar, that is shown.

    Example:
        >>> settled("\rsteps: 10it [00:01, 9.90it/s]\rstep: 1it [00:01, 9.9it/s]\nend")
        '\rstep: 1it [00:01, 9.9it/s]\nend'
        >>> settled("\rsteps: 9it [00:01, 9.90it/s]INFO saved\n\rsteps: 10it [00:01, 9.9it/s]")
        'INFO saved\n\rsteps: 10it [00:01, 9.9it/s]'
    """
    text = _BEHIND.sub(lambda found: "\r\x1b[K" if is_bar(found[0]) else found[0], text)
    rows = overwritten(_WRITTEN.sub(lambda found: f"{found[0]}\x1b[K", text)).split("\n")
    if not rows[-1].strip():  # the row of an inner bar that is gone
        rows[-1] = ""
    while len(rows) > 1 and not (rows[-1] or rows[-2].strip()):  # that of the outer one, too
        del rows[-2]
    return "\n".join(f"\r{row}" if is_bar(f"\r{row}") else row for row in rows)


def behind(line: str) -> str:
    r"""Return what was written behind a bar of tqdm, or the line itself if that is nothing.

    tqdm draws the bar again below. A logging handler writes there.

    Example:
        >>> behind("\rsteps: 9it [00:01, 9.90it/s]INFO saved"), behind("saved")
        ('INFO saved', 'saved')
    """
    found = _BEHIND.search(line) if "\r" in line else None
    return line[found.end() :] if found and is_bar(found[0]) else line


def is_bar(text: str) -> bool:
    r"""Return whether a line is a progress bar.

    Example:
        >>> is_bar("\r 50%|█████     | 1/2 [00:01<00:01,  1.00s/it]\n"), is_bar("50% done")
        (True, False)
    """
    if "\r" not in text:
        return False
    shown = plain(text)
    return _LINE in shown or _tqdm(shown) is not None


def _tqdm(shown: str) -> re.Match[str] | None:
    """Return the parts of a bar of tqdm; None if a shown line is none."""
    return _TQDM.fullmatch(shown) if shown.endswith("]") and len(shown) <= _LONGEST else None


def plain(text: str) -> str:
    """Return what a terminal shows of a line, without colours and spaces at its end."""
    return without_escapes(overwritten(text.removesuffix("\n"))).rstrip()


def without_pace(shown: str) -> str:
    """Return a shown line without what tells the pace of a progress bar, and without the bar.

    Example:
        >>> without_pace("train: 100%|██████████| 50/50 [00:05<00:00,  9.85it/s, loss=0.5]")
        'train: 100%50/50, loss=0.5'
        >>> without_pace("[00:05] no bar")
        '[00:05] no bar'
    """
    if found := _tqdm(shown):
        return f"{found['head']}{found['count']}{found['rest']}"
    return _TIME.sub("", shown) if _LINE in shown else shown


def merged(shown: Sequence[str]) -> str:
    """Return one line for progress bars that are equal but for their pace.

    It is the slowest one's, with the range of rates. Of others than tqdm's, it is the first.

    Args:
        shown: The lines.

    Example:
        >>> merged(["5/5 [00:01<00:00, 4.50it/s]", "5/5 [00:02<00:00, 2.10it/s]"])
        '5/5 [00:02<00:00, 2.10 to 4.50it/s]'
    """
    found = [one for line in shown if (one := _tqdm(line))]
    if len(found) < len(shown):
        return shown[0]
    found.sort(key=_speed)
    slowest, fastest = found[0], found[-1]
    if slowest["rate"] == fastest["rate"] and slowest["unit"] == fastest["unit"]:
        return slowest[0]
    unit = "" if slowest["unit"] == fastest["unit"] else slowest["unit"]
    paces = f"{slowest['rate']}{unit} to {fastest['rate']}"
    return f"{slowest[0][: slowest.start('rate')]}{paces}{fastest['unit']}{slowest['rest']}]"


def _speed(bar: re.Match[str]) -> float:
    """Return the steps in a second; of a rate that is not known yet, 0."""
    if bar["rate"] == "?":
        return 0.0
    rate, unit = float(bar["rate"]), bar["unit"]
    if unit.startswith("s/"):
        return 1 / rate if rate else 0.0
    return rate * _PREFIXES.get(unit[:1], 1.0)
