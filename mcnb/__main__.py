"""`python -m mcnb`: the command `mcnb`, where its folder is not on the path."""

from __future__ import annotations

import sys

from mcnb.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
