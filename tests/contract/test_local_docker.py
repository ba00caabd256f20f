"""``local_docker`` keeps the contract of schedulers, on a real daemon behind a proxy."""

import contextlib
import json
import re
import sys

import pytest

from tests.contract.trials import TRIALS
from tests.docker_engine import image_with_init, needs_docker
from tests.docker_proxy import DockerProxy
from torchx.schedulers.docker_scheduler import LABEL_APP_ID, DockerScheduler, create_scheduler
from torchx.schedulers.docker_scheduler._launcher import identity
from torchx.schedulers.docker_scheduler._request import LABEL_LAUNCHER
from torchx.schedulers.docker_scheduler._states import Ended, build_snapshot, parse_container
from torchx.specs import AppState
from torchx.testing.scheduler_suite import SchedulerContract

pytestmark = needs_docker

LABELS = {
    "torchx.pytorch.org/app-id": "job-x1",
    "torchx.pytorch.org/role-name": "worker",
    "torchx.pytorch.org/replica-id": "0",
}
OF_ONE_CONTAINER = re.compile(r"/containers/[0-9a-f]{12,}(/(stop|start|wait|logs))?")
"""Orders and streams that there must be for each container; to ask for its record is none."""


@pytest.fixture(scope="module")
def docker_client():
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def proxy(tmp_path, monkeypatch, docker_client):
    with DockerProxy(tmp_path / "docker.sock") as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.url)
        yield proxy


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
    no_commands = "what counts the calls passes no upgraded connections on, see test_inside.py"
    trials = TRIALS
    timeout_s = 60
    many_replicas = 12  # as many as this machine starts soon; 300 are tested on a daemon of ours
    # Docker has no state for a cancelled app: it is noted in a volume, which is the second question
    most_queries = {"describe": 2, "list": 2, "log": 2, "cancel": 3, "delete": 8}  # noqa: RUF012 - of the suite
    native_states = (
        ("created", AppState.SUBMITTED),
        ("restarting", AppState.PENDING),
        ("running", AppState.RUNNING),
        ("paused", AppState.PENDING),
        ("removing", AppState.PENDING),
        ("dead", AppState.FAILED),
        ("exited 0", AppState.SUCCEEDED),
        ("exited 3", AppState.FAILED),
        ("dreaming", AppState.UNKNOWN),
    )

    def state_of(self, native):
        status, _, code = native.partition(" ")
        text = f"Exited ({code}) 1 second ago"
        container = parse_container({"Id": "1", "Labels": LABELS, "State": status, "Status": text})
        (replica,) = build_snapshot("job-x1", [container], {}, {}, Ended(), False).replicas
        return replica.state

    @pytest.fixture
    def scheduler_name(self):
        return "local_docker"

    @pytest.fixture
    def scheduler(self, proxy):
        scheduler = RecordingScheduler("test")
        yield scheduler
        for app_id in scheduler.started:
            scheduler.delete(app_id)
        scheduler.close()

    @pytest.fixture
    def other_scheduler(self, proxy):
        scheduler = create_scheduler("other")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def image(self, docker_client):
        return image_with_init(docker_client)

    # -- the backend, broken and looked into ------------------------------------------------

    @pytest.fixture
    def backend_away(self, proxy):
        return proxy.away

    @pytest.fixture
    def backend_missing(self, scheduler, monkeypatch):
        @contextlib.contextmanager
        def missing():
            scheduler.close()  # a client that is there needs no package any more
            with monkeypatch.context() as patch:
                patch.setitem(sys.modules, "docker", None)
                yield

        return missing

    @pytest.fixture
    def refuse_submission(self, proxy):
        return proxy.refusing

    @pytest.fixture
    def refuse_end(self, proxy):
        return lambda: proxy.refusing(what="(POST|DELETE) /containers/.*")

    @pytest.fixture
    def native_objects(self, docker_client):
        def names():
            ours = f"{LABEL_LAUNCHER}={identity()}"  # other tests use this daemon at the same time
            rows = docker_client.api.containers(all=True, filters={"label": ours})
            return [row["Names"][0] for row in rows if row["State"] != "exited"]

        return names

    @pytest.fixture
    def submitted(self, docker_client):
        def text(app_id):
            api = docker_client.api
            rows = api.containers(all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"})
            return json.dumps([api.inspect_container(row["Id"]) for row in rows])

        return text

    @pytest.fixture
    def queries(self, proxy):
        return lambda: sum(not OF_ONE_CONTAINER.fullmatch(path) for _, path in proxy.calls)
