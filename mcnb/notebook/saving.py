"""Take the views of mcnb's widgets out of a notebook that is saved, as an extension of the server.

A view is the random name of a model in a notebook kernel. When the notebook is opened again with a
new kernel, JupyterLab shows an error in place of the view, also if there is a text for those who
draw no widgets. `mcnb lab` enables this extension, beside any hook of the user's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"
TEXT = "text/plain"
# The metadata of an output that has a view of a widget of mcnb's.
MARK: Mapping[str, str] = {"mcnb": "widget"}


def without_views(model: dict[str, Any], **_: object) -> None:
    """Remove the views of mcnb's widgets from a notebook; a hook of Jupyter Server's.

    The text of such an output stays; an output without one is removed. It never raises: what it
    does not understand is saved as it is.

    Args:
        model: What is saved, with the notebook as its content; it is changed in place.

    Example:
        >>> data = {TEXT: "Which?", VIEW: {"model_id": "70c1"}}
        >>> cell = {"outputs": [{"data": data, "metadata": dict(MARK)}]}
        >>> without_views({"type": "notebook", "content": {"cells": [cell]}})
        >>> cell
        {'outputs': [{'data': {'text/plain': 'Which?'}, 'metadata': {}}]}
    """
    with contextlib.suppress(Exception):
        if model["type"] != "notebook":
            return
        for cell in model["content"]["cells"]:
            with contextlib.suppress(Exception):
                cell["outputs"] = [one for one in cell["outputs"] if _stays(one)]


def _stays(output: dict[str, Any]) -> bool:
    """Remove the view from an output of mcnb's; return whether something is left of the output."""
    with contextlib.suppress(Exception):
        data, metadata = output["data"], output["metadata"]
        if MARK.items() <= metadata.items() and VIEW in data and TEXT in data:
            del data[VIEW]
            for key in MARK:
                del metadata[key]
            return bool(data[TEXT])
    return True


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return this module as an extension of Jupyter Server, which calls this by its name."""
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Register the hook; Jupyter Server calls this by its name when it starts."""
    server.contents_manager.register_pre_save_hook(without_views)
