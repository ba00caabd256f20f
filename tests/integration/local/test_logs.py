"""Line 11 of what local jobs promise: whole lines, nothing lost, by time, and provably complete."""

import os
import signal
import socket
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path

import pytest

from torchx.errors import InvalidInput
from torchx.schedulers.api import Stream
from torchx.schedulers.local_scheduler import create_scheduler
from torchx.specs.api import AppDef, AppState, Role

from .jobs import make_app, sh, wait_for_end, wait_until


def run(scheduler, app, **cfg):
    app_id = scheduler.submit(app, cfg)
    wait_for_end(scheduler, app_id, 60)
    return app_id


def log_dir(scheduler, app_id):
    return Path(scheduler.describe(app_id).ui_url.removeprefix("file://"))


def test_streams_are_kept_apart_and_together(scheduler):
    app_id = run(scheduler, sh("echo out; sleep 0.1; echo err >&2; sleep 0.1; echo out2"))
    for stream, lines in {
        Stream.STDOUT: ["out\n", "out2\n"],
        Stream.STDERR: ["err\n"],
        Stream.COMBINED: ["out\n", "err\n", "out2\n"],
        None: ["out\n", "err\n", "out2\n"],
    }.items():
        assert list(scheduler.log_iter(app_id, "w", streams=stream)) == lines


def test_an_unfinished_last_line_keeps_its_shape(scheduler):
    app_id = run(scheduler, sh("printf 'one\\ntwo'"))
    assert list(scheduler.log_iter(app_id, "w")) == ["one\n", "two"]


def test_lines_of_two_streams_never_mix(scheduler):
    script = (
        "import os\n"
        "for i in range(3000):\n"
        "    os.write(1, b'o' * 20); os.write(2, b'e' * 20)\n"
        "    os.write(1, b'o' * 20 + b'\\n'); os.write(2, b'e' * 20 + b'\\n')\n"
    )
    app_id = run(scheduler, make_app(sys.executable, "-c", script))
    lines = list(scheduler.log_iter(app_id, "w"))
    assert sorted(set(lines)) == ["e" * 40 + "\n", "o" * 40 + "\n"]
    assert len(lines) == 6000


def test_a_stream_that_ends_within_a_line_does_not_glue_the_next(scheduler):
    app_id = run(scheduler, sh("printf unfinished >&2; exec 2>&-; sleep 0.1; echo whole"))
    assert list(scheduler.log_iter(app_id, "w")) == ["unfinished\n", "whole\n"]
    assert list(scheduler.log_iter(app_id, "w", streams=Stream.STDERR)) == ["unfinished"]


def test_undecodable_bytes_survive(scheduler):
    app_id = run(scheduler, sh("printf 'a\\377b\\n'"))
    assert list(scheduler.log_iter(app_id, "w")) == ["a\ufffdb\n"]
    assert (log_dir(scheduler, app_id) / "w/0/stdout.log").read_bytes() == b"a\xffb\n"


def test_only_newlines_end_lines(scheduler):
    app_id = run(scheduler, sh("printf 'a\\rb\\fc\\n'"))
    assert list(scheduler.log_iter(app_id, "w")) == ["a\rb\fc\n"]


def test_regex_keeps_the_lines_in_which_it_is_found(scheduler):
    app_id = run(scheduler, sh("for i in 1 2 13 4; do echo line $i; done"))
    assert list(scheduler.log_iter(app_id, "w", regex="[13]$")) == ["line 1\n", "line 13\n"]
    with pytest.raises(InvalidInput, match="is not a regular expression"):
        scheduler.log_iter(app_id, "w", regex="[")


def test_since_and_until_choose_by_time(scheduler):
    app_id = scheduler.submit(sh("echo a; sleep 0.4; echo b; sleep 0.4; echo c"), {})
    start = datetime.now(timezone.utc)
    wait_for_end(scheduler, app_id)
    middle, late = start + timedelta(seconds=0.2), start + timedelta(seconds=0.6)
    assert list(scheduler.log_iter(app_id, "w", since=middle)) == ["b\n", "c\n"]
    assert list(scheduler.log_iter(app_id, "w", until=late)) == ["a\n", "b\n"]
    naive = middle.astimezone().replace(tzinfo=None)
    assert list(scheduler.log_iter(app_id, "w", since=naive, until=late)) == ["b\n"]


def test_following_ends_at_until(scheduler):
    app_id = scheduler.submit(sh("while :; do date +%s.%N; sleep 0.05; done"), {"grace_s": 1})
    wait_until(lambda: len(list(scheduler.log_iter(app_id, "w"))) > 3)
    until = datetime.now() + timedelta(seconds=0.5)
    lines = list(scheduler.log_iter(app_id, "w", until=until, should_tail=True))
    assert len(lines) > 3
    assert float(lines[-1]) <= until.timestamp()
    wait_until(lambda: len(list(scheduler.log_iter(app_id, "w"))) > len(lines))  # the job goes on


def test_several_replicas_and_roles_are_merged_by_time(scheduler):
    script = (
        "import sys, time\n"
        "for i in range(50):\n"
        "    print(time.time_ns(), flush=True); time.sleep(0.004)\n"
    )
    roles = [
        Role(n, "", entrypoint=sys.executable, args=["-c", script], num_replicas=2) for n in "ab"
    ]
    app_id = scheduler.submit(AppDef("job", roles), {})
    live = lines_of(scheduler.log_blocks(app_id, should_tail=True))
    assert lines_of(scheduler.log_blocks(app_id)) == live
    times = [int(line) for _, _, line in live]
    assert len(times) == 200
    assert {(role, k) for role, k, _ in live} == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}
    for replica in {(role, k) for role, k, _ in live}:
        own = [int(line) for role, k, line in live if (role, k) == replica]
        assert own == sorted(own)
    assert not any(b < a - ORDER_TOLERANCE_NS for a, b in pairwise(times))


ORDER_TOLERANCE_NS = 500_000_000
"""The order is that in which the supervisor reads; a busy machine lets it read late."""


def lines_of(blocks):
    """Role, replica and text of each line."""
    return [(b.role, b.replica, line) for b in blocks for line in b.text.split()]


def test_a_follower_gets_lines_while_the_job_runs(scheduler):
    app_id = scheduler.submit(sh("echo first; while [ ! -e seen ]; do sleep 0.01; done"), {})
    Path("seen").unlink(missing_ok=True)
    lines = iter(scheduler.log_iter(app_id, "w", should_tail=True))
    assert next(lines) == "first\n"
    assert scheduler.describe(app_id).state is AppState.RUNNING
    Path("seen").touch()
    assert list(lines) == []


def test_iterators_are_independent(scheduler):
    app_id = run(scheduler, sh("echo a; echo b"))
    one, two = iter(scheduler.log_iter(app_id, "w")), iter(scheduler.log_iter(app_id, "w"))
    assert (next(one), next(two), next(one), next(two)) == ("a\n", "a\n", "b\n", "b\n")


def test_attempts_are_kept_apart_and_followed_one_after_the_other(scheduler):
    app_id = scheduler.submit(sh("echo try $TORCHX_ATTEMPT; exit 1", max_retries=2), {})
    followed = list(scheduler.log_iter(app_id, "w", should_tail=True))
    assert followed == ["try 0\n", "try 1\n", "try 2\n"]
    folder = log_dir(scheduler, app_id) / "w/0"
    assert (folder / "stdout.log").read_text() == "try 0\n"
    assert (folder / "attempt_2/stdout.log").read_text() == "try 2\n"


def test_nothing_is_lost_of_much_output(scheduler):
    count = 200_000
    app_id = scheduler.submit(sh(f"seq 1 {count}"), {})
    lines = list(scheduler.log_iter(app_id, "w", should_tail=True))
    assert lines == [f"{i}\n" for i in range(1, count + 1)]
    reports = {r.stream: r for r in scheduler.verify_logs(app_id)}
    assert all(r.complete and r.problem is None for r in reports.values())
    assert reports[Stream.STDOUT].lines == reports[Stream.COMBINED].lines == count
    assert reports[Stream.STDERR].lines == 0


def test_many_readers_follow_at_once(scheduler):
    app_id = scheduler.submit(sh("for i in $(seq 300); do echo $i; sleep 0.001; done"), {})
    results = []

    def read():
        results.append(list(scheduler.log_iter(app_id, "w", should_tail=True)))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert results == [[f"{i}\n" for i in range(1, 301)]] * 8


def test_verify_finds_what_is_missing(scheduler):
    app_id = run(scheduler, sh("seq 100; seq 5 >&2"))
    path = log_dir(scheduler, app_id) / "w/0/stdout.log"
    path.write_bytes(path.read_bytes()[:-10])
    reports = {r.stream: r for r in scheduler.verify_logs(app_id)}
    assert not reports[Stream.STDOUT].complete
    assert reports[Stream.STDOUT].problem == "10 of 292 bytes are missing"
    assert reports[Stream.STDERR].complete
    assert reports[Stream.STDERR].lines == 5


def test_verify_says_that_a_log_was_cut_off(scheduler):
    app_id = scheduler.submit(sh("echo a; sleep 60"), {"detach": True})
    wait_until(lambda: list(scheduler.log_iter(app_id, "w")))
    assert not any(r.complete for r in scheduler.verify_logs(app_id))
    scheduler.cancel(app_id)
    wait_for_end(scheduler, app_id)
    assert all(r.complete for r in scheduler.verify_logs(app_id))


def test_a_line_without_end_does_not_fill_memory(scheduler):
    size = 64 << 20
    script = f"head -c {size} /dev/zero | tr '\\0' x; while [ ! -e go ]; do sleep 0.02; done"
    app_id = scheduler.submit(sh(script), {})
    log = log_dir(scheduler, app_id) / "w/0/stdout.log"
    wait_until(lambda: log.exists() and log.stat().st_size == size)
    status = Path(f"/proc/{supervisor(app_id)}/status").read_text()
    (peak,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    assert 0 < int(peak.split()[1]) < 40 * 1024
    Path("go").touch()
    wait_for_end(scheduler, app_id)
    (line,) = scheduler.log_iter(app_id, "w")
    assert len(line) == size


def supervisor(app_id):
    """Process id of the supervisor of a job."""
    import json

    journal = Path(os.environ["TORCHX_HOME"], "local/jobs", app_id, "journal").read_text()
    return json.loads(journal.split("\n")[0])[4]


def test_a_follower_outlives_a_supervisor_that_does_not_answer(scheduler):
    app_id = scheduler.submit(
        sh("echo first; while [ ! -e go ]; do sleep 0.02; done; echo last"), {}
    )
    pid = supervisor(app_id)
    wait_until(lambda: list(scheduler.log_iter(app_id, "w")))
    os.kill(pid, signal.SIGSTOP)
    try:
        lines = iter(scheduler.log_iter(app_id, "w", should_tail=True))
        assert next(lines) == "first\n"
        rest = []
        thread = threading.Thread(target=lambda: rest.extend(lines))
        thread.start()
        thread.join(1.5)  # longer than it waits for an answer
        assert thread.is_alive()
    finally:
        os.kill(pid, signal.SIGCONT)
    Path("go").touch()
    thread.join(30)
    assert rest == ["last\n"]


def test_cancelling_a_job_whose_supervisor_does_not_answer_cancels_it(scheduler):
    app_id = scheduler.submit(sh("sleep 600"), {"detach": True, "grace_s": 1})
    os.kill(supervisor(app_id), signal.SIGSTOP)
    scheduler.cancel(app_id)
    found = wait_for_end(scheduler, app_id)
    assert found.state is AppState.CANCELLED
    assert scheduler.list()[0].state is AppState.CANCELLED


def test_more_followers_than_descriptors_are_served_and_do_not_keep_the_supervisor_busy():
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "from torchx.schedulers.local_scheduler import create_scheduler\n"
        "from torchx.specs.api import AppDef, Role\n"
        "script = 'echo first; while [ ! -e go ]; do sleep 0.02; done; echo last'\n"
        "app = AppDef('job', [Role('w', '', entrypoint='sh', args=['-c', script])])\n"
        "scheduler = create_scheduler('test')\n"
        "print(scheduler.submit(app, {}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    reader = create_scheduler("reader")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        app_id = launcher.stdout.readline().strip()
        pid = supervisor(app_id)
        path = Path(os.environ["TORCHX_HOME"], "local/jobs", app_id, "sock")
        crowd = []
        try:
            for _ in range(129):
                connection = socket.socket(socket.AF_UNIX)
                crowd.append(connection)
                connection.setblocking(False)
                connect(connection, path)
            stat = Path(f"/proc/{pid}/stat")
            wait_until(
                lambda: {stat.read_text().rpartition(")")[2].split()[0] for _ in range(50)} == {"S"}
            )
            lines = iter(reader.log_iter(app_id, "w", should_tail=True))
            assert next(lines) == "first\n"
            Path("go").touch()
            assert list(lines) == ["last\n"]
        finally:
            for connection in crowd:
                connection.close()
        assert wait_for_end(reader, app_id).state is AppState.SUCCEEDED
        launcher.communicate()


def connect(connection, path):
    """Connects through a short name; gives up where the supervisor has no room."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        connection.connect(f"/proc/self/fd/{folder}/sock")
    except BlockingIOError:
        pass
    finally:
        os.close(folder)


def test_unknown_apps_and_replicas_are_told_at_the_call(scheduler):
    with pytest.raises(KeyError, match="`local` does not know app `nope`"):
        scheduler.log_iter("nope", "w")
    app_id = run(scheduler, sh("true"))
    with pytest.raises(RuntimeError, match=r"has no role `x`, it has: w"):
        scheduler.log_iter(app_id, "x")
    with pytest.raises(RuntimeError, match=r"has replicas 0 to 0, given: 7"):
        scheduler.log_iter(app_id, "w", 7)


def test_logs_go_where_the_option_says_and_stay_there(scheduler, tmp_path):
    app_id = run(scheduler, sh("echo hi"), log_dir=str(tmp_path / "logs"))
    folder = tmp_path / "logs/test" / app_id
    assert (folder / "w/0/combined.log").read_text() == "hi\n"
    assert '"final_state": "SUCCEEDED"' in (folder / "SUCCESS").read_text()
    scheduler.delete(app_id)
    assert (folder / "w/0/combined.log").read_text() == "hi\n"
