"""``slurm`` keeps the contract of schedulers, on a real cluster."""

import pytest

from torchx.schedulers.slurm_scheduler import create_scheduler
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
