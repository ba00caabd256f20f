"""Log files that grow: whole lines, their tails, many replicas in one thread."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers._core import file_logs
from torchx.schedulers._core.file_logs import GrowingFile
from torchx.schedulers._core.logs import LogChunk, LogKey
from torchx.schedulers._core.snapshot import ReplicaKey


def paths(replica: ReplicaKey, attempt: int) -> list[str]:
    return [f"{replica[0]}-{replica[1]}.{attempt}.{name}" for name in ("out", "err")]


def write(text: str, k: int = 0, attempt: int = 0, name: str = "out") -> None:
    with open(f"w-{k}.{attempt}.{name}", "a") as f:
        f.write(text)


def texts(chunks: Iterator[LogChunk]) -> list[tuple[int, int, str]]:
    return [(key.replica, key.attempt, data.decode()) for key, _, data in chunks]


def now(*ks: int, attempts: int = 1, tail: int | None = None) -> list[tuple[int, int, str]]:
    wanted = [("w", k) for k in ks]
    return texts(file_logs.read_now(wanted, paths, lambda _: range(attempts), tail))


# -- one file -----------------------------------------------------------------------------------


def test_only_whole_lines_are_given_until_the_rest_is_asked_for():
    file = GrowingFile("f")
    assert [*file.new_lines()] == []
    with open("f", "w") as f:
        for text, lines in (("a\nb", [b"a\n"]), ("c", []), ("\n\nd", [b"bc\n", b"\n"])):
            f.write(text)
            f.flush()
            assert [*file.new_lines()] == lines
    assert [*file.rest()] == [b"d"]
    assert [*file.rest()] == [*file.new_lines()] == []


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_no_byte_is_lost_however_the_file_grows(pieces: list[bytes]) -> None:
    Path("f").write_bytes(b"")
    file = GrowingFile("f")
    got = []
    with open("f", "ab") as f:
        for piece in pieces:
            f.write(piece.replace(b"0", b"\n"))
            f.flush()
            got += [*file.new_lines()]
    assert all(lines.endswith(b"\n") for lines in got)
    assert b"".join([*got, *file.rest()]) == Path("f").read_bytes()


def test_a_long_line_is_one_and_a_very_long_one_comes_in_pieces_of_whole_characters(monkeypatch):
    monkeypatch.setattr(file_logs, "LONG_LINE_BYTES", 400_000)
    monkeypatch.setattr(file_logs, "PIECE_BYTES", 1000)
    long, longer = "x" * 399_999 + "\n", "\u706b" * 200_000 + "\n"
    Path("f").write_text(f"a\n{long}{longer}b\n")
    lines = [*GrowingFile("f").new_lines(limit=1 << 62)]
    assert lines[:2] == [b"a\n", long.encode()]
    assert lines[-1] == b"b\n"
    assert len(lines) > 500
    assert "".join(piece.decode() for piece in lines[2:-1]) == longer


# -- what there is now --------------------------------------------------------------------------


def test_replicas_attempts_and_files_come_in_their_order():
    write("0 err\n", name="err")
    write("0 out\n0 half")
    write("1 out\n", attempt=1)
    write("k\n", k=1)
    assert now(0, 1, attempts=3) == [
        (0, 0, "0 out\n"), (0, 0, "0 half"), (0, 0, "0 err\n"), (0, 1, "1 out\n"), (1, 0, "k\n"),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("count", [1, 2, 5, 30_000, 10**9])
def test_the_tail_is_read_from_the_end(end, count):
    lines = [f"line {i}\n" for i in range(40_000)]
    lines[-1] = f"last{end}"
    write("".join(lines))
    assert "".join(text for _, _, text in now(0, tail=count)) == "".join(lines[-count:])


def test_the_tail_goes_back_to_earlier_files_and_attempts():
    for attempt in range(3):
        write(f"out {attempt}\n", attempt=attempt)
    write("err 1\n", attempt=1, name="err")
    found = [text for _, _, text in now(0, attempts=3, tail=3)]
    assert found == ["out 1\n", "err 1\n", "out 2\n"]
    assert now(0, attempts=3, tail=0) == []


# -- following ----------------------------------------------------------------------------------


class Signs:
    """Ends of attempts as the test sets them."""

    def __init__(self) -> None:
        self.attempt = 0
        self.over = False
        self._seen = (0, False)

    def look(self, quiet_s: float) -> bool:
        before, self._seen = self._seen, (self.attempt, self.over)
        return before != self._seen

    def latest(self, replica: ReplicaKey) -> int:
        return self._seen[0]

    def ended(self, replica: ReplicaKey) -> bool:
        return self._seen[1]


def following(signs: Signs, *ks: int, attempt: int | None = None) -> Iterator[LogChunk]:
    return file_logs.follow([("w", k) for k in ks], paths, signs, attempt)


def test_lines_of_all_replicas_and_attempts_are_given_to_the_last():
    signs = Signs()
    chunks = following(signs, 0, 1)
    write("a\nhalf")
    assert next(chunks) == (LogKey("w", 0), None, b"a\n")
    write("b\n", k=1)
    assert next(chunks) == (LogKey("w", 1), None, b"b\n")
    signs.attempt = 1
    write("again", attempt=1)
    assert next(chunks) == (LogKey("w", 0), None, b"half")
    signs.over = True
    assert texts(chunks) == [(0, 1, "again")]


def test_one_attempt_is_followed_to_its_end():
    signs = Signs()
    chunks = following(signs, 0, attempt=0)
    write("a\n")
    assert next(chunks)[2] == b"a\n"
    write("other\n", attempt=1)
    signs.attempt = 1
    assert [*chunks] == []


def test_a_thousand_replicas_are_followed_in_one_thread_with_no_file_open():
    signs = Signs()
    for k in range(1000):
        write(f"{k}\n", k=k)
    gc.collect()  # what other tests left open
    before = os.listdir("/proc/self/fd"), threading.active_count()
    chunks = following(signs, *range(1000))
    got = [next(chunks) for _ in range(1000)]
    assert [int(data) for _, _, data in got] == [*range(1000)]
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (
        len(before[0]),
        before[1],
    )
    signs.over = True
    assert [*chunks] == []


MEASURE = """
import os, resource, sys
from torchx.schedulers._core import file_logs, logs
with open("w-0.0.out", "w") as f:
    for _ in range(200):
        f.write("x" * 1_000_000)
    f.write("\\n")
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
paths = lambda replica, attempt: ["w-0.0.out"]
chunks = file_logs.read_now([("w", 0)], paths, lambda _: [0])
size = sum(len(block.text) for block in logs.to_blocks(chunks))
print(size, peak() - before)
"""


def test_a_line_of_200_mb_costs_no_memory():
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True
    )
    size, peak_mb = map(int, done.stdout.split())
    assert size == 200_000_001
    assert peak_mb < 50
