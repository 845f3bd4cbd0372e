"""Clusters for the tests, and the watch over what tests leave behind."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import linecache
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

import mcnb
from mcnb._text import cell_label
from mcnb.cluster import cluster as clusters
from mcnb.launchers import forkserver_client
from mcnb.lockstep.client import Client
from mcnb.lockstep.server import Server
from mcnb.lockstep.source import Places, is_script
from tests.support.clients import learners_of
from tests.support.healing import SETUP
from tests.support.learners import Program
from tests.support.timing import since, slowdown

# For tests of what lies outside of Python, where all is tested with several versions of it.
DONE = os.environ.get("MCNB_ONCE") == "done"
once = pytest.mark.skipif(DONE, reason="done with another version of Python")
# How long an example takes depends on what else the machine does.
settings.register_profile("mcnb", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mcnb")
ROOT = Path(__file__).resolve().parent.parent
INTEGRATION = ROOT / "tests" / "integration"
RESIDUE_S = 20.0
POLL_S = 0.01
# How often a wait measures how busy the machine is, and the most that counts of one look.
MEASURE_S, LOOK_S = 1.0, 0.1
# A shell that runs the tests in the background has them ignore Ctrl-C, and their child processes.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Programs of others, which `tests/integration/test_corpus.py` runs.
collect_ignore_glob = ["corpus/*"]
# Keeps a core busy, for as long as the tests run.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10000))"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the thorough tests, too")
    parser.addoption(
        "--promises", action="store_true", help="of the integration tests, run those of promises"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests, unless tests are named, and the thorough ones without --all.

    With --all, those that are thorough once are left out on the second Python. Of a file that is
    thorough as a whole, the tests of promises remain.
    """
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    left_out = {item for item in items if item.get_closest_marker("long")}
    everything, few = config.getoption("--all"), config.getoption("--promises")
    for item in items:
        thorough = item.get_closest_marker("thorough")
        if everything:
            away = DONE and thorough is not None and thorough.kwargs.get("once", False)
        else:
            away = thorough is not None or (few and INTEGRATION in item.path.parents)
        if away and not item.get_closest_marker("promise"):
            left_out.add(item)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def as_long_as_it_takes(request: pytest.FixtureRequest) -> None:
    """Take the second time limit, which ends pytest, from long tests; they keep the first one."""
    if request.node.get_closest_marker("long"):
        faulthandler.cancel_dump_traceback_later()


def descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def using(folder: Path) -> list[psutil.Process]:
    """Return the processes, whosever children they are, that were told to use a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            words = [*(process.info["cmdline"] or []), *(f.path for f in process.open_files())]
            if any(str(folder) in word for word in words):
                found.append(process)
    return found


def wait_until(condition: Callable[[], object], timeout: float = 10.0) -> bool:
    """Wait until something holds; return whether it did in time.

    Args:
        condition: It is looked at again and again.
        timeout: Seconds, of a machine that does nothing else.
    """
    waited = 0.0  # without the time in which this process did not run
    slowed, looked = 1.0, time.monotonic()
    measured = looked
    while not condition():
        if waited > timeout:
            return False
        time.sleep(POLL_S)
        waited += min(since(looked), LOOK_S) / slowed
        if since(measured) > MEASURE_S:
            slowed, measured = slowdown(), time.monotonic()
        looked = time.monotonic()
    return True


@pytest.fixture
def budget_s(request: pytest.FixtureRequest) -> float:
    """How much processor time a test may take that tries as many random cases as it can."""
    return 60.0 if request.config.getoption("--all") and not DONE else 2.0


# When each test of this process began, by the system's clock.
_begun: list[tuple[float, str]] = []


def pytest_runtest_setup(item: pytest.Item) -> None:
    _begun.append((time.time(), item.nodeid))


def _contents(folder: Path) -> dict[str, str]:
    """Return what is in a folder, and which test ran when it was made, to tell whose it is."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    made = min(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    during = [test for began, test in _begun if began <= made]
    return {
        "made during": during[-1] if during else "no test",
        **{
            str(path.relative_to(folder)): path.read_text(errors="replace")[-300:] for path in files
        },
    }


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    temporary = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        # A folder of the tests' own, so that what they leave is not mistaken for another's.
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        before = descendants()
        yield
        forkserver_client.close_idle()
        assert wait_until(lambda: descendants() <= before, RESIDUE_S), descendants() - before
        assert wait_until(lambda: not using(temporary), RESIDUE_S), using(temporary)
        left = [path for path in temporary.iterdir() if "mcnb" in path.name]
        assert {path.name: _contents(path) for path in left} == {}


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[mcnb.Cluster]:
    with mcnb.Cluster(processes=4, devices_per_process=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: mcnb.Cluster) -> mcnb.Cluster:
    """Four processes with two devices each; a test may break them, the next gets new ones."""
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run("get_ipython().user_ns.clear() or get_ipython().init_user_ns()")
    return shared_cluster


@pytest.fixture
def prepared(cluster: mcnb.Cluster) -> mcnb.Cluster:
    cluster.run(SETUP).raise_for_errors()
    return cluster


@pytest.fixture(scope="session")
def shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance(colors="nocolor")
    shell.run_line_magic("load_ext", "mcnb")
    return shell


class Notebook:
    """A real IPython shell with the magics, as a notebook's kernel has it."""

    def __init__(self, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell = shell
        self._capsys = capsys

    def run(self, source: str) -> Any:
        """Run a cell and return IPython's result, with what was printed as `stdout`, `stderr`."""
        self._capsys.readouterr()
        result = self.shell.run_cell(source, store_history=True)
        result.stdout, result.stderr = self._capsys.readouterr()
        return result

    def error(self, source: str) -> str:
        """Run a cell that must fail, and return its error as a notebook stores it."""
        result = self.run(source)
        error = result.error_before_exec or result.error_in_exec
        assert error is not None, result.stdout
        return f"{type(error).__name__}: {error}"


@pytest.fixture
def notebook(
    shell: Any, cluster: mcnb.Cluster, capsys: pytest.CaptureFixture[str]
) -> Iterator[Notebook]:
    """A notebook whose magics drive the tests' cluster."""
    clusters.current = cluster
    yield Notebook(shell, capsys)
    clusters.current = None
    _turn_auto_off(shell)


def _turn_auto_off(shell: Any) -> None:
    """Let the cells of the next test run in the kernel, whatever this one has turned on."""
    shell.magics_manager.registry["McjaxMagics"].auto = False


@pytest.fixture
def empty_notebook(shell: Any, capsys: pytest.CaptureFixture[str]) -> Iterator[Notebook]:
    """A notebook that has no cluster yet; what it starts is stopped."""
    clusters.current = None
    yield Notebook(shell, capsys)
    if clusters.current is not None:
        mcnb.current_cluster().stop()
    clusters.current = None
    _turn_auto_off(shell)


@pytest.fixture(scope="module")
def small_heap() -> Iterator[None]:
    """Hide what was there before from the search, which otherwise goes through all of it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cells of one test from the next."""
    monkeypatch.setattr(linecache, "cache", {})


@pytest.fixture
def program(tmp_path: Path, no_cells: None) -> Program:
    """Return a learner's program."""
    del no_cells

    def runs(name: str) -> bool:
        return cell_label(name) is not None or is_script(name)

    # `library.py` stands for JAX.
    return Program(tmp_path, Places(runs, in_library=lambda name: name.endswith("others.py")))


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    host = "127.0.0.1" if request.param == "tcp" else ""
    with Server(2, folder=Path(os.path.relpath(tmp_path)), host=host) as server:
        assert bool(server.address.path) == (request.param == "unix")
        yield server


@pytest.fixture
def clients(server: Server) -> Iterator[list[Client]]:
    """Return clients that don't interrupt the tests after a verdict, as they do a program."""
    address = server.address
    both = [Client(address, k, learners_of(k), interrupt=lambda *_: None) for k in range(2)]
    yield both
    for client in both:
        client.close()
