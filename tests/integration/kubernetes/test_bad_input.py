"""What a user gets wrong is told in one line, and nothing is left behind."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.client import KubeClient

from .conftest import left
from .real_cluster import torchx

ECHO = ("utils.echo", "--image", "any")


def run(*args: str, cfg: str = "") -> "subprocess.CompletedProcess[str]":
    options = ("-cfg", cfg) if cfg else ()
    return torchx("run", "-s", "kubernetes", "--workspace=", *options, *(args or ECHO))


def error_of(done: "subprocess.CompletedProcess[str]") -> str:
    """The only line about an error; another one may say why, with what to do."""
    assert done.returncode in (1, 2), done.stderr
    told = [line for line in done.stderr.splitlines() if " INFO " not in line]
    lines = told[:1] if [line[:5] for line in told[1:]] == ["why: "] else told
    assert len(lines) == 1, done.stderr
    assert " ERROR " in lines[0]
    return lines[0].partition(" ERROR ")[2].strip()


def test_without_a_kubeconfig_the_line_says_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    line = error_of(run())
    assert line.startswith("no kubeconfig: KUBECONFIG is not set and ")
    assert "set the option `kubeconfig`" in line


def test_an_unknown_context_is_told_with_those_that_there_are(kubeconfig: str) -> None:
    line = error_of(run(cfg="context=nosuch"))
    assert line == f"`{kubeconfig}` has no context `nosuch`; it has: fake"


@pytest.mark.parametrize(
    ("verb", "resource", "options"),
    [
        ("create", "jobs.batch", ""),
        ("create", "jobs.batch", "validate_spec=False"),
        ("create", "services", "validate_spec=False"),
        ("patch", "jobs.batch", "validate_spec=False"),
    ],
)
def test_a_forbidden_verb_is_named_with_its_object(
    cluster: FakeKube,
    kube: KubeClient,
    kubeconfig: str,
    verb: str,
    resource: str,
    options: str,
) -> None:
    cluster.admin("settings", {"forbidden": [[verb, resource]]})
    line = error_of(run("utils.sh", "--image", "any", "--num_replicas", "2", "true", cfg=options))
    assert line.startswith(f"you are not allowed to {verb} ")
    assert line.endswith(f"ask for a role with the verb `{verb}` on `{resource}`")
    assert left(kube) == []


@pytest.mark.parametrize("verb", ["status", "list", "log", "cancel", "delete"])
def test_those_who_may_not_look_are_told(cluster: FakeKube, kubeconfig: str, verb: str) -> None:
    cluster.admin("settings", {"forbidden": [["list", "pods"], ["list", "jobs.batch"]]})
    args = ("list", "-s", "kubernetes") if verb == "list" else (verb, "kubernetes://x/default:a")
    assert error_of(torchx(*args)).startswith("you are not allowed to list ")


def test_credentials_that_are_not_accepted_are_told(cluster: FakeKube, kubeconfig: str) -> None:
    cluster.admin("tokens", ["the only one"])
    line = error_of(run())
    assert line.startswith("the API server does not accept the credentials of user `tester`: ")
    assert line.endswith("they may be expired: log in again")


def test_a_server_that_is_not_there_is_told_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with FakeKube() as gone:
        monkeypatch.setenv("KUBECONFIG", gone.kubeconfig(tmp_path / "kubeconfig"))
    line = error_of(run(cfg="validate_spec=False"))
    assert line == f"the Kubernetes API server at {gone.url} cannot be reached: Connection refused"


def test_a_slow_server_does_not_hold_up_a_dry_run(cluster: FakeKube, kubeconfig: str) -> None:
    cluster.fault("slow", seconds=60, times=-1)
    done = torchx("run", "--dryrun", "-s", "kubernetes", "--workspace=", *ECHO, timeout_s=40)
    assert done.returncode == 0
    assert "are not checked by the cluster: " in done.stderr
    assert "it took too long" in done.stderr
    assert "kind: Job" in done.stdout


def test_a_namespace_that_is_not_there_is_told(kubeconfig: str) -> None:
    assert 'namespaces "nosuch" not found' in error_of(run(cfg="namespace=nosuch"))


@pytest.mark.parametrize("name", ["nosuch", "No_Such", "a:b", "b=c,d", "x" * 100])
def test_an_app_that_cannot_be_is_unknown(kubeconfig: str, name: str) -> None:
    done = torchx("status", f"kubernetes://x/default:{name}")
    assert done.returncode == 1
    assert f"app `default:{name}` does not exist on scheduler `kubernetes`" in done.stderr


BAD_ROLES: list[tuple[dict[str, Any], str]] = [
    ({"env": {"A=B": "x"}}, "A=B"),
    ({"env": {"A": "x\0y"}}, "NUL"),
    ({"image": ""}, "has no image"),
    ({"port_map": {"a_name_that_is_far_too_long": 1}}, "ports"),
    ({"num_replicas": 0}, "Non-positive replicas for role: r"),
]


@pytest.mark.parametrize(("fields", "words"), BAD_ROLES)
def test_roles_that_no_pod_can_be_made_of_are_told(
    kube: KubeClient, kubeconfig: str, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    body = {"name": "r", "image": "any", "entrypoint": "true", **fields}
    (tmp_path / "bad.py").write_text(
        "from torchx.specs import AppDef, Role\n\n\ndef app() -> AppDef:\n"
        f"    return AppDef('bad', [Role(**{json.dumps(body)})])\n"
    )
    assert words in error_of(run(f"{tmp_path}/bad.py:app"))
    assert left(kube) == []
