"""Colours: one for each process, which everybody can tell apart, and never without a label.

Source of the colours: M. Okabe and K. Ito, Color Universal Design, https://jfly.uni-koeln.de/color/
"""

from __future__ import annotations

# Black is taken by text, so gray stands for it.
_PROCESSES = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#F0E442",  # yellow
    "#999999",  # gray
)
INK, SOFT, PAPER, EDGE, NOBODY = "#1A1A1A", "#555555", "#FFFFFF", "#C8C8C8", "#EDEDED"
MOST_STRIPES = len(_PROCESSES)


def color_of(process: int) -> str:
    """Return a process's colour. The ninth process has the first one's: labels tell them apart.

    Example:
        >>> color_of(0), color_of(8)
        ('#0072B2', '#0072B2')
    """
    return _PROCESSES[process % len(_PROCESSES)]


def text_on(color: str) -> str:
    """Return the colour of text that is read well on a colour: black or white.

    The one with the higher contrast ratio, as WCAG 2.1 defines it in its section 1.4.3.

    Example:
        >>> text_on("#0072B2"), text_on("#F0E442")
        ('#FFFFFF', '#1A1A1A')
    """
    light = _luminance(color)
    on_dark = (1.05) / (light + 0.05)
    on_light = (light + 0.05) / (_luminance(INK) + 0.05)
    return PAPER if on_dark > on_light else INK


def paler(color: str) -> str:
    """Return a colour halfway to white.

    Example:
        >>> paler("#0072B2")
        '#7FB8D8'
    """
    return "#" + "".join(f"{(int(color[i : i + 2], 16) + 255) // 2:02X}" for i in (1, 3, 5))


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
