"""Lines of logs: each once, wherever the log breaks off."""

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.schedulers._kube.log_lines import LogPosition, parse_line, since_time

SECOND_NS = 1_000_000_000
T0_NS = 1_767_323_045 * SECOND_NS  # 2026-01-02T03:04:05Z


@pytest.mark.parametrize(
    ("line", "time_ns", "text"),
    [
        (b"2026-01-02T03:04:05.123456789Z hello you", T0_NS + 123_456_789, b"hello you"),
        (b"2026-01-02T03:04:05.000000001Z ", T0_NS + 1, b""),
        (b"2026-01-02T03:04:05Z x", T0_NS, b"x"),
        (b"2026-01-02T03:04:05.5Z x", T0_NS + 500_000_000, b"x"),
        (b"2026-01-02T05:04:05.000000001+02:00 x", T0_NS + 1, b"x"),
        (b"2026-01-01T22:04:05.000000001-05:00 x", T0_NS + 1, b"x"),
        (b"failed to create fsnotify watcher", None, b"failed to create fsnotify watcher"),
        (b"", None, b""),
        (b"2026-13-02T03:04:05.123456789Z x", None, b"2026-13-02T03:04:05.123456789Z x"),
        (b"\xff\xfe-01-02T03:04:05.123456789Z x", None, b"\xff\xfe-01-02T03:04:05.123456789Z x"),
    ],
)
def test_a_line_is_split_into_time_and_text(line: bytes, time_ns: int | None, text: bytes) -> None:
    assert parse_line(line) == (time_ns, text)


def test_the_server_gets_whole_seconds() -> None:
    assert since_time(T0_NS + 999_999_999) == "2026-01-02T03:04:05Z"


def stamped(time_ns: int, text: str) -> bytes:
    seconds, rest = divmod(time_ns, SECOND_NS)
    moment = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{rest:09d}Z {text}".encode()


class Node:
    """A log as a node serves it: from a whole second on, each line looked at by itself."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def read(self, query: dict[str, str], written: int) -> bytes:
        """What is there when so many lines are written."""
        lines = self.lines[:written]
        if since := query.get("sinceTime"):
            start_ns = int(datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp())
            lines = [x for x in lines if (parse_line(x)[0] or 0) >= start_ns * SECOND_NS]
        if tail := query.get("tailLines"):
            lines = lines[-int(tail) :] if int(tail) else []
        return b"".join(line + b"\n" for line in lines)


# equal times, equal texts, and lines that are a little out of order
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 999_999, 300_000_000, 1_100_000_000, 5_000_000_000, -40_000_000]),
        st.sampled_from(["a", "a", "b", ""]),
    ),
    max_size=40,
)
CUTS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1500)), max_size=6)


def lines_of(steps: list[tuple[int, str]]) -> list[bytes]:
    time_ns, lines = T0_NS, []
    for step_ns, text in steps:
        time_ns += step_ns
        lines.append(stamped(time_ns, text))
    return lines


@given(steps=STEPS, cuts=CUTS, chunk=st.integers(1, 400))
def test_each_line_comes_once_wherever_the_stream_is_cut(
    steps: list[tuple[int, str]], cuts: list[tuple[int, int]], chunk: int
) -> None:
    lines = lines_of(steps)
    node = Node(lines)
    position = LogPosition()
    got: list[bytes] = []
    written = 0
    for more, place in [*cuts, (len(lines), 1 << 30)]:
        written = min(written + more, len(lines))
        body = node.read(position.query(), written)[:place]
        for start in range(0, len(body), chunk):
            got += position.feed(body[start : start + chunk])
    assert got == lines


@given(steps=STEPS, cuts=CUTS, tail=st.integers(1, 10))
def test_a_tail_goes_on_where_it_was(
    steps: list[tuple[int, str]], cuts: list[tuple[int, int]], tail: int
) -> None:
    # in order and each different: what came before the tail is told by its time, or by its text
    lines = lines_of([(max(step_ns, 0), f"{i}") for i, (step_ns, _) in enumerate(steps)])
    node = Node(lines)
    position = LogPosition(tail=tail)
    written = len(lines) // 2
    got: list[bytes] = []
    first = node.read(position.query(), written)
    got += position.feed(first)
    for more, place in [*cuts, (len(lines), 1 << 30)]:
        written = min(written + more, len(lines))
        if position.last is None:
            return  # nothing was there to take a tail of
        got += position.feed(node.read(position.query(), written)[:place])
    assert got == lines[max(0, len(lines) // 2 - tail) :]


@given(steps=STEPS, since_ns=st.integers(T0_NS, T0_NS + 20 * SECOND_NS), cuts=CUTS)
def test_a_beginning_in_time_is_kept(
    steps: list[tuple[int, str]], since_ns: int, cuts: list[tuple[int, int]]
) -> None:
    lines = lines_of(steps)
    node = Node(lines)
    position = LogPosition(since_ns=since_ns)
    got: list[bytes] = []
    for _, place in [*cuts, (0, 1 << 30)]:
        got += position.feed(node.read(position.query(), len(lines))[:place])
    second_ns = since_ns // SECOND_NS * SECOND_NS
    assert got == [line for line in lines if (parse_line(line)[0] or 0) >= second_ns]


def test_a_rotated_log_loses_nothing_that_is_still_there() -> None:
    lines = [stamped(T0_NS + i, f"line {i}") for i in range(10)]
    position = LogPosition()
    position.query()
    assert position.feed(b"".join(line + b"\n" for line in lines[:5])) == lines[:5]
    position.query()
    # the node shows the newest file only, which begins with a line that was delivered
    assert position.feed(b"".join(line + b"\n" for line in lines[4:])) == lines[5:]


def test_words_without_a_time_are_lines_as_well() -> None:
    position = LogPosition()
    position.query()
    chunk = stamped(T0_NS, "a") + b"\nrpc error: it is gone\n"
    assert position.feed(chunk) == chunk.splitlines()
    assert "sinceTime" in position.query()


def test_the_last_line_needs_no_end() -> None:
    position = LogPosition()
    position.query()
    assert position.feed(b"no end") == []
    assert not position.lacks(b"no end")
    assert position.finish() == [b"no end"]
    assert position.finish() == []


def test_what_broke_off_and_cannot_be_read_again_is_delivered() -> None:
    position = LogPosition()
    position.query()
    position.feed(stamped(T0_NS, "half of a li"))
    position.query()  # the pod is gone by then
    assert position.finish() == [stamped(T0_NS, "half of a li")]


def test_only_a_line_that_was_to_come_is_lacking() -> None:
    old, new = stamped(T0_NS, "old"), stamped(T0_NS + 9 * SECOND_NS, "new")
    position = LogPosition(since_ns=T0_NS + 5 * SECOND_NS)
    position.query()
    assert not position.lacks(b"")
    assert not position.lacks(old)
    assert position.lacks(new)
    position.feed(new + b"\n")
    assert not position.lacks(new)
    assert not LogPosition(tail=0).lacks(new)


def test_what_is_remembered_is_of_two_seconds() -> None:
    position = LogPosition()
    position.query()
    for second in range(100):
        for number in range(10):
            line = stamped(T0_NS + second * SECOND_NS + number, "x")
            assert position.feed(line + b"\n") == [line]
    assert position.query() == {"sinceTime": since_time(T0_NS + 98 * SECOND_NS)}


def test_lines_out_of_order_at_the_end_of_a_chunk_are_remembered_as_well() -> None:
    late = [stamped(T0_NS, "a")] * 5 + [stamped(T0_NS - 40_000_000, "a")]
    last = stamped(T0_NS + 1_060_000_000, "a")
    position = LogPosition()
    position.query()
    position.feed(b"".join(line + b"\n" for line in late))
    position.feed(last + b"\n")
    node = Node([*late, last])
    assert position.feed(node.read(position.query(), 7)) == []
