"""What can be asked for, and whole sentences for what can't."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb._text import index_ranges, name_processes, plural
from mcnb.cli.run import USAGE
from mcnb.errors import ClusterError, OptionError
from mcnb.notebook.magics import McjaxMagics, line_parser
from mcnb.notebook.parsing import cell_parser
from mcnb.options import (
    CELL,
    CONNECTED,
    MAX_DEVICES,
    MAX_PROCESSES,
    OPTIONS,
    RUN,
    SCRIPT,
    Option,
    Options,
    environment,
    field_values,
    host_list,
    options_of,
    process_set,
    seconds,
    whole_number,
)

INDEX = "name processes by their index, as numbers and ranges with commas between them."
SETTING = "expected NAME=VALUE, without spaces around the sign. For example: --env JAX_ENABLE_X64=1"


def sentence(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(OptionError) as raised:
        call(*args, **kwargs)
    assert isinstance(raised.value, ClusterError | ValueError)
    return str(raised.value)


@pytest.mark.parametrize("given", [0, -1, 513, "0", "many", "", "1.5", 2.0, True, [4], "9" * 5000])
def test_processes_that_cannot_be(given: Any) -> None:
    assert sentence(Options, processes=given) == (
        f"-n {given}: the number of processes is a whole number from 1 to 512. For example: -n 4"
    )


@pytest.mark.parametrize("given", [0, 2049, "two", False])
def test_devices_that_cannot_be(given: Any) -> None:
    assert sentence(Options, devices_per_process=given) == (
        f"-d {given}: the number of devices per process is a whole number from 1 to 2048. "
        "For example: -d 2"
    )


def test_none_is_no_number() -> None:
    assert sentence(whole_number, "-x", None, "it", 3, 2) == (
        "-x None: it is a whole number from 1 to 3. For example: -x 2"
    )


@pytest.mark.parametrize("given", [0, -1, "0", "soon", "", "nan", True, None, [1]])
def test_times_that_cannot_be(given: Any) -> None:
    assert sentence(seconds, "--timeout", given) == (
        f"--timeout {given}: a time limit is a number of seconds, more than 0. "
        "For example: --timeout 10"
    )


def test_times() -> None:
    assert [seconds("--timeout", given) for given in (3, 0.5, "1e3", " 2 ")] == [3, 0.5, 1000, 2]


@pytest.mark.parametrize("platform", ["gpu", "TPU", "CPU", ""])
def test_platforms_that_cannot_be(platform: str) -> None:
    assert sentence(Options, platform=platform) == (
        f"--platform {platform}: expected cpu, cuda (NVIDIA GPUs) or tpu. For example: --platform "
        "cuda"
    )


def test_a_process_for_each_host_with_tpus() -> None:
    assert Options(1, 4, "tpu").describe() == "1 process x 4 TPUs"
    elsewhere = Options(4, 4, "tpu", launcher="ssh", hosts=("one", "two"))
    assert elsewhere.describe() == "4 processes x 4 TPUs"
    assert sentence(Options, 4, 4, "tpu") == (
        "--platform tpu: a process takes all TPUs of its host, so several processes need several "
        "hosts. For example: --platform tpu --launcher ssh --hosts one,two"
    )


def test_two_names_of_a_running_cluster() -> None:
    assert sentence(Options, launcher=CONNECTED, profile="lab", profile_dir="nfs") == (
        "--profile and --profile-dir contradict each other: give one"
    )


@pytest.mark.parametrize(
    "env", [{"A B": "1"}, {"": "1"}, {"1A": "1"}, {"A-B": "1"}, {"A\n": "1"}, {1: "1"}]
)
def test_names_that_cannot_be_in_the_environment(env: dict[str, str]) -> None:
    name = next(iter(env))
    assert sentence(Options, env=env) == f"--env {name}=1: {SETTING}"


def test_values_that_cannot_be_in_the_environment() -> None:
    assert sentence(Options, env={"A": 1}) == (
        "env={'A': 1}: the value of an environment variable is text. "
        "For example: env={'JAX_ENABLE_X64': '1'}"
    )


def test_options_in_words() -> None:
    assert Options().describe() == "4 processes x 2 CPU devices"
    assert Options(1, 1).describe() == "1 process x 1 CPU device"
    assert Options(MAX_PROCESSES, MAX_DEVICES).describe() == "512 processes x 2048 CPU devices"


def test_numbers_may_be_text() -> None:
    assert Options(processes="3", devices_per_process=" 8 ") == Options(3, 8)  # type: ignore[arg-type]


LINE = (
    "start -n 3 -d 1 --platform cuda --env A=1 --env B=2 --unchecked --launcher ssh "
    "--hosts one,two --options '-v' --listen here --values --args '--rank {process}'"
)
WANTED = Options(
    3,
    1,
    "cuda",
    {"A": "1", "B": "2"},
    False,
    "ssh",
    ("one", "two"),
    "-v",
    "here",
    True,
    ("--rank", "{process}"),
)


def test_each_option_of_start_sets_its_field() -> None:
    given = vars(line_parser().parse(LINE))
    assert Options(**field_values("start", given)) == WANTED
    assert {option.field for option in options_of("start")} == {*field_values("start", given)}
    assert field_values("start", vars(line_parser().parse("start"))) == {}
    assert field_values(SCRIPT, given) == {
        "processes": "3",
        "devices_per_process": "1",
        "env": {"A": "1", "B": "2"},
    }


def parameters(function: Callable[..., object]) -> dict[str, Any]:
    """Return the parameters of a function with their defaults, in order."""
    found = inspect.signature(function).parameters.values()
    return {parameter.name: parameter.default for parameter in found}


def test_a_cluster_takes_what_start_takes() -> None:
    of_start = {option.field for option in options_of("start")}
    taken = parameters(mcnb.Cluster)
    assert list(taken) == [field.name for field in fields(Options) if field.name in of_start]
    assert taken.pop("env") is None
    assert taken == {name: getattr(Options(), name) for name in taken}
    assert mcnb.Cluster().options == Options()
    assert mcnb.Cluster(*list(vars(WANTED).values())[: len(of_start)]).options == WANTED


def test_connect_takes_what_its_command_takes() -> None:
    taken = parameters(mcnb.connect)
    assert {*taken} == {option.field for option in options_of("connect")}
    assert (taken.pop("env"), taken.pop("processes")) == (None, None)
    assert taken == {name: getattr(Options(), name) for name in taken}


def test_each_field_has_an_option() -> None:
    declared = [option.field for option in OPTIONS if option.field]
    # One option turns the comparison of values on, and one turns it off.
    assert sorted(declared) == sorted([*(field.name for field in fields(Options)), "values"])


def test_values_are_compared_always_never_or_by_default() -> None:
    for words, expected in (("", {}), ("--values", True), ("--no-values", False)):
        given = vars(line_parser().parse(f"start {words}"))
        assert field_values("start", given) == ({"values": expected} if words else {})
    with pytest.raises(OptionError) as caught:
        field_values("start", vars(line_parser().parse("start --no-values --values")))
    assert str(caught.value) == "--values and --no-values contradict each other: give one"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_is_in_the_help_of_its_commands(option: Option) -> None:
    line, cell = McjaxMagics.mcjax.__doc__, McjaxMagics.mcjax_cell.__doc__
    helps = {CELL: cell, RUN: USAGE, SCRIPT: line, **dict.fromkeys(McjaxMagics._commands, line)}
    for command in option.commands:
        assert option.usage in helps[command]
        assert option.help.partition(":")[0] in " ".join(helps[command].split())


def test_help_explains_each_option_once() -> None:
    lines = (McjaxMagics.mcjax.__doc__ or "").splitlines()
    assert [line for line in lines if line.startswith("Option")] == [
        "Options of start:",
        "Options of connect (and -n, -d, --platform, --env, --unchecked, --values, --no-values, "
        "--args, --listen, as above):",
        "Option of run:",
        "Option of log:",
        "Option of debug:",
        "Options of timeline:",
        "Options of restart:",
    ]
    explained = [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]
    of_magic = [option for option in OPTIONS if {*option.commands} & {*McjaxMagics._commands}]
    assert sorted(explained) == sorted(option.flags[0] for option in of_magic)


def test_help_on_an_option() -> None:
    assert options_of(CELL)[0].explain(["-p", "--processes"]) == (
        "  -p, --processes LIST  run the cell on these processes only, such as 0 or 0,2-3"
    )
    [env] = [option for option in OPTIONS if option.name == "env"]
    assert env.usage == "[--env NAME=VALUE ...]"
    long = Option(("-o", "--other"), "", "abc def " * 12)
    assert long.explain(long.flags) == (
        f"  -o, --other           {'abc def ' * 8}abc\n{' ' * 24}{'def abc ' * 3}def"
    )


def test_what_was_given_as_empty_text_was_given() -> None:
    given = {"processes": None, "platform": "", "unchecked": False}
    assert field_values("start", given) == {"platform": ""}


def test_another_option_is_read_where_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    another = Option(("-o", "--other-one"), "X", "another", ("stop", CELL), dashed=True)
    monkeypatch.setattr("mcnb.options.OPTIONS", (*OPTIONS, another))
    assert line_parser().parse("stop --other-one -x").other_one == "-x"
    assert cell_parser().parse("-o x").other_one == "x"
    assert sentence(line_parser().parse, "stop --nothing") == (
        "%mcjax stop --nothing: there is no option --nothing. Options: -o. Help: %mcjax?"
    )


@pytest.mark.parametrize("setting", ["A", "", "=1", "A =1", "A B=1", "2A=1", "A-B=1", "é=1"])
def test_settings_that_are_none(setting: str) -> None:
    assert sentence(environment, ["OK=1", setting]) == f"--env {setting}: {SETTING}"


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True), st.text()))
def test_settings_are_read_as_they_are(env: dict[str, str]) -> None:
    assert environment(f"{name}={value}" for name, value in env.items()) == env
    assert Options(env=env).env == env


indices = st.sets(st.integers(0, 30), min_size=1)


@given(indices)
def test_index_ranges_are_read_back(processes: set[int]) -> None:
    text = index_ranges(sorted(processes))
    assert process_set(text, 31) == tuple(sorted(processes))
    assert process_set(processes, 31) == tuple(sorted(processes))
    assert process_set(f" {text.replace(',', ' , ').replace('-', ' - ')} ", 31) == (
        process_set(text, 31)
    )


@given(indices)
def test_index_ranges_are_as_short_as_they_can_be(processes: set[int]) -> None:
    parts = index_ranges(sorted(processes, reverse=True)).split(",")
    runs = [
        (int(match[1]), int(match[2] or match[1]))
        for part in parts
        if (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part))
    ]
    assert len(runs) == len(parts)
    assert sorted(runs) == runs
    assert all(first == last or last - first >= 2 for first, last in runs)
    covered = {k for first, last in runs for k in range(first, last + 1)}
    assert covered == processes


@pytest.mark.parametrize(
    ("given", "expected"),
    [("0", (0,)), ("3,0", (0, 3)), ("1,1-2,2", (1, 2)), ("0-3", (0, 1, 2, 3)), ([2, 0], (0, 2))],
)
def test_process_sets(given: Any, expected: tuple[int, ...]) -> None:
    assert process_set(given, 4) == expected


@pytest.mark.parametrize("given", ["", ",", "0,", "all", "-1", "0-", "2-1", "0:2", "1.0", "0 1"])
def test_process_sets_that_are_none(given: str) -> None:
    assert sentence(process_set, given, 4) == f"-p {given}: {INDEX} For example: -p 0,2-3"


def test_process_sets_that_are_none_as_numbers() -> None:
    assert sentence(process_set, [], 4) == f"-p : {INDEX} For example: -p 0,2-3"
    assert sentence(process_set, [0, -1], 4) == f"-p 0,-1: {INDEX} For example: -p 0,2-3"


def test_processes_that_do_not_exist() -> None:
    assert sentence(process_set, "0,2-4", 4) == (
        "-p 0,2-4: there is no process 4. This cluster has 4 processes: 0 to 3"
    )
    assert sentence(process_set, [1], 1) == (
        "-p 1: there is no process 1. This cluster has 1 process: 0"
    )
    assert sentence(process_set, "0-999999999", 2) == (
        "-p 0-999999999: there is no process 999999999. This cluster has 2 processes: 0 to 1"
    )


@pytest.mark.parametrize(
    ("processes", "count", "expected"),
    [
        ([2], None, "process 2"),
        ([0], 1, "process 0"),
        ([0, 1], None, "processes 0,1"),
        ([0, 1], 2, "both processes"),
        ([0, 1], 3, "processes 0,1"),
        ([0, 1, 2], 3, "all 3 processes"),
        ([0, 1, 2, 5], 6, "processes 0-2,5"),
    ],
)
def test_processes_in_words(processes: list[int], count: int | None, expected: str) -> None:
    assert name_processes(processes, count) == expected


def test_plural() -> None:
    assert [plural(n, "line", "lines") for n in range(3)] == ["0 lines", "1 line", "2 lines"]


def test_one_process_needs_no_list() -> None:
    assert process_set(0, 4) == (0,)


SSH = "--launcher ssh requires --hosts. For example: --launcher ssh --hosts alice@one,two"
LISTS = "name hosts with commas between them. For example: --hosts alice@one,two"
NOT_SSH = (
    "--hosts is only allowed with --launcher ssh. For mpi, for example: --options '--host one,two'"
)
OTHERS = "is not allowed with --launcher local. Choose another launcher, for example --launcher mpi"


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


@pytest.mark.parametrize(
    ("given", "hosts"),
    [("", ()), ([], ()), ("one", ("one",)), (["one", " two"], ("one", "two"))],
)
def test_lists_of_hosts(given: Any, hosts: tuple[str, ...]) -> None:
    assert host_list(given) == hosts


def test_hosts_are_named_with_commas_between() -> None:
    cluster = mcnb.Cluster(2, 1, launcher="ssh", hosts="alice@one, two")
    assert cluster.options.hosts == ("alice@one", "two")


@pytest.mark.parametrize("launcher", ["mpi", "slurm", "connected", "flux"])
def test_launchers_of_hosts_take_an_address_and_options(launcher: str) -> None:
    options = Options(launcher=launcher, listen="10.0.0.7", launcher_options="-v")
    assert (options.listen, options.launcher_options) == ("10.0.0.7", "-v")
    assert options.ours == (launcher != "connected")


@pytest.mark.parametrize("words", ["--time=30", "-n 3", "-x 'A=b c'"])
def test_options_begin_with_a_dash(words: str) -> None:
    line = f'start --launcher slurm --options "{words}" -n 2'
    args = line_parser().parse(line)
    assert (args.options, args.processes, args.launcher) == (words, "2", "slurm")
