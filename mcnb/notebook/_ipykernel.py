"""Access a private name of ipykernel's; no other file uses one.

From version 7.4 on, ipykernel hands the messages to a comm to the shell that has used the comm
last, whichever one the front end has sent them to. Older versions do without, and need no change.
"""

from __future__ import annotations

from typing import Any


def answer_where_sent(comm: Any) -> None:
    """Let the messages to a comm reach the shell to which the front end sends them.

    The main shell has used the comm last, and is executing a cell.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _data, sent_to: sent_to
