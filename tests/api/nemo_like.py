"""Stand-ins that use TorchX the way NeMo-Run 0.11 does; written from what is known of its use."""

import os
import pickle
import pprint
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torchx.runner.api import Runner
from torchx.runner.events import log_event
from torchx.schedulers.api import (
    AppDryRunInfo,
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
    split_lines_iterator,
)
from torchx.schedulers.local_scheduler import (
    COMBINED_LOG,
    STDERR_LOG,
    STDOUT_LOG,
    CWDImageProvider,
    LocalScheduler,
    LogIterator,
    PopenRequest,
    _LocalAppDef,
)
from torchx.specs import AppDef, AppState, make_app_handle, parse_app_handle, runopts
from torchx.util.types import none_throws


@dataclass
class Executor:
    """Takes the place of ``cfg``; no mapping."""

    job_dir: str
    env_vars: dict[str, str] = field(default_factory=dict)


class ExperimentRunner(Runner):
    """Replaces the submitting half of the runner."""

    def dryrun(self, app, scheduler, cfg=None, workspace=None, parent_run_id=None):
        for role in app.roles:
            if not role.entrypoint:
                raise ValueError(f"no entrypoint for role {role.name}")
        with log_event("dryrun", scheduler):
            sched = self._scheduler(scheduler)
            sched._validate(app, scheduler)
            dryrun_info = sched.submit_dryrun(app, cfg)
            dryrun_info._scheduler = scheduler
            return dryrun_info

    def run(self, app, scheduler, cfg=None, workspace=None, parent_run_id=None, dryrun_info=None):
        with log_event(api="run", workspace=workspace) as ctx:
            if dryrun_info is None:
                dryrun_info = self.dryrun(app, scheduler, cfg)
            handle = self.schedule(dryrun_info)
            app = none_throws(dryrun_info._app)
            ctx._torchx_event.scheduler = none_throws(dryrun_info._scheduler)
            ctx._torchx_event.app_image = app.roles[0].image
            ctx._torchx_event.app_id = parse_app_handle(handle)[2]
            return handle

    def schedule(self, dryrun_info):
        scheduler = none_throws(dryrun_info._scheduler)
        app = none_throws(dryrun_info._app)
        with log_event("schedule", scheduler, app_image=app.roles[0].image) as ctx:
            app_id = self._scheduler(scheduler).schedule(dryrun_info)
            app_handle = make_app_handle(scheduler, self._name, app_id)
            self._apps[app_handle] = app
            ctx._torchx_event.app_id = app_id
            return app_handle


class ExecutorSchedulerMixin:
    """Replaces the dry run: what is given as options goes through as it is."""

    def submit_dryrun(self, app, cfg):
        dryrun_info = self._submit_dryrun(app, cfg)
        for role in app.roles:
            dryrun_info = role.pre_proc(self.backend, dryrun_info)
        dryrun_info._app = app
        dryrun_info._cfg = cfg
        return dryrun_info


class PersistentLocalScheduler(ExecutorSchedulerMixin, LocalScheduler):
    """Sets the attributes of its parent by hand and keeps its apps in a file of its own."""

    def __init__(self, session_name: str, experiment: Any = None) -> None:
        self.backend = "local"
        self.session_name = session_name
        self._apps: dict[str, _LocalAppDef] = {}
        self._image_provider_class = CWDImageProvider
        self._cache_size = 100
        self._extra_paths = None
        self._base_log_dir = None
        self._created_tmp_log_dir = False
        self._experiment = experiment

    def _validate(self, app: AppDef, scheduler: str) -> None:
        pass

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("job_dir", type_=str, help="where the job's files go")
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Executor) -> AppDryRunInfo[PopenRequest]:
        for role in app.roles:
            role.env.update(cfg.env_vars)
        request = self._to_popen_request(app, {"log_dir": cfg.job_dir})
        return AppDryRunInfo(request, lambda r: pprint.pformat(asdict(r), indent=2, width=80))

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        app_id = super().schedule(dryrun_info=dryrun_info)
        self._save(app_id, dryrun_info._cfg.job_dir)
        return app_id

    def _save(self, app_id: str, job_dir: str) -> None:
        app = self._apps[app_id]
        saved = {"id": app.id, "log_dir": app.log_dir, "state": app.state.name}
        saved["roles"] = list(app.role_replicas)
        with open(os.path.join(job_dir, f"{app_id}.pickle"), "wb") as file:
            pickle.dump(saved, file)

    @staticmethod
    def load(path: Path) -> _LocalAppDef:
        saved = pickle.loads(path.read_bytes())
        app = _LocalAppDef(id=saved["id"], log_dir=saved["log_dir"])
        app.role_replicas = {name: [] for name in saved["roles"]}
        app.set_state(AppState[saved["state"]])
        return app

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return super().describe(app_id=app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: Any = None,
        until: Any = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        app = self._apps[app_id]
        names = {Stream.STDOUT: STDOUT_LOG, Stream.STDERR: STDERR_LOG}
        name = names.get(streams, COMBINED_LOG)
        log_file = os.path.join(app.log_dir, role_name, str(k), name)
        return LogIterator(app_id, log_file, self, should_tail=should_tail)

    def list(self) -> list[ListAppResponse]:
        return [ListAppResponse(app_id=i, state=a.state) for i, a in self._apps.items()]

    def _cancel_existing(self, app_id: str) -> None:
        self._apps[app_id].kill()

    def close(self) -> None:
        pass


def create_persistent_local(session_name: str, **kwargs: Any) -> PersistentLocalScheduler:
    return PersistentLocalScheduler(session_name, experiment=kwargs.pop("experiment"))


class RemoteScheduler(ExecutorSchedulerMixin, Scheduler[dict[str, str]]):
    """Runs nothing: an app goes through the given states, one per look; its log is downloaded."""

    def __init__(self, session_name: str, experiment: Any = None) -> None:
        super().__init__("remote", session_name)
        self.states = [AppState.SUBMITTED, AppState.RUNNING, AppState.RUNNING, AppState.SUCCEEDED]
        self._looks = 0
        self._known: list[str] = []

    def _run_opts(self) -> runopts:
        return runopts()

    def _validate(self, app: AppDef, scheduler: str) -> None:
        pass

    def _submit_dryrun(self, app: AppDef, cfg: Executor) -> AppDryRunInfo[AppDef]:
        return AppDryRunInfo(app, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[AppDef]) -> str:
        self._known.append("job___1")
        return "job___1"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        if app_id not in self._known:
            return None
        state = self.states[min(self._looks, len(self.states) - 1)]
        self._looks += 1
        return DescribeAppResponse(app_id=app_id, state=state)

    def log_iter(self, app_id: str, role_name: str, k: int = 0, *args: Any, **kw: Any):
        return DownloadingLogIterator(app_id, Path("downloaded"), self)

    def _cancel_existing(self, app_id: str) -> None:
        self.states[:] = [AppState.CANCELLED]

    def list(self) -> list[ListAppResponse]:
        return [ListAppResponse(app_id=i, state=self.states[-1]) for i in self._known]

    def close(self) -> None:
        pass


class DownloadingLogIterator(LogIterator):
    """Skips its parent's constructor; learns where the log is only once the job runs."""

    def __init__(self, app_id: str, target: Path, scheduler: RemoteScheduler) -> None:
        self._app_id = app_id
        self._log_file = ""
        self._log_fp = None
        self._scheduler = scheduler
        self._app_finished = False
        self._target = target
        self.checks = 0

    def _check_finished(self) -> None:
        self.checks += 1
        state = none_throws(self._scheduler.describe(self._app_id)).state
        if state >= AppState.RUNNING:
            if not self._log_file:
                self._target.write_text("first\n")
                self._log_file = str(self._target)
            else:
                with self._target.open("a") as file:
                    file.write(f"more at check {self.checks}\n")
        self._app_finished = state is AppState.SUCCEEDED


class RawLogIterator(LogIterator):
    """Uses the pieces that ``__next__`` gives, as its own lines."""

    def __iter__(self):
        self._check_finished()
        self._log_fp = open(self._log_file)  # noqa: SIM115 - its parent closes it
        return iter(split_lines_iterator(iter(self.__next__, None)))
