"""A job that is launched with trackers records what it does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchx.runner import get_runner
from torchx.runner.api import get_configured_trackers
from torchx.specs import AppDef, Resource, Role

JOB = """
import json, os, sys
from torchx.tracker import app_run_from_env

run = app_run_from_env()
run.add_metadata(lr=0.1)
run.add_artifact("m", "/p", {"k": 1})
run.add_source("ext://1", "ds")
assert app_run_from_env() is run
json.dump({
    "sources": [(s.parent.id, s.artifact_name) for s in run.sources()],
    "env": {k: v for k, v in os.environ.items() if k.startswith("TORCHX_")},
}, sys.stdout)
"""


def torchx(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def component(tmp_path: Path) -> str:
    (tmp_path / "runs").mkdir()
    (tmp_path / "trk.conf").write_text(f"protocol=file\nroot_path={tmp_path}/runs\n")
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "app.py").write_text(
        "from torchx.specs import AppDef, Resource, Role\n"
        "def job(n: int = 1) -> AppDef:\n"
        f"    role = Role('r', image='', entrypoint={sys.executable!r}, num_replicas=n,\n"
        f"                args=[{str(tmp_path / 'job.py')!r}], resource=Resource(1, 0, 10))\n"
        "    return AppDef('job', [role])\n"
    )
    Path(".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nconfig={tmp_path}/trk.conf\n"
    )
    return f"{tmp_path}/app.py:job"


def test_what_a_job_tracks_can_be_looked_at(component: str, tmp_path: Path) -> None:
    done = torchx("run", "-s", "local_cwd", "--parent_run_id", "exp1", component)
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()
    out = torchx("log", f"{handle}/r/0").stdout
    said = json.loads(out.partition(" ")[2])
    assert [tuple(source) for source in said["sources"]] == [("exp1", None), ("ext://1", "ds")]
    env = said["env"]
    assert env["TORCHX_JOB_ID"] == handle
    assert env["TORCHX_TRACKERS"] == "fsspec"
    assert env["TORCHX_TRACKER_FSSPEC_CONFIG"] == f"{tmp_path}/trk.conf"
    assert env["TORCHX_PARENT_RUN_ID"] == "exp1"
    assert env["TORCHX_INTERNAL_SESSION_ID"]

    def listed(*args: str) -> object:
        return json.loads(torchx("tracker", "list", *args, "--json").stdout)

    assert listed("jobs") == listed("jobs", "--parent-run-id", "exp1") == [{"run_id": handle}]
    assert listed("jobs", "--parent-run-id", "nope") == []
    assert listed("metadata", handle) == {"lr": 0.1}
    assert listed("artifacts", "--artifact", "m", handle) == [
        {"name": "m", "path": "/p", "metadata": {"k": 1}}
    ]


def test_many_replicas_lose_nothing(component: str) -> None:
    done = torchx("run", component, "--n", "12")
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()
    sources = json.loads(torchx("tracker", "list", "sources", handle, "--json").stdout)
    assert sources == [{"run_id": "ext://1", "artifact": "ds"}]
    metadata = json.loads(torchx("tracker", "list", "metadata", handle, "--json").stdout)
    assert metadata == {"lr": 0.1}


def app() -> AppDef:
    role = Role("r", image="", entrypoint="true", resource=Resource(1, 0, 10))
    return AppDef("a", [role])


def test_an_alias_reaches_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".torchxconfig").write_text(
        "[torchx:tracker]\nmy.alias = acme.trk:make\nplain =\nsame = same\n"
        "[tracker:my.alias]\nconfig = c\n"
    )
    assert get_configured_trackers() == {"my.alias": "c", "plain": None, "same": None}
    with get_runner() as runner:
        info = runner.dryrun(app(), "local_cwd")
    env = info.app.roles[0].env
    assert env["TORCHX_TRACKERS"] == "my.alias,plain,same"
    assert env["TORCHX_TRACKER_MY_ALIAS_CONFIG"] == "c"
    assert env["TORCHX_TRACKER_MY_ALIAS_FACTORY"] == "acme.trk:make"
    assert [name for name in env if name.endswith("_FACTORY")] == [
        "TORCHX_TRACKER_MY_ALIAS_FACTORY"
    ]


def test_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".torchxconfig").write_text(
        "[torchx:tracker]\na =\n[tracker:a]\nconfig = from file\n[tracker:b]\nconfig = b file\n"
    )
    monkeypatch.setenv("TORCHX_TRACKERS", " b ,, a")
    monkeypatch.setenv("TORCHX_TRACKER_A_CONFIG", "from env")
    assert get_configured_trackers() == {"b": "b file", "a": "from env"}


def test_configs_do_not_show_in_records(caplog: pytest.LogCaptureFixture) -> None:
    Path(".torchxconfig").write_text(
        "[torchx:tracker]\na =\n[tracker:a]\nconfig = https://user:hush@host\n"
    )
    caplog.set_level("DEBUG")
    get_configured_trackers()
    assert "trackers: a" in caplog.text
    assert "hush" not in caplog.text
