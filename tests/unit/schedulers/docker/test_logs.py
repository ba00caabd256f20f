"""Docker's log stream as lines."""

import threading

import pytest

pytest.importorskip("docker", reason="needs the Python package docker")

from tests.unit.schedulers.docker.fake_daemon import FakeDaemon, frame, row, stamp
from torchx.errors import BackendUnavailable, LogsNotFound
from torchx.schedulers._core.following import THREAD_NAME
from torchx.schedulers.api import LogQuery, Stream
from torchx.schedulers.docker_scheduler import create_scheduler
from torchx.schedulers.docker_scheduler._logs import OUTPUTS, LineReader
from torchx.schedulers.docker_scheduler._times import as_seconds, parse_ns

BASE_NS = 1_767_225_600_000_000_000
BOTH = OUTPUTS[Stream.COMBINED]


def read(pieces, size=1 << 20, outputs=BOTH):
    """Times (behind `BASE_NS`) and texts of whole lines, and of those without end."""
    data = b"".join(frame(output, content) for output, content in pieces)
    reader = LineReader(outputs)
    whole = [line for i in range(0, len(data), size) for line in reader.feed(data[i : i + size])]
    return [[(at - BASE_NS, text) for at, text in lines] for lines in (whole, reader.rest())]


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 1000])
def test_lines_are_found_however_the_bytes_come(size):
    text = "größe 火\n".encode() * 10
    pieces = [(1, stamp(1) + b" a\n"), (2, stamp(2) + b" \n"), (1, stamp(3) + b" " + text)]
    assert read(pieces, size) == [[(1, b"a\n"), (2, b"\n"), (3, text)], []]


def test_a_message_that_was_cut_off_is_left_out():
    reader = LineReader(BOTH)
    data = frame(1, stamp(1) + b" whole\n") + frame(1, stamp(2) + b" cut\n")[:-1]
    assert reader.feed(data) == [(BASE_NS + 1, b"whole\n")]
    assert reader.rest() == []
    assert reader.entries == 1


def test_pieces_of_long_lines_are_joined_by_output():
    whole, rest = read(
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
    assert whole == [(2, b"err\n"), (1, b"a a ab\n"), (3, b"e1e2\n"), (4, b"\n")]
    assert rest == [(4, b"no end either"), (5, b"no end")]


def test_characters_cut_in_two_are_whole_in_their_line():
    raw = "火\n".encode()
    whole, _ = read([(1, stamp(1) + b" " + raw[:2]), (1, stamp(1) + b" " + raw[2:])])
    assert whole == [(1, raw)]


def test_one_output_can_be_chosen():
    pieces = [(1, stamp(1) + b" out\n"), (2, stamp(2) + b" err\n"), (1, stamp(3) + b" half")]
    assert read(pieces, outputs=OUTPUTS[Stream.STDERR]) == [[(2, b"err\n")], []]
    assert read(pieces, outputs=OUTPUTS[Stream.STDOUT]) == [[(1, b"out\n")], [(3, b"half")]]


def test_times_go_to_docker_as_they_came_from_it():
    assert as_seconds(parse_ns(stamp(123).decode())) == "1767225600.000000123"
    assert parse_ns("1970-01-01T00:00:01.5Z") == 1_500_000_000
    assert parse_ns("0001-01-01T00:00:00Z") is None
    assert parse_ns("no time") is None


# -- from a daemon --------------------------------------------------------------------------------


class Logs:
    """Containers that have ended, with their logs, as a daemon keeps and gives them."""

    def __init__(self, *logs):
        self.logs = logs
        self.asked = []
        self.fails_after = None

    def routes(self):
        rows = [row("exited", "Exited (0) 1 second ago", k) for k in range(len(self.logs))]
        return {
            ("GET", "/containers/json"): (200, rows),
            ("GET", "/images"): (200, {"Id": "sha256:1", "RepoTags": ["i:1"]}),
            ("GET", "/containers/"): self.answer,
        }

    def answer(self, path, query, body):
        k = int(path.split("/")[2][:12], 16)
        if not path.endswith("/logs"):
            return 200, {"Id": path.split("/")[2], "State": {"Status": "exited"}}
        self.asked.append((k, query))
        entries = self.logs[k]
        if query["tail"] != "all":
            entries = entries[-int(query["tail"]) :]
        wanted = {n for n, name in ((1, "stdout"), (2, "stderr")) if query[name] == "1"}
        since = float(query.get("since", 0))
        return 200, tuple(
            frame(output, stamp(at) + b" " + text)
            for output, at, text in entries
            if output in wanted and at + BASE_NS >= since * 1e9
        )


@pytest.fixture
def reading(tmp_path, monkeypatch):
    """Makes a function that reads what containers with these logs printed."""
    opened = []

    def make(logs):
        daemon = FakeDaemon(logs.routes(), tmp_path / "docker.sock").__enter__()
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        scheduler = create_scheduler("test")
        opened.append((scheduler, daemon))
        snapshot = scheduler.snapshot("job-x1")
        keys = [replica.key for replica in snapshot.replicas]

        def read(**query):
            chunks = scheduler.read_logs(snapshot, keys, LogQuery(**query))
            return [(key.replica, text) for key, _, text in chunks]

        return read

    yield make
    for scheduler, daemon in opened:
        scheduler.close()
        daemon.__exit__()


def test_replicas_are_merged_by_time_and_neighbours_joined(reading):
    a = [(1, at, b"%d\n" % at) for at in (1, 2, 5, 6)]
    b = [(1, at, b"%d\n" % at) for at in (3, 4, 7)]
    read = reading(Logs(a, b))
    expected = [(0, b"1\n2\n"), (1, b"3\n4\n"), (0, b"5\n6\n"), (1, b"7\n")]
    assert read() == expected
    assert read(follow=True) == expected


@pytest.mark.parametrize("stream", [Stream.COMBINED, Stream.STDERR])
def test_the_last_lines_are_whole_and_enough(reading, stream):
    """Pieces of long lines and lines of the other output are entries for Docker as well."""
    entries = []
    for at in range(100):
        entries += [(2, 10 * at + i, b"%d-" % i) for i in range(9)]
        entries += [(1, 10 * at + 9, b"out %d\n" % at), (2, 10 * at + 9, b"end %d\n" % at)]
    logs = Logs(entries)
    read = reading(logs)
    lines = b"".join(text for _, text in read(stream=stream)).splitlines()
    (_, last), *_ = read(stream=stream, tail=4)[-1:] or [(0, b"")]
    found = b"".join(text for _, text in read(stream=stream, tail=4)).splitlines()
    assert last
    assert len(found) >= 4
    assert found == lines[-len(found) :]
    assert len(found) < len(lines)


def test_the_end_of_a_long_log_is_all_that_is_read_of_it(reading):
    logs = Logs([(1, at, b"%d\n" % at) for at in range(1000)])
    read = reading(logs)
    ((_, text),) = read(tail=3)
    assert text.endswith(b"997\n998\n999\n")
    ((_, query),) = logs.asked
    assert int(query["tail"]) < 50


def test_the_last_lines_of_an_output_with_few_are_found_far_above(reading):
    logs = Logs([(2, 0, b"early\n"), *((1, at, b"%d\n" % at) for at in range(1, 1000))])
    read = reading(logs)
    assert read(stream=Stream.STDERR, tail=3) == [(0, b"early\n")]


def test_the_last_lines_before_a_time_are_not_those_of_the_end(reading):
    logs = Logs([(1, at, b"%d\n" % at) for at in range(1000)])
    read = reading(logs)
    read(tail=3, until_ns=BASE_NS + 500)
    assert [query["tail"] for _, query in logs.asked] == ["all"]


def test_a_replica_with_two_containers_is_refused(reading, tmp_path):
    logs = Logs([(1, 1, b"a\n")], [(1, 2, b"b\n")])
    rows = [row("exited", "Exited (0) 1 second ago"), row("exited", "Exited (0) 1 second ago")]
    rows[1]["Id"] = "f" * 64
    routes = {**logs.routes(), ("GET", "/containers/json"): (200, rows)}
    logs.routes = lambda: routes
    with pytest.raises(LogsNotFound, match="several containers for replica `worker/0`"):
        reading(logs)()


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_daemon_that_goes_away_while_a_replica_is_followed_is_unavailable(
    tmp_path, monkeypatch, replicas
):
    """The lines that came before are given first; the core reads on when the daemon is back."""
    sent = set()

    def answer(path, query, body):
        if len(sent) == replicas:
            return None
        if path.endswith("/logs"):
            sent.add(path)
            return 200, (frame(1, stamp(1) + b" one\n"), frame(1, stamp(2) + b" tw"))
        return 200, {"State": {"Status": "running"}}

    logs = Logs(*([[]] * replicas))
    rows = [row("running", "Up 1 second", k) for k in range(replicas)]
    routes = {
        **logs.routes(),
        ("GET", "/containers/json"): (200, rows),
        ("GET", "/containers/"): answer,
    }
    with FakeDaemon(routes, tmp_path / "docker.sock") as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        scheduler = create_scheduler("test")
        snapshot = scheduler.snapshot("job-x1")
        keys = [replica.key for replica in snapshot.replicas]
        chunks = scheduler.read_logs(snapshot, keys, LogQuery(follow=True))
        found = []
        with pytest.raises(BackendUnavailable):
            found.extend(chunks)
        for thread in threading.enumerate():
            if thread.name == THREAD_NAME:
                thread.join(20)
        scheduler.close()
    assert [(key.replica, text) for key, _, text in found] == [
        (k, b"one\n") for k in range(replicas)
    ]
