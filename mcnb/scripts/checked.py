"""`python -m mcnb.lockstep FILE.py [ARGS]`: the command line of one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mcnb.errors import McnbError
from mcnb.launch.forking import die_with_parent
from mcnb.scripts.identity import OURS, identify

USAGE = """\
usage: python -m mcnb.lockstep [--unchecked] FILE.py [ARGS]

Run a JAX program in one of several processes, with its launches checked: processes that part say
which of them, and at which line. Whoever starts the processes puts it before the program:

  srun python -m mcnb.lockstep train.py
  mpirun -np 4 python -m mcnb.lockstep train.py

On one machine, mcnb run train.py -n 4 -d 2 starts them, too."""
EXIT_USAGE = 2


def main(words: Sequence[str]) -> int:
    """Run a program in this process.

    Args:
        words: The command line.

    Returns:
        The exit code: the program's own, or 2 if the command line made no sense.
    """
    checked = "--unchecked" not in words[:1]
    words = words if checked else words[1:]
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if words else EXIT_USAGE
    path = Path(words[0])
    try:
        if words[0].startswith("-"):
            raise McnbError(f"{words[0]}: there is no such option. There is: --unchecked")
        if not path.is_file():
            raise McnbError(f"{path}: there is no such file")
        identity = identify(os.environ)
        if identity.launcher == OURS:
            die_with_parent()
    except McnbError as error:
        print(f"python -m mcnb.lockstep: {error}", file=sys.stderr)
        return EXIT_USAGE
    from mcnb.scripts.program import run_program

    return run_program(path, words[1:], identity, checked=checked)
