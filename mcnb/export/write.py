"""Write a lesson as plain programs for `mcnb script`, one for each start of processes."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcnb._cells import magic_first, with_magics
from mcnb._text import plural
from mcnb.errors import McnbError
from mcnb.export.choose import Choice, choose, folder_numbers, with_lasting_folders
from mcnb.export.needs import names_of
from mcnb.export.parse import Cell, as_comment, headings, lead, parts_of
from mcnb.export.source import comment, indent, plain
from mcnb.options import Options

WRITTEN_BY = "Written by mcnb script from"
_DOCSTRING = '''"""{title}

{what}

    for i in {loop}; do python {name} localhost:{port} $i {count} & done; wait

With a launcher, which sets the index of each process:

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
    """Connect to the other processes; the command line or the launcher gives the process index."""
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
_MAKE_MESH = """

@functools.wraps(jax.make_mesh)
def {mesh}(*args, original=jax.make_mesh, **kwargs):
    # JAX takes each host for a slice, and jax.make_mesh refuses several. That matters on TPUs and
    # GPUs, where the links between slices are slower: for them, there is
    # jax.experimental.mesh_utils.create_hybrid_device_mesh.
    try:
        return original(*args, **kwargs)
    except ValueError as error:
        if "multi-slice" not in str(error) or jax.default_backend() != "cpu":
            raise
    given = inspect.signature(original).bind(*args, **kwargs).arguments
    shape, names, *_ = given.values()
    devices = list(given.get("devices") or jax.devices())[: math.prod(shape)]
    types = given.get("axis_types") or (jax.sharding.AxisType.Explicit,) * len(shape)
    return jax.sharding.Mesh(np.array(devices).reshape(shape), names, axis_types=types)


jax.make_mesh = {mesh}  # also for modules that the program imports or writes
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
# No process exits before all have finished.
from jax.experimental import multihost_utils

multihost_utils.sync_global_devices("the end")
"""
_CLEAN = """if jax.process_index() == 0:
    shutil.rmtree(pathlib.Path(__file__).resolve().with_name("{folder}"), ignore_errors=True)
"""
PORT = 10000
# The most computations that XLA runs at once on a CPU device, and the most threads needed.
UNDER_WAY, MOST_THREADS = 32, 512


@dataclass(frozen=True)
class Place:
    """The position of a program among the programs of a lesson.

    Attributes:
        title: The lesson's title.
        lesson: The name of the lesson's file.
        names: The file names of all programs of the lesson, in order.
        number: The program's index in `names`.
        folder: The name of the folder that the programs share; empty if they share none.
    """

    title: str
    lesson: str
    names: Sequence[str]
    number: int = 0
    folder: str = ""

    @property
    def cleans(self) -> bool:
        """Whether this program removes the shared folder, as the last one that uses it."""
        return bool(self.folder) and self.number == len(self.names) - 1


def head(
    place: Place,
    options: Options,
    body: str,
    display: str = "",
    futures: Sequence[str] = (),
    mesh: str = "",
) -> str:
    """Return the first lines of a program, up to its first cell.

    Args:
        place: The program's position in the lesson.
        options: The number of processes and devices.
        body: The text of the program's cells.
        display: The name of the function that shows a value; empty if none is shown.
        futures: The names to import from `__future__`.
        mesh: The name of the function that takes the place of `jax.make_mesh`; empty if none is
            needed.
    """
    pushes, shares = "= from_process_0(" in body, "= lasting_folder(" in body
    modules = {"os", "sys"}
    modules |= {"pprint"} if display else set()
    modules |= {"pickle"} if pushes else set()
    modules |= {"functools", "inspect", "math"} if mesh else set()
    modules |= {"pathlib", "shutil", "types"} if shares else set()
    modules |= {"pathlib", "shutil"} if place.cleans else set()
    text = _docstring(place, options) + "\n"
    text += f"from __future__ import {', '.join(futures)}\n\n" if futures else ""
    text += "".join(f"import {module}\n" for module in sorted(modules))
    devices = options.devices_per_process
    text += _THREADS.format(threads=min(UNDER_WAY * devices, MOST_THREADS))
    quoted = [(json.dumps(name), json.dumps(value)) for name, value in options.env.items()]
    settings = [f"os.environ[{name}] = {value}\n" for name, value in quoted]
    text += "".join([*settings, "\n"]) if settings else ""
    text += "import jax\n" + ("import numpy as np\n" if pushes or mesh else "")
    count = options.processes
    processes = plural(count, "process", "processes")
    text += _STREAMS + _JOIN.format(devices=devices, count=count, processes=processes)
    text += _DISPLAY.format(display=display) if display else ""
    text += _MAKE_MESH.format(mesh=mesh) if mesh else ""
    text += _FROM_PROCESS_0 if pushes else ""
    text += _LASTING_FOLDER.format(folder=place.folder) if shares else ""
    return text + "\n"


def _docstring(place: Place, options: Options) -> str:
    count = options.processes
    what = f"For {options.describe()}, without mcnb."
    if len(place.names) > 1:
        what += (
            f" Part {place.number + 1} of {len(place.names)}, which run in this order: "
            f"{', '.join(place.names)}."
        )
    return _DOCSTRING.format(
        title=_docstring_safe(place.title),
        what=_docstring_safe(textwrap.fill(f"{what} In a shell, with any free port:", 88)),
        loop=" ".join(map(str, range(count))) if count <= 10 else f"$(seq 0 {count - 1})",
        name=_docstring_safe(place.names[place.number]),
        port=PORT,
        count=count,
        written_by=WRITTEN_BY,
        lesson=_docstring_safe(place.lesson),
    )


def end(place: Place) -> str:
    """Return the last lines of a program."""
    return _END + (_CLEAN.format(folder=place.folder) if place.cleans else "")


def _docstring_safe(text: str) -> str:
    return text.replace("\\", "/").replace('"""', "'''")


@dataclass(frozen=True)
class Program:
    """A plain program, made from a part of a lesson.

    Attributes:
        name: The program's file name.
        text: The program's text.
        options: The number of processes and devices that the program needs.
        cells: For each `# %%` separator but the last, the index of the cell that follows.
        left_out: The cells of the processes that are left out, wholly or in part, with the reason.
    """

    name: str
    text: str
    options: Options
    cells: tuple[int, ...]
    left_out: dict[int, str]


def export(cells: Sequence[Any], lesson: str, name: str) -> list[Program]:
    r"""Export a lesson as plain programs: one, or several that run in order.

    A program can't change its number of processes, so each start of processes begins a program.

    Args:
        cells: The lesson's cells, as nbformat objects.
        lesson: The name of the lesson's file.
        name: The first program's file name; the others have a number before the suffix.

    Raises:
        McnbError: No cell of the lesson runs in processes, or a `%mcjax` line is invalid.

    Example:
        >>> from types import SimpleNamespace
        >>> cell = SimpleNamespace(cell_type="code", source="%%mcjax\n1 + 1", metadata={})
        >>> (program,) = export([cell], "mine.ipynb", "mine.py")
        >>> print(program.text[program.text.index("# %%"):])
        # %%
        display(1 + 1)
        <BLANKLINE>
        # %% The end
        ...
    """
    cells = _with_magics(cells)
    display = _free_name(cells, "display", "show_value", "_display")
    mesh = _free_name(cells, "make_mesh", "new_mesh", "_make_mesh") if _may_mesh(cells) else ""
    parts = parts_of(cells, display)
    chosen: list[list[Choice]] = []
    earlier: list[Cell] = []
    for part in parts:
        chosen.append(choose(part.cells, earlier, display))
        earlier += part.cells
    # A part without code to run needs no program.
    pairs = [(p, c) for p, c in zip(parts, chosen, strict=True) if any(one.code for one in c)]
    if not pairs:
        raise McnbError(f"{lesson}: no cell that a plain program can run begins with %%mcjax")
    names = names_of_files(name, len(pairs))
    shared = any(e.before for _, choices in pairs for c in choices for e in c.errands)
    folder = f"{Path(name).stem}_files" if len(pairs) > 1 and shared else ""
    notes, numbers = _notes(cells), folder_numbers(earlier)
    programs = []
    for number, (part, choices) in enumerate(pairs):
        place = Place(_title(cells) or lesson, lesson, names, number, folder)
        body, separated = _body(choices, notes, numbers if folder else {})
        shows = any(f"{display}(" in choice.code for choice in choices)
        futures = sorted({name for c in part.cells for name in c.futures if not c.why_not})
        names_used = display if shows else "", futures, mesh
        text = head(place, part.options, body, *names_used)
        left_out = {c.cell.index: c.why_not for c in choices if c.cell.in_processes and c.why_not}
        text += body + end(place)
        programs.append(Program(names[number], text, part.options, separated, left_out))
    return programs


def _with_magics(cells: Sequence[Any]) -> list[Any]:
    """Return the cells as they would be written without `%mcjax auto` and `%%here`."""
    code = [one for one in cells if one.cell_type == "code"]
    explicit = with_magics(one.source for one in code)
    copies = []
    for one in cells:
        copies.append(copy.copy(one))
        if one.cell_type == "code":
            copies[-1].source = next(explicit)
    return copies


def names_of_files(name: str, count: int) -> list[str]:
    """Return the file names of `count` programs.

    Example:
        >>> names_of_files("train.py", 3)
        ['train.py', 'train_2.py', 'train_3.py']
    """
    path = Path(name)
    return [name, *(str(path.with_stem(f"{path.stem}_{k}")) for k in range(2, count + 1))]


# These modules make no mesh unless the code says so; two of the standard library run other files.
_WITHOUT_MESHES = (sys.stdlib_module_names | {"jax", "numpy"}) - {"importlib", "runpy"}


def _may_mesh(cells: Sequence[Any]) -> bool:
    """Whether a program of these cells, or a module that it imports or writes, may make a mesh."""
    for code in (_code(cell) for cell in cells):
        imported = {name for node in ast.walk(ast.parse(code)) for name in _modules(node)}
        if "make_mesh" in code or imported - _WITHOUT_MESHES:
            return True
    return False


def _modules(node: ast.AST) -> list[str]:
    """Return the top-level names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]]
    return []


def _code(cell: Any) -> str:
    """Return what Python runs of a cell in processes; nothing if it is not valid Python."""
    first, _, code = magic_first(cell.source).lstrip("\n").partition("\n")
    if cell.cell_type == "code" and first.startswith("%%mcjax"):
        with contextlib.suppress(SyntaxError):
            return plain(code)
    return ""


def _free_name(cells: Sequence[Any], *names: str) -> str:
    """Return the first of some names that no cell defines."""
    taken = {name for cell in cells for name in names_of(_code(cell)).defines}
    return next(name for name in names if name not in taken)


def _title(cells: Sequence[Any]) -> str:
    texts = (cell.source for cell in cells if cell.cell_type == "markdown")
    return next((told for text in texts for level, told in headings(text) if level == 1), "")


def _notes(cells: Sequence[Any]) -> dict[int, tuple[str, str]]:
    """Return, for each code cell, the headings above it and the paragraph that introduces it."""
    notes = {}
    ahead: list[tuple[int, str]] = []
    told = ""
    for index, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            for level, text in headings(cell.source):
                # Drop the headings of sections without code.
                ahead = [one for one in ahead if one[0] < level]
                ahead += [(level, text)] if level > 1 else []
            told = lead(cell.source)
        elif cell.cell_type == "code":
            notes[index] = (" / ".join(text for _, text in ahead), told)
            ahead, told = [], ""
    return notes


def _body(
    choices: Sequence[Choice],
    notes: Mapping[int, tuple[str, str]],
    folders: Mapping[int, int],
) -> tuple[str, tuple[int, ...]]:
    """Return the text of a program's cells, and their indices in the lesson."""
    blocks = []
    separated = []
    done: set[int] = set()  # kernel cells that process 0 has executed
    heading = ""
    own = {choice.cell.index for choice in choices}
    for choice in choices:
        begun, told = notes[choice.cell.index]
        heading = begun or heading
        if choice.cell.is_of_the_head and not choice.errands:
            continue
        lines = [f"# %% {heading}".rstrip()]
        lines += [as_comment(told)] if told else []
        lines += ["#"] if told and choice.why_not else []
        heading = ""
        if choice.errands:
            lines += _errands(choice, done, folders, own)
        elif choice.code:
            if choice.why_not:
                lines += [f"# As {choice.why_not}, only what later cells need is left:"]
            lines += [_on(choice)]
        else:
            magic, _, code = choice.cell.source.lstrip("\n").partition("\n")
            # Options such as `-p 0-1` and `--unchecked` explain the cell, so they are kept.
            drop = choice.cell.in_processes and magic.split() == ["%%mcjax"]
            source = (code if drop else choice.cell.source).strip("\n")
            lines += [f"# Left out, as {choice.why_not}:", comment(textwrap.indent(source, "    "))]
        blocks.append("\n" + "\n".join(lines) + "\n")
        separated.append(choice.cell.index)
    return "".join(blocks), tuple(separated)


def _on(choice: Choice) -> str:
    """Return a cell's code, inside an `if` unless all processes run it."""
    cell = choice.cell
    if not cell.processes:
        return choice.code
    which = f"== {cell.processes[0]}" if len(cell.processes) == 1 else f"in {cell.processes}"
    return f"if jax.process_index() {which}:\n{indent(choice.code)}"


def _errands(
    choice: Choice, done: set[int], folders: Mapping[int, int], own: Collection[int]
) -> list[str]:
    """Return the code by which process 0 computes pushed variables and broadcasts them.

    Kernel cells that process 0 has executed are done; this call adds to them. Of the cells with
    lasting folders, those of the program's own part empty them first.
    """
    made = {k: code for errand in choice.errands for k, code in errand.before if k not in done}
    done.update(made)
    lines = ["# Process 0 does what the notebook did, and tells the others."]
    for index, code in sorted(made.items()):
        if index in folders:
            code = with_lasting_folders(code, folders[index], new=index in own)
        lines.append(f"if jax.process_index() == 0:\n{indent(code)}")
    lines += [f"{e.name} = from_process_0(lambda: {e.value})" for e in choice.errands]
    return lines
