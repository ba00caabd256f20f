"""Lines of several replicas that are read at once."""

import threading

import pytest

from torchx.errors import BackendUnavailable
from torchx.schedulers._core.following import follow_merged
from torchx.schedulers._core.logs import LogKey


class Replica:
    """Gives batches of lines, each when the event before it is set."""

    def __init__(self, name, *steps):
        self.key = LogKey(name, 0)
        self.steps = steps
        self.closed = threading.Event()

    def batches(self):
        yield []
        for step in self.steps:
            if isinstance(step, threading.Event):
                step.wait(20)
            elif isinstance(step, Exception):
                raise step
            else:
                yield [(at, b"%d\n" % at) for at in step]

    def close(self):
        self.closed.set()


def given(*replicas):
    return [(key.role, text.decode().split()) for key, _, text in follow_merged(replicas)]


def test_lines_come_in_the_order_of_time_and_neighbours_together():
    found = given(Replica("a", [1], [2, 5], [6]), Replica("b", [3, 4, 7]))
    assert found == [("a", ["1", "2"]), ("b", ["3", "4"]), ("a", ["5", "6"]), ("b", ["7"])]


def test_lines_of_one_time_come_in_the_order_of_replicas():
    assert given(Replica("a", [1, 1]), Replica("b", [1])) == [("a", ["1", "1"]), ("b", ["1"])]


def test_what_was_printed_before_is_waited_for_until_all_are_read():
    gate = threading.Event()
    late = Replica("late", gate, [1])

    class Slow(Replica):
        def batches(self):
            gate.wait(20)
            yield []
            yield [(2, b"2\n")]

    threading.Timer(0.5, gate.set).start()
    assert given(Replica("early", [3]), Slow("slow"), late)[0][0] == "late"


def test_a_replica_that_prints_nothing_holds_nobody_up():
    quiet = threading.Event()
    chunks = follow_merged([Replica("busy", [1], [2]), Replica("quiet", quiet, [3])])
    assert next(chunks)[2] == b"1\n2\n"
    quiet.set()
    assert [chunk[2] for chunk in chunks] == [b"3\n"]


def test_a_failure_is_raised_when_what_came_before_it_is_given():
    never = threading.Event()
    replicas = [Replica("a", [1], BackendUnavailable("away")), Replica("b", [2], never)]
    found = []
    with pytest.raises(BackendUnavailable, match="away"):
        found.extend(follow_merged(replicas))
    assert [key.role for key, _, _ in found][:1] == ["a"]
    assert all(replica.closed.is_set() for replica in replicas)
    never.set()


def test_whoever_stops_early_closes_all():
    never = threading.Event()
    replicas = [Replica("a", [1], never), Replica("b", never)]
    chunks = follow_merged(replicas)
    assert next(chunks)[2] == b"1\n"
    chunks.close()
    assert all(replica.closed.is_set() for replica in replicas)
    never.set()


def test_no_more_than_so_many_lines_wait_for_others(monkeypatch):
    monkeypatch.setattr("torchx.schedulers._core.following.MOST_HELD_LINES", 100)
    monkeypatch.setattr("torchx.schedulers._core.following._PATIENCE_S", 60)
    late = threading.Event()
    lines = list(range(1, 1001))

    class Slow(Replica):
        def batches(self):
            late.wait(3)  # long past the first lines of the other
            yield []
            yield [(0, b"late\n")]

    chunks = follow_merged([Replica("busy", *[[at] for at in lines]), Slow("slow")])
    found = next(chunks)[2].decode().split()
    assert found[0] == "1"
    late.set()
    rest = [word for chunk in chunks for word in chunk[2].decode().split()]
    assert sorted([*found, *rest]) == sorted(["late", *map(str, lines)])
