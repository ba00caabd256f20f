"""``Runner.dryrun``, ``schedule`` and ``run``: what reaches the scheduler and what comes back."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runner.fakes import SMALL, BuildingScheduler, FakeScheduler, an_app, runner_of
from torchx.runner import Runner
from torchx.schedulers.api import Scheduler
from torchx.specs import (
    MISSING,
    AppDef,
    AppDryRunInfo,
    InvalidRunConfigException,
    Role,
    UnknownSchedulerException,
    Workspace,
)
from torchx.util.session import get_session_id_or_create_new


def test_the_callers_app_is_left_alone() -> None:
    runner, _ = runner_of()
    app = an_app(env={"A": "1"}, args=["x"], metadata={"k": {"deep": [1]}})
    before = copy.deepcopy(app)
    info = runner.dryrun(app, "fake")
    assert app == before
    assert info.app is not app
    assert info.app is not None
    role = info.app.roles[0]
    assert role.env["A"] == "1"
    role.args.append("y")
    role.metadata["k"]["deep"].append(2)
    assert app == before


def test_an_app_can_be_dry_run_again_with_an_equal_request() -> None:
    runner, _ = runner_of()
    first = runner.dryrun(an_app(), "fake")
    assert first.app is not None
    again = runner.dryrun(first.app, "fake")
    assert again.request == first.request
    assert again.app == first.app


def test_overrides_are_shared_with_the_copy() -> None:
    runner, _ = runner_of()
    produced = []

    def produce() -> str:
        produced.append(1)
        return "lazy"

    app = an_app(overrides={"image": produce})
    info = runner.dryrun(app, "fake")
    assert info.app is not None
    assert info.app.roles[0].overrides is app.roles[0].overrides
    assert info.app.roles[0].image == "lazy"
    assert app.roles[0].image == "lazy"
    assert produced == [1]


def test_a_subclass_of_role_stays_one_and_its_hook_is_called_per_role() -> None:
    seen = []

    class Hooked(Role):
        def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
            seen.append((self.name, scheduler))
            return AppDryRunInfo({**dryrun_info.request, self.name: True}, repr)

    roles: list[Role] = [
        Hooked(n, "img", entrypoint="sh", resource=SMALL, num_replicas=3) for n in ("a", "b")
    ]
    runner, _ = runner_of()
    info = runner.dryrun(AppDef("app", roles), "fake")
    assert seen == [("a", "fake_backend"), ("b", "fake_backend")]
    assert info.request["a"]
    assert info.request["b"]


def test_steps_come_in_order() -> None:
    runner, scheduler = runner_of()
    info = runner.dryrun(an_app(), "fake", {"queue": "q"})
    steps = ["pre_build_validate fake q", "validate fake", "submit_dryrun"]
    assert scheduler.calls == steps
    assert info._scheduler == "fake"
    assert info.cfg == {"queue": "q", "tags": None}
    assert str(info) == repr(info.request)


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (AppDef("x"), r"No roles for app: x\. Did you forget to add roles to AppDef\?"),
        (an_app(entrypoint=""), r"No entrypoint for role: worker\."),
        (an_app(entrypoint=MISSING), r"No entrypoint for role: worker\."),
        (an_app(num_replicas=0), r"Non-positive replicas for role: worker\."),
        (an_app(num_replicas=-1), r"Non-positive replicas for role: worker\."),
    ],
)
def test_a_wrong_app_is_refused_before_the_scheduler_is_made(app: AppDef, message: str) -> None:
    def never(session_name: str, **kwargs: object) -> Scheduler[Any]:
        raise AssertionError

    with pytest.raises(ValueError, match=message):
        Runner("s", {"fake": never}).dryrun(app, "fake")


def test_a_role_without_resource_is_refused() -> None:
    runner, _ = runner_of()
    app = AppDef("x", [Role("w", "img", entrypoint="sh")])
    with pytest.raises(ValueError, match=r"No resource for role: w \(image: img\)"):
        runner.dryrun(app, "fake")


def test_replicas_learn_of_their_job(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, _ = runner_of()
    info = runner.dryrun(an_app(env={"TORCHX_JOB_ID": "mine", "B": "2"}), "fake")
    assert info.app is not None
    assert info.app.roles[0].env == {
        "B": "2",
        "TORCHX_JOB_ID": "fake://session/${app_id}",
        "TORCHX_INTERNAL_SESSION_ID": get_session_id_or_create_new(),
    }


def test_the_parent_run_comes_from_the_argument_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner, _ = runner_of()

    def parent(**kwargs: Any) -> str:
        app = runner.dryrun(an_app(), "fake", **kwargs).app
        assert app is not None
        return app.roles[0].env["TORCHX_PARENT_RUN_ID"]

    assert parent(parent_run_id="p1") == "p1"
    monkeypatch.setenv("TORCHX_PARENT_RUN_ID", "p2")
    assert parent(parent_run_id="p1") == "p2"


def test_replicas_learn_of_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, _ = runner_of()
    Path(".torchxconfig").write_text(
        "[torchx:tracker]\nfoo =\nbar =\n[tracker:foo]\nconfig = s3://x\n"
    )
    app = runner.dryrun(an_app(), "fake").app
    assert app is not None
    env = app.roles[0].env
    assert env["TORCHX_TRACKERS"] == "foo,bar"
    assert env["TORCHX_TRACKER_FOO_CONFIG"] == "s3://x"
    assert "TORCHX_TRACKER_BAR_CONFIG" not in env


@pytest.mark.parametrize(
    "config",
    [
        "[torchx:tracker]\na-b =\na_b =\n[tracker:a-b]\nconfig = 1\n[tracker:a_b]\nconfig = 2\n",
        "[torchx:tracker]\na-b =\na_b =\n[tracker:a-b]\nconfig = 1\n",
        "[torchx:tracker]\na-b = x:y\na_b =\n",
    ],
)
def test_trackers_that_the_job_cannot_tell_apart_are_refused(config: str) -> None:
    runner, scheduler = runner_of()
    Path(".torchxconfig").write_text(config)
    with pytest.raises(ValueError, match=r"trackers `a-b` and `a_b` cannot be told apart.*rename"):
        runner.dryrun(an_app(), "fake")
    assert scheduler.calls == []


def test_trackers_of_like_names_may_have_the_same_settings() -> None:
    runner, _ = runner_of()
    Path(".torchxconfig").write_text("[torchx:tracker]\na-b =\nA.B =\n[tracker:a-b]\nconfig =\n")
    app = runner.dryrun(an_app(), "fake").app
    assert app is not None
    assert app.roles[0].env["TORCHX_TRACKERS"] == "a-b,A.B"


def test_a_client_may_replace_the_function_that_finds_trackers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torchx.runner.api.get_configured_trackers", lambda: {"t": None})
    runner, _ = runner_of()
    app = runner.dryrun(an_app(), "fake").app
    assert app is not None
    assert app.roles[0].env["TORCHX_TRACKERS"] == "t"


def test_a_wrong_option_is_refused_with_a_suggestion() -> None:
    runner, scheduler = runner_of()
    with pytest.raises(InvalidRunConfigException, match="Did you mean `queue`") as err:
        runner.dryrun(an_app(), "fake", {"quue": "q"})
    assert "queue, tags" in str(err.value)
    with pytest.raises(InvalidRunConfigException, match="must be of type: list"):
        runner.dryrun(an_app(), "fake", {"tags": "x"})
    assert scheduler.calls == []


@pytest.mark.parametrize("cfg", ["queue=q", ["queue"], 7])
def test_options_that_are_no_mapping_are_refused(cfg: Any) -> None:
    runner, _ = runner_of()
    with pytest.raises(ValueError, match="cfg must be a mapping"):
        runner.dryrun(an_app(), "fake", cfg)


def test_a_clients_own_object_passes_in_place_of_options() -> None:
    """NeMo-Run hands its executor through the runner."""

    class Executor:
        queue = "q"

    class Tolerant(FakeScheduler):
        def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None: ...

        def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[Any]:
            return AppDryRunInfo(cfg.queue, repr)

    executor: Any = Executor()
    runner, _ = runner_of(Tolerant)
    info = runner.dryrun(an_app(), "fake", executor)
    assert info.request == "q"
    assert info.cfg is executor


def test_a_scheduler_that_validates_with_two_arguments_works() -> None:
    """As those of NeMo-Run, written for release 0.7, do."""

    class Old(FakeScheduler):
        def _validate(self, app: AppDef, scheduler: str) -> None:  # type: ignore[override]  # as old
            self.calls.append(f"old validate {scheduler}")

    runner, scheduler = runner_of(Old)
    runner.dryrun(AppDef("x", [Role("w", "i", entrypoint="sh")]), "fake")
    assert "old validate fake" in scheduler.calls


def test_an_unknown_scheduler_is_named_with_those_that_exist() -> None:
    runner, _ = runner_of()
    with pytest.raises(UnknownSchedulerException) as err:
        runner.dryrun(an_app(), "fkae")
    message = str(err.value)
    assert message.startswith(
        "Scheduler backend: fkae does not exist. Use session.scheduler_backends() to see all"
        " supported schedulers"
    )
    assert "which are: fake" in message
    assert "Did you mean `fake`?" in message


def test_a_workspace_is_built_in_place_of_the_first_roles() -> None:
    runner, scheduler = runner_of(BuildingScheduler)
    app = an_app(workspace=Workspace({"/old": ""}))
    app.roles.append(copy.deepcopy(app.roles[0]))
    info = runner.dryrun(app, "fake", workspace="/new")
    assert info.app is not None
    assert [role.image for role in info.app.roles] == ["img+/new", "img+/old"]
    assert [role.workspace for role in app.roles] == [Workspace({"/old": ""})] * 2
    assert scheduler.calls[1:4] == ["build img /new", "build img /old", "validate fake"]
    assert info.cfg["image_repo"] is None


def test_a_workspace_may_be_an_object() -> None:
    runner, _ = runner_of(BuildingScheduler)
    info = runner.dryrun(an_app(), "fake", workspace=Workspace({"/a": "b"}))
    assert info.app is not None
    assert info.app.roles[0].image == "img+/a:b"


def test_a_workspace_is_ignored_where_none_is_built() -> None:
    runner, _ = runner_of()
    info = runner.dryrun(an_app(), "fake", workspace="/new")
    assert info.app is not None
    assert info.app.roles[0].workspace is None


def test_schedule_submits_the_request_and_remembers_the_app() -> None:
    runner, scheduler = runner_of()
    info = runner.dryrun(an_app(), "fake")
    info.request["app"] = "edited"
    handle = runner.schedule(info)
    assert handle == "fake://session/edited-0"
    assert runner._apps[handle] is info.app
    assert list(scheduler.apps) == ["edited-0"]


def test_a_request_of_no_scheduler_cannot_be_scheduled() -> None:
    runner, _ = runner_of()
    with pytest.raises(AssertionError, match="Unexpected `None`"):
        runner.schedule(AppDryRunInfo("request", repr))


def test_a_request_made_by_hand_can_be_scheduled() -> None:
    class Simple(FakeScheduler):
        def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
            return f"{dryrun_info.request}-{dryrun_info.cfg.get('queue')}"

    runner, _ = runner_of(Simple)
    info: AppDryRunInfo[Any] = AppDryRunInfo("hand", repr)
    info._scheduler = "fake"
    assert runner.schedule(info) == "fake://session/hand-None"


def test_run_submits_unless_it_is_a_dry_run() -> None:
    runner, scheduler = runner_of()
    info = runner.run(an_app(), "fake", dryrun=True)
    assert isinstance(info, AppDryRunInfo)
    assert scheduler.apps == {}
    assert runner.run(an_app(), "fake") == "fake://session/app-0"


def test_an_empty_session_makes_handles_that_can_be_read() -> None:
    """Monarch calls `Runner("", factories)`."""
    runner = Runner("", {"k8s": FakeScheduler})
    handle = runner.run(an_app(), "k8s")
    assert handle == "k8s:///app-0"
    status = runner.status(handle)
    assert status is not None
    assert status.msg == "fine"


def test_a_component_runs_by_name_with_arguments_of_both_kinds(tmp_path: Path) -> None:
    component = tmp_path / "comp.py"
    component.write_text(
        "import torchx.specs as specs\n"
        "def job(msg: str, n: int = 1, q: str = 'none') -> specs.AppDef:\n"
        "    r = specs.Role('w', 'img', entrypoint='echo', args=[msg, q], num_replicas=n,\n"
        "                   resource=specs.Resource(1, 0, 1))\n"
        "    return specs.AppDef(f'job-{msg}', [r])\n"
    )
    name = f"{component}:job"
    runner, _ = runner_of(component_defaults={name: {"q": "from-defaults"}})
    info = runner.dryrun_component(name, ["--msg", "hi", "--n", "2"], "fake")
    assert info.app is not None
    assert info.app.roles[0].args == ["hi", "from-defaults"]
    assert info.app.roles[0].num_replicas == 2
    info = runner.dryrun_component(name, {"msg": "ho", "n": 3}, "fake")
    assert info.app is not None
    assert info.app.name == "job-ho"
    assert info.app.roles[0].num_replicas == 3
    handle = runner.run_component(name, ["--msg", "hi"], "fake", cfg={"queue": "q"})
    assert handle == "fake://session/job-hi-0"


def test_images_are_built_without_an_app_being_changed() -> None:
    runner, scheduler = runner_of(BuildingScheduler)
    workspace = Workspace({"/a": ""})
    app = an_app(workspace=workspace)
    app.roles += [copy.deepcopy(app.roles[0]), Role("plain", "img")]
    before = copy.deepcopy(app)
    assert runner.build_workspace(app, "fake") == {("img", workspace): "img+/a"}
    assert app == before
    assert scheduler.calls == ["build img /a"]
    assert runner.build_workspace(app.roles[0], "fake") == "img+/a"
    assert runner.build_workspace(app.roles[2], "fake") is None


def test_a_scheduler_without_workspaces_builds_nothing() -> None:
    runner, _ = runner_of()
    app = an_app(workspace=Workspace({"/a": ""}))
    assert runner.build_workspace(app, "fake") == {}
    assert runner.build_workspace(app.roles[0], "fake") is None


def test_a_build_that_changes_more_than_the_image_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Meddling(BuildingScheduler):
        def caching_build_workspace_and_update_role(self, role: Role, *args: Any) -> None:
            super().caching_build_workspace_and_update_role(role, *args)
            if "/b" in role.image:
                role.env["CODE"] = "here"

    runner, _ = runner_of(Meddling)
    a, b = Workspace({"/a": ""}), Workspace({"/b": ""})
    app = an_app(workspace=a)
    app.roles.append(copy.deepcopy(app.roles[0]))
    app.roles[1].workspace = b
    assert runner.build_workspace(app, "fake") == {("img", a): "img+/a"}
    assert "changes more of role `worker` than its image" in caplog.text
    assert runner.build_workspace(app.roles[1], "fake") is None


def test_a_runner_may_be_subclassed_as_clients_do() -> None:
    """NeMo-Run overrides `dryrun`, `run` and `schedule` and uses these private names."""

    class Client(Runner):
        def run(  # type: ignore[override]  # as the client has it
            self, app: AppDef, scheduler: str, cfg: Any = None, **kwargs: Any
        ) -> Any:
            info = kwargs.get("dryrun_info") or self.dryrun(app, scheduler, cfg)
            return self.schedule(dryrun_info=info)

        def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
            sched = self._scheduler("fake")
            app_id = sched.schedule(dryrun_info)
            handle = f"fake://{self._name}/{app_id}"
            assert dryrun_info._app is not None
            self._apps[handle] = dryrun_info._app
            return handle

    runner = Client("n", {"fake": FakeScheduler}, {}, scheduler_params={"experiment": 1})
    info = runner.dryrun(an_app(), "fake")
    handle = runner.run(an_app(), "fake", dryrun_info=info)
    app = runner.describe(handle)
    assert app is info.app
    scheduler: Any = runner._scheduler("fake")
    assert scheduler.params["experiment"] == 1


def test_a_client_may_put_in_a_scheduler_of_its_own() -> None:
    """CodeFlare does."""
    runner = Runner("n", {})
    runner._scheduler_instances["mine"] = FakeScheduler(session_name=runner._name)
    assert runner.run(an_app(), "mine") == "mine://n/app-0"
