"""An app is found again on the cluster and in the namespace that it was submitted to."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.calls import Kind
from torchx.schedulers._kube.connect import connect
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler, create_scheduler
from torchx.specs import AppState

from .conftest import OPTS, Notes, ended

Make = Callable[[str], KubernetesScheduler]
NAMESPACES = Kind("", "v1", "namespaces", "Namespace")


@pytest.fixture(scope="module")
def other() -> Iterator[FakeKube]:
    with FakeKube() as running:
        yield running


@pytest.fixture
def two(
    cluster: FakeKube, other: FakeKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A kubeconfig with the contexts `here`, the current one, and `there`."""
    path = tmp_path / "two"
    servers = {"here": cluster.url, "there": other.url}
    contexts = {"here": {"cluster": "here"}, "there": {"cluster": "there", "namespace": "team"}}
    document: dict[str, Any] = {
        "current-context": "here",
        "clusters": [{"name": k, "cluster": {"server": url}} for k, url in servers.items()],
        "contexts": [{"name": k, "context": context} for k, context in contexts.items()],
    }
    path.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(path))
    cluster.reset()
    other.reset()
    client, _ = connect(None, "there")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    if not any(n["name"] == "team" for n in _namespaces(other)):
        client.create(NAMESPACES, "", namespace)
    client.transport.close()
    return path


@pytest.fixture
def made() -> Iterator[Make]:
    """Makes schedulers, as later commands do."""
    with contextlib.ExitStack() as stack:

        def make(session: str) -> KubernetesScheduler:
            scheduler = create_scheduler(session)
            stack.callback(scheduler.close)
            return scheduler

        yield make


def use_there(path: Path) -> str:
    """The text of a kubeconfig with the other context as its current one."""
    return path.read_text().replace('"current-context": "here"', '"current-context": "there"')


def _namespaces(cluster: FakeKube) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{cluster.url}/api/v1/namespaces") as answer:
        return [item["metadata"] for item in json.load(answer)["items"]]


def torchx(*args: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "torchx.cli.main"]
    return subprocess.run(
        [*program, *args], capture_output=True, text=True, timeout=60, check=False
    )


def test_later_commands_find_the_context_of_an_app(two: Path, made: Make, notes: Notes) -> None:
    scheduler = made("first")
    app_id = scheduler.submit(notes.app(2), {**OPTS, "context": "there"})
    assert app_id.startswith("team:")
    ended(scheduler, app_id)
    status = torchx("status", "--json", f"kubernetes://x/{app_id}")
    assert json.loads(status.stdout)["state"] == "SUCCEEDED", status.stderr
    assert torchx("delete", f"kubernetes://x/{app_id}").returncode == 0
    assert made("second").describe(app_id) is None


def test_another_current_context_does_not_lose_an_app(two: Path, made: Make, notes: Notes) -> None:
    scheduler = made("first")
    app_id = scheduler.submit(notes.app(1), OPTS)
    ended(scheduler, app_id)
    two.write_text(
        two.read_text().replace('"current-context": "here"', '"current-context": "there"')
    )
    found = made("second").describe(app_id)
    assert found is not None
    assert found.state is AppState.SUCCEEDED


def test_a_kubeconfig_given_by_name_is_found_again(
    two: Path, made: Make, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.chdir(tmp_path)
    scheduler = made("first")
    app_id = scheduler.submit(notes.app(1), {**OPTS, "kubeconfig": "two", "context": "there"})
    ended(scheduler, app_id)
    monkeypatch.chdir("/")
    assert made("second").describe(app_id) is not None


def test_several_kubeconfigs_are_found_again(
    two: Path, made: Make, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{two}")
    app_id = made("first").submit(notes.app(1), {**OPTS, "context": "there"})
    monkeypatch.delenv("KUBECONFIG")
    assert made("second").describe(app_id) is not None


def test_where_no_note_helps_the_current_context_counts(
    two: Path, made: Make, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = made("first").submit(notes.app(1), {**OPTS, "context": "there"})
    moved = tmp_path / "moved"
    moved.write_text(
        two.read_text().replace('"current-context": "here"', '"current-context": "there"')
    )
    two.unlink()
    monkeypatch.setenv("KUBECONFIG", str(moved))
    assert made("second").describe(app_id) is not None
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "another user"))
    assert made("third").describe(app_id) is not None
