"""The base of all parts of the suite: fixtures, and jobs that are awaited and cleaned up."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from torchx.schedulers.api import (
    AppDef,
    AppDryRunInfo,
    CfgVal,
    DescribeAppResponse,
    FailedReplica,
    LogBlock,
    LogReport,
    Role,
    Scheduler,
)
from torchx.settings import ENV_TORCHX_ATTEMPT
from torchx.specs.api import AppState, Resource, is_terminal

V = TypeVar("V")

REFUSED = (NotImplementedError, ValueError)
"""What a scheduler raises for something it does not offer; ``UnsupportedRequest`` is one."""

NO_SUCH_APP = "contract-unknown"
APP = "contract"
WORKER = "worker"


class Jobs:
    """Submits apps to the scheduler, waits for them, and ends what is left of them."""

    def __init__(
        self,
        scheduler: Scheduler[Any],
        opts: dict[str, CfgVal],
        image: str,
        resource: Resource,
        timeout_s: float,
    ) -> None:
        self.scheduler = scheduler
        self._opts = opts
        self._image = image
        self._resource = resource
        self._timeout_s = timeout_s
        self._started: list[str] = []

    def need(self, *features: str) -> None:
        """Skips the test where the scheduler does not declare a feature."""
        for name in features:
            if not getattr(self.scheduler.features, name):
                pytest.skip(f"the scheduler does not declare `{name}`")

    def role(self, program: str, *args: str, name: str = WORKER, **more: Any) -> Role:
        """A role with the image and the resource of the suite."""
        kwargs = {"image": self._image, "resource": self._resource, **more}
        return Role(name, entrypoint=program, args=[*args], **kwargs)

    def sh(self, script: str, **more: Any) -> AppDef:
        """An app of one role that runs a shell script. Macros apply: ``$$`` becomes ``$``."""
        return AppDef(APP, [self.role("sh", "-c", script, **more)])

    def python(self, code: str, *args: str, **more: Any) -> AppDef:
        """An app of one role that runs Python code."""
        return AppDef(APP, [self.role("python3", "-c", code, *args, **more)])

    def start(self, app: AppDef, **more_opts: CfgVal) -> str:
        """Submits the app, with further options; it is ended after the test."""
        app_id = self.scheduler.submit(app, {**self._opts, **more_opts})
        self._started.append(app_id)
        return app_id

    def start_running(self, script: str) -> str:
        """Submits an app that runs a shell script, and returns when it is seen to run.

        ``SECONDS`` in the script are few at first. Where the job has ended by the time it is looked
        at, as on a busy machine, another one gets more of them.
        """
        for seconds in (4, 16, 64):
            app_id = self.start(self.sh(script.replace("SECONDS", str(seconds))))
            if self._begun(app_id) is AppState.RUNNING:
                break
        return app_id

    def _begun(self, app_id: str) -> AppState:
        """The state of an app once it runs, or has ended."""

        def running_or_over() -> AppState | None:
            state = self.describe(app_id).state
            return state if state is AppState.RUNNING or is_terminal(state) else None

        return self.until(running_or_over) or AppState.UNKNOWN

    def schedule(self, info: AppDryRunInfo[Any]) -> str:
        """Submits a dry run; the app is ended after the test."""
        app_id = self.scheduler.schedule(info)
        self._started.append(app_id)
        return app_id

    def run(self, app: AppDef) -> str:
        """Submits the app and waits for its end."""
        app_id = self.start(app)
        self.end(app_id)
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse:
        """Returns the description of an app, which must be known."""
        found = self.scheduler.describe(app_id)
        assert found is not None, f"`{app_id}` is unknown to the scheduler that started it"
        return found

    def end(self, app_id: str) -> DescribeAppResponse:
        """Waits until the app is terminal."""
        deadline = time.monotonic() + self._timeout_s
        while not is_terminal((found := self.describe(app_id)).state):
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"`{app_id}` is {found.state.name} after {self._timeout_s} s"
            self.scheduler.wait_for_change(app_id, min(left_s, 0.1))
        return found

    def until(self, condition: Callable[[], V]) -> V:
        """Waits until the condition gives something true, and returns that."""
        deadline = time.monotonic() + self._timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"did not happen within {self._timeout_s} s"
            time.sleep(0.05)
        return value

    def lines(self, app_id: str, role: str = WORKER, k: int = 0, **more: Any) -> list[str]:
        """Lines that the scheduler has now of one replica."""
        return [*self.scheduler.log_iter(app_id, role, k, **more)]

    def printed_json(self, app: AppDef) -> Any:
        """Runs the app; gives the JSON that its only line holds. Skips without logs."""
        self.need("logs")
        app_id = self.run(app)
        (line,) = self.lines(app_id)
        return json.loads(line)

    def blocks(self, app_id: str, *args: Any, **more: Any) -> list[LogBlock]:
        """Merged output that the scheduler has now."""
        return [*self.scheduler.log_blocks(app_id, *args, **more)]

    def failed(self, app_id: str) -> list[FailedReplica]:
        """Replicas that failed."""
        return self.scheduler.failed_replicas(app_id)

    def reports(self, app_id: str) -> list[LogReport]:
        """Completeness of the logs."""
        return self.scheduler.verify_logs(app_id)

    def clean_up(self) -> None:
        """Ends what is still running."""
        for app_id in self._started:
            self.scheduler.cancel(app_id)
        for app_id in self._started:
            if self.scheduler.exists(app_id):
                self.end(app_id)


class ContractParts:
    """Fixtures and settings of the suite; a scheduler's test class overrides them."""

    timeout_s: float = 60
    """How long a job of the suite may take to reach its end."""

    requires_resource: bool = True
    """Whether an app with a role without resource is refused."""

    attempt_variable: str = ENV_TORCHX_ATTEMPT
    """Environment variable with the attempt of a replica, where attempts are declared."""

    @pytest.fixture
    def scheduler(self) -> Scheduler[Any]:
        """The scheduler under test. Close it after the test."""
        msg = f"`{type(self).__name__}` must define a fixture `scheduler`"
        raise NotImplementedError(msg)

    @pytest.fixture
    def opts(self) -> dict[str, CfgVal]:
        """Run options of every job."""
        return {}

    @pytest.fixture
    def image(self) -> str:
        """An image with ``sh`` and ``python3``."""
        return ""

    @pytest.fixture
    def resource(self) -> Resource:
        """The resource of every replica."""
        return Resource(cpu=1, gpu=0, memMB=64)

    @pytest.fixture
    def host_dir(self, tmp_path: Path) -> Path:
        """A directory that replicas can mount, for a scheduler that declares ``mounts``."""
        return tmp_path

    @pytest.fixture
    def other_scheduler(self) -> Scheduler[Any]:
        """The scheduler as another process would create it, for one that declares ``durable``."""
        msg = f"`{type(self).__name__}` must define a fixture `other_scheduler`"
        raise NotImplementedError(msg)

    @pytest.fixture
    def jobs(
        self,
        scheduler: Scheduler[Any],
        opts: dict[str, CfgVal],
        image: str,
        resource: Resource,
    ) -> Iterator[Jobs]:
        """Runs the jobs of a test."""
        jobs = Jobs(scheduler, opts, image, resource, self.timeout_s)
        yield jobs
        jobs.clean_up()
