"""The output of many replicas merged by time, and whether logs are complete."""

from typing import Any

import pytest

from torchx.errors import LogsNotFound, UnsupportedRequest
from torchx.schedulers.api import AppDef, Scheduler, Stream
from torchx.specs.api import macros
from torchx.testing._contract.jobs import APP, ContractParts, Jobs

PRINT_20_TIMES = """
import time
for _ in range(20):
    print(time.time(), flush=True)
    time.sleep(0.1)
"""
ORDER_TOLERANCE_S = 0.5
"""Lines reach the log through pipes and, elsewhere, networks; far below the 2 s of the job."""


class MergedLogContract(ContractParts):
    """Tests of ``log_blocks`` and ``verify_logs``, or that they are refused at the call."""

    def test_blocks_of_all_replicas_come_in_the_order_of_time_where_lines_have_one(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        names = ["a", "b"] if scheduler.features.multi_role else ["a"]
        roles = [
            jobs.role("python3", "-c", PRINT_20_TIMES, name=name, num_replicas=2) for name in names
        ]
        app_id = jobs.start(AppDef(APP, roles))
        if refuses(scheduler, "log_blocks"):
            with pytest.raises(UnsupportedRequest):
                scheduler.log_blocks(app_id)
            return
        followed = jobs.blocks(app_id, should_tail=True)
        jobs.end(app_id)
        for blocks in (followed, jobs.blocks(app_id)):
            times = [float(line) for block in blocks for line in block.text.split()]
            assert len(times) == 40 * len(names)
            latest = 0.0
            for moment in times if scheduler.features.log_time_range else ():
                assert moment > latest - ORDER_TOLERANCE_S
                latest = max(latest, moment)
            by_replica = {(b.role, b.replica): "" for b in blocks}
            for block in blocks:
                by_replica[block.role, block.replica] += block.text
            assert sorted(by_replica) == [(name, k) for name in names for k in range(2)]
            for (name, k), text in by_replica.items():
                assert text.splitlines(keepends=True) == jobs.lines(app_id, name, k)

    def test_blocks_hold_whole_lines(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        if refuses(scheduler, "log_blocks"):
            return
        script = "for i in 1 2 3; do printf be; sleep 0.1; echo gin; done; printf end"
        app_id = jobs.start(jobs.sh(script, num_replicas=2))
        texts: dict[int, list[str]] = {0: [], 1: []}
        for block in scheduler.log_blocks(app_id, should_tail=True):
            texts[block.replica].append(block.text)
        for blocks in texts.values():
            assert "".join(blocks) == "begin\nbegin\nbegin\nend"
            assert all(text.endswith("\n") for text in blocks[:-1])

    def test_blocks_can_be_chosen(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        if refuses(scheduler, "log_blocks"):
            return
        script = f"echo out {macros.replica_id}; echo err {macros.replica_id} >&2"
        app_id = jobs.run(jobs.sh(script, num_replicas=3))

        def lines(*args: Any, **more: Any) -> list[str]:
            return sorted("".join(b.text for b in jobs.blocks(app_id, *args, **more)).split("\n"))

        assert lines([("worker", 2)]) == ["", "err 2", "out 2"]
        assert lines([("worker", 0), ("worker", 2)], regex="out") == ["", "out 0", "out 2"]
        assert lines(regex="1$") == ["", "err 1", "out 1"]
        if scheduler.features.separate_streams:
            assert lines(streams=Stream.STDERR) == ["", "err 0", "err 1", "err 2"]

    def test_the_last_lines_of_each_replica_can_be_chosen(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        if refuses(scheduler, "log_blocks"):
            return
        script = f"for i in 1 2 3; do echo $i of {macros.replica_id}; done"
        app_id = jobs.run(jobs.sh(script, num_replicas=2))
        for more in ({}, {"should_tail": scheduler.features.tail}):
            found = jobs.blocks(app_id, tail_lines=2, **more)
            texts = {k: "".join(b.text for b in found if b.replica == k) for k in range(2)}
            assert texts == {k: f"2 of {k}\n3 of {k}\n" for k in range(2)}
        found = jobs.blocks(app_id, [("worker", 1)], tail_lines=1, regex="^[12]")
        assert "".join(b.text for b in found) == "2 of 1\n"

    def test_an_attempt_is_chosen_or_refused(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        if refuses(scheduler, "log_blocks"):
            return
        app_id = jobs.run(jobs.sh("echo hi"))
        if scheduler.features.attempts:
            assert "".join(b.text for b in jobs.blocks(app_id, attempt=0)) == "hi\n"
            with pytest.raises(LogsNotFound, match="attempt 5"):
                scheduler.log_blocks(app_id, attempt=5)
        else:
            with pytest.raises(UnsupportedRequest, match="attempt"):
                scheduler.log_blocks(app_id, attempt=0)

    def test_logs_of_a_finished_job_are_complete(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        script = "for i in 1 2 3; do echo $i; done; echo err >&2"
        app_id = jobs.run(jobs.sh(script, num_replicas=2))
        if refuses(scheduler, "verify_logs"):
            with pytest.raises(UnsupportedRequest):
                scheduler.verify_logs(app_id)
            return
        reports = jobs.reports(app_id)
        assert {(r.role, r.replica, r.attempt) for r in reports} == {
            ("worker", k, 0) for k in range(2)
        }
        assert all(report.complete and report.problem is None for report in reports)
        combined = [r for r in reports if r.stream is Stream.COMBINED]
        assert [(r.lines, r.bytes) for r in combined] == [(4, 10)] * 2


def refuses(scheduler: Scheduler[Any], method: str) -> bool:
    """Returns True if the scheduler defines neither the method nor its hook."""
    hooks = {"log_blocks": ("log_blocks", "read_logs"), "verify_logs": ("verify_logs",)}[method]
    return all(getattr(type(scheduler), name) is getattr(Scheduler, name) for name in hooks)
