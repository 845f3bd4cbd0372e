"""`python -P -m mcnb.worker`: one process of a cluster."""

from __future__ import annotations

import sys

from mcnb.worker.settings import take_settings

if __name__ == "__main__":
    sys.argv[1:] = take_settings(
        sys.argv[1:]
    )  # before JAX is imported, which reads the environment then
    from mcnb.worker.kernel import main

    main()
