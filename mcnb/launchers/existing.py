"""Connect to the engines of an ipyparallel cluster that mcnb did not start."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from mcnb._system import check_listen, local_end, outward_address, remove_folder
from mcnb._text import index_ranges, plural
from mcnb.errors import ClusterError
from mcnb.launchers.base import Launcher, OnExit, forwarded_environment
from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options
from mcnb.worker.adopt import Adopt

CONNECT_S = 30.0
DEFAULT = "default"  # IPython's own profile
LOOK_S = 0.1
# An idle engine replies at once, but may first have to import mcnb and JAX, beside the others.
ANSWER_S = 60.0
_MEND = "Restart the engines: ipcluster stop, then ipcluster start"


def connection_file(options: Options) -> Path:
    """Return the path of an ipyparallel cluster's client connection file.

    Args:
        options: The options that name the cluster.

    Raises:
        ClusterError: There is no such file.
    """
    from IPython.core.profiledir import ProfileDir, ProfileDirError
    from IPython.paths import get_ipython_dir

    profile = options.profile or DEFAULT
    name = "-".join(filter(None, ("ipcontroller", options.cluster_id, "client.json")))
    if options.profile_dir:
        what, start = f"in the folder {options.profile_dir}", f"--profile-dir={options.profile_dir}"
        # Where a profile has its files, too. Nothing is created in the folder.
        folder = Path(options.profile_dir).expanduser() / "security"
    else:
        what, start = f"for the profile {profile}", f"--profile={profile}"
        folder = None
        with contextlib.suppress(ProfileDirError):
            found = ProfileDir.find_profile_dir_by_name(get_ipython_dir(), profile)
            folder = Path(found.security_dir)
    if folder is not None and (folder / name).is_file():
        return folder / name
    if options.cluster_id:
        what += f" and the id {options.cluster_id}"
        start += f" --cluster-id={options.cluster_id}"
    raise ClusterError(
        f"No running ipyparallel cluster was found {what}: there is no connection file. Start "
        f"one: ipcluster start {start} -n 4"
    )


def client_of(file: Path, count: int = 1) -> Any:
    """Return a client of the cluster that a connection file describes.

    Args:
        file: The connection file.
        count: The number of engines to wait for.

    Raises:
        ClusterError: The cluster does not reply, or has no engines.
    """
    import ipyparallel

    try:
        client = ipyparallel.Client(str(file), timeout=CONNECT_S)
    except Exception as error:  # the controller has ended, or another program uses its port
        raise ClusterError(
            f"The ipyparallel cluster of the connection file {file.name} does not answer "
            f"({_first_line(error)}). If it has ended, start another: ipcluster start"
        ) from None
    deadline = time.monotonic() + CONNECT_S
    while len(client.ids) < count and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    if not client.ids:
        client.close()
        raise ClusterError(
            "The ipyparallel cluster has no engines yet. When they have started: %mcjax connect"
        )
    return client


def engines_of(options: Options, count: int | None = None) -> int:
    """Return the number of engines of the ipyparallel cluster that these options name.

    Args:
        options: The options.
        count: The number of engines that the cluster is to have, for which to wait.

    Raises:
        ClusterError: There is no such cluster, or the cluster has no engines or another number.
    """
    with contextlib.closing(client_of(connection_file(options), count or 1)) as client:
        found = len(client.ids)
    if count is not None and found != count:
        again = f"When all have started: %mcjax connect -n {count}"
        raise ClusterError(
            f"The ipyparallel cluster has {plural(found, 'engine', 'engines')}, and -n {count} "
            f"expects {count}. {again if found < count else 'To connect to all, leave out -n'}"
        )
    return found


class ExistingLauncher(Launcher):
    """A launcher that takes over the engines of a running ipyparallel cluster.

    Args:
        options: The options that name the cluster and configure its processes.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        check_listen(options.listen)
        self._file = connection_file(options)
        interface = json.loads(self._file.read_text())["interface"].partition("://")[2]
        everywhere = interface in ("*", "0.0.0.0")  # noqa: S104  (read, not bound)
        self.host = options.listen or (outward_address() if everywhere else local_end(interface))
        self.folder = Path(tempfile.mkdtemp(prefix="mcnb-"))

    def begin(self, exits: dict[str, ProcessExit], on_exit: OnExit) -> None:
        """Turn the engines into mcnb workers.

        Raises:
            ClusterError: An engine does not reply, or can't run mcnb.
        """
        del exits, on_exit
        adopt = Adopt(forwarded_environment(self.options), str(self.folder))
        with contextlib.closing(self.connect()) as client:
            engines = sorted(client.ids)
            answers = {engine: client[engine].apply_async(adopt) for engine in engines}
            client.wait(list(answers.values()), timeout=ANSWER_S)
            silent = [engine for engine, answer in answers.items() if not answer.done()]
            if silent:
                it = "It" if len(silent) == 1 else "They"
                raise ClusterError(
                    f"{_engines(silent)} of {len(engines)} did not answer within "
                    f"{ANSWER_S:.0f} seconds. {it} may be busy, or left over from an earlier run. "
                    f"{_MEND}"
                )
            for engine, answer in answers.items():
                if why := _answer(answer):
                    raise ClusterError(f"{_engines([engine])} {why}. {_MEND}")

    def connect(self) -> Any:
        """Return a new ipyparallel client."""
        return client_of(self._file)

    def close(self, grace_s: float | None = None) -> None:
        """Remove the folder, and leave the engines running."""
        del grace_s
        remove_folder(self.folder)


def _engines(ids: list[int]) -> str:
    """Return a name for engines by their ids, because they have no process indices yet."""
    return f"{'Engine' if len(ids) == 1 else 'Engines'} {index_ranges(ids)}"


def _answer(answer: Any) -> str:
    try:
        return str(answer.get())
    except Exception as error:  # most likely, mcnb is not installed for the engine
        return f"can't run mcnb: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
