"""Run one process of a cluster, as `python -P -m mcnb.worker`."""

from __future__ import annotations

import sys

from mcnb.worker.settings import profile_folder, read_settings, take_settings

if __name__ == "__main__":
    # JAX reads the environment when it is imported, which happens later.
    sys.argv[1:] = take_settings(sys.argv[1:])
    shared = profile_folder(sys.argv[1:])
    if shared is not None:
        from mcnb.worker.signals import leave_with_kernel

        # Before the other imports, which take a while.
        leave_with_kernel(read_settings(shared), shared)
    from mcnb.worker.kernel import main

    main(shared)
