"""What Monarch relies on beyond names."""

import pytest

from torchx import specs
from torchx.runner import Runner
from torchx.schedulers import local_scheduler
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDef, AppDryRunInfo, AppState, AppStatus, Role, RoleStatus
from torchx.specs.api import ReplicaState, ReplicaStatus


class Slow(Scheduler[dict]):
    """Ends a cancelled app only after a few looks."""

    def __init__(self, session_name: str, **kwargs: object) -> None:
        super().__init__("cluster", session_name)
        self.looks_left: int | None = None

    def _submit_dryrun(self, app, cfg):
        return AppDryRunInfo({"name": app.name}, str)

    def schedule(self, dryrun_info):
        return "1234"

    def describe(self, app_id):
        if self.looks_left is None:
            state = AppState.RUNNING
        else:
            self.looks_left -= 1
            state = AppState.CANCELLED if self.looks_left < 0 else AppState.RUNNING
        replicas = [ReplicaStatus(i, state, "mesh", f"host{i}") for i in range(2)]
        return DescribeAppResponse(
            app_id=app_id,
            state=state,
            ui_url="http://cluster/1234",
            metadata={"k": "v"},
            roles=[Role("mesh", "", num_replicas=2, port_map={"mesh": 26600})],
            roles_statuses=[RoleStatus("mesh", replicas)],
        )

    def list(self, cfg=None):
        return [ListAppResponse("1234", AppState.RUNNING)]

    def _cancel_existing(self, app_id):
        self.looks_left = 3


def app_of(**role) -> AppDef:
    kwargs = {"entrypoint": "sh", "args": ["-c", "echo $K"], **role}
    return AppDef(
        "job", [Role("mesh", "", resource=specs.resource(cpu=1, gpu=0, memMB=1), **kwargs)]
    )


@pytest.fixture
def runner():
    factories = {"k8s": Slow, "local_cwd": local_scheduler.create_scheduler}
    with Runner("", factories) as runner:
        yield runner


def test_an_empty_session_gives_handles_that_can_be_parsed(runner):
    handle = runner.run(app_of(), "k8s", {})
    assert handle == "k8s:///1234"
    parsed = specs.parse_app_handle(handle)
    assert tuple(parsed) == ("k8s", "", "1234")
    assert runner.status(handle).state is AppState.RUNNING


def test_states_are_ordered_numbers():
    assert ReplicaState is AppState
    assert AppState.SUBMITTED <= AppState.PENDING < AppState.RUNNING < AppState.SUCCEEDED
    assert AppState.FAILED > AppState.RUNNING
    assert min([AppState.RUNNING, AppState.PENDING]) is AppState.PENDING
    assert isinstance(AppState.RUNNING, int)


def test_the_text_of_a_dryrun_can_be_replaced(runner):
    info = runner.dryrun(app_of(), "k8s", {}, None)
    info._fmt = lambda request: f"<{request['name']}>"
    assert str(info) == "<job>"


def test_the_app_of_a_dryrun_holds_what_was_set(runner, tmp_path):
    app = app_of(env={"A": "1"})
    info = runner.dryrun(app, "k8s", {}, str(tmp_path))
    assert info.app.roles[0].env["A"] == "1"
    info.app.roles[0].env["B"] = "2"
    assert "B" not in app.roles[0].env


def test_a_status_tells_hosts_and_page(runner):
    status = runner.status(runner.run(app_of(), "k8s", {}))
    assert isinstance(status, AppStatus)
    (role,) = status.roles
    assert [(r.id, r.hostname, r.state) for r in role.replicas] == [
        (0, "host0", AppState.RUNNING),
        (1, "host1", AppState.RUNNING),
    ]
    assert status.ui_url == "http://cluster/1234"
    assert not status.is_terminal()


def test_describing_an_unknown_handle_asks_the_scheduler(runner):
    app = runner.describe("k8s:///1234")
    assert app.name == "1234"
    assert app.roles[0].port_map == {"mesh": 26600}
    assert app.metadata == {"k": "v"}


def test_cancel_returns_before_the_app_has_ended(runner):
    handle = runner.run(app_of(), "k8s", {})
    runner.cancel(handle)
    looks = 0
    while not runner.status(handle).is_terminal():
        looks += 1
        assert looks < 10
    assert looks > 0
    assert runner.status(handle).state is AppState.CANCELLED


def test_a_local_job_takes_its_program_from_the_path(runner):
    app = app_of(env={"K": f"replica {specs.macros.replica_id}"}, num_replicas=2)
    handle = runner.run(app, "local_cwd")
    assert runner.wait(handle, wait_interval=0.1).state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "mesh", 1)) == ["replica 1\n"]


def test_a_workspace_tells_its_projects():
    role = app_of(workspace=specs.Workspace({"/src": "dst"})).roles[0]
    assert role.workspace.projects == {"/src": "dst"}
