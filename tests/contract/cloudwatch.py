"""Rows of the contract for logs that CloudWatch keeps, which differ from what a program printed.

CloudWatch has lines without their newlines: each gets one, also the last. Empty lines are not kept,
and a line of more than 256 KiB is kept in pieces.
"""

from torchx.testing._contract.faults import fails
from torchx.testing._contract.jobs import WORKER


class CloudWatchLines:
    """To be put before ``SchedulerContract``."""

    def test_a_last_line_without_newline_is_kept_so(self, jobs):
        app_id = jobs.run(jobs.sh("printf 'one\\ntwo'"))
        assert jobs.lines(app_id) == ["one\n", "two\n"]

    def test_lines_are_whole_and_in_order(self, jobs):
        app_id = jobs.run(jobs.sh("for i in 1 2 3; do echo line $i; done; echo; echo end"))
        assert jobs.lines(app_id) == ["line 1\n", "line 2\n", "line 3\n", "end\n"]

    def test_a_long_line_is_one_line(self, jobs):
        app_id = jobs.run(jobs.python("print('x' * 200000); print('y' * 600000)"))
        first, *rest = jobs.lines(app_id)
        assert first == "x" * 200000 + "\n"
        assert "".join(rest).replace("\n", "") == "y" * 600000

    def test_following_gives_all_lines_to_the_last(self, jobs):
        app_id = jobs.start(jobs.sh("for i in 1 2 3; do echo $i; sleep 0.4; done; printf last"))
        for _ in range(2):
            assert jobs.lines(app_id, should_tail=True) == ["1\n", "2\n", "3\n", "last\n"]

    def test_following_outlives_an_outage(self, scheduler, jobs, backend_away):
        app_id = jobs.start(jobs.sh("for i in 1 2 3 4 5 6; do echo $i; sleep 1; done"))
        lines = iter(scheduler.log_iter(app_id, WORKER, should_tail=True))
        assert next(lines) == "1\n"
        with backend_away():
            jobs.until(lambda: fails(scheduler.describe, app_id))
        assert list(lines) == ["2\n", "3\n", "4\n", "5\n", "6\n"]

    def test_blocks_hold_whole_lines(self, scheduler, jobs):
        script = "for i in 1 2 3; do printf be; sleep 0.1; echo gin; done; printf end"
        app_id = jobs.start(jobs.sh(script, num_replicas=2))
        texts = {0: "", 1: ""}
        for block in scheduler.log_blocks(app_id, should_tail=True):
            assert block.text.endswith("\n")
            texts[block.replica] += block.text
        assert set(texts.values()) == {"begin\nbegin\nbegin\nend\n"}
