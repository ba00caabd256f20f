"""``local_cwd`` keeps the contract of schedulers."""

import pytest

from torchx.schedulers.local_scheduler import create_scheduler
from torchx.testing.scheduler_suite import SchedulerContract


class TestLocalCwd(SchedulerContract):
    requires_resource = False
    timeout_s = 30

    @pytest.fixture
    def scheduler(self):
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self):
        scheduler = create_scheduler("other")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def opts(self):
        return {"grace_s": 3}


class TestLocalCwdDetached(TestLocalCwd):
    """The same for jobs that do not end with their launcher."""

    @pytest.fixture
    def opts(self):
        return {"grace_s": 3, "detach": True}
