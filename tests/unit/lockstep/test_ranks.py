"""Which process of its job a process is, as it was started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mcnb.lockstep.ranks import (
    Identity,
    identity_by_mcnb,
    identity_of,
    on_this_host,
    rank_variables,
)

GIVEN = {"coordinator_address": "10.0.0.1:99", "num_processes": 4, "process_id": 0}
SLURM = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}


def test_the_most_specific_rank_comes_first() -> None:
    assert rank_variables() == ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    assert rank_variables("mpirun") == ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


@pytest.mark.parametrize(
    ("environment", "identity"),
    [
        ({"MCNB_PROCESS": "0", "MCNB_PROCESSES": "2"}, Identity(0, 2)),
        ({"MCNB_PROCESS": "0"}, None),
        ({"MCNB_PROCESSES": "2"}, None),
        ({"MCNB_PROCESS": "", "MCNB_PROCESSES": "2"}, None),
        ({"MCNB_PROCESS": "0", "MCNB_PROCESSES": "two"}, None),
    ],
)
def test_who_was_started_by_mcnb(environment: Mapping[str, str], identity: Identity | None) -> None:
    assert identity_by_mcnb(environment) == identity


@pytest.mark.parametrize("missing", GIVEN)
def test_who_is_in_no_job(missing: str) -> None:
    assert identity_of({**GIVEN, missing: None}, {}) is None
    given = {name: value for name, value in GIVEN.items() if name != missing}
    assert identity_of(given, {}) is None


@pytest.mark.parametrize(
    ("environment", "one_host"),
    [
        ({}, False),
        (SLURM, True),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "2"}, False),
        ({"SLURM_PROCID": "0"}, False),
        ({"SLURM_STEP_NUM_NODES": "1"}, False),  # of the job that has started this process
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, True),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0"}, False),
        # mpirun in a step of Slurm, which has started nothing but mpirun.
        ({**SLURM, **OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, False),
        ({"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, True),
        ({"PMI_RANK": "0", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "1"}, False),
    ],
)
def test_whether_all_processes_run_on_one_host(
    environment: Mapping[str, str], one_host: bool
) -> None:
    assert identity_of(GIVEN, environment) == Identity(0, 4, "10.0.0.1:99", one_host)


@pytest.mark.parametrize(
    ("address", "only_here"),
    [
        ("localhost:99", True),
        ("127.0.0.1:99", True),
        ("127.0.1.1:99", True),
        ("[::1]:99", True),
        ("10.0.0.1:99", False),
        ("localhost.example.org:99", False),
    ],
)
def test_a_coordinator_that_others_can_not_reach(address: str, only_here: bool) -> None:
    assert on_this_host(address) is only_here
    given: dict[str, Any] = {**GIVEN, "coordinator_address": address}
    assert identity_of(given, {}) == Identity(0, 4, address, only_here)
