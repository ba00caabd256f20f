"""``slurm`` keeps the contract of schedulers."""

import json
import subprocess
import threading
from pathlib import Path

import pytest

from tests.contract import fake_slurm
from tests.contract.trials import TRIALS
from torchx.schedulers.slurm_scheduler import (
    appstate_from_slurm_state,
    create_scheduler,
    version,
)
from torchx.specs import AppState
from torchx.testing.programs import Programs
from torchx.testing.scheduler_suite import SchedulerContract

AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


class SlurmContract(SchedulerContract):
    """What holds for programs that stand in for those of Slurm, and for the real ones."""

    requires_resource = False
    trials = TRIALS
    most_queries = {"describe": 1, "list": 2, "cancel": 2, "delete": 2, "log": 0}  # noqa: RUF012 - read only
    """A list is of squeue and of sacct; where the logs are, the notes of a job tell."""

    native_states = (
        ("PENDING", AppState.PENDING),
        ("RUNNING", AppState.RUNNING),
        ("COMPLETING", AppState.RUNNING),
        ("SUSPENDED", AppState.PENDING),
        ("COMPLETED", AppState.SUCCEEDED),
        ("OUT_OF_MEMORY", AppState.FAILED),
        ("TIMEOUT", AppState.FAILED),
        ("CANCELLED by 1000", AppState.CANCELLED),
        ("A_STATE_OF_TOMORROW", AppState.UNKNOWN),
    )

    def state_of(self, native):
        return appstate_from_slurm_state(native)

    @pytest.fixture
    def scheduler_name(self):
        return "slurm"

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
        return lambda after: programs.refusing("sbatch", after)

    @pytest.fixture
    def refuse_end(self, programs):
        return lambda: programs.refusing("scancel")


@pytest.mark.slurm
class TestSlurm(SlurmContract):
    """On the cluster that ``scripts/engines/slurm up`` starts."""

    timeout_s = 180  # Slurm lets a requeued job wait for up to two minutes
    many_replicas = 4
    """As many as there are nodes."""

    @pytest.fixture
    def programs(self, slurm_cluster, tmp_path):
        names = ["sbatch", "squeue", "sacct", "scancel", "sinfo", "srun"]
        programs = Programs.real(tmp_path / "bin", names, patient=["srun"])
        over = threading.Event()
        busy = threading.Thread(target=keep_busy, args=(over,))
        busy.start()
        with programs.on_path():
            yield programs
        over.set()
        busy.join()

    @pytest.fixture
    def opts(self):
        return {"partition": "all"}

    def test_awkward_names_stay_apart_or_are_refused(self, jobs):
        pytest.skip("a job of five roles needs five nodes, the cluster has four")

    @pytest.fixture
    def native_objects(self, programs):
        def live() -> list[str]:
            command = ["squeue", "--noheader", "--format=%i"]
            return subprocess.check_output(command, text=True).split()

        return live

    @pytest.fixture
    def submitted(self, programs):
        def script(app_id: str) -> str:
            command = ["scontrol", "write", "batch_script", app_id, "-"]
            return subprocess.check_output(command, text=True)

        return script

    @pytest.fixture
    def queries(self):
        pytest.skip("counted on programs that stand in, where each verb can see another cluster")


def keep_busy(over: threading.Event) -> None:
    """Changes the cluster now and then, as on one that others use.

    Slurm looks for nodes for jobs of several roles only after some change; that the time has come
    for one that was requeued is none.
    """
    command = ["scontrol", "update", "PartitionName=debug", "State=UP"]
    while not over.wait(2):
        subprocess.run(command, capture_output=True, timeout=60, check=False)


SUBMITTING = ("sbatch", "srun")
"""No questions: the second one is called by the job itself, as soon as it runs."""


class TestSlurmPrograms(SlurmContract):
    """On programs that stand in for those of Slurm, where there is no cluster."""

    timeout_s = 90  # on a busy machine Slurm is asked seldom: 20 times as long as an answer takes

    @pytest.fixture
    def folder(self, tmp_path):
        folder = tmp_path / "slurm"
        folder.mkdir()
        return folder

    @pytest.fixture
    def programs(self, folder, tmp_path, monkeypatch):
        monkeypatch.setenv("FAKE_SLURM_DIR", str(folder))
        monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))  # a cluster of its own
        script = Path(fake_slurm.__file__)
        names = fake_slurm.CLIENT_PROGRAMS
        programs = Programs.of_script(tmp_path / "bin", script, names, patient=["srun"])
        on_nodes = Programs.of_script(tmp_path / "node", script, fake_slurm.NODE_PROGRAMS)
        version.cache_clear()
        with on_nodes.on_path(), programs.on_path():
            yield programs
        version.cache_clear()

    @pytest.fixture
    def native_objects(self, programs, folder):
        def live() -> list[str]:
            jobs = [json.loads(path.read_text()) for path in folder.glob("*.json")]
            return [job["id"] for job in jobs if job["state"] in ("PENDING", "RUNNING")]

        return live

    @pytest.fixture
    def submitted(self, programs, folder):
        return lambda app_id: (folder / f"{app_id}.sh").read_text()

    @pytest.fixture
    def queries(self, programs, folder, monkeypatch):
        count = 0

        def queries() -> int:
            nonlocal count
            count += 1
            # another view of the cluster: no answer to an earlier call is at hand
            monkeypatch.setenv("SLURM_CONF", str(folder / f"slurm{count}.conf"))
            return sum(not call.startswith(SUBMITTING) for call in programs.calls())

        return queries

    def test_one_scancel_ends_many_jobs(self, jobs, programs):
        ids = [jobs.start(jobs.sh("sleep 3600")) for _ in range(3)]
        found = jobs.scheduler.look_many(ids)
        assert jobs.scheduler.end_many([*found.values()]) == {}
        assert [c for c in programs.calls() if c.startswith("scancel")] == [
            f"scancel {' '.join(ids)}"
        ]

    def test_one_sacct_tells_of_many_jobs_that_have_ended(self, jobs, programs):
        ids = [jobs.run(jobs.sh("true")) for _ in range(3)]
        other = create_scheduler("other")
        before = len(programs.calls())
        found = other.look_many(ids)
        assert {snapshot.state for snapshot in found.values()} == {AppState.SUCCEEDED}
        asked = [c for c in programs.calls()[before:] if c.startswith("sacct")]
        assert len(asked) <= 1
