"""`srun python -m mcnb.lockstep FILE.py [ARGS]`: a program whose launches are checked."""

from __future__ import annotations

import sys

from mcnb.lockstep.runner import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
