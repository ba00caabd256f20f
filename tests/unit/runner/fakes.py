"""Small schedulers that keep their apps in memory."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchx.runner import Runner
from torchx.schedulers.api import (
    DescribeAppResponse,
    FailedReplica,
    ListAppResponse,
    LogBlock,
    LogReport,
    Scheduler,
    Stream,
)
from torchx.specs import AppDef, AppDryRunInfo, AppState, CfgVal, Resource, Role, runopts
from torchx.workspace import WorkspaceMixin

SMALL = Resource(cpu=1, gpu=0, memMB=64)


def an_app(name: str = "app", **role: Any) -> AppDef:
    defaults: dict[str, Any] = {"image": "img", "entrypoint": "run.sh", "resource": SMALL}
    return AppDef(name, roles=[Role("worker", **{**defaults, **role})])


class FakeScheduler(Scheduler[Mapping[str, CfgVal]]):
    """Apps go through the states in ``states`` with each look at them."""

    def __init__(self, session_name: str, **kwargs: object) -> None:
        super().__init__("fake_backend", session_name)
        self.params = kwargs
        self.calls: list[str] = []
        self.states: list[AppState] = [AppState.SUCCEEDED]
        self.apps: dict[str, AppDef] = {}
        self.waits: list[float] = []

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("queue", type_=str, default="main", help="queue")
        opts.add("tags", type_=list[str], default=None, help="tags")
        return opts

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        self.calls.append(f"pre_build_validate {scheduler} {dict(cfg)['queue']}")

    def _validate(
        self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> None:
        self.calls.append(f"validate {scheduler}")
        super()._validate(app, scheduler, cfg)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[Any]:
        self.calls.append("submit_dryrun")
        return AppDryRunInfo({"app": app.name, "cfg": dict(cfg)}, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        app_id = f"{dryrun_info.request['app']}-{len(self.apps)}"
        assert dryrun_info.app is not None
        self.apps[app_id] = dryrun_info.app
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        self.calls.append("describe")
        if app_id not in self.apps:
            return None
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        roles = self.apps[app_id].roles
        return DescribeAppResponse(app_id, state, num_restarts=2, msg="fine", roles=roles)

    def wait_for_change(self, app_id: str, timeout_s: float) -> None:
        self.waits.append(timeout_s)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        self.calls.append(f"list {cfg}")
        return [ListAppResponse(i, AppState.RUNNING, name=a.name) for i, a in self.apps.items()]

    def _cancel_existing(self, app_id: str) -> None:
        self.calls.append(f"cancel {app_id}")
        self.states = [AppState.CANCELLED]

    def _delete_existing(self, app_id: str) -> None:
        self.calls.append(f"delete {app_id}")
        del self.apps[app_id]

    def log_iter(self, *args: Any, **kwargs: Any) -> Iterable[str]:
        self.calls.append(f"log_iter {args} {kwargs}")
        return ["a line\n"]

    def close(self) -> None:
        self.calls.append("close")


class FullScheduler(FakeScheduler):
    """Has the optional methods as well."""

    def log_blocks(self, app_id: str, replicas: Any = None, **kwargs: Any) -> Any:
        self.calls.append(f"log_blocks {replicas} {kwargs['should_tail']}")
        return iter([LogBlock("worker", 0, 0, "x\n")])

    def failed_replicas(self, app_id: str, max_lines: int = 10) -> Any:
        return [FailedReplica("worker", 0, 0, 1, "exit code 1", None, ["boom\n"] * max_lines)]

    def verify_logs(self, app_id: str, replicas: Any = None) -> Any:
        return [LogReport("worker", 0, 0, Stream.COMBINED, 1, 2, True, None)]


class BuildingScheduler(WorkspaceMixin[None], FakeScheduler):
    """Builds ``<image>+<workspace>``, each pair once."""

    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("image_repo", type_=str, default=None, help="where to push")
        return opts

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        key = (role.image, role.workspace)
        if key not in build_cache:
            self.calls.append(f"build {role.image} {role.workspace}")
            build_cache[key] = f"{role.image}+{role.workspace}"
        role.image = str(build_cache[key])


def runner_of(make: Callable[..., Any] = FakeScheduler, **kwargs: Any) -> tuple[Runner, Any]:
    """A runner with one scheduler, ``fake``, and that scheduler."""
    runner = Runner("session", {"fake": make}, **kwargs)
    return runner, runner._scheduler("fake")
