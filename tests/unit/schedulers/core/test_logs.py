"""Log lines: merged, chosen, cut to the last ones, and followed through outages."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.errors import BackendUnavailable, InvalidInput
from torchx.schedulers._core import logs
from torchx.schedulers._core.logs import LogChunk, LogKey, LogQuery
from torchx.schedulers._core.responses import LogBlock

A, B = LogKey("a", 0), LogKey("b", 1)


def test_streams_are_merged_by_time_and_what_has_none_follows_what_came_before() -> None:
    a: list[LogChunk] = [(A, 1, b"a1\n"), (A, None, b"a+\n"), (A, 4, b"a4\n")]
    b: list[LogChunk] = [(B, 2, b"b2\n"), (B, 4, b"b4\n")]
    merged = [chunk[2] for chunk in logs.merge_by_time([iter(a), iter(b)])]
    assert merged == [b"a1\n", b"a+\n", b"b2\n", b"a4\n", b"b4\n"]


def test_streams_without_times_come_one_after_the_other() -> None:
    a: list[LogChunk] = [(A, None, b"1"), (A, None, b"2")]
    b: list[LogChunk] = [(B, None, b"3")]
    assert [chunk[2] for chunk in logs.merge_by_time([iter(a), iter(b)])] == [b"1", b"2", b"3"]


def test_the_range_of_times_holds_where_there_are_times() -> None:
    chunks: list[LogChunk] = [(A, t, b"") for t in (1, 2, None, 3, 4)]
    query = LogQuery(since_ns=2, until_ns=3)
    assert [chunk[1] for chunk in logs.in_range(chunks, query)] == [2, None, 3]


def test_lines_are_matched_without_their_end() -> None:
    blocks = logs.matching([LogBlock("a", 0, 0, "x1\ny\nx2\n")], logs.compiled(r"\d$"))
    assert [block.text for block in blocks] == ["x1\nx2\n"]
    with pytest.raises(InvalidInput, match=re.escape("`(` is not a regular expression")):
        logs.compiled("(")


def test_neighbours_are_joined_up_to_a_bound() -> None:
    big = b"x" * logs.BLOCK_BYTES
    chunks: list[LogChunk] = [(A, 1, b"1\n"), (A, 2, big), (A, 3, b"2\n"), (B, 4, b"3\n")]
    assert [(c[0], c[1], len(c[2])) for c in logs.joined(chunks)] == [
        (A, 1, len(big) + 2),
        (A, 3, 2),
        (B, 4, 2),
    ]


def test_the_last_lines_are_those_of_each_replica_and_then_what_is_written_later() -> None:
    now: list[LogChunk] = [(A, None, b"1\n2\n3\n"), (B, None, b"4\n")]

    def read(query: LogQuery) -> Iterator[LogChunk]:
        yield from now
        if query.follow:
            yield A, None, b"5\n"

    def texts(query: LogQuery, regex: str | None = None) -> list[str]:
        pattern = logs.compiled(regex) if regex else None
        return [b.text for b in logs.last_then_follow(read, query, 2, pattern)]

    assert texts(LogQuery()) == ["2\n", "3\n", "4\n"]
    assert texts(LogQuery(follow=True)) == ["2\n", "3\n", "4\n", "5\n"]
    assert texts(LogQuery(follow=True), "[15]") == ["1\n", "5\n"]


@given(st.lists(st.binary(max_size=5), max_size=8), st.lists(st.integers(0, 8), max_size=5))
def test_nothing_is_lost_or_doubled_by_outages(parts: list[bytes], cuts: list[int]) -> None:
    reads = [*cuts, len(parts)]
    reported: list[str] = []

    def read() -> Iterator[LogChunk]:
        end = reads.pop(0)
        for part in parts[:end]:
            yield A, None, part
        if reads:
            raise BackendUnavailable("away")

    following = logs.following_through_outages(read, reported.append, first_pause_s=0)
    found = [data for _, _, data in following]
    assert b"".join(found) == b"".join(parts)
    assert len(reported) <= len(cuts)
    assert bool(reported) == bool(cuts)


def test_of_a_line_in_pieces_all_are_given_from_the_one_that_matches() -> None:
    texts = ["a\nbegin", "the word", "end\nword\n", "word", "\nno\n", "x", "y\nz\n"]
    blocks = logs.matching([LogBlock("a", 0, 0, text) for text in texts], logs.compiled("word"))
    assert [block.text for block in blocks] == ["the word", "end\nword\n", "word", "\n"]
