"""The output of one replica: whole lines in order, by stream, by time, and followed."""

import warnings
from datetime import datetime, timezone
from typing import Any

import pytest

from torchx.schedulers.api import AppDef, Scheduler, Stream
from torchx.specs.api import AppState, is_terminal, macros
from torchx.testing._contract.jobs import APP, NO_SUCH_APP, REFUSED, WORKER, ContractParts, Jobs

PRINT_TIMES = """
import time
for _ in range(3):
    print(time.time(), flush=True)
    time.sleep(1)
"""
PRINT_MUCH = """
import os
for i in range(20000):
    os.write(1 + i % 2, b"%d " % i + b"x" * (i % 200) + b"\\n")
"""


class LogContract(ContractParts):
    """Tests of ``log_iter``; without declared logs, that it is refused."""

    def test_logs_are_given_or_refused_at_the_call(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        app_id = jobs.run(jobs.sh("echo hi"))
        if scheduler.features.logs:
            assert jobs.lines(app_id) == ["hi\n"]
        else:
            with pytest.raises(REFUSED):
                scheduler.log_iter(app_id, WORKER)

    def test_lines_are_whole_and_in_order(self, jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh("for i in 1 2 3; do echo line $i; done; echo; echo end"))
        assert jobs.lines(app_id) == ["line 1\n", "line 2\n", "line 3\n", "\n", "end\n"]

    def test_nothing_of_much_output_is_lost_or_broken(self, jobs: Jobs) -> None:
        jobs.need("logs")
        lines = jobs.lines(jobs.run(jobs.python(PRINT_MUCH)))
        assert {i: line for line in lines for i in [int(line.split()[0])]} == {
            i: f"{i} {'x' * (i % 200)}\n" for i in range(20000)
        }
        assert len(lines) == 20000
        for stream in (0, 1):
            numbers = [n for n in (int(line.split()[0]) for line in lines) if n % 2 == stream]
            assert numbers == sorted(numbers)

    def test_a_last_line_without_newline_is_kept_so(self, jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh("printf 'one\\ntwo'"))
        assert jobs.lines(app_id) == ["one\n", "two"]

    def test_only_newlines_end_lines(self, jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh(r"printf 'a\rb\fc\342\200\250d\n'"))
        assert jobs.lines(app_id) == ["a\rb\fc\u2028d\n"]

    def test_undecodable_bytes_do_no_harm(self, jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh(r"printf 'a\377b\n'; echo next"))
        assert jobs.lines(app_id) == ["a\ufffdb\n", "next\n"]

    def test_unicode_is_read_as_such(self, jobs: Jobs) -> None:
        jobs.need("logs")
        assert jobs.lines(jobs.run(jobs.sh("echo 'größe 火 \U0001f525'"))) == [
            "größe 火 \U0001f525\n"
        ]

    def test_a_long_line_is_one_line(self, jobs: Jobs) -> None:
        jobs.need("logs")
        (line,) = jobs.lines(jobs.run(jobs.python("print('x' * 1000000)")))
        assert line == "x" * 1000000 + "\n"

    def test_no_output_is_no_lines(self, jobs: Jobs) -> None:
        jobs.need("logs")
        assert jobs.lines(jobs.run(jobs.sh("true"))) == []

    def test_a_regex_keeps_the_lines_in_which_it_is_found(self, jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh("for i in 1 2 13 4; do echo line $i; done"))
        assert jobs.lines(app_id, regex="[13]$") == ["line 1\n", "line 13\n"]
        assert jobs.lines(app_id, regex="^line") == jobs.lines(app_id)
        assert jobs.lines(app_id, regex="nothing") == []

    def test_each_replica_and_role_has_its_own(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        jobs.need("logs")
        names = ["a", "b"] if scheduler.features.multi_role else ["a"]
        script = f"echo $0 {macros.replica_id}"
        roles = [jobs.role("sh", "-c", script, n, name=n, num_replicas=2) for n in names]
        app_id = jobs.run(AppDef(APP, roles))
        for name in names:
            for k in range(2):
                assert jobs.lines(app_id, name, k) == [f"{name} {k}\n"]

    def test_iterators_are_independent(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh("echo a; echo b"))
        one, two = (iter(scheduler.log_iter(app_id, WORKER)) for _ in range(2))
        assert [next(one), next(two), next(one), next(two)] == ["a\n", "a\n", "b\n", "b\n"]

    def test_what_does_not_exist_has_no_logs(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh("echo hi"))
        with pytest.raises(Exception, match=NO_SUCH_APP):
            list(scheduler.log_iter(NO_SUCH_APP, WORKER))
        with pytest.raises(Exception, match="no-such-role"):
            list(scheduler.log_iter(app_id, "no-such-role"))
        with pytest.raises(Exception, match="7"):
            list(scheduler.log_iter(app_id, WORKER, 7))

    # -- streams ----------------------------------------------------------------------------

    def test_streams_are_apart_or_refused_at_the_call(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh("echo out; echo err >&2"))
        if not scheduler.features.separate_streams:
            for stream in (Stream.STDOUT, Stream.STDERR):
                with pytest.raises(REFUSED):
                    scheduler.log_iter(app_id, WORKER, streams=stream)
            return
        assert jobs.lines(app_id, streams=Stream.STDOUT) == ["out\n"]
        assert jobs.lines(app_id, streams=Stream.STDERR) == ["err\n"]

    def test_the_combined_stream_holds_both(self, jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh("echo out; echo err >&2"))
        assert sorted(jobs.lines(app_id, streams=Stream.COMBINED)) == ["err\n", "out\n"]
        assert sorted(jobs.lines(app_id)) == ["err\n", "out\n"]

    # -- time -------------------------------------------------------------------------------

    def test_lines_are_chosen_by_time_or_not_silently_ignored(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.python(PRINT_TIMES))
        lines = jobs.lines(app_id)
        assert len(lines) == 3
        after_first, after_second = (
            datetime.fromtimestamp(float(line) + 0.5, timezone.utc) for line in lines[:2]
        )
        if not scheduler.features.log_time_range:
            for name in ("since", "until"):
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)
                    with pytest.raises((*REFUSED, UserWarning)):
                        scheduler.log_iter(app_id, WORKER, **{name: after_first})  # type: ignore[arg-type]  # since or until
            return
        assert jobs.lines(app_id, since=after_first) == lines[1:]
        assert jobs.lines(app_id, until=after_second) == lines[:2]
        assert jobs.lines(app_id, since=after_first, until=after_second) == lines[1:2]
        local = after_first.astimezone().replace(tzinfo=None)
        assert jobs.lines(app_id, since=local) == lines[1:]

    # -- following --------------------------------------------------------------------------

    def test_without_following_there_is_what_is_there(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("logs")
        app_id = jobs.start(jobs.sh("echo first; exec sleep 3600"))
        jobs.until(lambda: jobs.describe(app_id).state is AppState.RUNNING)
        assert jobs.until(lambda: jobs.lines(app_id)) == ["first\n"]
        assert not is_terminal(jobs.describe(app_id).state)

    def test_following_gives_lines_while_the_job_runs_and_ends_with_it(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("logs")
        app_id = jobs.start(jobs.sh("echo first; exec sleep 3600"))
        if not scheduler.features.tail:
            with pytest.raises(REFUSED):
                scheduler.log_iter(app_id, WORKER, should_tail=True)
            return
        lines = iter(scheduler.log_iter(app_id, WORKER, should_tail=True))
        assert next(lines) == "first\n"
        assert not is_terminal(jobs.describe(app_id).state)
        scheduler.cancel(app_id)
        assert list(lines) == []
        jobs.end(app_id)

    def test_following_gives_all_lines_to_the_last(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("tail")
        script = "for i in 1 2 3; do echo $i; sleep 0.4; done; printf last"
        app_id = jobs.start(jobs.sh(script))
        assert jobs.lines(app_id, should_tail=True) == ["1\n", "2\n", "3\n", "last"]
        assert jobs.end(app_id).state is AppState.SUCCEEDED
        assert jobs.lines(app_id, should_tail=True) == ["1\n", "2\n", "3\n", "last"]

    def test_a_line_that_comes_in_pieces_is_one_line(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("tail")
        app_id = jobs.start(jobs.sh("printf be; sleep 1; printf gin; sleep 1; echo ning"))
        assert jobs.lines(app_id, should_tail=True, regex="^beginning$") == ["beginning\n"]

    def test_two_followers_see_the_same(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        jobs.need("tail")
        app_id = jobs.start(jobs.sh("for i in 1 2 3; do echo $i; sleep 0.3; done"))
        one, two = (iter(scheduler.log_iter(app_id, WORKER, should_tail=True)) for _ in range(2))
        assert next(one) == next(two) == "1\n"
        assert list(two) == list(one) == ["2\n", "3\n"]
