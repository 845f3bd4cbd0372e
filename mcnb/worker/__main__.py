"""Run one process of a cluster, as `python -P -m mcnb.worker`."""

from __future__ import annotations

import sys

from mcnb.worker.settings import take_settings

if __name__ == "__main__":
    # JAX reads the environment when it is imported, which happens later.
    sys.argv[1:] = take_settings(sys.argv[1:])
    from mcnb.worker.kernel import main

    main()
