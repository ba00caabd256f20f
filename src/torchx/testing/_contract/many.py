"""Many apps at once: they are looked at, ended and removed as each would be alone."""

import pytest

from torchx.schedulers.api import Scheduler
from torchx.specs.api import AppState, is_terminal
from torchx.testing._contract.jobs import NO_SUCH_APP, ContractParts, Jobs


class ManyContract(ContractParts):
    """Tests of the hooks for many apps."""

    def test_many_apps_are_looked_at_ended_and_removed(self, jobs: Jobs) -> None:
        if type(jobs.scheduler).look is Scheduler.look:
            pytest.skip("the scheduler defines the verbs in place of the hooks")
        app_ids = [jobs.start(jobs.sh("sleep 3600")) for _ in range(3)]
        found = jobs.scheduler.look_many([*app_ids, NO_SUCH_APP])
        assert sorted(found) == sorted(app_ids)
        for app_id, snapshot in found.items():
            assert snapshot.app_id == app_id
            assert len(snapshot.replicas) == 1
        assert jobs.scheduler.end_many([found[app_id] for app_id in app_ids[:2]]) == {}
        ended = [jobs.end(app_id).state for app_id in app_ids[:2]]
        assert ended == [AppState.CANCELLED, AppState.CANCELLED]
        assert not is_terminal(jobs.describe(app_ids[2]).state)
        found = jobs.scheduler.look_many(app_ids)
        assert jobs.scheduler.remove_many([*found.values()]) == {}
        if jobs.scheduler.features.delete_forgets:
            jobs.until(lambda: not jobs.scheduler.look_many(app_ids))
        else:
            assert jobs.end(app_ids[2]).state is AppState.CANCELLED
