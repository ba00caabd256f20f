"""``lsf`` keeps the contract of schedulers, on programs that stand in for those of LSF."""

import json
from dataclasses import replace

import pytest

from tests.contract import fake_lsf
from tests.contract.trials import TRIALS
from torchx.schedulers.lsf_scheduler import create_scheduler
from torchx.schedulers.lsf_scheduler._parse import parse_json
from torchx.specs import AppState, RetryPolicy
from torchx.testing.scheduler_suite import SchedulerContract


class TestLsf(SchedulerContract):
    """A job array for each role."""

    requires_resource = False
    trials = TRIALS
    timeout_s = 60

    @pytest.fixture
    def scheduler_name(self):
        return "lsf"

    @pytest.fixture
    def programs(self, lsf_programs):
        return lsf_programs

    @pytest.fixture
    def scheduler(self, programs):
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, programs, tmp_path, monkeypatch):
        """That of a user who has nothing noted, on another host."""
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "other-home"))
        monkeypatch.setenv("LSF_ENVDIR", str(tmp_path / "lsf" / "other-conf"))
        return create_scheduler("other")

    @pytest.fixture
    def opts(self, tmp_path):
        return {"jobdir": str(tmp_path / "shared jobs")}

    @pytest.fixture
    def backend_away(self, programs):
        return lambda: programs.away(fake_lsf.DOWN)

    @pytest.fixture
    def backend_missing(self, programs):
        return programs.missing

    @pytest.fixture
    def refuse_submission(self, programs):
        return lambda after: programs.refusing("bsub", after)

    @pytest.fixture
    def refuse_end(self, programs):
        return lambda: programs.refusing("bkill")

    @pytest.fixture
    def native_objects(self, tmp_path):
        def live():
            jobs = [json.loads(path.read_text()) for path in (tmp_path / "lsf").glob("*.state")]
            return [job["name"] for job in jobs if fake_lsf.is_live(job)]

        return live

    @pytest.fixture
    def submitted(self, tmp_path):
        def got(app_id):
            texts = [path.read_text() for path in (tmp_path / "lsf").glob("*.state")]
            folder = next(tmp_path.glob(f"*/{app_id}"))
            return "".join(texts + [path.read_text() for path in folder.glob("*.sh")])

        return got

    @pytest.fixture
    def queries(self, programs, tmp_path, monkeypatch):
        """Counts; the verb that follows has no answer of an earlier one to go by."""

        def count():
            calls = len([call for call in programs.calls() if not call.startswith("blaunch")])
            monkeypatch.setenv("LSF_ENVDIR", str(tmp_path / "lsf" / f"conf-{calls}"))
            return calls

        return count

    native_states = (
        ({"STAT": "PEND"}, AppState.PENDING),
        ({"STAT": "PROV"}, AppState.PENDING),
        ({"STAT": "PSUSP"}, AppState.PENDING),
        ({"STAT": "USUSP"}, AppState.PENDING),
        ({"STAT": "SSUSP"}, AppState.PENDING),
        ({"STAT": "RUN"}, AppState.RUNNING),
        ({"STAT": "DONE"}, AppState.SUCCEEDED),
        ({"STAT": "EXIT", "EXIT_CODE": "3"}, AppState.FAILED),
        ({"STAT": "EXIT", "EXIT_CODE": "130"}, AppState.CANCELLED),
        ({"STAT": "EXIT", "EXIT_REASON": "TERM_OWNER: job killed by owner"}, AppState.CANCELLED),
        ({"STAT": "EXIT", "EXIT_REASON": "TERM_MEMLIMIT: killed"}, AppState.FAILED),
        ({"STAT": "UNKWN"}, AppState.UNKNOWN),
        ({"STAT": "ZOMBI"}, AppState.UNKNOWN),
        ({"STAT": "HYPERSPACE"}, AppState.UNKNOWN),  # LSF has no such state
        ({}, AppState.UNKNOWN),
    )

    def state_of(self, native):
        record = {"JOBID": "101", "JOBINDEX": "1", "JOB_NAME": "app-x.0.w[1]", **native}
        (row,) = parse_json(json.dumps({"RECORDS": [record]}))
        return row.state


@pytest.mark.thorough
class TestLsfGang(TestLsf):
    """The whole app as one parallel job, which starts again as a whole."""

    many_replicas = 40  # the stand-in for `blaunch` is a Python each, that waits beside its replica

    @pytest.fixture
    def scheduler(self, programs):
        scheduler = create_scheduler("test")
        retries = frozenset({RetryPolicy.APPLICATION})
        scheduler.features = replace(scheduler.features, retries=retries)  # as with that option
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def opts(self, tmp_path):
        return {"jobdir": str(tmp_path / "shared"), "gang": True}
