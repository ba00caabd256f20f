"""Watches that servers and connections try to break."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube import errors
from torchx.schedulers._kube.calls import PODS, SERVICES, Object, Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers._kube.watch import Watch

from .conftest import QUICK

NS = "default"
OURS = Selection(SERVICES, NS, "app=x")


def service(name: str, app: str = "x", **annotations: str) -> Object:
    metadata = {"name": name, "labels": {"app": app}, "annotations": annotations}
    spec = {"clusterIP": "None", "selector": {"a": "b"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def names(watch: Watch, selection: Selection = OURS) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in watch.objects(selection))


def wait_until(watch: Watch, reached: Callable[[], bool], timeout_s: float = 20) -> None:
    """Waits for changes until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        left_s = deadline - time.monotonic()
        assert left_s > 0, "the watch did not get there"
        watch.wait(left_s)


def watches(cluster: FakeKube) -> list[dict[str, Any]]:
    return [request for request in cluster.requests() if "watch=1" in request["target"]]


def test_changes_arrive(kube: KubeClient) -> None:
    kube.create(SERVICES, NS, service("before"))
    with Watch(kube, {OURS: None}) as watch:
        wait_until(watch, lambda: names(watch) == ["before"])
        kube.create(SERVICES, NS, service("a"))
        wait_until(watch, lambda: names(watch) == ["a", "before"])
        kube.patch(SERVICES, NS, "a", {"metadata": {"annotations": {"k": "v"}}})
        wait_until(
            watch,
            lambda: watch.objects(OURS)[-1]["metadata"]["annotations"] == {"k": "v"},
        )
        kube.delete(SERVICES, NS, "before")
        wait_until(watch, lambda: names(watch) == ["a"])


def test_what_leaves_the_selection_is_gone(kube: KubeClient) -> None:
    kube.create(SERVICES, NS, service("a"))
    with Watch(kube, {OURS: None}) as watch:
        wait_until(watch, lambda: names(watch) == ["a"])
        kube.patch(SERVICES, NS, "a", {"metadata": {"labels": {"app": "y"}}})
        wait_until(watch, lambda: names(watch) == [])


def test_a_watch_goes_on_from_a_list_and_asks_nothing_while_idle(
    cluster: FakeKube, kube: KubeClient
) -> None:
    kube.create(SERVICES, NS, service("a"))
    listed = kube.list_objects(OURS)
    kube.create(SERVICES, NS, service("b"))
    cluster.requests(forget=True)
    with Watch(kube, {OURS: listed}) as watch:
        wait_until(watch, lambda: names(watch) == ["a", "b"])
        assert not watch.wait(0.5)
        assert [request["method"] for request in cluster.requests()] == ["GET"]
    assert len(watches(cluster)) == 1


def test_others_do_not_wake_it(kube: KubeClient) -> None:
    with Watch(kube, {OURS: kube.list_objects(OURS)}) as watch:
        kube.create(SERVICES, NS, service("other", app="y"))
        kube.create(SERVICES, NS, service("mine"))
        wait_until(watch, lambda: names(watch) == ["mine"])
        watch.wait(0.1)  # its own news, if it was seen before they were told
        kube.create(SERVICES, NS, service("another", app="y"))
        assert not watch.wait(0.1)


def test_several_selections_in_one_watch(kube: KubeClient) -> None:
    pods = Selection(PODS, NS, "app=x")
    with Watch(kube, {OURS: None, pods: None}) as watch:
        kube.create(SERVICES, NS, service("s"))
        container = {"name": "c", "image": "i", "command": ["true"]}
        metadata = {"name": "p", "labels": {"app": "x"}}
        spec = {"restartPolicy": "Never", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        kube.create(PODS, NS, pod)
        wait_until(watch, lambda: names(watch) == ["s"] and names(watch, pods) == ["p"])


def test_bookmarks_move_on_without_waking(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.admin("settings", {"bookmark_s": 0.05, "watch_timeout_s": 0.4})
    listed = kube.list_objects(OURS)
    kube.create(SERVICES, NS, service("other", app="y"))
    with Watch(kube, {OURS: listed}) as watch:
        assert not watch.wait(1)
    versions = {request["target"].partition("resourceVersion=")[2] for request in watches(cluster)}
    assert len(versions) > 1


def test_a_forgotten_version_is_listed_anew(cluster: FakeKube, kube: KubeClient) -> None:
    kube.create(SERVICES, NS, service("gone"))
    listed = kube.list_objects(OURS)
    kube.delete(SERVICES, NS, "gone")
    kube.create(SERVICES, NS, service("new"))
    cluster.admin("compact")
    with Watch(kube, {OURS: listed}) as watch:
        wait_until(watch, lambda: names(watch) == ["new"])


def test_the_status_gone_is_listed_anew(cluster: FakeKube, kube: KubeClient) -> None:
    kube.create(SERVICES, NS, service("a"))
    cluster.fault("status", "watch=1", code=410, reason="Expired", times=2)
    with Watch(kube, {OURS: None}) as watch:
        kube.create(SERVICES, NS, service("b"))
        wait_until(watch, lambda: names(watch) == ["a", "b"])


@pytest.mark.parametrize("clean", [False, True])
def test_cut_streams_go_on(cluster: FakeKube, kube: KubeClient, clean: bool) -> None:
    places = [0, 1, 700, 333, 1000]
    cluster.fault("cut", "watch=1", times=-1, places=places, clean=clean)
    with Watch(kube, {OURS: kube.list_objects(OURS)}) as watch:
        for number in range(12):
            kube.create(SERVICES, NS, service(f"s{number:02d}"))
            if number % 3 == 0:
                kube.delete(SERVICES, NS, f"s{number:02d}")
        expected = [f"s{number:02d}" for number in range(12) if number % 3]
        wait_until(watch, lambda: names(watch) == expected)
    assert len(watches(cluster)) > 2


def test_a_server_that_is_away_for_a_while_is_survived(
    cluster: FakeKube, kube: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.fault("status", "watch=1", code=503, times=3)
    cluster.fault("drop", "watch=1", times=2)
    listed = kube.list_objects(OURS)
    with caplog.at_level(logging.WARNING), Watch(kube, {OURS: listed}) as watch:
        kube.create(SERVICES, NS, service("a"))
        wait_until(watch, lambda: names(watch) == ["a"])
    assert [r.message for r in caplog.records if "trying again" in r.message] != []


def test_a_forbidden_watch_is_told(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.admin("settings", {"forbidden": [["watch", "services"]]})
    with (
        Watch(kube, {OURS: kube.list_objects(OURS)}) as watch,
        pytest.raises(errors.Forbidden, match="not allowed to watch services"),
    ):
        watch.wait(10)


def test_a_token_that_expires_meanwhile_is_renewed(
    cluster: FakeKube, kube: KubeClient, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    cluster.admin("tokens", ["old"])
    path = cluster.kubeconfig(tmp_path / "with-token", {"tokenFile": str(token)})
    client, _ = connect(path, patience=QUICK)
    listed = client.list_objects(OURS)
    token.write_text("new")
    cluster.admin("tokens", ["new"])
    with Watch(client, {OURS: listed}) as watch:
        client.create(SERVICES, NS, service("a"))
        wait_until(watch, lambda: names(watch) == ["a"])
    client.transport.close()


def test_leaving_the_context_ends_the_thread_at_once(cluster: FakeKube, kube: KubeClient) -> None:
    before = threading.active_count()
    with Watch(kube, {OURS: kube.list_objects(OURS)}) as watch:
        assert not watch.wait(0.1)
        assert threading.active_count() > before
    assert threading.active_count() == before
