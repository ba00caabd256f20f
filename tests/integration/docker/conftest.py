"""A scheduler on the real daemon, whose apps are removed after each test."""

import pytest

from tests.docker_engine import image_id, image_with_init
from torchx.schedulers.docker_scheduler import LABEL_APP_ID, create_scheduler
from torchx.specs import AppDef, Resource, Role, is_terminal


class Apps:
    """Submits apps and waits for them."""

    def __init__(self, scheduler, image, client):
        self.scheduler = scheduler
        self.image = image
        self.client = client
        self.started = []

    def role(self, script, name="worker", **more):
        kwargs = {"image": self.image, "resource": Resource(cpu=1, gpu=0, memMB=64), **more}
        return Role(name, entrypoint="sh", args=["-c", script], **kwargs)

    def python(self, code, *args, name="worker", **more):
        role = self.role("", name, **more)
        role.entrypoint, role.args = "python3", ["-uc", code, *args]
        return role

    def start(self, *roles, name="it", **cfg):
        app_id = self.scheduler.submit(AppDef(name, [*roles]), cfg)
        self.started.append(app_id)
        return app_id

    def run(self, *roles, **cfg):
        app_id = self.start(*roles, **cfg)
        return app_id, self.end(app_id)

    def end(self, app_id):
        while not is_terminal((found := self.scheduler.describe(app_id)).state):
            self.scheduler.wait_for_change(app_id, 20)
        return found

    def lines(self, app_id, role="worker", k=0, **more):
        return [*self.scheduler.log_iter(app_id, role, k, **more)]

    def containers(self, app_id=None):
        label = LABEL_APP_ID if app_id is None else f"{LABEL_APP_ID}={app_id}"
        return self.client.containers.list(all=True, filters={"label": label}, ignore_removed=True)


@pytest.fixture(scope="session")
def docker_client():
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="session")
def plain_image(docker_client):
    """An image without entrypoint."""
    return image_id(docker_client, "torchx-test/python")


@pytest.fixture
def apps(docker_client):
    scheduler = create_scheduler("test")
    apps = Apps(scheduler, image_with_init(docker_client), docker_client)
    yield apps
    for app_id in apps.started:
        scheduler.delete(app_id)
    scheduler.close()
