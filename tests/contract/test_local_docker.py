"""``local_docker`` keeps the contract of schedulers, on a real daemon."""

import pytest

from tests.docker_engine import image_with_init, needs_docker, skip_without_docker
from torchx.schedulers.docker_scheduler import create_scheduler
from torchx.testing.scheduler_suite import Jobs, SchedulerContract

skip_without_docker()
pytestmark = needs_docker


@pytest.fixture(scope="module")
def docker_client():
    import docker

    client = docker.from_env()
    yield client
    client.close()


class TestLocalDocker(SchedulerContract):
    requires_resource = False
    timeout_s = 60

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
    def image(self, docker_client):
        return image_with_init(docker_client)

    @pytest.fixture
    def jobs(self, scheduler, opts, image, resource):
        jobs = Jobs(scheduler, opts, image, resource, self.timeout_s)
        yield jobs
        jobs.clean_up()
        for app_id in jobs._started:
            scheduler.delete(app_id)
