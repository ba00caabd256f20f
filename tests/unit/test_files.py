"""Locks, whole writes and replaced files, with other processes at the same files."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from torchx import _files

HOLDER = """
import fcntl, sys
f = open(sys.argv[1], "a")
fcntl.flock(f, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path):
    """The path of a lock that another process holds, and that process."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        yield path, holder  # its input is closed, and it waited for, at the end


def test_a_lock_that_another_process_holds_is_not_taken(held) -> None:
    path, holder = held
    fd = os.open(path, os.O_RDWR)
    try:
        assert not _files.try_lock(fd)
        holder.communicate()
        assert _files.try_lock(fd)
    finally:
        os.close(fd)


def test_a_block_waits_for_the_other_process_and_says_so(held) -> None:
    path, holder = held

    with _files.exclusive_lock(str(path), waiting=holder.stdin.close) as locked:
        assert locked
        assert holder.wait() == 0


def test_a_block_goes_on_without_a_lock_where_there_can_be_none(tmp_path: Path) -> None:
    with _files.exclusive_lock(str(tmp_path / "missing" / "lock")) as locked:
        assert not locked


def test_a_folder_can_be_locked_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    with _files.exclusive_lock(str(tmp_path)) as locked:
        assert locked
    assert list(tmp_path.iterdir()) == []


def test_everything_is_written_to_a_pipe_that_takes_little_at_a_time() -> None:
    reader, writer = os.pipe()
    data = os.urandom(1 << 20)
    read: list[bytes] = []

    def drain() -> None:
        while piece := os.read(reader, 1 << 16):
            read.append(piece)

    thread = threading.Thread(target=drain)
    thread.start()
    _files.write_all(writer, data)
    _files.write_all(writer, b"")
    os.close(writer)
    thread.join()
    os.close(reader)
    assert b"".join(read) == data


def test_a_replaced_file_has_the_new_content_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    _files.replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_replaced_file_has_the_mode_that_is_asked_for_whatever_it_had(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    _files.replace_file(str(path), b"secret", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        _files.replace_file(str(tmp_path / "folder"), b"new")
    assert os.listdir(tmp_path) == ["folder"]


def test_readers_never_see_a_part_of_a_file_that_many_replace(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([n]) * 100_000 for n in range(4)]
    _files.replace_file(str(path), contents[0])

    def replace(content: bytes) -> None:
        for _ in range(20):
            _files.replace_file(str(path), content)

    writers = [threading.Thread(target=replace, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"one\n", ["one"]),
        (b"one\n\n two  \n\nthree", [" two", "three"]),
        (b"x" * 100_000 + b"\nlast\n", ["x" * (65536 - 6), "last"]),
        (b"no \xff text\n", ["no \ufffd text"]),
    ],
)
def test_the_last_lines_of_a_file_are_those_that_are_not_empty(
    tmp_path: Path, text: bytes, expected: list[str]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(text)
    assert _files.last_lines(str(path), 2) == expected
    assert _files.last_lines(str(path), 0) == []


def test_a_file_that_is_not_there_has_no_last_lines(tmp_path: Path) -> None:
    assert _files.last_lines(str(tmp_path / "none"), 3) == []
