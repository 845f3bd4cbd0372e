"""Parts of launching elsewhere that need no launcher: endings, orders, addresses, settings."""

from __future__ import annotations

import json
import os
import queue
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb._system import address_toward, is_own, outward_address
from mcnb.errors import OptionError
from mcnb.launchers.batch import launcher_class, split_words, spread
from mcnb.launchers.exits import ExitReporter, ending_of
from mcnb.lockstep.messages import exit_text
from mcnb.lockstep.model import ExitSource, ProcessExit
from mcnb.notebook.magics import line_parser
from mcnb.worker.join import Location, in_order
from mcnb.worker.settings import Settings, leave_settings, settings_path, take_settings

KILLED = "was killed by SIGKILL (from outside, or because the machine ran out of memory)"
OPEN_MPI_4 = """\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpiexec noticed that process rank 2 with PID 0 on node one exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
OPEN_MPI_5 = """\
--------------------------------------------------------------------------
prterun noticed that process rank 12 with PID 4711 on node one exited on
signal 11 (Segmentation fault).
--------------------------------------------------------------------------
"""
EXIT_CODE = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[61037,1],3]
  Exit code:    7
"""
CANCELLED = "slurmstepd: error: *** JOB 12 ON a1 CANCELLED AT 2026-01-01T00:00:00"
SRUN = """\
slurmstepd: error: *** STEP 3.0 ON vm FAILED (non-zero exit code or other failure mode) ***
srun: error: vm: task 0: Exited with exit code 3
srun: error: vm: tasks 1,4-6: Killed
srun: error: vm: task 2: Segmentation fault (core dumped)
srun: error: vm: task 7: Something new
"""


@pytest.mark.parametrize(
    ("text", "process", "ending"),
    [
        (OPEN_MPI_4, 2, KILLED),
        (OPEN_MPI_4, 0, ""),
        (OPEN_MPI_5, 12, "was killed by SIGSEGV (a fault in native code)"),
        (OPEN_MPI_5, 2, ""),
        (OPEN_MPI_5, 1, ""),
        (EXIT_CODE, 3, "ended with exit code 7"),
        (EXIT_CODE, 1, ""),
        (SRUN, 0, "ended with exit code 3"),
        (SRUN, 1, KILLED),
        (SRUN, 2, "was killed by SIGSEGV (a fault in native code)"),
        (SRUN, 3, ""),
        (SRUN, 5, KILLED),
        (SRUN, 7, "ended (Something new)"),
        (
            f"{CANCELLED} DUE TO TIME LIMIT ***",
            1,
            "was ended by Slurm: the job reached its time limit",
        ),
        (
            "slurmstepd: error: *** STEP 12.0 ON a1 CANCELLED AT 2026-01-01T00:00:00 ***",
            0,
            "was ended by Slurm: the job was cancelled",
        ),
        (
            f"{CANCELLED} DUE TO PREEMPTION ***",
            0,
            "was ended by Slurm: the job was preempted",
        ),
        ("", 0, ""),
    ],
)
def test_what_launchers_write_of_an_end(text: str, process: int, ending: str) -> None:
    how = ending_of(process, text)
    assert ("" if how is None else exit_text(how)) == ending


def test_the_first_loss_is_the_cause() -> None:
    told: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    killed, followed = ProcessExit(ExitSource.LAUNCHER, -9), ProcessExit(ExitSource.FOLLOWED)
    reporter = ExitReporter({2: killed}.get, lambda k, how: told.put((k, how)), told_s=5.0)
    for k in (2, 0, 1):
        reporter.add(k)
    assert [told.get(timeout=5) for _ in range(3)] == [(2, killed), (0, followed), (1, followed)]
    reporter.close()
    reporter.add(3)
    assert told.empty()


def test_a_loss_that_nobody_explains() -> None:
    told: queue.SimpleQueue[tuple[int, ProcessExit]] = queue.SimpleQueue()
    reporter = ExitReporter(lambda _: None, lambda k, how: told.put((k, how)), told_s=0.0)
    reporter.add(1)
    assert told.get(timeout=5) == (1, ProcessExit(ExitSource.UNKNOWN))
    reporter.close()


@given(st.permutations(range(6)))
def test_ranks_order_processes(ranks: list[int]) -> None:
    found = [Location("one", "10.0.0.1", rank, "") for rank in ranks]
    assert [found[i].rank for i in in_order(found)] == list(range(6))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12))
def test_neighbours_share_a_host(hosts: list[int]) -> None:
    """Without ranks, or with those of another job: in the order of the hosts' numbers."""
    found = [Location(f"node{n}", f"10.0.0.{n}", 0, "") for n in hosts]
    order = in_order(found)
    assert sorted(order) == list(range(len(hosts)))
    if len(hosts) > 1:
        assert [hosts[i] for i in order] == sorted(hosts)


@given(st.integers(1, 40), st.integers(1, 9))
def test_processes_are_spread_evenly(processes: int, hosts: int) -> None:
    counts = spread(processes, [f"h{i}" for i in range(hosts)])
    assert sum(counts.values()) == processes
    assert len(counts) == min(processes, hosts)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_addresses() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")
    assert address_toward([]) == address_toward(["127.0.0.1", "localhost"]) == "127.0.0.1"
    assert is_own(outward_address())
    with pytest.raises(mcnb.ClusterError) as unknown:
        address_toward(["no-such-host.invalid"])
    assert str(unknown.value) == ("There is no host no-such-host.invalid, as far as this one knows")


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    leave_settings(Settings({"MCNB_TRIAL": "1"}, str(elsewhere)), tmp_path / "profile")
    file = settings_path(tmp_path / "profile")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["env"] == {"MCNB_TRIAL": "1"}
    monkeypatch.setenv("MCNB_TRIAL", "0")
    monkeypatch.chdir(tmp_path)
    # The folder is named from where the process begins, which it leaves.
    words = take_settings(["--profile-dir=profile", "--log-level=WARN"])
    assert words == [f"--profile-dir={tmp_path.resolve()}/profile", "--log-level=WARN"]
    assert os.environ["MCNB_TRIAL"] == "1"
    assert Path.cwd() == elsewhere
    leave_settings(Settings({}, "/no/such/folder"), tmp_path / "other")
    take_settings([f"--profile-dir={tmp_path / 'other'}"])
    assert Path.cwd() == elsewhere


def test_launchers_by_name() -> None:
    assert launcher_class("pbs").__name__ == "PBSEngineSetLauncher"
    with pytest.raises(OptionError) as unknown:
        launcher_class("mpl")
    assert str(unknown.value).startswith(
        "--launcher mpl: there is no such launcher. There are: batch, htcondor, local, lsf, mpi, "
    )
    assert split_words("--time=5 -p 'a b'") == ["--time=5", "-p", "a b"]
    with pytest.raises(OptionError) as unclosed:
        split_words("-p 'a")
    assert str(unclosed.value) == "--options -p 'a: No closing quotation"


SSH = "--launcher ssh: on which hosts? For example: --launcher ssh --hosts alice@one,two"
LISTS = "name hosts with commas between them. For example: --hosts alice@one,two"
NOT_SSH = "--hosts belongs to --launcher ssh. For mpi, for example: --options '--host one,two'"
OTHERS = "belongs to processes that others start than mcnb itself. For example: --launcher mpi"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"launcher": "ssh"}, SSH),
        ({"launcher": "mpi", "hosts": "one"}, NOT_SSH),
        ({"hosts": "one"}, NOT_SSH),
        ({"launcher": "ssh", "hosts": "one,"}, f"--hosts one,: {LISTS}"),
        ({"launcher": "ssh", "hosts": "one two"}, f"--hosts one two: {LISTS}"),
        ({"launcher_options": "-v"}, f"--options {OTHERS}"),
        ({"listen": "127.0.0.1"}, f"--listen {OTHERS}"),
        (
            {"launcher": "mpi", "launcher_options": ["-v"]},
            "launcher_options=['-v']: the options of a launcher's command are text, as one writes "
            "them in a shell. For example: '--time=30'",
        ),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as refused:
        mcnb.Cluster(2, 1, **given)  # type: ignore[arg-type]
    assert str(refused.value) == sentence


def test_hosts_are_named_with_commas_between() -> None:
    cluster = mcnb.Cluster(2, 1, launcher="ssh", hosts="alice@one, two")
    assert cluster.options.hosts == ("alice@one", "two")


@pytest.mark.parametrize("words", ["--time=30", "-n 3", "-x 'A=b c'"])
def test_options_begin_with_a_dash(words: str) -> None:
    line = f'start --launcher slurm --options "{words}" -n 2'
    args = line_parser().parse(line)
    assert (args.options, args.processes, args.launcher) == (words, "2", "slurm")


@given(st.integers(1, 20), st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
def test_a_host_that_is_named_twice_gets_twice_as_many(processes: int, hosts: list[str]) -> None:
    counts = spread(processes, hosts)
    assert sum(counts.values()) == processes
    for host, count in counts.items():
        named = hosts.count(host)
        assert processes // len(hosts) * named <= count <= -(-processes // len(hosts)) * named
