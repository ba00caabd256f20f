"""What TorchFT, CodeFlare and programs and READMEs elsewhere rely on beyond names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchx import specs
from torchx.components import dist
from torchx.runner import Runner, get_runner
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx.specs import AppDryRunInfo, AppState

HSDP = """\
import os
from typing import Dict, List, Optional

import torchx.specs as specs


def hsdp(
    *script_args: str,
    replicas: int = 2,
    workers_per_replica: int = 1,
    max_restarts: int = 10,
    script: str = "train_ddp.py",
    env: Optional[Dict[str, str]] = None,
    image: str = "",
    h: Optional[str] = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = -1,
) -> specs.AppDef:
    assert replicas > 0, "replicas must be > 0"
    env = env or {}
    roles = []
    for replica_id in range(replicas):
        roles.append(
            specs.Role(
                name=f"replica_{replica_id}",
                image=image,
                min_replicas=workers_per_replica,
                num_replicas=workers_per_replica,
                resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
                max_retries=0,
                env={"REPLICA_GROUP_ID": str(replica_id), **env},
                entrypoint="echo",
                args=[f"--max_restarts={max_restarts}", script, *script_args],
            )
        )
    return specs.AppDef("torchft", roles=roles)
"""


def torchx(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A checkout whose component file is called ``torchx.py``, in a package that is broken."""
    package = tmp_path / "torchft"
    package.mkdir()
    (package / "__init__.py").write_text("import a_module_that_is_not_installed\n")
    (package / "torchx.py").write_text(HSDP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_component_file_called_torchx_in_a_broken_package_runs(repository):
    done = torchx(
        "run", "-s", "local_cwd", "--dryrun", "./torchft/torchx.py:hsdp", "--script=train_diloco.py"
    )
    assert done.returncode == 0, done.stderr
    assert "train_diloco.py" in done.stdout
    assert "REPLICA_GROUP_ID" in done.stdout


def test_component_arguments_and_varargs_of_that_file(repository):
    done = torchx(
        "run",
        "-s",
        "local_cwd",
        "./torchft/torchx.py:hsdp",
        "--replicas=1",
        "--env",
        "A=1,B=2",
        "--",
        "--flag",
    )
    assert done.returncode == 0, done.stderr
    assert "--max_restarts=10 train_ddp.py --flag" in done.stdout + done.stderr


def test_a_bare_run_takes_everything_from_the_config_file(repository):
    (repository / ".torchxconfig").write_text(
        "[cli:run]\ncomponent = ./torchft/torchx.py:hsdp\nscheduler = local_cwd\n"
        "[component:./torchft/torchx.py:hsdp]\nreplicas = 1\n"
    )
    done = torchx("run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("local_cwd://torchx/torchft-")


class Queue(Scheduler[dict]):
    """Lists what was submitted, the way slurm names it."""

    def __init__(self, session_name: str, **kwargs: object) -> None:
        super().__init__("queue", session_name)
        self.kwargs = kwargs
        self.cancelled: list[str] = []

    def _submit_dryrun(self, app, cfg):
        return AppDryRunInfo(app, repr)

    def schedule(self, dryrun_info):
        return "7"

    def describe(self, app_id):
        state = AppState.CANCELLED if app_id in self.cancelled else AppState.RUNNING
        return DescribeAppResponse(app_id=app_id, state=state)

    def list(self, cfg=None):
        return [ListAppResponse("7", AppState.RUNNING, name="ft_1-0")]

    def _cancel_existing(self, app_id):
        self.cancelled.append(app_id)

    def log_iter(self, app_id, role_name, k=0, *args, **kwargs):
        return [f"{role_name}/{k}\n"]


def test_apps_are_launched_listed_and_cancelled_without_options():
    with Runner("torchft", {"slurm": Queue}) as runner:
        app = dist.ddp(
            "--x", name="ft_1", env={"A": "1"}, script="train.py", gpu=1, j="1x1", image=""
        )
        app.roles[0].name = app.name
        handle = runner.run(app, scheduler="slurm")
        (job,) = runner.list("slurm")
        assert (job.state, job.app_handle) == (AppState.RUNNING, handle)
        assert job.name.partition("-")[0] == "ft_1"
        runner.cancel(job.app_handle)
        assert runner.status(handle).state is AppState.CANCELLED


def test_a_scheduler_can_be_put_into_a_runner():
    with get_runner(ray_client="client") as runner:
        scheduler = Queue(session_name=runner._name, ray_client="client")
        runner._scheduler_instances["ray"] = scheduler
        app = specs.AppDef(
            "a", [specs.Role("r", "", entrypoint="x", resource=specs.Resource(1, 0, 1))]
        )
        handle = runner.run(app, "ray")
        assert handle == "ray://torchx/7"
        assert list(runner.log_lines(handle, None)) == ["None/0\n"]


def test_a_runner_that_is_never_closed_runs_a_job():
    code = (
        "from torchx.runner import get_runner\n"
        "from torchx import specs\n"
        "role = specs.Role('r', '', entrypoint='sleep', args=['300'],\n"
        "                  resource=specs.Resource(cpu=1, gpu=0, memMB=1))\n"
        "runner = get_runner()\n"
        "print(runner.run(specs.AppDef('job', [role]), scheduler='local_cwd'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("local_cwd://torchx/job-")


DDP = ["dist.ddp", "-j", "1x2", "--gpu", "2", "--script", "test_installation.py"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-s", "local_cwd", *DDP], ["--nproc_per_node 2", "test_installation.py"]),
        (["-s", "local_cwd", *DDP, "--", "--cpu_only"], ["--cpu_only"]),
        (["-s", "local_cwd", "dist.ddp", "-j", "2", "--script", "a.py"], ["--nproc_per_node 2"]),
        (["-c", "log_dir=/tmp/here", *DDP], ["/tmp/here"]),
        (["-cfg", "log_dir=/tmp/here", *DDP], ["/tmp/here"]),
        (["--scheduler_args", "log_dir=/tmp/here", *DDP], ["/tmp/here"]),
        ([*DDP, "--env", "A=1,B=2", "--debug", "False"], ["'A': '1'", "'B': '2'"]),
    ],
)
def test_command_lines_in_the_wild_are_understood(args, expected):
    done = torchx("run", "--dryrun", *args)
    assert done.returncode == 0, done.stderr
    for text in expected:
        assert text in done.stdout


def test_the_help_of_a_component_is_shown():
    done = torchx("run", "-s", "local_cwd", "dist.ddp", "--help")
    assert done.returncode == 0
    assert "--script" in done.stdout


def test_a_component_file_by_path_runs(tmp_path, monkeypatch):
    (tmp_path / "aws_component.py").write_text(
        "import torchx.specs as specs\n"
        "def run_main(num_trainers: int = 1) -> specs.AppDef:\n"
        "    return specs.AppDef('dlrm', [specs.Role('trainer', '', entrypoint='echo',\n"
        "        args=['hi'], num_replicas=num_trainers)])\n"
    )
    monkeypatch.chdir(tmp_path)
    done = torchx("run", "-s", "local_cwd", "aws_component.py:run_main", "--num_trainers=3")
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("hi\n") == 3


def test_a_handle_that_a_program_prints_can_be_used_by_the_next():
    launched = torchx("run", "--detach", "-s", "local_cwd", "utils.echo", "--msg", "hi")
    assert launched.returncode == 0, launched.stderr
    handle = launched.stdout.strip()
    assert torchx("log", handle).stdout.endswith("hi\n")
    status = json.loads(torchx("status", "--json", handle).stdout)
    assert "SUCCEEDED" in json.dumps(status)
