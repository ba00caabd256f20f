"""Logs of CloudWatch: read now and followed, of one replica and of many."""

import threading
import time

import pytest

from torchx._aws.session import AwsService
from torchx.schedulers._aws.cloudwatch import LogPlace, LogPlan, LogStream, read_logs
from torchx.schedulers._core.log_query import LogKey, LogQuery

PLACE = LogPlace("group", "job/")
LONG_AGO = 1


def write(aws, stream, *lines, lag_s=0.0):
    body = {"group": "group", "stream": stream, "lines": [*lines], "lag_s": lag_s}
    aws.admin("logs/write", body)


def streams(count, attempt=0):
    return [LogStream(LogKey("w", k, attempt), f"job/{k}/{attempt}") for k in range(count)]


def lines(query, plan, replicas=None):
    wanted = replicas or sorted({stream.key[:2] for stream in plan.streams})
    found = read_logs(AwsService("logs"), PLACE, lambda: plan, wanted, query)
    return [
        (key.replica, key.attempt, line)
        for key, _, data in found
        for line in data.decode().splitlines()
    ]


@pytest.mark.parametrize("follow", [False, True])
def test_lines_of_many_are_merged_by_time_and_none_is_lost(aws, follow):
    aws.admin("logs/settings", {"page_events": 70})
    for k in range(100):
        write(aws, f"job/{k}/0", *[[1000 * i + k, f"{k} {i}"] for i in range(20)])
    plan = LogPlan(streams(100), ended=True, ended_ms=LONG_AGO)
    found = [line for _, _, line in lines(LogQuery(follow=follow), plan)]
    assert found == [f"{k} {i}" for i in range(20) for k in range(100)]


@pytest.mark.parametrize("follow", [False, True])
def test_attempts_of_one_come_one_after_the_other(aws, follow):
    write(aws, "job/0/0", [1, "first"])
    write(aws, "job/0/1", [2, "second"])
    plan = LogPlan([*streams(1), *streams(1, attempt=1)], ended=True)
    found = [(0, 0, "first"), (0, 1, "second")]
    assert lines(LogQuery(follow=follow), plan) == found
    assert lines(LogQuery(attempt=1), plan) == found[1:]


def test_the_last_lines_are_read_from_the_end(aws):
    write(aws, "job/0/0", *[[i, str(i)] for i in range(5000)])
    plan = LogPlan(streams(1), ended=True)
    assert [line for _, _, line in lines(LogQuery(tail=3), plan)] == ["4997", "4998", "4999"]
    (request,) = (r for r in aws.requests() if r["call"] == "logs:GetLogEvents")
    assert request["params"]["limit"] == 3


def test_more_last_lines_than_there_are_in_the_latest_attempt(aws):
    write(aws, "job/0/0", [1, "a"], [2, "b"])
    write(aws, "job/0/1", [3, "c"])
    plan = LogPlan([*streams(1), *streams(1, attempt=1)], ended=True)
    assert [line for _, _, line in lines(LogQuery(tail=2), plan)] == ["b", "c"]


@pytest.mark.parametrize("count", [1, 2])
def test_lines_are_chosen_by_time(aws, count):
    for k in range(count):
        write(aws, f"job/{k}/0", *[[1000 * i, f"{i}"] for i in range(5)])
    plan = LogPlan(streams(count), ended=True)
    query = LogQuery(since_ns=1000 * 10**6, until_ns=3000 * 10**6)
    assert [line for k, _, line in lines(query, plan) if k == 0] == ["1", "2", "3"]


def test_what_is_not_there_has_no_lines(aws):
    assert lines(LogQuery(), LogPlan(streams(1), ended=True)) == []
    assert lines(LogQuery(), LogPlan(streams(2), ended=True)) == []
    write(aws, "job/1/0", [1, "one"])
    assert lines(LogQuery(), LogPlan(streams(2), ended=True)) == [(1, 0, "one")]
    assert lines(LogQuery(), LogPlan([], ended=True), [("w", 0)]) == []


def test_of_many_streams_some_are_chosen(aws):
    for k in range(110):
        write(aws, f"job/{k}/0", [k, str(k)])
    plan = LogPlan(streams(110), ended=True)
    everything = lines(LogQuery(), plan)
    assert [k for k, _, _ in everything] == [*range(110)]
    assert [k for k, _, _ in lines(LogQuery(), plan, [("w", 3), ("w", 9)])] == [3, 9]


class Job:
    """A job that goes on while it is followed."""

    def __init__(self, count):
        self.streams = []
        self.count = count
        self.ended = False
        self.looks = 0

    def look(self):
        self.looks += 1
        return LogPlan([*self.streams], self.ended, complete=len(self.streams) == self.count)

    def follow(self, query=None):
        replicas = [("w", k) for k in range(self.count)]
        found = read_logs(
            AwsService("logs"), PLACE, self.look, replicas, query or LogQuery(follow=True)
        )
        self.lines = []

        def read():
            for key, _, data in found:
                self.lines += [(key.replica, line) for line in data.decode().splitlines()]

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def until(self, count):
        deadline = time.monotonic() + 30
        while len(self.lines) < count:
            assert time.monotonic() < deadline, f"only {self.lines}"
            time.sleep(0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 3])
def test_a_stream_that_is_not_there_yet_is_waited_for(aws, count):
    job = Job(count)
    thread = job.follow()
    deadline = time.monotonic() + 20
    while job.looks < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for k in range(count):
        write(aws, f"job/{k}/0", [1000 + k, f"first of {k}"])
    job.streams = streams(count)
    job.until(count)
    job.ended = True
    write(aws, "job/0/0", [2000, "last"])
    thread.join(40)
    assert not thread.is_alive()
    assert sorted(job.lines) == sorted([*((k, f"first of {k}") for k in range(count)), (0, "last")])


def test_events_that_come_late_are_not_lost_and_none_is_given_twice(aws):
    job = Job(2)
    job.streams = streams(2)
    write(aws, "job/0/0", [10_000, "early"], lag_s=2.5)
    write(aws, "job/1/0", [20_000, "late"])
    thread = job.follow()
    job.until(2)
    job.ended = True
    thread.join(40)
    assert job.lines == [(1, "late"), (0, "early")]


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 100])
def test_idle_logs_cost_one_call_a_second_at_most(aws, count):
    job = Job(count)
    job.streams = streams(count)
    for k in range(count):
        write(aws, f"job/{k}/0", [1000 + k, "x"])
    started = time.monotonic()
    thread = job.follow()
    job.until(count)
    job.ended = True
    thread.join(60)
    took_s = time.monotonic() - started
    calls = [call for call in aws.calls() if call.startswith("logs:")]
    assert len(calls) <= took_s + 2


def test_throttling_while_following_is_waited_for(aws):
    job = Job(2)
    job.streams = streams(2)
    write(aws, "job/0/0", [1000, "one"])
    aws.fault("throttle", times=5)
    thread = job.follow()
    job.until(1)
    job.ended = True
    thread.join(60)
    assert job.lines == [(0, "one")]
