r"""The output of several processes in one terminal: each line with its process in front.

[0] loss 0.7
[1] loss 0.7
"""

from __future__ import annotations

import codecs

from mcnb.messages import Text
from mcnb.process.native import GlooFilter
from mcnb.report.fold import fold_events
from mcnb.report.text import entries


class Lines:
    r"""One stream of one process, cut into lines.

    Args:
        hide_gloo: Whether Gloo's connection notes are left out.

    Example:
        >>> lines = Lines()
        >>> lines.feed(b"step 1\nst"), lines.feed(b"ep 2\n"), lines.feed(b"end", final=True)
        (['step 1'], ['step 2'], ['end'])
    """

    def __init__(self, hide_gloo: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._gloo = GlooFilter() if hide_gloo else None
        self._rest = ""

    def feed(self, data: bytes, final: bool = False) -> list[str]:
        """Return the lines that are whole by now, without their ends.

        Args:
            data: What came in.
            final: Whether nothing follows: then a last line needs no end.
        """
        text = self._decoder.decode(data, final)
        if self._gloo is not None:
            text = self._gloo.feed(text, final)
        *lines, self._rest = (self._rest + text).split("\n")
        if final and self._rest:
            lines.append(self._rest)
            self._rest = ""
        return lines


def labelled(process: int, count: int, line: str) -> str:
    """Return a line with its process in front.

    Example:
        >>> labelled(3, 16, "loss 0.7")
        '[3]  loss 0.7'
    """
    width = len(f"[{count - 1}]")
    # A progress bar's line: what a terminal would have shown at last.
    shown = line.rstrip("\r").rpartition("\r")[2]
    return f"{f'[{process}]':<{width}} {shown}".rstrip()


def folded(said: dict[int, list[Text]], count: int) -> str:
    """Return what processes said, folded as in a notebook.

    Args:
        said: What each wrote, by process index.
        count: How many processes there are.
    """
    return "".join(entry.text for entry in entries(fold_events(said), count))
