"""``torchx rerun``: a recorded request again, with changes."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx._home import home_dir
from torchx.runner import _requests

Torchx = Callable[..., Any]


@pytest.fixture
def handle(torchx: Torchx, component_file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(component_file.parent)
    done = torchx("run", "jobs.py:sh", "--cmd", 'echo "$PLAIN $1"', "--s", "name", "first")
    assert done.code == 0, done.err
    return str(done.out.strip())


def test_a_job_runs_again_as_it_was(torchx: Torchx, handle: str) -> None:
    done = torchx("rerun", handle)
    assert done.code == 0
    assert done.out.strip() not in ("", handle)
    assert "seen first" in done.err


def test_changes_are_made_and_shown(torchx: Torchx, handle: str) -> None:
    changes = ["--env", "PLAIN=new", "--unset-env", "TAGS", "--replicas", "2", "--mem", "128"]
    shown = torchx("rerun", "--dryrun", *changes, "--add-arg", "more", handle)
    lines = shown.out.partition("=== DIFFERENCE ===\n")[2].partition("\n\n")[0].splitlines()
    assert set(lines) == {
        "- work.env.PLAIN: seen",
        "+ work.env.PLAIN: new",
        "- work.env.TAGS: None",
        "- work.num_replicas: 1",
        "+ work.num_replicas: 2",
        "- work.resource.memMB: 64",
        "+ work.resource.memMB: 128",
        "+ work.args.4: more",
    }
    done = torchx("rerun", *changes, handle)
    assert done.code == 0
    assert done.err.count("new first") == 2
    assert "(none)" in torchx("rerun", "--dryrun", handle).out


def test_secrets_in_the_difference_are_masked(torchx: Torchx, handle: str) -> None:
    change = ["--env", "MY_TOKEN=another", "--dryrun", "--json"]
    hidden = json.loads(torchx("rerun", *change, handle).out)["difference"]
    assert hidden == ["- work.env.MY_TOKEN: ***", "+ work.env.MY_TOKEN: ***"]
    shown = json.loads(torchx("rerun", "--show-secrets", *change, handle).out)["difference"]
    assert shown[1] == "+ work.env.MY_TOKEN: another"


def test_words_behind_the_dashes_replace_the_arguments(torchx: Torchx, handle: str) -> None:
    done = torchx("rerun", handle, "--", "-c", "echo replaced; exit 3")
    assert done.code == 1
    assert "replaced" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--role", "wrok"], "the app has no role `wrok`, it has: work. Did you mean"),
        (["--env", "NOVALUE"], "`--env NOVALUE`: write NAME=VALUE"),
        (["--replicas", "two"], "`two` is not a number"),
        (["--replicas", "0"], "Non-positive replicas"),
    ],
)
def test_bad_changes_are_refused(torchx: Torchx, handle: str, words: list[str], told: str) -> None:
    done = torchx("rerun", *words, handle)
    assert done.code in (1, 2)
    assert told in done.err
    assert "Traceback" not in done.err


def test_a_record_of_a_newer_version_is_refused(torchx: Torchx, handle: str) -> None:
    path = Path(home_dir(), "local", "jobs", handle.rpartition("/")[2], "job.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    done = torchx("rerun", handle)
    assert done.code == 2
    assert "has format 2, this version of TorchX reads up to 1" in done.err


def test_what_other_schedulers_do_not_record_is_kept_by_the_runner(
    call: Callable[..., Any], remote: Any, component_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    component = f"{component_file}:sh"
    first = call("run", "-s", "remote", "-cfg", "team=a", component, "--cmd", "true").out.strip()
    assert first == "remote://torchx/job-1"
    again = call("rerun", "--env", "X=1", "-cfg", "queue=fast", first)
    assert again.out.strip() == "remote://torchx/job-2"
    assert remote.jobs["job-2"].roles[0].env["X"] == "1"
    assert remote.jobs["job-2"].roles[0].env["PLAIN"] == "seen"
    shown = json.loads(call("rerun", "--dryrun", "--json", again.out.strip()).out)
    assert shown["cfg"] == {"queue": "fast", "team": "a"}
    assert call("rerun", "remote://torchx/job-9").code == 2
    assert "there is no record of the request of `remote://torchx/job-9`" in caplog.text


def test_a_directory_that_is_gone_is_told(
    call: Callable[..., Any], remote: Any, component_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = call("run", "-s", "remote", "-cfg", "team=a", f"{component_file}:sh", "--cmd", "true")
    assert call("rerun", "--image", "/no/such/copy", first.out.strip()).code == 2
    assert "ran in `/no/such/copy`, which is gone; give its code with" in caplog.text


def test_of_many_requests_the_latest_are_kept(tmp_path: Path) -> None:
    folder = Path(home_dir(), "requests", "remote")
    folder.mkdir(parents=True)
    for number in range(_requests.KEPT + 101):
        path = folder / f"job-{number}.json"
        path.write_text("{}")
        os.utime(path, (number + 1, number + 1))
    os.utime(folder / "job-0.json")  # a young one stays
    _requests._keep_to_limit(os.path.join("requests", "remote"))
    left = {path.name for path in folder.iterdir()}
    assert len(left) == _requests.KEPT
    assert "job-0.json" in left
    assert "job-1.json" not in left
