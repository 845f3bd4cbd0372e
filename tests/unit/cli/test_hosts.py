"""What `mcnb doctor` says of hosts, by what they told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcnb.cli import hosts
from mcnb.cli.doctor import Finding
from mcnb.cli.hosts import Hosts, allocation, chosen, judge
from mcnb.cli.main import main
from mcnb.launchers.questions import HERE, Answers, Report

VERSIONS = {"Python": "3.11.2", "jax": "0.10.2", "jaxlib": "0.10.2", "mcnb": "0.1.0"}
NOTEBOOK = Report("10.0.0.1", "notebook", "10.0.0.1", "10.0.0.1", 0, "a", VERSIONS, {})
SAME = "has jax 0.10.2 and mcnb 0.1.0, as this machine has"


def told(host: str, number: int, **report: Any) -> Answers:
    """Return what a good host tells, and what a test changes."""
    address = f"10.0.0.{number}"
    one = Report("10.0.0.1", host, address, address, 4000 + number, "a", VERSIONS, {})
    return Answers(host, "", replace(one, **report))


def said(*answers: Answers, launcher: str = "ssh", here: Report = NOTEBOOK) -> list[str]:
    hosts = Hosts(launcher, tuple(one.host for one in answers))
    return [*map(str, judge(hosts, answers, here))]


def test_good_hosts() -> None:
    assert said(told("one", 2), told("two", 3)) == [
        f"ok       one {SAME}",
        f"ok       two {SAME}",
        "ok       one, two and this machine can connect to each other",
    ]


def test_a_host_that_cannot_be_asked() -> None:
    error = "The host two does not answer. Try: ssh -o BatchMode=yes two"
    assert said(told("one", 2), Answers("two", error)) == [
        f"ok       one {SAME}",
        f"missing  {error}",
        "ok       one and this machine can connect to each other",
    ]
    assert said(Answers("two", error)) == [f"missing  {error}"]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (
            {"Python": "3.12.1"},
            [
                "missing  two has Python 3.12.1, and this machine 3.11.2: what the processes "
                "exchange may not fit. Install the same version at the same path",
                f"ok       two {SAME}",
            ],
        ),
        (
            {"Python": "3.11.9"},
            [
                "note     two has Python 3.11.9, and this machine 3.11.2: what the processes "
                "exchange may not fit. Install the same version at the same path",
                f"ok       two {SAME}",
            ],
        ),
        (
            {"jax": "", "jaxlib": "0.9.0"},
            [
                "missing  two has no jax. Fix it: ssh two "
                f"'{sys.executable} -m pip install \"jax==0.10.2\"'",
                "missing  two has jaxlib 0.9.0, and this machine 0.10.2. Fix it: ssh two "
                f"'{sys.executable} -m pip install \"jaxlib==0.10.2\"'",
            ],
        ),
    ],
)
def test_versions(versions: Mapping[str, str], expected: list[str]) -> None:
    assert said(told("two", 3, versions={**VERSIONS, **versions}))[: len(expected)] == expected


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ("127.0.1.1", "is 127.0.1.1, which no other host reaches"),
        ("", "is not known"),
    ],
)
def test_a_name_without_an_address_for_others(named: str, what: str) -> None:
    assert said(told("two", 3, named=named, name="node2"))[1] == (
        f"note     The address of node2 {what}, on two itself. mcnb gives JAX another address; "
        "without mcnb, processes on this host do not find each other. Fix it: ssh two "
        "'echo 10.0.0.3 node2 | sudo tee -a /etc/hosts'"
    )
    # Other names of this machine.
    assert said(told("two", 3, named=named, address="127.0.0.1"))[1].startswith("ok")


@pytest.mark.parametrize(
    ("ahead_s", "what"),
    [(12.4, "12 s ahead of"), (-3600.2, "3600 s behind"), (1.9, ""), (-1.9, "")],
)
def test_clocks(ahead_s: float, what: str) -> None:
    lines = said(replace(told("one", 2), ahead_s=ahead_s))
    expected = (
        f"note     The clock of one is {what} this machine's. Fix it: ssh one 'sudo timedatectl "
        "set-ntp true'"
    )
    assert [line for line in lines if "clock" in line] == ([expected] if what else [])


def test_connections() -> None:
    one = replace(told("one", 2), unreached={"two": "No route to host", HERE: "no answer"})
    two = replace(told("two", 3), unreached={"one": "Connection refused"})
    unreached = "missing  {} can't connect to {}. mcnb and JAX use free ports. Fix it: {}"
    allow = "sudo ufw allow from 10.0.0.{} to any proto tcp"
    assert said(one, two)[2:] == [
        unreached.format(
            "one", "two at 10.0.0.3: No route to host", f"ssh two '{allow.format(2)}'"
        ),
        unreached.format("one", "this machine at 10.0.0.1: no answer", allow.format(2)),
        unreached.format(
            "two", "one at 10.0.0.2: Connection refused", f"ssh one '{allow.format(3)}'"
        ),
    ]
    assert said(one, two, launcher="slurm")[2].endswith(f". Fix it: on two: {allow.format(2)}")


def test_settings() -> None:
    left = {"JAX_PROCESS_ID": "3", "MEGASCALE_NUM_SLICES": "2", "JAX_ENABLE_X64": "1"}
    assert said(told("one", 2, settings=left), told("two", 3), told("three", 4))[1:] == [
        "note     one sets JAX_PROCESS_ID, MEGASCALE_NUM_SLICES in the environment: programs that "
        "call jax.distributed.initialize() join another job there, or wait for it. Fix it: delete "
        "the lines that this command finds: ssh one 'grep -nE "
        '"JAX_PROCESS_ID|MEGASCALE_NUM_SLICES" ~/.bashrc ~/.profile ~/.ssh/environment '
        "/etc/environment'",
        f"ok       two {SAME}",
        f"ok       three {SAME}",
        "note     JAX_ENABLE_X64 differs: '1' on one, not set on two, not set on three. Then JAX "
        "may compile different programs",
        "ok       one, two, three and this machine can connect to each other",
    ]


def test_settings_that_a_launcher_passes_on() -> None:
    left = {"JAX_PROCESS_ID": "3"}
    here = replace(NOTEBOOK, settings=left)
    line = said(told("one", 2, settings=left), launcher="slurm", here=here)[1]
    assert line.endswith(". Fix it: unset JAX_PROCESS_ID")
    line = said(told("one", 2, settings=left), launcher="slurm")[1]
    assert line.endswith(
        '. Fix it: delete the lines that this command finds: on one: grep -nE "JAX_PROCESS_ID" '
        "~/.bashrc ~/.profile ~/.ssh/environment /etc/environment"
    )


def test_commands_for_a_host_at_another_port() -> None:
    answers = [told("one:2222", 2, versions={**VERSIONS, "jax": ""})]
    hosts = Hosts("ssh", ("one:2222",), "-i 'my key'")
    assert next(map(str, judge(hosts, answers, NOTEBOOK))) == (
        "missing  one:2222 has no jax. Fix it: ssh -i 'my key' -p 2222 one "
        f"'{sys.executable} -m pip install \"jax==0.10.2\"'"
    )


def test_a_package_that_this_machine_lacks() -> None:
    here = replace(NOTEBOOK, versions={**VERSIONS, "jaxlib": ""})
    assert said(told("one", 2), here=here)[0] == (
        "missing  This machine has no jaxlib, and one 0.10.2. Fix it: "
        f'{sys.executable} -m pip install "jaxlib==0.10.2"'
    )


def test_slices() -> None:
    assert said(told("one", 2, boot_id="b"), told("two", 3, boot_id="c"))[-1] == (
        "note     JAX takes each of these hosts for a slice. jax.make_mesh accepts several slices "
        "of CPU devices in cells and in programs of mcnb script. Elsewhere, make meshes with "
        "jax.experimental.mesh_utils.create_hybrid_device_mesh"
    )


def test_the_hosts_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts.shutil, "which", lambda command: command)

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command == ["scontrol", "show", "hostnames", "node[1-2]"]
        return subprocess.CompletedProcess(command, 0, "node1\nnode2\n", "")

    monkeypatch.setattr(hosts.subprocess, "run", run)
    nodefile = tmp_path / "nodes"
    nodefile.write_text("node3\nnode3\nnode4\n")
    assert allocation({"SLURM_JOB_NODELIST": "node[1-2]"}) == ("slurm", ("node1", "node2"))
    assert allocation({"PBS_NODEFILE": str(nodefile)}) == ("mpi", ("node3", "node4"))
    monkeypatch.setattr(hosts.shutil, "which", lambda command: None)
    assert allocation({"SLURM_JOB_NODELIST": "n[1-2]", "PBS_NODEFILE": "nodes"}) == ("", ())


def test_the_hosts_of_a_job_are_examined_if_none_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts.shutil, "which", lambda command: command)
    nodefile = tmp_path / "nodes"
    nodefile.write_text("node3\nnode3\nnode4\n")
    job = {"PBS_NODEFILE": str(nodefile)}
    assert chosen(None, None, "", job) == Hosts("mpi", ("node3", "node4"))
    assert chosen("one", "slurm", "-p x", job) == Hosts("slurm", ("one",), "-p x")
    nodefile.write_text("node3\nnode3\n")  # all processes on this machine
    assert chosen(None, None, "", job) is None


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--hosts="], "mcnb doctor --hosts: name hosts. For example: --hosts alice@one,two"),
        (
            ["--hosts=one,two words"],
            "--hosts one,two words: name hosts with commas between them. For example: --hosts "
            "alice@one,two",
        ),
        (
            ["--hosts=one", "--launcher=pbs"],
            "mcnb doctor --launcher pbs: expected one of ssh, mpi, slurm",
        ),
        (
            ["--launcher=ssh"],
            "mcnb doctor --launcher: name the hosts, too. For example: --hosts one,two",
        ),
        (
            ["--options=-4"],
            "mcnb doctor --options: name the hosts, too. For example: --hosts one,two",
        ),
    ],
)
def test_hosts_that_cannot_be_asked(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--quick", *words]) == 2
    assert capsys.readouterr() == ("", f"{error}\n")


def test_a_finding_with_a_command() -> None:
    hosts = Hosts("mpi", ("two",))
    (first, *_) = judge(hosts, [told("two", 3, versions={**VERSIONS, "mcnb": ""})], NOTEBOOK)
    mend = f'on two: {sys.executable} -m pip install "mcnb==0.1.0"'
    assert first == Finding("missing", "two has no mcnb", mend)
