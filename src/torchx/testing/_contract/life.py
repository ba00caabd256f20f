"""From submission to the end of an app: states, cancelling, lists, and what replicas receive."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from torchx.schedulers.api import AppDef, CfgVal, Scheduler
from torchx.specs.api import AppState, BindMount, is_terminal, macros
from torchx.testing._contract.jobs import APP, NO_SUCH_APP, REFUSED, ContractParts, Jobs

FOREVER = "echo started; sleep 3600"
ODD_VALUES = [
    "",
    " two  words ",
    'it\'s "quoted" `ticks`',
    "a,b;c=d",
    "line\nbreak\ttab",
    "$HOME ${HOME} $(id) $1 %s %PATH%",
    "back\\slash \\n",
    "ünïcödé 火 \U0001f525",
    "--flag=-x",
    "*? [a-z] ~ # ! & | > < ( ) { }",
]
PRINT_ARGS = "import json, sys; print(json.dumps(sys.argv[1:]))"
PRINT_ENV = """
import json, os
print(json.dumps([os.environ[f"ODD_{i}"] for i in range(int(os.environ["N"]))]))
"""
PRINT_BOTH = """
import json, os, sys
print(json.dumps([sys.argv[1:], [os.environ[name] for name in ("ID", "K", "ROOT")]]))
"""


class LifeContract(ContractParts):
    """Tests of the life of an app."""

    # -- states -----------------------------------------------------------------------------

    def test_a_job_that_ends_well_succeeds(self, jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh("true"))
        assert jobs.describe(app_id).app_id == app_id
        assert jobs.end(app_id).state is AppState.SUCCEEDED
        assert jobs.describe(app_id).state is AppState.SUCCEEDED

    def test_a_job_that_ends_badly_fails(self, jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh("exit 3"))
        assert jobs.end(app_id).state is AppState.FAILED
        assert jobs.describe(app_id).state is AppState.FAILED

    def test_one_bad_replica_fails_the_app(self, jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh(f"exit {macros.replica_id}", num_replicas=2))
        assert jobs.end(app_id).state is AppState.FAILED

    def test_a_program_that_does_not_exist_ends_the_app_or_is_refused(self, jobs: Jobs) -> None:
        app = AppDef(APP, [jobs.role("/no/such/program")])
        try:
            app_id = jobs.start(app)
        except (OSError, ValueError) as err:
            assert "/no/such/program" in str(err)  # noqa: PT017 - to raise is one of two right ways
        else:
            assert jobs.end(app_id).state is AppState.FAILED

    def test_the_submitted_app_can_be_read_back(self, jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh(FOREVER, num_replicas=2))
        found = jobs.describe(app_id)
        assert found.state in (AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING)
        for role in found.roles:
            assert role.num_replicas == 2

    def test_a_job_that_runs_is_running(self, jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        jobs.until(lambda: jobs.describe(app_id).state is AppState.RUNNING)

    def test_two_jobs_of_one_app_have_different_ids(self, jobs: Jobs) -> None:
        app = jobs.sh("true")
        assert jobs.start(app) != jobs.start(app)

    def test_an_unknown_app_is_none(self, scheduler: Scheduler[Any]) -> None:
        assert scheduler.describe(NO_SUCH_APP) is None
        assert scheduler.describe_native(NO_SUCH_APP) is None
        assert not scheduler.exists(NO_SUCH_APP)

    def test_each_replica_has_a_status_where_declared(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("replica_statuses")
        # the second fails, which ends the others, when the first has surely succeeded
        script = f"[ {macros.replica_id} = 0 ] || sleep 1; exit {macros.replica_id}"
        app = jobs.sh(script, num_replicas=2)
        if scheduler.features.multi_role:
            app.roles.append(jobs.role("sh", "-c", "true", name="other"))
        found = jobs.describe(jobs.run(app))
        assert [status.role for status in found.roles_statuses] == [r.name for r in app.roles]
        worker = found.roles_statuses[0].replicas
        assert [replica.id for replica in worker] == [0, 1]
        assert [replica.state for replica in worker] == [AppState.SUCCEEDED, AppState.FAILED]
        assert all(replica.hostname for replica in worker)

    def test_failed_replicas_are_named(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        script = f"[ {macros.replica_id} = 0 ] && exit 0; echo the last words; exit 3"
        app_id = jobs.run(jobs.sh(script, num_replicas=2))
        found = jobs.failed(app_id)
        if not scheduler.features.exit_codes:
            assert all(replica.exit_code is None for replica in found)
            return
        (replica,) = found
        assert (replica.role, replica.replica, replica.exit_code) == ("worker", 1, 3)
        assert replica.attempt == 0
        assert replica.reason
        assert [line.strip() for line in replica.last_lines] == ["the last words"]

    def test_an_app_without_failure_has_no_failed_replica(self, jobs: Jobs) -> None:
        assert jobs.failed(jobs.run(jobs.sh("true"))) == []

    # -- ending -----------------------------------------------------------------------------

    def test_a_cancelled_job_is_cancelled_and_known(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        scheduler.cancel(app_id)
        assert jobs.end(app_id).state is AppState.CANCELLED
        assert scheduler.exists(app_id)

    def test_cancel_is_idempotent(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        scheduler.cancel(app_id)
        scheduler.cancel(app_id)
        assert jobs.end(app_id).state is AppState.CANCELLED
        scheduler.cancel(app_id)

    def test_cancel_does_not_wait_for_the_end(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh("trap '' TERM INT; echo ready; while :; do sleep 0.2; done"))
        if scheduler.features.logs:
            jobs.until(lambda: jobs.lines(app_id))
        started = time.monotonic()
        scheduler.cancel(app_id)
        took_s = time.monotonic() - started
        assert took_s < 2 or not is_terminal(jobs.describe(app_id).state)
        assert jobs.end(app_id).state is AppState.CANCELLED

    def test_cancel_and_delete_of_an_unknown_app_do_nothing(
        self, scheduler: Scheduler[Any]
    ) -> None:
        scheduler.cancel(NO_SUCH_APP)
        scheduler.delete(NO_SUCH_APP)

    def test_delete_ends_a_running_job(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        scheduler.delete(app_id)
        if scheduler.features.delete_forgets:
            jobs.until(lambda: scheduler.describe(app_id) is None)
        else:
            assert jobs.end(app_id).state is AppState.CANCELLED
        scheduler.delete(app_id)

    def test_delete_forgets_a_finished_job_where_declared(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        app_id = jobs.run(jobs.sh("true"))
        scheduler.delete(app_id)
        if scheduler.features.delete_forgets:
            jobs.until(lambda: scheduler.describe(app_id) is None)
            if scheduler.features.list:
                assert app_id not in [row.app_id for row in scheduler.list()]
        else:
            assert scheduler.exists(app_id)

    def test_closing_twice_is_fine(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        jobs.run(jobs.sh("true"))
        scheduler.close()
        scheduler.close()

    # -- looking ----------------------------------------------------------------------------

    def test_the_list_has_one_row_per_app(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        if not scheduler.features.list:
            with pytest.raises(REFUSED):
                scheduler.list()
            return
        done = jobs.run(jobs.sh("true", num_replicas=2))
        live = jobs.start(jobs.sh(FOREVER))
        jobs.until(lambda: jobs.describe(live).state is AppState.RUNNING)
        states = {done: AppState.SUCCEEDED, live: AppState.RUNNING}
        for rows in (scheduler.list(), scheduler.list(None)):
            ours = [row for row in rows if row.app_id in states]
            assert sorted(row.app_id for row in ours) == sorted(states)
            assert {row.app_id: row.state for row in ours} == states
            assert {row.name.partition("-")[0] for row in ours} == {APP}

    def test_another_process_sees_the_app_where_declared(
        self, request: pytest.FixtureRequest, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("durable")
        other: Scheduler[Any] = request.getfixturevalue("other_scheduler")
        app_id = jobs.start(jobs.sh(FOREVER))
        found = other.describe(app_id)
        assert found is not None
        assert not is_terminal(found.state)
        other.cancel(app_id)
        assert jobs.end(app_id).state is AppState.CANCELLED

    def test_waiting_for_a_change_ends_in_time(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        app_id = jobs.start(jobs.sh(FOREVER))
        scheduler.wait_for_change(app_id, 0.05)
        scheduler.cancel(app_id)
        jobs.end(app_id)
        scheduler.wait_for_change(app_id, 0.05)

    def test_waiting_ends_with_the_app_where_declared(
        self, scheduler: Scheduler[Any], jobs: Jobs
    ) -> None:
        jobs.need("event_wait")
        app_id = jobs.start(jobs.sh("sleep 1"))
        started = time.monotonic()
        while not is_terminal(jobs.describe(app_id).state):
            scheduler.wait_for_change(app_id, 120)
        assert time.monotonic() - started < 60

    # -- what replicas receive --------------------------------------------------------------

    def test_args_arrive_as_they_are(self, jobs: Jobs) -> None:
        assert jobs.printed_json(jobs.python(PRINT_ARGS, *ODD_VALUES)) == ODD_VALUES

    def test_env_arrives_as_it_is(self, jobs: Jobs) -> None:
        env = {f"ODD_{i}": value for i, value in enumerate(ODD_VALUES)}
        app = jobs.python(PRINT_ENV, env={**env, "N": str(len(env))})
        assert jobs.printed_json(app) == ODD_VALUES

    def test_a_doubled_dollar_is_a_dollar(self, jobs: Jobs) -> None:
        app = jobs.python(PRINT_ARGS, "$$", f"$${macros.app_id[1:]}")
        assert jobs.printed_json(app) == ["$", macros.app_id]

    def test_macros_are_replaced_in_args_and_env(self, jobs: Jobs) -> None:
        jobs.need("logs")
        values = [macros.app_id, f"{macros.replica_id}!", macros.img_root]
        app = jobs.python(
            PRINT_BOTH,
            *values,
            env=dict(zip(("ID", "K", "ROOT"), values, strict=True)),
            num_replicas=2,
        )
        app_id = jobs.run(app)
        for k in range(2):
            (line,) = jobs.lines(app_id, k=k)
            args, env = json.loads(line)
            assert args == env
            assert app_id == args[0] or app_id.endswith(f":{args[0]}")
            assert args[1] == f"{k}!"
            assert "$" not in args[2]

    def test_the_first_host_is_told(self, jobs: Jobs) -> None:
        jobs.need("logs")
        app_id = jobs.run(jobs.sh(f"printenv {macros.rank0_env}"))
        (line,) = jobs.lines(app_id)
        assert line.strip()

    def test_the_env_of_one_role_stays_there(self, scheduler: Scheduler[Any], jobs: Jobs) -> None:
        jobs.need("multi_role", "logs")
        script = "echo $ONLY_A-$BOTH"
        app = AppDef(
            APP,
            [
                jobs.role("sh", "-c", script, name="a", env={"ONLY_A": "1", "BOTH": "a"}),
                jobs.role("sh", "-c", script, name="b", env={"BOTH": "b"}),
            ],
        )
        app_id = jobs.run(app)
        assert jobs.lines(app_id, "a") == ["1-a\n"]
        assert jobs.lines(app_id, "b") == ["-b\n"]

    def test_the_min_of_replicas_does_not_keep_a_job_from_running(
        self, opts: dict[str, CfgVal], jobs: Jobs
    ) -> None:
        app_id = jobs.start(jobs.sh("true", num_replicas=2, min_replicas=1))
        assert jobs.end(app_id).state is AppState.SUCCEEDED

    def test_a_bind_mount_shows_files_of_the_host(self, host_dir: Path, jobs: Jobs) -> None:
        jobs.need("mounts", "logs")
        (host_dir / "note").write_text("from the host\n")
        mount = BindMount(str(host_dir), "/contract", read_only=True)
        script = "cat /contract/note; touch /contract/new 2>/dev/null || echo read only"
        app_id = jobs.run(jobs.sh(script, mounts=[mount]))
        assert jobs.lines(app_id) == ["from the host\n", "read only\n"]
