"""The sample scheduler of the documentation keeps the contract, faults and all."""

import json
from pathlib import Path

import pytest

from tests.contract import spool_programs
from tests.contract.spool_scheduler import create_scheduler, parse_job, show
from tests.contract.trials import TRIALS
from torchx.specs import AppState
from torchx.testing.programs import Programs
from torchx.testing.scheduler_suite import SchedulerContract

ENTRY_POINT = "[torchx.schedulers]\nspool = tests.contract.spool_scheduler:create_scheduler\n"
AWAY = "spool: error: the spool daemon is away"


class TestSpool(SchedulerContract):
    """A test class brings a scheduler, what breaks its backend, and what looks into it."""

    timeout_s = 60
    attempt_variable = "SPOOL_ATTEMPT"
    trials = TRIALS

    @pytest.fixture
    def programs(self, tmp_path, monkeypatch):
        monkeypatch.setenv("SPOOL_DIR", str(tmp_path / "spool"))
        (tmp_path / "spool").mkdir()
        script = Path(spool_programs.__file__)
        programs = Programs.of_script(tmp_path / "bin", script, spool_programs.PROGRAMS)
        with programs.on_path():
            yield programs

    @pytest.fixture
    def scheduler_name(self, tmp_path, monkeypatch):
        """The name by which other processes find the scheduler, as that of an installed package."""
        package = tmp_path / "site" / "spool_plugin-1.0.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: spool-plugin\n")
        (package / "entry_points.txt").write_text(ENTRY_POINT)
        monkeypatch.syspath_prepend(str(package.parent))
        return "spool"

    @pytest.fixture
    def scheduler(self, programs):
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, programs):
        return create_scheduler("other")

    @pytest.fixture
    def backend_away(self, programs):
        return lambda: programs.away(AWAY)

    @pytest.fixture
    def backend_missing(self, programs):
        return programs.missing

    @pytest.fixture
    def refuse_submission(self, programs):
        def refuse(after):
            names = ["spool-submit", "spool-release"]
            return programs.refusing(names[min(after, 1)], max(after - 1, 0))

        return refuse

    @pytest.fixture
    def refuse_end(self, programs):
        return lambda: programs.refusing("spool-end")

    @pytest.fixture
    def native_objects(self, programs):
        return lambda: [record["name"] for record in show()]

    @pytest.fixture
    def submitted(self, programs, tmp_path):
        return lambda app_id: (tmp_path / "spool" / app_id / "job.json").read_text()

    @pytest.fixture
    def queries(self, programs):
        return lambda: len(programs.calls())

    native_states = (
        ("WAITING", AppState.PENDING),
        ("RUNNING", AppState.RUNNING),
        ("SUSPENDED", AppState.UNKNOWN),  # this system has no such state
    )

    def state_of(self, native):
        task = {"name": "0-0", "state": native, "attempt": 0}
        record = {
            "name": "job-1",
            "comment": json.dumps({"app": "job", "roles": [["w", 1, ""]]}),
            "folder": "/spool/job-1",
            "over": False,
            "cancelled": False,
            "attempt": 0,
            "retries": 0,
            "end_on_failure": True,
            "tasks": [task],
        }
        return parse_job(record).replicas[0].state
