"""Logs of local jobs as their supervisor writes them, read back in every way."""

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.schedulers.api import LogChunk, LogKey, LogQuery, ReplicaSnapshot, Stream
from torchx.schedulers.local_scheduler import _logs
from torchx.schedulers.local_scheduler._supervise.format import CONTINUED, LONGEST_LINE_BYTES
from torchx.schedulers.local_scheduler._supervise.logs import HELD_BYTES, ReplicaLog, Stamps
from torchx.specs.api import AppState

OUT, ERR = 0, 1


class Writer:
    """One attempt of a replica that prints what it is told."""

    def __init__(self, folder: Path, stamps: Stamps) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        pipes = [os.pipe(), os.pipe()]
        self._ends = [w for _, w in pipes]
        for r, w in pipes:
            os.set_blocking(r, False)
            os.set_blocking(w, False)
        self.log = ReplicaLog(str(folder), (pipes[0][0], pipes[1][0]), stamps)

    def print(self, stream: int, data: bytes) -> None:
        """The data goes through the pipe, in as many pieces as it takes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._ends[stream], view[: 1 << 16]) :]
            self.log.pump(self.log.streams[stream])

    def hang_up(self, stream: int) -> None:
        """Closes one stream."""
        os.close(self._ends[stream])
        self._ends[stream] = -1
        while self.log.pump(self.log.streams[stream]):
            pass

    def end(self) -> None:
        """Closes what is open and ends the log."""
        for stream in (OUT, ERR):
            if self._ends[stream] >= 0:
                self.hang_up(stream)
        self.log.close()


def snapshot(folder: Path, k: int = 0, attempt: int = 0) -> ReplicaSnapshot:
    """The replica whose first attempt has that folder."""
    path = folder / f"attempt_{attempt}" if attempt else folder
    return ReplicaSnapshot(
        "w", k, AppState.SUCCEEDED, attempt=attempt, log_path=f"{path}/combined.log"
    )


class Ended:
    """The end of a job, for a reader that follows."""

    live = False

    def wait(self, timeout_s: float | None) -> None:
        raise AssertionError("there is nothing to wait for")

    def close(self) -> None:
        return


def read(*replicas: ReplicaSnapshot, **query: object) -> list[LogChunk]:
    """The chunks of these replicas."""
    return [*_logs.read(replicas, LogQuery(**query), Ended)]  # type: ignore[arg-type]  # its fields


def text(chunks: "Iterator[LogChunk] | list[LogChunk]") -> str:
    return b"".join(data for _, _, data in chunks).decode()


@pytest.fixture
def stamps() -> Stamps:
    return Stamps()


def test_times_only_grow(stamps: Stamps) -> None:
    times = [stamps.next() for _ in range(1000)]
    assert times == sorted(set(times))


@pytest.mark.parametrize("stream", [*Stream])
def test_a_line_of_any_length_up_to_the_bound_is_one(
    tmp_path: Path, stamps: Stamps, stream: Stream
) -> None:
    line = "START" + "é" * 3_000_000 + "END\n"
    which = ERR if stream is Stream.STDERR else OUT
    writer = Writer(tmp_path, stamps)
    writer.print(which, b"before\n")
    writer.print(which, line.encode())
    writer.print(which, b"after\n")
    writer.end()
    chunks = read(snapshot(tmp_path), stream=stream)
    assert text(chunks) == f"before\n{line}after\n"
    assert all(data.endswith(b"\n") for _, _, data in chunks)
    assert line.encode() in [data for _, _, data in chunks]
    assert [r.problem for r in _logs.verify(snapshot(tmp_path))] == [None] * 3


def test_lines_of_the_other_stream_do_not_get_into_a_long_one(
    tmp_path: Path, stamps: Stamps
) -> None:
    half = b"x" * (2 * HELD_BYTES)
    writer = Writer(tmp_path, stamps)
    writer.print(OUT, half)
    writer.print(ERR, b"in between\n")
    writer.print(OUT, half + b"\n")
    writer.end()
    assert text(read(snapshot(tmp_path))) == "in between\n" + "x" * (4 * HELD_BYTES) + "\n"


@pytest.mark.parametrize("stream", [Stream.STDOUT, Stream.COMBINED])
def test_a_line_beyond_the_bound_comes_in_pieces_that_say_so(
    tmp_path: Path, stamps: Stamps, stream: Stream
) -> None:
    writer = Writer(tmp_path, stamps)
    writer.print(OUT, b"x" + "é".encode() * (LONGEST_LINE_BYTES // 2 + 100_000) + b"\nnext\n")
    writer.end()
    for query in ({}, {"tail": 3}):
        first, second, last = text(read(snapshot(tmp_path), stream=stream, **query)).splitlines(
            keepends=True
        )
        assert first.endswith("é" + CONTINUED.decode())
        assert len(first.encode()) == LONGEST_LINE_BYTES - 1 + len(CONTINUED)  # no character is cut
        assert second == "é" * 100_001 + "\n"
        assert last == "next\n"
    assert [r.problem for r in _logs.verify(snapshot(tmp_path))] == [None] * 3


def test_last_lines_without_newline_stay_apart(tmp_path: Path, stamps: Stamps) -> None:
    writer = Writer(tmp_path, stamps)
    writer.print(OUT, b"one\ntwo")
    writer.hang_up(OUT)
    writer.print(ERR, b"three\nfour")
    writer.end()
    assert text(read(snapshot(tmp_path))) == "one\ntwo\nthree\nfour"
    assert text(read(snapshot(tmp_path), stream=Stream.STDOUT)) == "one\ntwo"
    assert text(read(snapshot(tmp_path), stream=Stream.STDERR)) == "three\nfour"


def test_both_streams_may_end_within_a_line(tmp_path: Path, stamps: Stamps) -> None:
    writer = Writer(tmp_path, stamps)
    writer.print(OUT, b"one")
    writer.print(ERR, b"two")
    writer.end()
    assert text(read(snapshot(tmp_path))) == "one\ntwo"


@pytest.mark.parametrize("stream", [*Stream])
def test_the_last_lines_are_those_that_stand_last(tmp_path: Path, stream: Stream) -> None:
    chance = random.Random(7)
    stamps = Stamps()
    for attempt in range(4):
        folder = tmp_path / f"attempt_{attempt}" if attempt else tmp_path
        writer = Writer(folder, stamps)
        for i in range(chance.choice([0, 40])):
            lines = "".join(f"{attempt} {i} {j}\n" for j in range(chance.randint(1, 4)))
            writer.print(chance.choice([OUT, ERR]), lines.encode())
        if attempt == 3:
            writer.print(OUT, b"unfinished")
        writer.end()
    replica = snapshot(tmp_path, attempt=3)
    lines = text(read(replica, stream=stream)).splitlines(keepends=True)
    for count in (0, 1, 2, 5, len(lines) - 1, len(lines), len(lines) + 10):
        found = text(read(replica, stream=stream, tail=count)).splitlines(keepends=True)
        assert found == lines[len(lines) - count :] if count < len(lines) else found == lines
    only = text(read(replica, stream=stream, attempt=1)).splitlines(keepends=True)
    assert text(read(replica, stream=stream, attempt=1, tail=3)) == "".join(only[-3:])


def test_the_last_lines_of_a_large_log_are_found_without_reading_it(
    tmp_path: Path, stamps: Stamps
) -> None:
    writer = Writer(tmp_path, stamps)
    for i in range(50):
        writer.print(OUT, (f"{i:099}\n" * 600).encode())
    writer.end()
    for name in ("combined.log", "stdout.log"):  # what stands before would be seen as well
        with (tmp_path / name).open("r+b") as f:
            f.write(b"\0" * 2_000_000)
    assert text(read(snapshot(tmp_path), tail=3)) == f"{49:099}\n" * 3


def two_replicas(folder: Path) -> list[ReplicaSnapshot]:
    """Two replicas that printed by turns, in two attempts each."""
    stamps = Stamps()
    found = []
    for attempt in range(2):
        writers = []
        for k in range(2):
            base = folder / str(k)
            writers.append(Writer(base / f"attempt_{attempt}" if attempt else base, stamps))
            found.append(snapshot(base, k, attempt))
        for i in range(200):
            if attempt or i % 3:  # an attempt may print nothing at all
                writers[i % 2].print(OUT, f"{attempt} {i}\n".encode())
        for writer in writers:
            writer.end()
    return found[2:]


EXPECTED = [f"0 {i}" for i in range(200) if i % 3] + [f"1 {i}" for i in range(200)]


@pytest.mark.parametrize("follow", [False, True])
def test_several_replicas_come_in_the_order_in_which_they_were_written(
    tmp_path: Path, follow: bool
) -> None:
    chunks = read(*two_replicas(tmp_path), follow=follow)
    assert text(chunks).splitlines() == EXPECTED
    assert {key for key, _, _ in chunks} == {LogKey("w", k, a) for k in (0, 1) for a in (0, 1)}
    last = text(read(*two_replicas(tmp_path / "again"), tail=2)).splitlines()
    assert last == ["1 196", "1 197", "1 198", "1 199"]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("ahead_s", [40, -40])
def test_a_clock_that_was_set_hides_nothing(tmp_path: Path, follow: bool, ahead_s: int) -> None:
    replicas = two_replicas(tmp_path)
    for index in tmp_path.rglob("combined.idx"):
        records = [list(fields) for fields in struct.iter_unpack("<QQQQQ", index.read_bytes())]
        for fields in records:
            fields[0] += ahead_s * 1_000_000_000
        index.write_bytes(b"".join(struct.pack("<QQQQQ", *fields) for fields in records))
    assert text(read(*replicas, follow=follow)).splitlines() == EXPECTED


def test_times_choose_lines(tmp_path: Path, stamps: Stamps) -> None:
    writer = Writer(tmp_path, stamps)
    edges = []
    for i in range(6):
        edges.append(stamps.next())
        writer.print(OUT, f"{i}\n".encode())
    writer.end()
    chosen = {"since_ns": edges[2], "until_ns": edges[4]}
    for query in (chosen, {**chosen, "tail": 10}):
        assert text(read(snapshot(tmp_path), **query)) == "2\n3\n"
    assert text(read(snapshot(tmp_path), **chosen, tail=1)) == "3\n"


def test_what_is_missing_has_no_lines(tmp_path: Path) -> None:
    gone = snapshot(tmp_path / "gone")
    assert read(gone) == read(gone, follow=True) == read(gone, tail=5) == []
    (report,) = _logs.verify(gone)
    assert not report.complete
    assert report.problem == "the index cannot be read: No such file or directory"
