"""``slurm`` keeps the contract of schedulers."""

import os
import sys

import pytest

from tests.contract import fake_slurm
from torchx.schedulers.slurm_scheduler import create_scheduler, version
from torchx.testing.scheduler_suite import SchedulerContract


@pytest.mark.slurm
class TestSlurm(SchedulerContract):
    """On the cluster that ``scripts/engines/slurm up`` starts."""

    requires_resource = False
    timeout_s = 90

    @pytest.fixture
    def scheduler(self, slurm_cluster):
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, slurm_cluster):
        return create_scheduler("other")

    @pytest.fixture
    def opts(self):
        return {"partition": "all"}


class TestSlurmPrograms(SchedulerContract):
    """On programs that stand in for those of Slurm, where there is no cluster."""

    requires_resource = False
    timeout_s = 90  # on a busy machine Slurm is asked seldom: 20 times as long as an answer takes

    @pytest.fixture
    def programs(self, tmp_path, monkeypatch):
        folder = tmp_path / "programs"
        folder.mkdir()
        for name in fake_slurm.PROGRAMS:
            program = folder / name
            program.write_text(
                f'#!/bin/sh\nexec "{sys.executable}" "{fake_slurm.__file__}" {name} "$@"\n'
            )
            program.chmod(0o755)
        jobs = tmp_path / "slurm"
        jobs.mkdir()
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_SLURM_DIR", str(jobs))
        monkeypatch.setenv("SLURM_CONF", str(jobs / "slurm.conf"))  # a cluster of its own
        version.cache_clear()
        yield folder
        version.cache_clear()

    @pytest.fixture
    def scheduler(self, programs):
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, programs):
        return create_scheduler("other")
