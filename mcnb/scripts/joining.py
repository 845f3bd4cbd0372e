"""`jax.distributed.initialize`, as a checked program calls it: then its launches are checked."""

from __future__ import annotations

import functools
import inspect
import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from mcnb.errors import ClusterError
from mcnb.lockstep import jax_hooks
from mcnb.lockstep.guard import guard
from mcnb.lockstep.places import Places, is_script
from mcnb.lockstep.sentry import Sentry
from mcnb.lockstep.wire import Address
from mcnb.scripts import meeting
from mcnb.scripts.identity import Identity
from mcnb.scripts.keeping import Keeper

REFEREE, COORDINATOR = "MCNB_REFEREE", "MCNB_COORDINATOR"


def encode_address(address: Address) -> str:
    """Return an address as it stands in the environment of `mcnb run`'s processes."""
    return json.dumps(asdict(address))


class Joining:
    """Stands in for `jax.distributed.initialize`.

    Args:
        identity: Which process this is.
        checked: Whether launches are to be checked.

    Attributes:
        sentry: Who announces this process's launches, once it has joined.
        joined: Whether it has.
        keeper: The referee that it started, if it is process 0 and nobody else did.
    """

    def __init__(self, identity: Identity, *, checked: bool) -> None:
        self.identity = identity
        self.checked = checked
        self.sentry: Sentry | None = None
        self.joined = False
        # Not for the program's own children.
        referee = os.environ.pop(REFEREE, "")
        self._given = Address(**json.loads(referee)) if referee else None
        self._coordinator = os.environ.pop(COORDINATOR, "")
        self.keeper: Keeper | None = None

    def install(self) -> None:
        """Have the program's call come here. It imports JAX."""
        import jax

        original = jax.distributed.initialize

        @functools.wraps(original)
        def initialize(*args: Any, **kwargs: Any) -> None:
            given = inspect.signature(original).bind(*args, **kwargs)
            self._complete(given.arguments)
            _stay_at_home(given.arguments)
            find = self._prepare() if self.checked else None
            original(*given.args, **given.kwargs)
            self.joined = True
            if find is not None:
                self.sentry = guard(find(), jax_hooks.process_index(), Places(is_script))

        jax.distributed.initialize = initialize

    def _complete(self, given: dict[str, Any]) -> None:
        """Fill in what the program leaves to its launcher, and refuse what contradicts it."""
        identity = self.identity
        if not self._coordinator:
            return
        own: dict[str, Any] = {
            "num_processes": identity.processes,
            "process_id": identity.process,
        }
        for name, value in own.items():
            if given.get(name) not in (None, value):
                raise ClusterError(
                    f"Process {identity.process} of {identity.processes} called "
                    f"jax.distributed.initialize with {name}={given[name]}, and not {value}. Leave "
                    "its arguments out: mcnb run fills them in. Or, where the program reads them "
                    "from its command line, pass {process} and {processes}"
                )
        if given.get("coordinator_address") is None and given.get("num_processes") is None:
            own |= {
                "coordinator_address": self._coordinator,
                "coordinator_bind_address": self._coordinator,
                "cluster_detection_method": "deactivate",
            }
            given.update({name: value for name, value in own.items() if given.get(name) is None})

    def _prepare(self) -> Callable[[], Address]:
        """See to it that there is a referee; return what finds it when all have joined."""
        if (given := self._given) is not None:
            return lambda: given
        path = meeting.meeting_point(self.identity, os.environ)
        if self.identity.process == 0:
            host = "" if self.identity.one_host else socket.gethostbyname(socket.gethostname())
            self.keeper = Keeper(self.identity.processes, path, host)
        return lambda: meeting.find(path)


def _stay_at_home(given: dict[str, Any]) -> None:
    """Have a coordinator listen on loopback alone that is reached there; JAX's listens anywhere."""
    address = given.get("coordinator_address") or ""
    if address.rpartition(":")[0] in ("localhost", "127.0.0.1"):
        given.setdefault("coordinator_bind_address", address)
