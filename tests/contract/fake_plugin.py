"""A small scheduler of its own kind, as a plugin would bring it: threads that run processes."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torchx.errors import JobStartError, UnsupportedRequest
from torchx.schedulers.api import (
    AppDef,
    AppDryRunInfo,
    AppSnapshot,
    AppState,
    CfgVal,
    DescribeAppResponse,
    ListAppResponse,
    LogChunk,
    LogKey,
    LogQuery,
    ReplicaKey,
    ReplicaSnapshot,
    Scheduler,
    SchedulerFeatures,
    StructuredOpts,
)
from torchx.schedulers.ids import make_unique
from torchx.specs.api import RetryPolicy, is_terminal, macros


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
    ended_ns: int | None = None


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
        output.ended_ns = time.time_ns()

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
        left_out=frozenset({"resource"}),
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

    def look(self, app_id: str) -> AppSnapshot | None:
        job = self._jobs.get(app_id)
        if job is None:
            return None
        with job.changed:
            return AppSnapshot(
                app_id=app_id,
                name=job.request.name,
                replicas=tuple(_replica(job, *item) for item in job.outputs.items()),
                native_state=job.state,
                cancelled=job.state is AppState.CANCELLED,
                restarts=job.restarts,
            )

    def look_all(self, cfg: Mapping[str, CfgVal] | None = None) -> list[AppSnapshot]:
        return [snapshot for app_id in self._jobs if (snapshot := self.look(app_id))]

    def end(self, snapshot: AppSnapshot) -> None:
        self._jobs[snapshot.app_id].cancel()

    def read_logs(
        self, snapshot: AppSnapshot, replicas: Sequence[ReplicaKey], query: LogQuery
    ) -> Iterator[LogChunk]:
        """One replica after the other: the lines have no times."""
        job = self._jobs[snapshot.app_id]
        for role, k in replicas:
            for line in _lines(job, job.outputs[role, k], query.follow):
                yield LogKey(role, k), None, line

    def close(self) -> None:
        for job in self._jobs.values():
            job.close()


def _replica(job: Job, key: ReplicaKey, output: Output) -> ReplicaSnapshot:
    state = job.state
    if output.code is not None and state is not AppState.CANCELLED:
        state = AppState.FAILED if output.code else AppState.SUCCEEDED
    return ReplicaSnapshot(
        *key,
        state,
        output.code,
        host="localhost",
        attempt=job.restarts,
        ended_ns=output.ended_ns,
    )


def _lines(job: Job, output: Output, follow: bool) -> Iterator[bytes]:
    at = 0
    while True:
        with job.changed:
            ended = is_terminal(job.state) or not follow
            end = len(output.data) if ended else output.data.rfind(b"\n") + 1
            if end <= at and not ended:
                job.changed.wait()
                continue
            data = bytes(output.data[at:end])
            at = end
        yield from re.findall(rb"[^\n]*\n|[^\n]+", data)
        if ended:
            return


class BareScheduler(FakeScheduler):
    """Offers as little as a scheduler may, and defines verbs in place of hooks."""

    features = SchedulerFeatures(
        logs=False, tail=False, list=False, multi_role=False, left_out=frozenset({"resource"})
    )

    look = Scheduler.look
    read_logs = Scheduler.read_logs

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        job = self._jobs.get(app_id)
        return None if job is None else DescribeAppResponse(app_id, job.state)

    def _cancel_existing(self, app_id: str) -> None:
        self._jobs[app_id].cancel()

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        msg = "apps cannot be listed"
        raise UnsupportedRequest(msg)


def create_scheduler(session_name: str, **kwargs: object) -> FakeScheduler:
    return FakeScheduler(session_name)


def create_bare_scheduler(session_name: str, **kwargs: object) -> BareScheduler:
    return BareScheduler(session_name)
