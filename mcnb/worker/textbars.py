"""Take the place of `tqdm.notebook` in a process, which can't show its widgets.

`tqdm.auto` imports it in a kernel, for which it takes a process, too. The bars are text instead.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_STANDARD = {"tqdm": "tqdm", "tqdm_notebook": "tqdm", "trange": "trange", "tnrange": "trange"}
# If there were no widgets, `tqdm.auto` would ask the user to install them.
IProgress = object
WARN_NOIPYW = ""


def __getattr__(name: str) -> Any:
    """Return what `tqdm.std` has under the name."""
    if name in _STANDARD:
        return getattr(importlib.import_module("tqdm.std"), _STANDARD[name])
    raise AttributeError(f"tqdm.notebook has no {name} in a %%mcjax cell, where bars are text")


def draw_bars_as_text() -> None:
    """Have programs that import `tqdm.notebook` find this module, unless they have the other one.

    Example:
        >>> draw_bars_as_text()
        >>> from tqdm import std
        >>> from tqdm.notebook import tqdm
        >>> tqdm is std.tqdm
        True
    """
    sys.modules.setdefault("tqdm.notebook", sys.modules[__name__])
