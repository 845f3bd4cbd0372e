"""The first and the last lines of an exported program: how it starts, joins the others and ends."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from mcnb.options import Options, plural

WRITTEN_BY = "Written by mcnb script from"
_DOCSTRING = '''"""{title}

{what}

    for i in {loop}; do python {name} localhost:{port} $i {count} & done; wait

Under a launcher, which tells JAX who is who:

    mpirun -np {count} python {name}
    srun -n {count} python {name}

Comments hold what only the notebook can do, and why.
{written_by} {lesson}.
"""
'''
_STREAMS = """
# Gloo, which carries messages between CPU processes, writes notes of its own to file
# descriptor 1. They go to stderr; what Python prints goes to stdout, line by line.
sys.stdout = open(os.dup(1), "w", buffering=1, encoding="utf-8")
os.dup2(2, 1)
"""
_JOIN = '''
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", {devices})


def join():
    """Join the other processes: who this one is, the command line says, or the launcher."""
    if len(sys.argv) > 3:
        address, index, count = sys.argv[1:4]
    elif "OMPI_COMM_WORLD_RANK" in os.environ and "OMPI_MCA_orte_hnp_uri" not in os.environ:
        # Open MPI 5, which JAX doesn't find by itself. On one host, all have the same parent.
        address = f"localhost:{{61440 + os.getppid() % 4096}}"
        index, count = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
    else:
        try:
            return jax.distributed.initialize()  # finds Slurm and Open MPI 4
        except ValueError:
            sys.exit(f"Nothing says which of {processes} this is.\\n\\n{{__doc__}}")
    jax.distributed.initialize(
        coordinator_address=address,
        coordinator_bind_address=address,
        process_id=int(index),
        num_processes=int(count),
        cluster_detection_method="deactivate",
    )


join()
if jax.process_count() != {count}:
    sys.exit(f"This program is for {processes}, not for {{jax.process_count()}}.")
'''
_THREADS = """
# XLA's threads, by default one for each core: as many as computations may be under way, lest
# those that wait for other processes leave none for what these wait for.
os.environ.setdefault("NPROC", "{threads}")

"""
_DISPLAY = '''

def {display}(*values):
    """Print values as a notebook shows them."""
    for value in values:
        if isinstance(value, str):
            print(repr(value))
        elif type(value) is set and value:
            try:
                items = sorted(value)
            except TypeError:
                items = sorted(value, key=str)
            print(f"{{{{{{pprint.pformat(items, width=79)[1:-1]}}}}}}")
        elif value is not None:
            print(pprint.pformat(value, width=79, sort_dicts=False))
'''
_FROM_PROCESS_0 = '''

def from_process_0(make):
    """Return what `make()` is on process 0, on every process."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    data = pickle.dumps(make()) if jax.process_index() == 0 else b""
    size = int(broadcast_one_to_all(np.int32(len(data))))
    data = broadcast_one_to_all(np.frombuffer(data.ljust(size), np.uint8))
    return pickle.loads(data.tobytes())
'''
_LASTING_FOLDER = '''

def lasting_folder(number, new=False):
    """Return a folder beside this file, which all parts of the program share."""
    folder = pathlib.Path(__file__).resolve().with_name("{folder}") / str(number)
    if new:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return types.SimpleNamespace(name=str(folder))
'''
_END = """
# %% The end
# Nobody leaves while others still need them.
from jax.experimental import multihost_utils

multihost_utils.sync_global_devices("the end")
"""
_CLEAN = """if jax.process_index() == 0:
    shutil.rmtree(pathlib.Path(__file__).resolve().with_name("{folder}"), ignore_errors=True)
"""
PORT = 10000
# So many computations XLA has under way on a CPU device, and so many threads are enough.
UNDER_WAY, MOST_THREADS = 32, 512


@dataclass(frozen=True)
class Place:
    """Which of a lesson's programs one is.

    Attributes:
        title: The lesson's title.
        lesson: The name of its file.
        names: The names of the files of all its programs, in their order.
        number: Which of them this is, from 0.
        folder: The name of the folder that they share; empty if they share none.
    """

    title: str
    lesson: str
    names: Sequence[str]
    number: int = 0
    folder: str = ""

    @property
    def is_last(self) -> bool:
        """Whether none follows."""
        return self.number == len(self.names) - 1


def head(
    place: Place, options: Options, body: str, display: str = "", futures: Sequence[str] = ()
) -> str:
    """Return the first lines of a program, up to its first cell.

    Args:
        place: Which program it is.
        options: How many processes and devices.
        body: Its cells.
        display: The name of the function that shows a value; empty if none is shown.
        futures: What is imported from `__future__`.
    """
    pushes, shares = "= from_process_0(" in body, "= lasting_folder(" in body
    modules = {"os", "sys"}
    modules |= {"pprint"} if display else set()
    modules |= {"pickle"} if pushes else set()
    modules |= {"pathlib", "shutil", "types"} if shares else set()
    modules |= {"pathlib", "shutil"} if place.folder and place.is_last else set()
    text = _docstring(place, options) + "\n"
    text += f"from __future__ import {', '.join(futures)}\n\n" if futures else ""
    text += "".join(f"import {module}\n" for module in sorted(modules))
    devices = options.devices_per_process
    text += _THREADS.format(threads=min(UNDER_WAY * devices, MOST_THREADS))
    settings = [f"os.environ[{_text(k)}] = {_text(v)}\n" for k, v in options.env.items()]
    text += "".join([*settings, "\n"]) if settings else ""
    text += "import jax\n" + ("import numpy as np\n" if pushes else "")
    count = options.processes
    processes = plural(count, "process", "processes")
    text += _STREAMS + _JOIN.format(devices=devices, count=count, processes=processes)
    text += _DISPLAY.format(display=display) if display else ""
    text += _FROM_PROCESS_0 if pushes else ""
    text += _LASTING_FOLDER.format(folder=place.folder) if shares else ""
    return text + "\n"


def _docstring(place: Place, options: Options) -> str:
    what = f"For {options.describe()}, without mcnb."
    if len(place.names) > 1:
        what += (
            f" Part {place.number + 1} of {len(place.names)}, which run in this order: "
            f"{', '.join(place.names)}."
        )
    return _DOCSTRING.format(
        title=_docstring_safe(place.title),
        what=_docstring_safe(textwrap.fill(f"{what} In a shell, with any free port:", 88)),
        loop=_loop(options.processes),
        name=_docstring_safe(place.names[place.number]),
        port=PORT,
        count=options.processes,
        written_by=WRITTEN_BY,
        lesson=_docstring_safe(place.lesson),
    )


def _loop(count: int) -> str:
    return " ".join(map(str, range(count))) if count <= 10 else f"$(seq 0 {count - 1})"


def end(place: Place) -> str:
    """Return the last lines of a program."""
    clean = place.folder and place.is_last
    return _END + (_CLEAN.format(folder=place.folder) if clean else "")


def _text(value: str) -> str:
    return json.dumps(value)


def _docstring_safe(text: str) -> str:
    return text.replace("\\", "/").replace('"""', "'''")
