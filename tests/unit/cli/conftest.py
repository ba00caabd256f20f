"""A way to call the command line, and a scheduler of a plugin to call it on."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.fake_aws.fixtures import aws, running_aws  # noqa: F401 - fixtures
from torchx.cli import _output
from torchx.cli.argparse_util import torchxconfig
from torchx.cli.main import main
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx.specs import AppDryRunInfo, AppState, ReplicaStatus, RoleStatus, runopts
from torchx.util import entrypoints


@dataclass
class Result:
    """What a call of the command line did."""

    code: int
    out: str
    err: str


@dataclass
class EntryPoint:
    """Stands for an entry point of an installed package."""

    name: str
    group: str
    target: Any
    value: str = "acme:target"

    def load(self) -> Any:
        if isinstance(self.target, BaseException):
            raise self.target
        return self.target


class RemoteScheduler(Scheduler[Mapping[str, Any]]):
    """Keeps its jobs in this process; every job goes through the states in `states`."""

    def __init__(self, session_name: str) -> None:
        super().__init__("remote", session_name)
        self.states: list[AppState] = [AppState.SUCCEEDED]
        self.jobs: dict[str, Any] = {}
        self.lines: dict[tuple[str, int], list[str]] = {}
        self.closed = 0
        self.list_cfg: object = "not called"
        self.log_calls: list[dict[str, object]] = []

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("queue", type_=str, help="where jobs wait", default="main")
        opts.add("team", type_=str, help="who pays", required=True)
        return opts

    def _submit_dryrun(self, app: Any, cfg: Any) -> AppDryRunInfo[Any]:
        return AppDryRunInfo({"app": app.name, "queue": cfg["queue"]}, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        app_id = f"{dryrun_info.request['app']}-{len(self.jobs) + 1}"
        self.jobs[app_id] = dryrun_info.app
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        if app_id not in self.jobs:
            return None
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        roles = self.jobs[app_id].roles
        statuses = [
            RoleStatus(r.name, [ReplicaStatus(i, state, r.name, "host") for i in range(2)])
            for r in roles
        ]
        return DescribeAppResponse(
            app_id, state, 0, ui_url="http://ui", roles=roles, roles_statuses=statuses
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        self.list_cfg = cfg
        states = [AppState.RUNNING, AppState.FAILED]
        return [ListAppResponse(f"job-{i}", s, name=f"n{i}") for i, s in enumerate(states)]

    def _cancel_existing(self, app_id: str) -> None:
        self.states = [AppState.CANCELLED]

    def _delete_existing(self, app_id: str) -> None:
        del self.jobs[app_id]

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
        self.log_calls.append(
            {
                "replica": (role_name, k),
                "regex": regex,
                "since": since,
                "until": until,
                "should_tail": should_tail,
                "streams": streams,
            }
        )
        return self.lines.get((role_name, k), [f"line of {role_name}/{k}\n"])

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def forget_config() -> Iterator[None]:
    """The sections of an earlier test are remembered for the whole process otherwise."""
    torchxconfig._subcmd_configs.clear()
    _output.reset()
    yield
    torchxconfig._subcmd_configs.clear()
    _output.reset()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Any], None]:
    """Registers an entry point for the test: ``install(group, name, target)``."""
    points: list[EntryPoint] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group]

    monkeypatch.setattr(entrypoints.metadata, "entry_points", entry_points)

    def add(group: str, name: str, target: Any) -> None:
        points.append(EntryPoint(name, group, target))

    return add


@pytest.fixture
def remote(install: Callable[[str, str, Any], None]) -> RemoteScheduler:
    """The scheduler `remote` of an installed plugin."""
    scheduler = RemoteScheduler("torchx")
    install("torchx.schedulers", "remote", lambda session_name, **kwargs: scheduler)
    return scheduler


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Calls the command line in this process; log records go to `caplog`."""

    def invoke(*argv: str) -> Result:
        capsys.readouterr()
        code: Any = 0
        try:
            main(list(argv))
        except SystemExit as err:
            code = err.code or 0
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def torchx() -> Callable[..., Result]:
    """Runs the command line in a process of its own."""

    def invoke(*argv: str, stdin: str = "", env: dict[str, str] | None = None) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "torchx.cli.main", *argv],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **(env or {})},
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return invoke


@pytest.fixture
def component_file(tmp_path: Path) -> Path:
    """A component file with jobs that need nothing but a shell."""
    path = tmp_path / "jobs.py"
    path.write_text(
        "import torchx.specs as specs\n"
        "def sh(cmd: str, n: int = 1, s: str = '', tags: list[str] | None = None,\n"
        "       *args: str) -> specs.AppDef:\n"
        "    env = {'MY_TOKEN': 'hush-hush', 'PLAIN': 'seen', 'TAGS': str(tags)}\n"
        "    role = specs.Role('work', '', entrypoint='sh', args=['-c', cmd, s, *args],\n"
        "                      num_replicas=n, env=env, resource=specs.Resource(1, 0, 64))\n"
        "    return specs.AppDef('job', [role])\n"
        "def broken(x) -> specs.AppDef:\n"
        "    pass\n"
        "def raises() -> specs.AppDef:\n"
        "    raise RuntimeError('out of ideas')\n"
        "def not_an_app() -> specs.AppDef:\n"
        "    return 1\n"
    )
    return path
