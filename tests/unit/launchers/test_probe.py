"""What a host tells `mcnb doctor`."""

from __future__ import annotations

import ast
import inspect
import io
import json
import signal
import socket
import sys
import threading
import time

import pytest

from mcnb.launchers import probe


def test_a_report_and_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alarms: list[int] = []
    monkeypatch.setattr(signal, "alarm", alarms.append)
    monkeypatch.setenv("MEGASCALE_NUM_SLICES", "2")
    monkeypatch.setenv("SSH_CONNECTION", "127.0.0.1 1234 127.0.0.2 22")
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # it does not listen
        places = [there.getsockname(), nobody.getsockname()]
        questions = "".join(f"{json.dumps(one)}\n" for one in (probe.TIME, places))
        monkeypatch.setattr(sys, "stdin", io.StringIO(questions))
        before = time.time()
        probe.main()
    report, now, reached = map(json.loads, capsys.readouterr().out.splitlines())
    assert alarms == [probe.LIFE_S]
    assert (report["asker"], report["address"]) == ("127.0.0.1", "127.0.0.1")
    assert report["name"] == socket.gethostname()
    assert report["versions"]["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert [*report["versions"]][1:] == [*probe.PACKAGES]
    assert report["settings"]["MEGASCALE_NUM_SLICES"] == "2"
    assert before <= now <= time.time()
    assert reached == ["", "Connection refused"]


def test_a_name_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise OSError(name)

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    monkeypatch.setattr(probe, "_BOOT_ID", "/nowhere")
    report = probe.report("no.such.host.invalid", 1)
    assert (report["named"], report["address"], report["boot_id"]) == ("", "", "")


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(place: tuple[str, int], timeout: float) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", late)
    assert probe.reach("10.0.0.1", 1) == "no answer"


def test_connections_are_accepted_until_the_socket_is_closed() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=probe.accept, args=(server,))
    thread.start()
    assert probe.reach(*server.getsockname()) == ""
    server.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert not thread.is_alive()
    server.close()


def test_it_is_a_program_for_an_old_python() -> None:
    ast.parse(inspect.getsource(probe), feature_version=(3, 7))
