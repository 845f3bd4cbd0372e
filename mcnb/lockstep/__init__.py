"""The check: launches are held until all their participants agree. It needs JAX and NumPy only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcnb.lockstep.runner import install as install

__all__ = ["install"]


def __getattr__(name: str) -> Any:
    """Import `install` when it is first used: most modules here need nothing of it."""
    if name != "install":
        raise AttributeError(f"module 'mcnb.lockstep' has no attribute {name!r}")
    from mcnb.lockstep.runner import install

    return install
