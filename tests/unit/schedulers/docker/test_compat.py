"""Names that clients of the published packages use."""

from torchx.schedulers import docker_scheduler
from torchx.schedulers.docker_scheduler import DockerOpts, DockerScheduler, Opts
from torchx.specs import AppState


class SdkContainer:
    """A container as Docker's SDK gives it."""

    def __init__(self, name, status, code=0):
        self.name = name
        self.status = status
        self.code = code

    def wait(self, timeout):
        return {"StatusCode": self.code}


class SdkClient:
    """A client of the SDK with some containers; notes which labels are asked for."""

    def __init__(self, *containers):
        self.found = [*containers]
        self.containers = self
        self.asked = []

    def list(self, all, filters):
        self.asked.append(filters["label"])
        return self.found


def test_a_scheduler_that_was_made_without_init_has_the_client_it_was_given():
    """NeMo-Run's makes itself in this way, and sets the attribute of release 0.7."""
    scheduler = object.__new__(DockerScheduler)
    client = SdkClient(SdkContainer("a", "running"))
    scheduler._DockerWorkspaceMixin__docker_client = client
    assert scheduler._docker_client is client
    (container,) = scheduler._get_containers("job-x1")
    assert client.asked == [["torchx.pytorch.org/app-id=job-x1"]]
    assert scheduler._get_container("job-x1", "w", 0) is container
    scheduler.close()


def test_states_of_containers_of_the_sdk():
    scheduler = DockerScheduler("test")
    states = {
        ("running", 0): AppState.RUNNING,
        ("exited", 0): AppState.SUCCEEDED,
        ("exited", 137): AppState.FAILED,
        ("dreaming", 0): AppState.UNKNOWN,
    }
    for (status, code), state in states.items():
        assert scheduler._get_app_state(SdkContainer("a", status, code)) is state


def test_the_client_that_is_given_is_used_and_not_closed():
    client = SdkClient()
    scheduler = DockerScheduler("test", docker_client=client)
    assert scheduler._docker_client is client
    scheduler.close()  # it would fail: the client has no `close`
    assert scheduler._get_container("job-x1", "w", 0) is None


def test_options_have_the_name_of_release_0_7_too():
    assert DockerOpts is Opts
    assert "DockerOpts" in docker_scheduler.__all__
