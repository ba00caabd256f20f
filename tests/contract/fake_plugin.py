"""A small scheduler of its own kind, as a plugin would bring it: threads that run processes."""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from torchx.errors import InvalidInput, JobStartError, UnsupportedRequest
from torchx.schedulers.api import (
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    DescribeAppResponse,
    FailedReplica,
    ListAppResponse,
    RoleStatus,
    Scheduler,
    SchedulerFeatures,
    Stream,
    StructuredOpts,
)
from torchx.schedulers.ids import make_unique
from torchx.specs.api import ReplicaStatus, RetryPolicy, is_terminal, macros


@dataclass
class FakeOpts(StructuredOpts):
    queue: str = "main"
    """Queue in which the app waits."""

    grace_s: float = 1.0
    """Seconds between SIGTERM and SIGKILL."""


@dataclass
class Task:
    """One replica."""

    role: str
    k: int
    argv: list[str]
    env: dict[str, str]


@dataclass
class FakeRequest:
    """What is submitted."""

    app_id: str
    name: str
    queue: str
    tasks: list[Task]
    max_retries: int = 0
    grace_s: float = 1.0


@dataclass
class Output:
    """What one replica printed so far, and how it ended."""

    data: bytearray = field(default_factory=bytearray)
    code: int | None = None


class Job:
    """A request on its way; all that changes is guarded by ``changed``."""

    def __init__(self, request: FakeRequest) -> None:
        self.request = request
        self.state = AppState.PENDING
        self.restarts = 0
        self.outputs: dict[tuple[str, int], Output] = {}
        self.changed = threading.Condition()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._cancelled = False
        self._start()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _start(self) -> None:
        self._processes = []
        for task in self.request.tasks:
            try:
                process = subprocess.Popen(
                    task.argv,
                    env={**os.environ, **task.env},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as err:
                self._signal(signal.SIGKILL)
                for started in self._processes:
                    started.communicate()
                msg = f"cannot start `{task.argv[0]}` of role `{task.role}`: {err.strerror}"
                raise JobStartError(msg) from None
            self._processes.append(process)
            self.outputs.setdefault((task.role, task.k), Output())
        with self.changed:
            self.state = AppState.RUNNING

    def _run(self) -> None:
        while True:
            self._read_to_end()
            codes = [process.returncode for process in self._processes]
            with self.changed:
                for output, code in zip(self.outputs.values(), codes, strict=True):
                    output.code = code
                if self._cancelled:
                    self.state = AppState.CANCELLED
                elif not any(codes):
                    self.state = AppState.SUCCEEDED
                elif self.restarts == self.request.max_retries:
                    self.state = AppState.FAILED
                else:
                    self.restarts += 1
                self.changed.notify_all()
                if is_terminal(self.state):
                    return
            self._start()

    def _read_to_end(self) -> None:
        readers = [
            threading.Thread(target=self._read, args=(process, output))
            for process, output in zip(self._processes, self.outputs.values(), strict=True)
        ]
        for thread in readers:
            thread.start()
        for thread in readers:
            thread.join()

    def _read(self, process: subprocess.Popen[bytes], output: Output) -> None:
        assert process.stdout is not None
        with process.stdout as pipe:
            while data := os.read(pipe.fileno(), 1 << 16):
                with self.changed:
                    output.data += data
                    self.changed.notify_all()
        process.wait()

    def cancel(self) -> None:
        with self.changed:
            if self._cancelled or is_terminal(self.state):
                return
            self._cancelled = True
        self._signal(signal.SIGTERM)
        threading.Thread(target=self._kill_after_grace).start()

    def _kill_after_grace(self) -> None:
        self._thread.join(self.request.grace_s)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    pass  # the thread that waits for it was faster

    def close(self) -> None:
        self.cancel()
        self._thread.join()


class FakeScheduler(Scheduler[FakeOpts]):
    """Keeps its jobs in memory."""

    features = SchedulerFeatures(
        replica_statuses=True,
        exit_codes=True,
        retries=frozenset({RetryPolicy.APPLICATION}),
    )

    def __init__(self, session_name: str) -> None:
        super().__init__("fake", session_name)
        self._jobs: dict[str, Job] = {}

    def _run_opts(self):
        return FakeOpts.as_runopts()

    def _submit_dryrun(self, app: AppDef, cfg: FakeOpts) -> AppDryRunInfo[FakeRequest]:
        app_id = make_unique(app.name)
        tasks = []
        for role in app.roles:
            if role.max_retries and role.retry_policy is not RetryPolicy.APPLICATION:
                msg = f"role `{role.name}`: retry policy {role.retry_policy.name} is not supported"
                raise UnsupportedRequest(msg)
            for k in range(role.num_replicas):
                values = macros.Values(
                    img_root=os.getcwd(), app_id=app_id, replica_id=str(k), rank0_env="FAKE_HOST"
                )
                own = values.apply(role)
                env = {"FAKE_HOST": "localhost", **own.env}
                tasks.append(Task(role.name, k, [own.entrypoint, *own.args], env))
        retries = max(role.max_retries for role in app.roles)
        request = FakeRequest(app_id, app.name, cfg.queue, tasks, retries, cfg.grace_s)
        return AppDryRunInfo(request, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[FakeRequest]) -> str:
        request = dryrun_info.request
        self._jobs[request.app_id] = Job(request)
        return request.app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        job = self._jobs.get(app_id)
        if job is None:
            return None
        with job.changed:
            replicas: dict[str, list[ReplicaStatus]] = {}
            for (role, k), output in job.outputs.items():
                status = ReplicaStatus(k, _replica_state(job, output), role, "localhost")
                replicas.setdefault(role, []).append(status)
            return DescribeAppResponse(
                app_id=app_id,
                state=job.state,
                num_restarts=job.restarts,
                roles_statuses=[RoleStatus(*item) for item in replicas.items()],
            )

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        return [ListAppResponse(i, j.state, name=j.request.name) for i, j in self._jobs.items()]

    def _cancel_existing(self, app_id: str) -> None:
        self._jobs[app_id].cancel()

    def failed_replicas(self, app_id: str, max_lines: int = 10):
        job = self._jobs[app_id]
        return [
            FailedReplica(
                role,
                k,
                job.restarts,
                output.code,
                f"exited with {output.code}",
                None,
                output.data.decode(errors="replace").splitlines()[-max_lines:],
            )
            for (role, k), output in job.outputs.items()
            if output.code
        ]

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        if since or until:
            msg = "logs cannot be chosen by time"
            raise UnsupportedRequest(msg)
        if streams not in (None, Stream.COMBINED):
            msg = f"stdout and stderr cannot be told apart, given: {streams.value}"
            raise UnsupportedRequest(msg)
        job = self._jobs.get(app_id)
        output = job.outputs.get((role_name, k)) if job else None
        if job is None or output is None:
            msg = f"there are no logs of app `{app_id}`, role `{role_name}`, replica {k}"
            raise InvalidInput(msg)
        lines = _lines(job, output, should_tail)
        return lines if regex is None else filter(re.compile(regex).search, lines)

    def close(self) -> None:
        for job in self._jobs.values():
            job.close()


def _replica_state(job: Job, output: Output) -> AppState:
    if output.code is None:
        return job.state
    return AppState.FAILED if output.code else AppState.SUCCEEDED


def _lines(job: Job, output: Output, follow: bool) -> Iterator[str]:
    at = 0
    while True:
        with job.changed:
            ended = is_terminal(job.state) or not follow
            end = len(output.data) if ended else output.data.rfind(b"\n") + 1
            if end <= at and not ended:
                job.changed.wait()
                continue
            text = bytes(output.data[at:end]).decode(errors="replace")
            at = end
        yield from re.findall(r"[^\n]*\n|[^\n]+", text)
        if ended:
            return


class BareScheduler(FakeScheduler):
    """Offers as little as a scheduler may."""

    features = SchedulerFeatures(logs=False, tail=False, list=False, multi_role=False)

    def _submit_dryrun(self, app: AppDef, cfg: FakeOpts) -> AppDryRunInfo[FakeRequest]:
        if len(app.roles) > 1:
            msg = f"one role is supported, given: {len(app.roles)}"
            raise UnsupportedRequest(msg)
        return super()._submit_dryrun(app, cfg)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        msg = "apps cannot be listed"
        raise UnsupportedRequest(msg)

    def failed_replicas(self, app_id: str, max_lines: int = 10):
        return []

    log_iter = Scheduler.log_iter


def create_scheduler(session_name: str, **kwargs: object) -> FakeScheduler:
    return FakeScheduler(session_name)


def create_bare_scheduler(session_name: str, **kwargs: object) -> BareScheduler:
    return BareScheduler(session_name)
