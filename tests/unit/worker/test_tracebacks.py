"""Errors told for the learner: the lines of cells, and nothing of what runs them."""

from __future__ import annotations

import linecache
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mcnb
from mcnb.launchers.exits import crash_line, crash_report
from mcnb.lockstep.threads import line_at
from mcnb.messages import ProcessError
from mcnb.output.terminal import without_escapes
from mcnb.worker.tracebacks import MOST_FRAMES, cell_line, describe_error, main_thread_lines

Fails = Callable[..., ProcessError]


def run(source: str, label: str, names: dict[str, Any]) -> BaseException:
    """Run a cell, as the shell does, and return its error."""
    name = f"<In[{label}]>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        exec(compile(source, name, "exec"), names)
    except BaseException as error:
        return error
    raise AssertionError("the cell did not fail")


@pytest.fixture
def fails() -> Iterator[Fails]:
    """Run cells that end in an error, in one namespace, and describe the last one's."""
    names: dict[str, Any] = {"__name__": "__main__"}
    before = set(linecache.cache)

    def fail(*sources: str) -> ProcessError:
        for number, source in enumerate(sources[:-1], start=1):
            run(f"{source}\nraise RuntimeError", str(number), names)
        label = str(len(sources))
        return describe_error(run(sources[-1], label, names), label)

    yield fail
    for name in set(linecache.cache) - before:
        del linecache.cache[name]


def shown(error: ProcessError) -> str:
    return without_escapes(error.traceback)


def module(name: str, source: str, path: str) -> types.ModuleType:
    """Return a module that stands in a file of that path."""
    made = types.ModuleType(name)
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), made.__dict__)
    return made


def test_an_error_in_a_cell(fails: Fails) -> None:
    error = fails("def f(x):\n    return 1 / x", "a = 0\n\nif True:\n    f(a)\nb = 1\n\nc = 2\n")
    assert (error.name, error.message, error.line) == ("ZeroDivisionError", "division by zero", 4)
    assert shown(error) == (
        "Cell In[2], line 4\n"
        "      3 if True:\n"
        "----> 4     f(a)\n"
        "      5 b = 1\n"
        "\n"
        "Cell In[1], line 2, in f\n"
        "      1 def f(x):\n"
        "----> 2     return 1 / x\n"
        "      3 raise RuntimeError\n"
        "\n"
        "ZeroDivisionError: division by zero"
    )
    assert "\x1b[32m----> 4\x1b[39m" in error.traceback
    assert error.traceback.endswith("\x1b[31mZeroDivisionError\x1b[39m: division by zero")


def test_the_line_is_the_innermost_of_the_cell(fails: Fails) -> None:
    assert fails("def f():\n    raise KeyError\n\nf()").line == 2
    assert fails("def f():\n    raise KeyError", "\nf()").line == 2
    assert cell_line(ValueError(), "1") is None


def test_an_error_without_text(fails: Fails) -> None:
    error = fails("assert False")
    assert (error.name, error.message) == ("AssertionError", "")
    assert shown(error).endswith("\n\nAssertionError")


@pytest.mark.parametrize("raised", ["KeyError", "AttributeError", "TypeError"])
def test_an_error_whose_text_cannot_be_had(fails: Fails, raised: str) -> None:
    error = fails(
        f"class Bad(Exception):\n    def __str__(self):\n        raise {raised}\n\nraise Bad"
    )
    assert error.name == "Bad"
    assert error.line == 5
    assert error.message == f"<its text can't be shown: str() raised {raised}>"
    assert shown(error).endswith("----> 5 raise Bad\n\nBad: <exception str() failed>")


def test_an_error_whose_text_is_none(fails: Fails) -> None:
    error = fails("class Bad(Exception):\n    def __str__(self):\n        return 3\n\nraise Bad")
    assert error.message == "<its text can't be shown: str() raised TypeError>"


def test_an_error_whose_notes_are_none(fails: Fails) -> None:
    error = fails("e = ValueError('x')\ne.__notes__ = 3\nraise e")
    assert (error.message, error.line) == ("x", 3)
    assert "ValueError" in shown(error)


def test_colours_in_a_message_are_taken_out(fails: Fails) -> None:
    assert fails("raise ValueError('\\x1b[31mred\\x1b[0m')").message == "red"


def test_an_empty_line_above_an_error_is_shown(fails: Fails) -> None:
    assert shown(fails("x = 0\n\n1 / x\n\ny = 1")).startswith(
        "Cell In[1], line 3\n      1 x = 0\n      2\n----> 3 1 / x\n      5 y = 1\n\n"
    )


def test_the_port_of_another_process_is_not_told(fails: Fails) -> None:
    error = fails("raise RuntimeError('Connection closed by peer [127.0.0.1]:40123')")
    assert error.message == "Connection closed by peer [peer]"
    assert shown(error).endswith("\n\nRuntimeError: Connection closed by peer [peer]")


def test_what_led_to_an_error_comes_before_it(fails: Fails) -> None:
    error = fails(
        "try:\n    try:\n        1 / 0\n    except ArithmeticError as e:\n"
        "        raise KeyError('a') from e\nexcept KeyError:\n    raise OSError('b')"
    )
    lines = shown(error).splitlines()
    told = [line for line in lines if line and not line.startswith((" ", "-", "Cell"))]
    assert told == [
        "ZeroDivisionError: division by zero",
        "The above exception was the direct cause of the following exception:",
        "KeyError: 'a'",
        "During handling of the above exception, another exception occurred:",
        "OSError: b",
    ]


def test_a_syntax_error_at_run_time(fails: Fails) -> None:
    error = fails("x = 1\nexec('y = (')\n")
    assert (error.name, error.line) == ("SyntaxError", 2)
    assert shown(error) == (
        "Cell In[1], line 2\n"
        "      1 x = 1\n"
        "----> 2 exec('y = (')\n"
        "\n"
        '  File "<string>", line 1\n'
        "    y = (\n"
        "        ^\n"
        "SyntaxError: '(' was never closed"
    )
    assert fails("\nraise SyntaxError('mine')").line == 2


def test_a_syntax_error_of_the_cell_itself() -> None:
    error = run("x = 1\ny = (", "5", {})
    assert cell_line(error, "5") == 2
    assert cell_line(error, "6") is None


CHAINS = [
    (
        "from error",
        "The above exception was the direct cause of the following exception:",
    ),
    ("", "During handling of the above exception, another exception occurred:"),
]


@pytest.mark.parametrize(("clause", "reason"), CHAINS)
def test_an_error_that_follows_another(fails: Fails, clause: str, reason: str) -> None:
    error = fails(f"try:\n    1 / 0\nexcept ArithmeticError as error:\n    raise KeyError {clause}")
    assert (error.name, error.line) == ("KeyError", 4)
    assert shown(error) == (
        "Cell In[1], line 2\n"
        "      1 try:\n"
        "----> 2     1 / 0\n"
        "      3 except ArithmeticError as error:\n"
        f"      4     raise KeyError {clause}".rstrip()
        + "\n"
        "\n"
        "ZeroDivisionError: division by zero\n"
        "\n"
        f"{reason}\n"
        "\n"
        "Cell In[1], line 4\n"
        "      2     1 / 0\n"
        "      3 except ArithmeticError as error:\n"
        f"----> 4     raise KeyError {clause}".rstrip()
        + "\n"
        "\n"
        "KeyError"
    )


def test_an_error_that_hides_another(fails: Fails) -> None:
    error = fails("try:\n    1 / 0\nexcept ArithmeticError:\n    raise KeyError from None")
    assert "ZeroDivisionError" not in shown(error)
    assert "exception" not in shown(error)


def test_errors_that_follow_each_other_in_a_circle(fails: Fails) -> None:
    error = fails("a, b = KeyError('a'), KeyError('b')\na.__cause__, b.__cause__ = b, a\nraise a")
    assert shown(error).count("KeyError: 'a'") == 1
    assert shown(error).count("KeyError: 'b'") == 1


def test_a_group_of_errors(fails: Fails) -> None:
    error = fails("raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])")
    assert (error.name, error.message) == ("ExceptionGroup", "two (2 sub-exceptions)")
    assert shown(error).endswith(
        "\n"
        "  | ExceptionGroup: two (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | ValueError: a\n"
        "    +---------------- 2 ----------------\n"
        "    | KeyError: 'b'\n"
        "    +------------------------------------"
    )


def test_the_cause_of_a_group_is_told_once(fails: Fails) -> None:
    error = fails(
        "try:\n    1 / 0\nexcept ArithmeticError as e:\n"
        "    raise ExceptionGroup('one', [ValueError('a')]) from e"
    )
    assert shown(error).count("ZeroDivisionError") == 1
    assert shown(error).count("The above exception") == 1
    assert shown(error).count("ValueError: a") == 1


def test_a_deep_stack_is_cut(fails: Fails) -> None:
    error = fails("def f(n):\n    return f(n + 1)\n\nf(0)")
    assert (error.name, error.line) == ("RecursionError", 2)
    frames = shown(error).count("Cell In[1], line ")
    assert frames == MOST_FRAMES
    assert "\n… " in shown(error)
    assert " frames are left out here …\n" in shown(error)
    assert shown(error).startswith("Cell In[1], line 4\n")


def test_frames_that_are_left_out_are_counted(fails: Fails) -> None:
    source = "def f(n):\n    return f(n - 1) if n else 1 / 0\n\nf({})"
    assert "left out" not in shown(fails(source.format(MOST_FRAMES - 2)))
    assert "\n… 1 frame is left out here …\n" in shown(fails(source.format(MOST_FRAMES - 1)))
    assert "\n… 2 frames are left out here …\n" in shown(fails(source.format(MOST_FRAMES)))


def test_a_very_long_text_is_shown_without_its_middle(fails: Fails) -> None:
    source = "raise ValueError('begins ' + 'x' * {} + ' ends')"
    whole = fails(source.format(5000))
    assert shown(whole).endswith(f"\n\nValueError: begins {'x' * 5000} ends")
    error = fails(source.format(30_000))
    assert error.message == f"begins {'x' * 30_000} ends"
    assert shown(error).endswith(
        f"\n\nValueError: begins {'x' * 1981}\n… 27525 characters are left out here …\n"
        f"{'x' * 494} ends\n"[:-1]
    )


def test_notes_follow_the_error(fails: Fails) -> None:
    error = fails("e = ValueError('x')\ne.add_note('one: 1')\ne.add_note('two')\nraise e")
    assert shown(error).endswith("\n\nValueError: x\none: 1\ntwo")
    assert error.message == "x"


def test_hidden_frames_are_not_shown(fails: Fails) -> None:
    error = fails(
        "def inner():\n    __tracebackhide__ = True\n    1 / 0\n\n"
        "def outer():\n    inner()\n\nouter()"
    )
    assert "in outer" in shown(error)
    assert "inner" not in shown(error).replace("    inner()", "")
    assert error.line == 3


def test_frames_of_mcnb_are_not_shown(fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = module("mcnb.helper", "def call(f):\n    return f()\n", "/x/mcnb/helper.py")
    monkeypatch.setitem(sys.modules, "helper", helper)
    error = fails("import helper\n\ndef f():\n    raise KeyError\n\nhelper.call(f)")
    assert shown(error).count("Cell In[1]") == 2
    assert "mcnb" not in shown(error)
    assert "return f()" not in shown(error)


@pytest.fixture
def of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of JAX that calls the learner's function and one of its own, and a library's."""
    source = (
        "def call(f):\n    return wrap(f)\n\ndef wrap(f):\n    return f()\n\n"
        "def one():\n    raise KeyError\n"
    )
    path = "/v/lib/python3.11/site-packages/jax/_src/api.py"
    monkeypatch.setitem(sys.modules, "api", module("jax._src.api", source, path))
    other = "import api\n\ndef layer():\n    api.call(api.one)\n"
    path = "/v/lib/python3.11/site-packages/flax/layers.py"
    monkeypatch.setitem(sys.modules, "layers", module("flax.layers", other, path))


THROUGH_JAX = "import api, layers\n\ndef f():\n    layers.layer()\n\napi.call(f)"
AROUND_JAX = """\
Cell In[1], line 6
      4     layers.layer()
      5
----> 6 api.call(f)

{0}Cell In[1], line 4, in f
      3 def f():
----> 4     layers.layer()
      6 api.call(f)

File flax/layers.py:4, in layer
    api.call(api.one)

{1}KeyError"""


@pytest.mark.usefixtures("of_jax")
def test_frames_of_jax_are_counted(fails: Fails) -> None:
    told = AROUND_JAX.format("… 2 frames of JAX …\n\n", "… 3 frames of JAX …\n\n")
    assert shown(fails(THROUGH_JAX)) == told
    assert "\n… 1 frame of JAX …\n" in shown(fails("import api\napi.one()"))


@pytest.mark.usefixtures("of_jax")
def test_all_frames_of_jax_are_shown_where_jax_shall_show_them(
    fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = types.SimpleNamespace(jax_traceback_filtering="off")
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(config=options))
    call, wrap, one = (
        f"File jax/_src/api.py:{line}, in {name}\n    {code}\n\n"
        for line, name, code in (
            (2, "call", "return wrap(f)"),
            (5, "wrap", "return f()"),
            (8, "one", "raise KeyError"),
        )
    )
    assert shown(fails(THROUGH_JAX)) == AROUND_JAX.format(call + wrap, call + wrap + one)


def test_a_deep_stack_counts_folded_frames(fails: Fails, of_jax: None) -> None:
    error = fails("import api\ndef f(n=0):\n    api.call(lambda: f(n + 1))\n\nf()")
    left_out = next(line for line in shown(error).splitlines() if "left out here" in line)
    assert int(left_out.split()[1]) > sys.getrecursionlimit() // 2
    assert shown(error).count(" of JAX …") == MOST_FRAMES // 3


@pytest.mark.usefixtures("of_jax")
def test_where_the_main_thread_is(fails: Fails) -> None:
    """Asked from another thread; frames of mcnb and JAX, and what runs the cell, are left out."""
    told: list[tuple[str, ...]] = []

    def ask() -> None:
        thread = threading.Thread(target=lambda: told.append(main_thread_lines()))
        thread.start()
        thread.join()

    ask()
    helper = module("mcnb.helper", "def call(f):\n    return f()\n", "/x/mcnb/helper.py")
    source = THROUGH_JAX.replace("layers.layer()", "help(ask)")
    names = {"__name__": "__main__", "ask": ask, "help": helper.call}
    run(f"{source}\n1 / 0", "1", names)
    assert (len(told), told[0]) == (2, ())
    assert told[1][:3] == (
        "In[1], line 6: api.call(f)",
        "… 2 frames of JAX …",
        "In[1], line 4, in f: help(ask)",
    )
    assert ", in ask: " in told[1][3]


@pytest.mark.parametrize(
    "folder",
    [
        "/home/me/venv/lib/python3.11/site-packages/",
        "/usr/lib/python3/dist-packages/",
        "/usr/lib/python3.13/",
    ],
)
def test_paths_are_the_same_on_every_machine(
    fails: Fails, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    source = "def fail():\n    raise KeyError(__file__)\n"
    library = module("library", source, f"{folder}library/core.py")
    library.__file__ = f"{folder}library/core.py"
    monkeypatch.setitem(sys.modules, "library", library)
    error = fails("import library\nlibrary.fail()")
    assert shown(error) == (
        "Cell In[1], line 2\n"
        "      1 import library\n"
        "----> 2 library.fail()\n"
        "\n"
        "File library/core.py:2, in fail\n"
        "    raise KeyError(__file__)\n"
        "\n"
        "KeyError: 'library/core.py'"
    )


def stack(*entries: str) -> str:
    return "INTERNAL: CpuCallback error: Traceback (most recent call last):\n" + "".join(entries)


RUNS = f'  File "<frozen runpy>", line 88, in _run_code\n  File "{mcnb.__file__}", line 1, in run\n'
OF_JAX = '  File "/v/lib/python3.11/site-packages/jax/_src/callback.py", line 816, in _wrapped\n'
OF_USER = '  File "/home/me/train.py", line 8, in look\n'


def test_the_stack_in_an_error_of_a_callback(fails: Fails) -> None:
    text = stack(
        RUNS,
        '  File "<In[2]>", line 1, in <module>\n',
        OF_JAX,
        OF_USER,
        '  File "<In[2]>", line 9, in beyond\n',
        "ValueError: no\n",
    )
    error = fails(f"text = {text!r}", "raise RuntimeError(text)")
    expected = stack(
        "  Cell In[2], line 1\n    raise RuntimeError(text)\n",
        OF_USER,
        "  Cell In[2], line 9, in beyond\n",
        "ValueError: no\n",
    )
    assert error.message == expected
    assert shown(error).endswith(f"RuntimeError: {expected}".rstrip("\n"))


def test_the_stack_of_a_callback_on_a_thread_of_its_own(fails: Fails) -> None:
    text = stack(OF_JAX, OF_USER, "ValueError: no")
    assert fails(f"raise RuntimeError({text!r})").message == stack(OF_USER, "ValueError: no")


def test_a_stack_of_internal_frames_alone_is_shown(fails: Fails) -> None:
    text = stack(OF_JAX, "RuntimeError: no CPU device")
    assert fails(f"raise RuntimeError({text!r})").message == text


def test_a_stack_with_its_source(fails: Fails) -> None:
    source = "    y = look(x)\n        ^^^^^^^\n"
    text = stack(RUNS, OF_JAX, source, OF_USER, source, "ValueError: no")
    expected = stack(RUNS.split("\n")[0] + "\n", OF_USER, source, "ValueError: no")
    assert fails(f"raise RuntimeError({text!r})").message == expected


def test_what_runs_a_cell_is_not_shown(fails: Fails) -> None:
    assert __file__ not in shown(fails("1 / 0"))


def test_a_source_that_is_shorter_than_the_line(fails: Fails) -> None:
    error = fails("\n" * 8 + "def f():\n    1 / 0", "f()")
    assert "Cell In[1], line 10, in f\n" in shown(error)
    source = "f()"
    names: dict[str, Any] = {}
    run("\n" * 8 + "def f():\n    1 / 0\nraise KeyError", "1", names)
    error = describe_error(run(source, "1", names), "1")
    assert shown(error) == (
        "Cell In[1], line 1\n"
        "----> 1 f()\n"
        "\n"
        "Cell In[1], line 10, in f\n"
        "\n"
        "ZeroDivisionError: division by zero"
    )


@pytest.mark.parametrize(
    ("source", "undefined"),
    [
        ("nobody_made_me", "nobody_made_me"),
        ("def f():\n    return nobody_made_me\nf()", "nobody_made_me"),
        ("del nobody_made_me", "nobody_made_me"),
        ("def f():\n    print(x)\n    x = 1\nf()", ""),
        ("def f():\n    def g():\n        return x\n    g()\n    x = 1\nf()", ""),
        ("raise NameError('mine')", ""),
        ("1 / 0", ""),
    ],
)
def test_the_variable_that_does_not_exist(fails: Fails, source: str, undefined: str) -> None:
    assert fails(source).undefined == undefined


def test_an_error_that_came_through_no_cell() -> None:
    error = describe_error(ValueError("x"), "1")
    assert (error.line, without_escapes(error.traceback)) == (None, "ValueError: x")


CRASH = (
    "learner: File\n"
    "Fatal Python error: Segmentation fault\n"
    "\n"
    "Current thread 0x00007f12 (most recent call first):\n"
    '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
    '  File "<In[3]>", line 2 in f\n'
    '  File "<In[4]>", line 7 in <module>\n'
    '  File "/x/lib/python3.11/site-packages/mcnb/process/shell.py", line 9 in run\n'
    "\n"
    "Extension modules: numpy, zmq (total: 2)\n"
)


def test_a_crash_is_told_down_to_the_cell() -> None:
    assert crash_report(CRASH) == (
        "learner: File\n"
        "Fatal Python error: Segmentation fault\n"
        '  File "ctypes/__init__.py", line 519 in string_at\n'
        '  File "<In[3]>", line 2 in f\n'
        '  File "<In[4]>", line 7 in <module>\n'
    )
    assert crash_report("no crash\n") == "no crash\n"
    assert crash_report("Fatal Python error: Aborted") == "Fatal Python error: Aborted\n"
    assert crash_report('Fatal Python error: Aborted\n  File "/x/y.py", line 1 in f\n') == (
        "Fatal Python error: Aborted\n"
    )


def test_the_line_of_a_crash() -> None:
    assert crash_line(CRASH, "4") == 7
    assert crash_line(CRASH, "3") == 2
    assert crash_line(CRASH, "5") is None
    assert crash_line("", "4") is None
    assert crash_line(CRASH.replace("<In[4]>", "<In[a.b]>"), "a.b") == 7
    assert crash_line(CRASH, ".") is None


def test_an_instruction_without_a_line_has_that_of_the_one_before() -> None:
    """An interrupt may come in one that CPython has added: its frame says that it has no line."""
    code = compile("a = 1\nb = 1 / 0\n", "<In[3]>", "exec")
    bare = code.replace(co_linetable=b"")
    with pytest.raises(ZeroDivisionError) as raised:
        exec(bare, {})
    assert raised.value.__traceback__ is not None
    last = raised.value.__traceback__.tb_next
    assert last is not None
    assert last.tb_lineno is None
    error = describe_error(raised.value, "3")
    assert (error.line, error.summary()) == (1, "ZeroDivisionError: division by zero (line 1)")
    assert [line_at(code, i) for i in (0, len(code.co_code))] == [1, 2]
