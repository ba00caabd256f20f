"""``torchx run --dryrun -s a,b`` and ``--strict``: what schedulers refuse, drop or change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx.errors import UnsupportedRequest
from torchx.runner import get_runner
from torchx.specs import AppDef, BindMount, Resource, RetryPolicy, Role

Call = Callable[..., Any]

COMPONENT = """\
import torchx.specs as specs
def app(cpu: float = 2.5) -> specs.AppDef:
    resource = specs.Resource(cpu=cpu, gpu=0, memMB=1000, devices={"acme/nic": 1})
    mounts = [specs.BindMount("/data", "/data", True)]
    role = specs.Role("worker", "img:1", entrypoint="sh", args=["-c", "true"], num_replicas=3,
        min_replicas=2, max_retries=1, port_map={"ui": 6006}, mounts=mounts, resource=resource)
    return specs.AppDef("app", [role])
"""


@pytest.fixture
def component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "port.py").write_text(COMPONENT)
    return "port.py:app"


def fields(found: Any, kind: str) -> set[str]:
    return {row["field"] for row in found[kind]}


def test_each_scheduler_tells_what_it_would_do(call: Call, component: str) -> None:
    names = "local_cwd,local_docker,slurm,kubernetes,lsf"
    done = call("run", "--dryrun", "--json", "--workspace=", "-s", names, component)
    assert done.code == 0
    found = json.loads(done.out)
    assert list(found) == names.split(",")
    everything = {"mounts", "port_map", "min_replicas", "resource.cpu", "resource.memMB"}
    assert fields(found["local_cwd"], "dropped") == {*everything, "resource.devices[acme/nic]"}
    assert fields(found["local_docker"], "dropped") >= {"min_replicas"}
    assert fields(found["local_docker"], "changed") == {"retry_policy"}
    assert fields(found["slurm"], "refused") == {"mounts"}
    assert "need a container" in found["slurm"]["refused"][0]["text"]
    assert found["kubernetes"]["dropped"] == []
    assert found["kubernetes"]["refused"] == []


def test_the_text_has_a_line_for_each_field(call: Call, component: str) -> None:
    out = call("run", "--dryrun", "--workspace=", "-s", "slurm,local_cwd", component).out
    lines = out.splitlines()
    assert lines[0].startswith("slurm: refuses and ")
    assert "  dropped  `min_replicas` of role `worker`: 2" in lines
    assert call("run", "--dryrun", "--strict", "-s", "slurm,local_cwd", component).code == 1


def test_strict_refuses_what_would_drop_something(
    call: Call, component: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert call("run", "--strict", "--workspace=", component).code != 0
    assert "`local_cwd` would drop `mounts` of role `worker`: BindMount" in caplog.text
    assert json.loads(call("list", "--json").out) == []


def test_strict_lets_pass_what_is_taken_whole() -> None:
    role = Role("worker", "img", entrypoint="sh", num_replicas=2, max_retries=1)
    role.retry_policy = RetryPolicy.REPLICA
    role.resource = Resource(cpu=1, gpu=0, memMB=100)
    app = AppDef("app", [role])
    with get_runner() as runner:
        assert list(runner.portability(app, "kubernetes")) == []
        assert runner.dryrun(app, "kubernetes", strict=True).app is not None
        role.port_map = {}
        role.mounts = [BindMount("/a", "/b")]
        with pytest.raises(UnsupportedRequest, match="`local_cwd` would drop `mounts`"):
            runner.dryrun(app, "local_cwd", strict=True)
        assert runner.dryrun(app, "local_cwd").app is not None


def test_a_scheduler_that_declares_nothing_is_probed_too(
    call: Call, remote: Any, component: str
) -> None:
    done = call("run", "--dryrun", "--json", "-s", "remote", "-cfg", "team=a", component)
    assert done.code == 0
    done = call("run", "--dryrun", "--json", "-s", "remote,slurm", "-cfg", "team=a", component)
    found = json.loads(done.out)["remote"]
    assert "port_map" in fields(found, "dropped")
    assert fields(found, "changed") == {"name"}
    found = json.loads(call("run", "--dryrun", "--json", "-s", "remote,slurm", component).out)
    assert "team" in found["remote"]["refused"][0]["text"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-s", "local_cwd,slurm"], "several schedulers are compared by a dry run: add --dryrun"),
        (["--dryrun", "-s", "local_cwd,nosuch"], "invalid choice"),
        (["--dryrun", "-s", "local_cwd,"], "invalid choice"),
    ],
)
def test_bad_input(call: Call, component: str, words: list[str], told: str) -> None:
    done = call("run", *words, component)
    assert done.code == 2
    assert told in done.err
