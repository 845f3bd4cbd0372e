"""The command `mcnb` of the code that is tested, whatever is installed."""

from __future__ import annotations

import sys

MCNB = (sys.executable, "-c", "import sys; from mcnb.cli.main import main; sys.exit(main())")
