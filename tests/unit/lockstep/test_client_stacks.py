"""How clients tell the referee from which lines they launch."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from mcnb.lockstep.client import Client
from mcnb.lockstep.model import Detail, Launch
from mcnb.lockstep.server import Server
from mcnb.lockstep.source import Place
from mcnb.lockstep.values import Replicas
from mcnb.lockstep.wire import Message
from tests.support.clients import HANG_S, F, G, learners_of
from tests.unit.lockstep.test_values import Everywhere


class Described:
    """Two clients whose places have a stack of one line, which is counted each time it is named."""

    def __init__(self, server: Server) -> None:
        self.named: list[int | None] = []
        self.earlier: dict[int, Place] = {}
        self.errors: dict[int, str] = {}
        self.server = server
        self.clients = [
            Client(server.address, k, learners_of(k), self.lines, partial(self.detail, k))
            for k in range(2)
        ]

    def lines(self, place: Place) -> tuple[str, ...]:
        self.named.append(place.line)
        return (f"train.py:{place.line}",)

    def detail(self, k: int, _: Place, frame: object, handled: object, earlier: Place) -> Detail:
        self.earlier[k] = earlier
        return Detail()

    def launch(self, *lines: tuple[int, int]) -> None:
        """Let both processes launch from these lines, one after the other."""

        def learner(process: int) -> None:
            try:
                for pair in lines:
                    launch = G if pair[process] == 99 else F
                    self.clients[process].make(launch, Place(pair[process]), lambda: None)
            except Exception as error:
                self.errors[process] = str(error)

        threads = [threading.Thread(target=learner, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
            assert not thread.is_alive()

    def close(self) -> None:
        for client in self.clients:
            client.close()


def test_each_place_is_described_once(server: Server) -> None:
    described = Described(server)
    described.launch(*[(1, 1), (2, 2)] * 5)
    described.launch((2, 2), (1, 1))
    assert sorted(described.named) == [1, 1, 2, 2]
    assert server.noted == ((), (), ())
    described.close()


def test_lines_have_new_names_in_a_new_cell(server: Server) -> None:
    described = Described(server)
    for _ in range(2):
        cell = server.begin([0, 1])
        for client in described.clients:
            client.begin(cell)
        described.launch((1, 1))
    assert described.named == [1, 1, 1, 1]
    described.close()


def test_places_without_end_are_told_apart(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcnb.lockstep.numbering.MOST_STACKS", 2)
    described = Described(server)
    described.launch(*((line, line) for line in range(1, 9)))
    described.launch((9, 8))
    [meeting] = server.noted.meetings
    assert meeting.own == {0: "train.py:9", 1: "train.py:8"}
    assert meeting.number == 9
    described.close()


def test_the_cause_is_asked_for_where_it_is(server: Server) -> None:
    described = Described(server)
    described.launch((1, 1), (2, 3), (3, 99))
    assert described.earlier == {0: Place(2), 1: Place(3)}
    assert set(described.errors) == {0, 1}
    assert (
        ". What came before: the 2nd launch of jit(f) came from different lines: train.py:2 on "
        "process 0; train.py:3 on process 1. Since then, "
    ) in described.errors[0]
    described.close()


ALONE = Launch("jit(init)", "1", (0,), ("i32[]",), devices="P0.0 P1.0")


def passes(described: Described, *values: int, line: int = 3) -> None:
    """Let each process make a launch that does not communicate, with a value of its own."""
    for client, value in zip(described.clients, values, strict=True):
        own = Replicas(lambda value=value: [(np.int32(value), Everywhere())])
        client.make(ALONE, Place(line), lambda: None, own, names=lambda: ("seed",))
        client.finish()


def unequal(server: Server) -> list[tuple[str, str, list[str]]]:
    found = server.noted.inputs
    return [(one.name, one.where, [value.text for value in one.values.values()]) for one in found]


def test_unequal_inputs_are_known_at_the_end_of_a_cell(server: Server) -> None:
    described = Described(server)
    passes(described, 7, 7)
    assert unequal(server) == []
    passes(described, 7, 8, line=4)
    assert unequal(server) == [("seed", "line 4", ["7", "8"])]
    for values in (None, True):
        cell = server.begin([0, 1])
        for client in described.clients:
            client.begin(cell, values=values)
        assert unequal(server) == []
        passes(described, 7, 8)
        assert unequal(server) == [("seed", "line 3", ["7", "8"])]
    described.close()


def test_inputs_that_are_not_compared(server: Server) -> None:
    described = Described(server)
    for holding, values in ((False, None), (True, False)):
        cell = server.begin([0, 1])
        for client in described.clients:
            client.begin(cell, holding=holding, values=values)
        passes(described, 7, 8)
        assert unequal(server) == []
    described.close()
    passes(described, 7, 8)  # without a referee
    assert unequal(server) == []


@pytest.mark.parametrize(
    ("shape", "values", "expected"),
    [((), None, []), ((), True, ["0 and 1"]), ((2,), None, ["0 and 1"]), ((2,), False, [])],
)
def test_inputs_of_known_computations(
    server: Server, shape: tuple[int, ...], values: bool | None, expected: list[str]
) -> None:
    described = Described(server)
    cell = server.begin([0, 1])
    for k, client in enumerate(described.clients):
        client.begin(cell, values=values)
        own = Replicas(lambda k=k: [(np.full(shape, k), Everywhere())], before=1)
        client.make(ALONE, Place(3), lambda: None, own)
        client.finish()
    found = server.noted.inputs
    assert [" and ".join(v.text for v in one.values.values()) for one in found] == expected
    described.close()


def test_of_very_many_launches_the_same_are_compared(server: Server) -> None:
    # Native code makes none of them, because it does not know the arrays.
    asked: list[int] = []

    class Asked(Replicas):
        def inputs(self, *, common: bool, whole: bool) -> dict[str, Message]:
            [(argument, _)] = self.arguments()
            asked.append(int(argument[0]))
            return super().inputs(common=common, whole=whole)

    described = Described(server)
    for client in described.clients:
        for i in range(70):
            own = Asked(lambda i=i: [(np.full(1, i), Everywhere())], before=1)
            client.make(ALONE, Place(3), lambda: None, own)
        client.finish()
    assert asked == [*range(17), 32, 64] * 2
    assert server.noted.inputs == ()
    described.close()
