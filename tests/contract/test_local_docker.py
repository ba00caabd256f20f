"""``local_docker`` keeps the contract of schedulers, on a real daemon."""

import pytest

from tests.docker_engine import image_with_init, needs_docker
from torchx.schedulers.docker_scheduler import DockerScheduler, create_scheduler
from torchx.testing.scheduler_suite import SchedulerContract

pytestmark = needs_docker


@pytest.fixture(scope="module")
def docker_client():
    import docker

    client = docker.from_env()
    yield client
    client.close()


class RecordingScheduler(DockerScheduler):
    """Knows what it started, which is deleted after the test."""

    def __init__(self, session_name):
        super().__init__(session_name)
        self.started = []

    def schedule(self, dryrun_info):
        self.started.append(super().schedule(dryrun_info))
        return self.started[-1]


class TestLocalDocker(SchedulerContract):
    requires_resource = False
    timeout_s = 60

    @pytest.fixture
    def scheduler(self):
        scheduler = RecordingScheduler("test")
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self):
        scheduler = create_scheduler("other")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def image(self, docker_client):
        return image_with_init(docker_client)
