"""Docker's log stream as lines."""

import itertools

import pytest

from torchx.schedulers.api import split_lines
from torchx.schedulers.docker_scheduler._client import as_seconds
from torchx.schedulers.docker_scheduler._logs import (
    Joiner,
    Source,
    parse_ns,
    split_frames,
    to_blocks,
)


def frame(output: int, content: bytes) -> bytes:
    return bytes([output, 0, 0, 0]) + len(content).to_bytes(4, "big") + content


def stamp(n: int) -> bytes:
    return b"2026-01-01T00:00:00.%09dZ" % n


def lines(frames):
    joiner = Joiner()
    whole = [line for output, content in frames if (line := joiner.add(output, content))]
    return whole, joiner.rest()


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 1000])
def test_frames_are_found_however_the_bytes_come(size):
    data = frame(1, b"a") + frame(2, b"") + frame(1, "größe".encode() * 10)
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    assert [*split_frames(chunks)] == [(1, b"a"), (2, b""), (1, "größe".encode() * 10)]


def test_a_frame_that_was_cut_off_is_left_out():
    assert [*split_frames([frame(1, b"whole"), frame(1, b"cut")[:-1]])] == [(1, b"whole")]


def test_pieces_of_long_lines_are_joined_by_output():
    found, rest = lines(
        [
            (1, stamp(1) + b" a" * 3),
            (2, stamp(2) + b" err\n"),
            (2, stamp(3) + b" e1"),
            (1, stamp(1) + b" b\n"),
            (2, stamp(3) + b" e2\n"),
            (1, stamp(4) + b" \n"),
            (1, stamp(5) + b" no end"),
            (2, stamp(4) + b" no end either"),
        ]
    )
    assert found == [
        (stamp(2), b"err\n"),
        (stamp(1), b"a a ab\n"),
        (stamp(3), b"e1e2\n"),
        (stamp(4), b"\n"),
    ]
    assert rest == [(stamp(4), b"no end either"), (stamp(5), b"no end")]


def test_characters_cut_in_two_are_whole_in_their_line():
    raw = "火\n".encode()
    found, _ = lines([(1, stamp(1) + b" " + raw[:2]), (1, stamp(1) + b" " + raw[2:])])
    source = Source("id", "r", 0, 0)
    (block,) = to_blocks([(source, text) for _, text in found])
    assert block.text == "火\n"


def test_neighbouring_lines_of_a_replica_are_one_block_up_to_a_bound():
    a, b = Source("1", "r", 0, 0), Source("2", "r", 1, 1)
    blocks = [*to_blocks([(a, b"1\n"), (a, b"2\n"), (b, b"3\n"), (a, b"4\n")])]
    assert [(x.replica, x.text) for x in blocks] == [(0, "1\n2\n"), (1, "3\n"), (0, "4\n")]
    many = [*to_blocks(itertools.repeat((a, b"x" * 1000 + b"\n"), 200))]
    assert len(many) > 1
    assert sum(len(x.text) for x in many) == 200 * 1001


def test_only_newlines_end_lines():
    assert split_lines("a\r\nb\u2028c\n\nd") == ["a\r\n", "b\u2028c\n", "\n", "d"]
    assert split_lines("") == []


def test_times_go_to_docker_as_they_came_from_it():
    assert as_seconds(parse_ns(stamp(123))) == "1767225600.000000123"
    assert parse_ns(b"1970-01-01T00:00:01.5Z") == 1_500_000_000
