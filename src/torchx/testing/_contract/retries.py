"""Retries: as many as asked for, of what the policy says, and told to the replica."""

from typing import Any

import pytest

from torchx.schedulers.api import AppDef, CfgVal, Scheduler
from torchx.specs.api import AppState, RetryPolicy, macros
from torchx.testing._contract.jobs import APP, REFUSED, ContractParts, Jobs


class RetryContract(ContractParts):
    """Tests of ``max_retries`` and ``retry_policy``."""

    def test_a_policy_that_is_not_declared_is_refused(
        self, scheduler: Scheduler[Any], opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        # APPLICATION, the default, is accepted everywhere
        for policy in {*RetryPolicy} - scheduler.features.retries - {RetryPolicy.APPLICATION}:
            with pytest.raises(REFUSED, match=policy.name):
                scheduler.submit_dryrun(jobs.sh("true", max_retries=1, retry_policy=policy), opts)

    @pytest.mark.parametrize("policy", [*RetryPolicy])
    def test_retries_end_at_their_maximum(
        self, scheduler: Scheduler[Any], jobs: Jobs, policy: RetryPolicy
    ) -> None:
        self.need_policy(jobs, policy)
        app_id = jobs.start(jobs.sh("exit 1", max_retries=2, retry_policy=policy))
        found = jobs.end(app_id)
        assert found.state is AppState.FAILED
        assert found.num_restarts == 2

    @pytest.mark.parametrize("policy", [*RetryPolicy])
    def test_a_retry_that_works_is_a_success(
        self, scheduler: Scheduler[Any], jobs: Jobs, policy: RetryPolicy
    ) -> None:
        self.need_policy(jobs, policy)
        jobs.need("attempts")
        app = jobs.sh(self.fail_first(), max_retries=3, retry_policy=policy)
        found = jobs.end(jobs.start(app))
        assert found.state is AppState.SUCCEEDED
        assert found.num_restarts == 1

    def test_nothing_is_retried_unless_asked_for(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        found = jobs.end(jobs.start(jobs.sh("exit 1")))
        assert found.state is AppState.FAILED
        assert found.num_restarts <= 0

    def test_success_is_not_retried(self, jobs: Jobs) -> None:
        found = jobs.end(jobs.start(jobs.sh("true", max_retries=2)))
        assert found.state is AppState.SUCCEEDED
        assert found.num_restarts <= 0

    @pytest.mark.parametrize(
        ("policy", "restarted"),
        [
            (RetryPolicy.APPLICATION, {"a/0", "a/1", "b/0"}),
            (RetryPolicy.ROLE, {"a/0", "a/1"}),
            (RetryPolicy.REPLICA, {"a/1"}),
        ],
    )
    def test_what_is_restarted_is_what_the_policy_says(
        self, scheduler: Scheduler[Any], jobs: Jobs, policy: RetryPolicy, restarted: set[str]
    ) -> None:
        self.need_policy(jobs, policy)
        jobs.need("attempts", "multi_role")
        fails = f"[ {macros.replica_id} = 0 ] || [ ${self.attempt_variable} != 0 ]"
        script = f"echo start; {fails} || {{ sleep 2; exit 7; }}; sleep 3"
        retry = {"max_retries": 1, "retry_policy": policy}
        app = AppDef(
            APP,
            [
                jobs.role("sh", "-c", script, name="a", num_replicas=2, **retry),
                jobs.role("sh", "-c", "echo start; sleep 3", name="b", **retry),
            ],
        )
        app_id = jobs.run(app)
        assert jobs.describe(app_id).state is AppState.SUCCEEDED
        starts = {
            f"{role}/{k}": len(jobs.lines(app_id, role, k, regex="^start"))
            for role, k in (("a", 0), ("a", 1), ("b", 0))
        }
        assert starts == {name: 2 if name in restarted else 1 for name in starts}

    def test_output_of_each_attempt_is_kept_where_declared(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("attempts")
        script = f"echo attempt ${self.attempt_variable}; exit 1"
        app_id = jobs.run(jobs.sh(script, max_retries=2))
        assert jobs.lines(app_id) == [f"attempt {i}\n" for i in range(3)]
        for attempt in range(3):
            blocks = jobs.blocks(app_id, attempt=attempt)
            assert "".join(b.text for b in blocks) == f"attempt {attempt}\n"
            assert {b.attempt for b in blocks} == {attempt}
        assert [f.attempt for f in jobs.failed(app_id)] == [2]

    def need_policy(self, jobs: Jobs, policy: RetryPolicy) -> None:
        """Skips the test where the scheduler does not declare the policy."""
        if policy not in jobs.scheduler.features.retries:
            pytest.skip(f"the scheduler does not declare retries of {policy.name}")

    def fail_first(self) -> str:
        """Shell code that fails in the first attempt only."""
        return f"[ ${self.attempt_variable} != 0 ] || exit 7"
