"""Logs of containers: long lines, odd bytes, both outputs, restarts and followers that stop."""

import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

from tests.docker_engine import needs_docker
from torchx.errors import InvalidInput, UnknownApp, UnsupportedRequest
from torchx.schedulers._core.following import THREAD_NAME
from torchx.schedulers.api import Stream
from torchx.specs import AppState, RetryPolicy, macros

pytestmark = needs_docker

PIECES = """
import os, time
word = "größe-火-\\U0001f525 ".encode()
for byte in word * 3:
    os.write(1, bytes([byte]))
    time.sleep(0.005)
os.write(1, b"\\n")
"""
LONG_AND_SHORT = """
import os, threading
def write(fd, data):
    while data:
        data = data[os.write(fd, data[:5000]):]
a = threading.Thread(target=write, args=(1, b"o" * 200_000 + b"\\n"))
b = threading.Thread(target=write, args=(2, b"e" * 100_000 + b"\\n" + b"short\\n" * 100))
a.start(); b.start(); a.join(); b.join()
os.write(1, b"no newline")
"""


def test_characters_that_come_byte_by_byte_are_whole(apps):
    app_id = apps.start(apps.python(PIECES))
    assert apps.lines(app_id, should_tail=True) == ["größe-火-\U0001f525 " * 3 + "\n"]


@pytest.mark.parametrize("should_tail", [False, True])
def test_long_lines_of_both_outputs_stay_whole(apps, should_tail):
    app_id = apps.start(apps.python(LONG_AND_SHORT))
    if not should_tail:
        apps.end(app_id)
    lines = apps.lines(app_id, should_tail=should_tail)
    expected = ["e" * 100_000 + "\n", "no newline", "o" * 200_000 + "\n", *["short\n"] * 100]
    assert sorted(lines) == sorted(expected)
    apps.end(app_id)
    assert apps.lines(app_id, streams=Stream.STDERR) == [expected[0], *["short\n"] * 100]


def test_a_follower_that_began_before_the_replica_sees_all_of_it(apps):
    app_id = apps.start(
        apps.role(
            "echo one; sleep 0.3; echo two; exit 1",
            max_retries=1,
            retry_policy=RetryPolicy.REPLICA,
        )
    )
    assert apps.lines(app_id, should_tail=True) == ["one\n", "two\n"] * 2


def test_following_ends_when_its_time_is_over(apps):
    app_id = apps.start(apps.role("echo one; sleep 3600", num_replicas=2))
    until = datetime.now(timezone.utc) + timedelta(seconds=2)
    assert apps.lines(app_id, should_tail=True, until=until) == ["one\n"]
    blocks = apps.scheduler.log_blocks(app_id, should_tail=True, until=until)
    assert sorted((b.replica, b.text) for b in blocks) == [(0, "one\n"), (1, "one\n")]
    assert apps.scheduler.describe(app_id).state is AppState.RUNNING


def test_a_follower_that_stops_early_leaves_no_thread(apps):
    app_id = apps.start(apps.role(f"echo {macros.replica_id}; sleep 3600", num_replicas=4))
    blocks = apps.scheduler.log_blocks(app_id, should_tail=True)
    next(blocks)
    blocks.close()
    deadline = time.monotonic() + 20
    while [t for t in threading.enumerate() if t.name == THREAD_NAME]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_follower_of_an_app_that_is_deleted_ends(apps):
    app_id = apps.start(apps.role("echo one; sleep 3600"))
    lines = iter(apps.scheduler.log_iter(app_id, "worker", should_tail=True))
    assert next(lines) == "one\n"
    apps.scheduler.delete(app_id)
    assert list(lines) == []


def test_what_cannot_be_read_is_refused_at_the_call(apps):
    app_id, _ = apps.run(apps.role("true"))
    with pytest.raises(InvalidInput, match="regular expression"):
        apps.scheduler.log_iter(app_id, "worker", regex="(")
    with pytest.raises(UnsupportedRequest, match="attempt"):
        apps.scheduler.log_blocks(app_id, attempt=0)
    with pytest.raises(UnknownApp, match="does not know app `nothing-1`"):
        apps.scheduler.log_iter("nothing-1", "worker")
    with pytest.raises(RuntimeError, match=r"`worker` of app .* has replicas 0 to 0, given: 3"):
        apps.scheduler.log_iter(app_id, "worker", 3)


def test_two_containers_for_one_replica_are_told_apart_by_nobody(apps):
    app_id, _ = apps.run(apps.role("true"))
    (container,) = apps.containers(app_id)
    apps.client.containers.create(apps.image, ["true"], labels=container.labels)
    with pytest.raises(RuntimeError, match="several containers for replica `worker/0`"):
        apps.scheduler.log_iter(app_id, "worker")


def test_the_last_lines_of_a_failure_are_its_errors(apps):
    app_id, _ = apps.run(apps.role("echo out; echo 'what went wrong' >&2; exit 2"))
    (failed,) = apps.scheduler.failed_replicas(app_id)
    assert failed.last_lines == ["what went wrong"]
    assert failed.reason == "exited with code 2"
