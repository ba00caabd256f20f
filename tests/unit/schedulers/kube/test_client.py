"""Calls to a server that does not always behave."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kube.server import FakeKube
from torchx.errors import BackendUnavailable, InvalidInput, UnsupportedRequest
from torchx.schedulers._kube import errors
from torchx.schedulers._kube.calls import (
    APP_WRAPPERS_V1BETA1,
    EVENTS,
    JOBS,
    PODS,
    SERVICES,
    Kind,
    Object,
    Selection,
)
from torchx.schedulers._kube.client import MARK, KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers._kube.watch import Watch

from .conftest import QUICK
from .proxy import running_proxy

NS = "default"


def service(name: str = "s", mark: str = "m1", **labels: str) -> Object:
    metadata = {"name": name, "labels": labels, "annotations": {MARK: mark}}
    spec = {"clusterIP": "None", "selector": {"a": "b"}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def job(name: str = "j", **spec: Any) -> Object:
    container = {"name": "main", "image": "i", "command": ["true"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    spec = {"suspend": True, "template": {"spec": pod}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def methods(cluster: FakeKube) -> list[str]:
    return [request["method"] for request in cluster.requests()]


def test_what_was_created_is_found_changed_and_deleted(kube: KubeClient) -> None:
    created = kube.create(JOBS, NS, job())
    assert kube.get(JOBS, NS, "j")["metadata"]["uid"] == created["metadata"]["uid"]
    changed = kube.patch(JOBS, NS, "j", {"metadata": {"labels": {"a": "1", "b": None}}})
    assert changed["metadata"]["labels"] == {"a": "1"}
    operations = [{"op": "replace", "path": "/spec/parallelism", "value": 3}]
    assert kube.patch_json(JOBS, NS, "j", operations)["spec"]["parallelism"] == 3
    assert kube.delete(JOBS, NS, "j")
    assert not kube.delete(JOBS, NS, "j")
    with pytest.raises(errors.NotFound, match=r'cannot get `j` of jobs.batch in .*"j" not found'):
        kube.get(JOBS, NS, "j")


def test_a_list_is_read_to_its_end_page_by_page(cluster: FakeKube, kube: KubeClient) -> None:
    template = {"metadata": {"namespace": NS, "name": "s%d", "labels": {"app": "x"}}, "spec": {}}
    cluster.load("", "v1", "services", template, 1001)
    kube.create(SERVICES, NS, service("other"))
    cluster.requests(forget=True)
    listed = kube.list_objects(Selection(SERVICES, NS, "app=x"))
    assert len({item["metadata"]["name"] for item in listed.items}) == 1001
    assert {(item["kind"], item["apiVersion"]) for item in listed.items} == {("Service", "v1")}
    assert listed.resource_version.isdigit()
    assert len(cluster.requests()) == 3


def test_a_list_that_the_server_lost_begins_anew(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.load("", "v1", "services", {"metadata": {"namespace": NS, "name": "s%d"}}, 600)
    cluster.fault("status", "continue=", code=410, reason="Expired")
    assert len(kube.list_objects(Selection(SERVICES, NS)).items) == 600


def test_all_of_a_selection_are_deleted_and_no_others(kube: KubeClient) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        kube.create(SERVICES, NS, service(name, app=app))
    kube.delete_all(Selection(SERVICES, NS, "app=x"))
    left = kube.list_objects(Selection(SERVICES, NS)).items
    assert [item["metadata"]["name"] for item in left] == ["c"]
    with pytest.raises(ValueError, match="everything"):
        kube.delete_all(Selection(SERVICES, NS))


def test_the_cluster_tells_its_groups_and_version(kube: KubeClient) -> None:
    groups = kube.groups()
    assert groups["batch"] == ["v1"]
    assert "jobset.x-k8s.io" in groups
    assert kube.server_version() >= (1, 30)


RETRIED = [
    {"action": "drop"},
    {"action": "lose"},
    {"action": "status", "code": 429, "headers": {"Retry-After": "0"}},
    {"action": "status", "code": 500},
    {"action": "status", "code": 503},
    {"action": "after", "code": 504},
    {"action": "truncate", "places": [0, 40]},
]


@pytest.mark.parametrize("fault", RETRIED, ids=lambda f: f"{f['action']}{f.get('code', '')}")
def test_what_can_be_repeated_is_repeated(
    cluster: FakeKube, kube: KubeClient, fault: dict[str, Any]
) -> None:
    kube.create(SERVICES, NS, service())
    cluster.fault(**fault, times=2)
    assert kube.get(SERVICES, NS, "s")["metadata"]["name"] == "s"
    cluster.fault(**fault, times=2)
    kube.patch(SERVICES, NS, "s", {"metadata": {"labels": {"x": "y"}}})
    assert kube.get(SERVICES, NS, "s")["metadata"]["labels"] == {"x": "y"}
    cluster.fault(**fault, times=2)
    kube.delete(SERVICES, NS, "s")
    assert kube.list_objects(Selection(SERVICES, NS)).items == []


@pytest.mark.parametrize("fault", RETRIED, ids=lambda f: f"{f['action']}{f.get('code', '')}")
@pytest.mark.parametrize("times", [1, 2])
def test_a_create_is_carried_out_once_whatever_happens_to_it(
    cluster: FakeKube, kube: KubeClient, fault: dict[str, Any], times: int
) -> None:
    cluster.fault(**fault, match="POST", times=times)
    found = kube.create(SERVICES, NS, service())
    assert found["metadata"]["annotations"] == {MARK: "m1"}
    assert len(kube.list_objects(Selection(SERVICES, NS)).items) == 1
    created = [r for r in cluster.requests() if r["method"] == "POST" and r["code"] == 201]
    assert len(created) == 1


def test_a_lost_create_is_looked_up_before_it_is_sent_again(
    cluster: FakeKube, kube: KubeClient
) -> None:
    cluster.fault("lose", "POST")
    kube.create(SERVICES, NS, service())
    assert methods(cluster) == ["POST", "GET"]


@pytest.mark.parametrize("action", ["none", "lose", "drop"])
def test_the_name_of_another_is_not_taken_for_ours(
    cluster: FakeKube, kube: KubeClient, action: str
) -> None:
    kube.create(SERVICES, NS, service(mark="of another"))
    cluster.fault(action, "POST")
    with pytest.raises(errors.AlreadyExists, match='"s" already exists'):
        kube.create(SERVICES, NS, service(mark="m1"))


def test_an_object_without_mark_is_never_taken_for_ours(
    cluster: FakeKube, kube: KubeClient
) -> None:
    body = service()
    del body["metadata"]["annotations"]
    cluster.fault("lose", "POST")
    with pytest.raises(errors.AlreadyExists):
        kube.create(SERVICES, NS, body)


def test_a_create_whose_fate_is_unknown_says_so(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.fault("lose", "POST")
    cluster.fault("drop", "GET", times=-1)
    with pytest.raises(errors.AnswerLost, match="not known whether Service `s` was created"):
        kube.create(SERVICES, NS, service())


def test_a_create_whose_fate_is_unknown_as_credentials_are_gone_says_so(
    cluster: FakeKube, kube: KubeClient, tmp_path: Path
) -> None:
    version = "client.authentication.k8s.io/v1"
    status = {"token": "t", "expirationTimestamp": "2001-01-01T00:00:00Z"}
    printed = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    login = tmp_path / "login"
    # a request asks twice, for a token and for a certificate; there is only one request
    once = f"mkdir {tmp_path}/token || mkdir {tmp_path}/certificate || exit 1"
    login.write_text(f"#!/bin/sh\n{once}\necho '{printed}'\n")
    login.chmod(0o755)
    plugin = {"command": str(login), "apiVersion": version, "interactiveMode": "Never"}
    config = cluster.kubeconfig(tmp_path / "with-plugin", user={"exec": plugin})
    client, _ = connect(config, patience=QUICK)
    cluster.fault("lose", "POST")
    with pytest.raises(errors.AnswerLost, match="not known whether Service `s` was created"):
        client.create(SERVICES, NS, service())
    client.transport.close()
    assert kube.get(SERVICES, NS, "s")


def test_a_create_that_was_turned_away_is_not_looked_up(
    cluster: FakeKube, kube: KubeClient
) -> None:
    cluster.fault("status", "POST", code=429, times=-1)
    with pytest.raises(errors.ServerBusy):
        kube.create(SERVICES, NS, service())
    assert methods(cluster) == ["POST"] * (1 + len(QUICK.pauses_s))


def test_a_patch_by_operations_is_not_repeated(cluster: FakeKube, kube: KubeClient) -> None:
    kube.create(SERVICES, NS, service())
    cluster.fault("lose", "PATCH")
    with pytest.raises(errors.AnswerLost):
        kube.patch_json(SERVICES, NS, "s", [{"op": "add", "path": "/spec/x", "value": 1}])


def test_the_server_chooses_the_pause(cluster: FakeKube, tmp_path: Path) -> None:
    pauses: list[float] = []
    client, _ = connect(cluster.kubeconfig(tmp_path / "kubeconfig"))
    patient = KubeClient(client.transport, patience=QUICK, pause=pauses.append)
    cluster.reset()
    cluster.fault("status", code=429, headers={"Retry-After": "0.5"})
    cluster.fault("status", code=503, headers={"Retry-After": "600"})
    cluster.fault("status", code=503)
    patient.groups()
    assert pauses[:2] == [0.5, 1]
    assert 0.025 <= pauses[2] <= 0.075
    client.transport.close()


def test_retries_end(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.fault("status", code=503, times=-1)
    with pytest.raises(errors.ServerBusy, match=r"injected \(HTTP 503\)") as caught:
        kube.get(SERVICES, NS, "s")
    assert isinstance(caught.value, BackendUnavailable)
    assert len(cluster.requests()) == 1 + len(QUICK.pauses_s)


def test_a_slow_server_is_given_up(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.fault("slow", seconds=30)
    impatient = KubeClient(kube.transport, patience=QUICK.__class__(0.2, ()))
    with pytest.raises(errors.AnswerLost, match=r"did not answer, asked to .*: it took too long"):
        impatient.groups()


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with FakeKube() as gone:
        path = gone.kubeconfig(tmp_path / "kubeconfig")
    client, _ = connect(path, patience=QUICK)
    with pytest.raises(errors.NotSent, match=rf"{gone.url} cannot be reached: Connection refused"):
        client.groups()
    client.transport.close()


def test_validation_creates_nothing_and_finds_unknown_fields(kube: KubeClient) -> None:
    assert kube.validate(JOBS, NS, job())["spec"]["backoffLimit"] == 6
    with pytest.raises(errors.Rejected, match=r'unknown field "spec.paralelism"') as caught:
        kube.validate(JOBS, NS, job(paralelism=1))
    assert isinstance(caught.value, InvalidInput)
    with pytest.raises(errors.Rejected, match=r"spec.completions: cannot unmarshal string"):
        kube.validate(JOBS, NS, job(completions="many"))
    with pytest.raises(errors.Rejected, match=r"spec.template.spec.containers: Required value"):
        kube.validate(JOBS, NS, job(template={"spec": {"restartPolicy": "Never"}}))
    assert kube.list_objects(Selection(JOBS, NS)).items == []


def test_what_cannot_change_is_refused(kube: KubeClient) -> None:
    kube.create(JOBS, NS, job(completionMode="Indexed", completions=2))
    with pytest.raises(errors.Rejected, match=r"spec.completionMode: .*immutable"):
        kube.patch(JOBS, NS, "j", {"spec": {"completionMode": "NonIndexed"}})


def test_a_forbidden_verb_is_named(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.admin("settings", {"forbidden": [["create", "jobs.batch"], ["list", "pods"]]})
    with pytest.raises(errors.Forbidden) as caught:
        kube.create(JOBS, NS, job())
    message = str(caught.value)
    assert message.startswith("you are not allowed to create `j` of jobs.batch in namespace")
    assert "ask for a role with the verb `create` on `jobs.batch`" in message
    assert "\n" not in message
    with pytest.raises(errors.Forbidden, match="not allowed to list pods in namespace `default`"):
        kube.list_objects(Selection(PODS, NS))


@pytest.mark.parametrize(
    "kind", [APP_WRAPPERS_V1BETA1, Kind("batch", "v2", "jobs", "Job")], ids=lambda k: k.api_version
)
def test_a_missing_operator_is_told(kube: KubeClient, kind: Kind) -> None:
    for ask in (
        lambda: kube.list_objects(Selection(kind, NS)),
        lambda: kube.get(kind, NS, "x"),
        lambda: kube.create(kind, NS, {"metadata": {"name": "x"}}),
    ):
        with pytest.raises(
            errors.MissingKind, match=f"has no {kind.plural}.{kind.group}"
        ) as caught:
            ask()
        assert isinstance(caught.value, UnsupportedRequest)


def test_a_missing_namespace_is_told(kube: KubeClient) -> None:
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        kube.create(SERVICES, "nowhere", service())


def test_an_expired_token_from_a_file_is_renewed_once(
    cluster: FakeKube, kube: KubeClient, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    path = cluster.kubeconfig(tmp_path / "with-token", {"tokenFile": str(token)})
    client, _ = connect(path, patience=QUICK)
    cluster.admin("tokens", ["old"])
    client.groups()
    cluster.admin("tokens", ["new"])
    token.write_text("new")
    client.create(SERVICES, NS, service())
    token.write_text("wrong")
    cluster.admin("tokens", ["newer"])
    cluster.requests(forget=True)
    with pytest.raises(errors.Unauthorized, match=r"credentials of user `tester`.*log in again"):
        client.groups()
    assert len(cluster.requests()) == 2
    client.transport.close()


def test_requests_of_many_threads_share_few_connections(
    cluster: FakeKube, kube: KubeClient
) -> None:
    cluster.fault("slow", seconds=0.05, times=-1)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            kube.groups()
        except BaseException as err:  # noqa: BLE001 - shown by the assertion below
            failures.append(err)

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(cluster.requests()) == 40


CERTIFICATES = Path(__file__).with_name("certificates")


@pytest.fixture(scope="module")
def tls_cluster() -> Iterator[FakeKube]:
    with FakeKube(
        "--certificate", str(CERTIFICATES / "server.pem"), url="https://127.0.0.1"
    ) as running:
        yield running


def https(
    cluster: FakeKube, tmp_path: Path, user: dict[str, Any] | None = None, **options: Any
) -> KubeClient:
    options.setdefault("certificate-authority", str(CERTIFICATES / "ca.pem"))
    options = {key: value for key, value in options.items() if value is not None}
    path = cluster.kubeconfig(tmp_path / "kubeconfig", user, options)
    return connect(path, patience=QUICK)[0]


def test_tls_with_the_authority_of_the_cluster(tls_cluster: FakeKube, tmp_path: Path) -> None:
    for options in ({}, {"tls-server-name": "kubernetes"}):
        client = https(tls_cluster, tmp_path, **options)
        assert "batch" in client.groups()
        client.transport.close()


def test_tls_without_verification(tls_cluster: FakeKube, tmp_path: Path) -> None:
    options = {"certificate-authority": None, "insecure-skip-tls-verify": True}
    client = https(tls_cluster, tmp_path, **options)
    assert "batch" in client.groups()
    client.transport.close()


def test_client_certificates_in_files_and_in_the_kubeconfig(
    tls_cluster: FakeKube, tmp_path: Path
) -> None:
    file = CERTIFICATES / "client.pem"
    data = base64.b64encode(file.read_bytes()).decode()
    for user in (
        {"client-certificate": str(file), "client-key": str(file)},
        {"client-certificate-data": data, "client-key-data": data},
    ):
        client = https(tls_cluster, tmp_path, user)
        assert "batch" in client.groups()
        client.transport.close()


@pytest.mark.parametrize(
    ("user", "options", "words"),
    [
        ({}, {"certificate-authority": None}, "cannot be trusted: .*`certificate-authority`"),
        ({}, {"tls-server-name": "other"}, "cannot be trusted: .*`tls-server-name`"),
        ({}, {"certificate-authority": "/no/such"}, "authority `/no/such` .*cannot be read"),
        ({}, {"certificate-authority": __file__}, "is not a PEM certificate"),
        ({"client-certificate": "/x", "client-key": "/y"}, {}, r"cannot be read: .*\(/x and /y\)"),
        ({"client-certificate": __file__, "client-key": __file__}, {}, "not a pair in PEM"),
    ],
)
def test_what_is_wrong_with_tls_is_told(
    tls_cluster: FakeKube,
    tmp_path: Path,
    user: dict[str, Any],
    options: dict[str, Any],
    words: str,
) -> None:
    client = https(tls_cluster, tmp_path, user, **options)
    with pytest.raises((errors.Untrusted, errors.ConfigError), match=words) as caught:
        client.groups()
    assert "\n" not in str(caught.value)
    client.transport.close()


def test_an_expired_certificate_of_the_server_is_told(tmp_path: Path) -> None:
    with FakeKube(
        "--certificate", str(CERTIFICATES / "expired.pem"), url="https://127.0.0.1"
    ) as cluster:
        client = https(cluster, tmp_path)
        with pytest.raises(errors.Untrusted, match=r"has expired; the server's certificate"):
            client.groups()
        client.transport.close()


def test_an_old_server_drops_fields_in_silence(tmp_path: Path) -> None:
    with FakeKube("--version", "1.28") as old:
        client, _ = connect(old.kubeconfig(tmp_path / "kubeconfig"), patience=QUICK)
        assert client.server_version() == (1, 28)
        indexed = {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1}
        created = client.create(JOBS, NS, job(**indexed))
        assert "backoffLimitPerIndex" not in created["spec"]
        client.transport.close()


def test_events_are_found_by_field(cluster: FakeKube, kube: KubeClient) -> None:
    for number in range(3):
        template = {
            "metadata": {"namespace": NS, "name": f"e{number}"},
            "involvedObject": {"kind": "Pod", "name": f"p{number}"},
        }
        cluster.load("", "v1", "events", template)
    selection = Selection(EVENTS, NS, fields="involvedObject.name=p1")
    assert [e["metadata"]["name"] for e in kube.list_objects(selection).items] == ["e1"]


def test_the_proxy_of_the_cluster_is_used(cluster: FakeKube, tmp_path: Path) -> None:
    with running_proxy() as proxy:
        url = proxy.url.replace("//", "//me:pass%20word@")
        path = cluster.kubeconfig(tmp_path / "kubeconfig", cluster={"proxy-url": url})
        client, _ = connect(path, patience=QUICK)
        assert "batch" in client.groups()
        client.transport.close()
    assert proxy.lines == [f"GET {cluster.url}/apis HTTP/1.1"]
    assert proxy.credentials == ["Basic " + base64.b64encode(b"me:pass word").decode()]


def test_tls_goes_through_a_proxy_untouched(tls_cluster: FakeKube, tmp_path: Path) -> None:
    with running_proxy() as proxy:
        client = https(tls_cluster, tmp_path, **{"proxy-url": proxy.url})
        assert "batch" in client.groups()
        with Watch(client, {Selection(SERVICES, NS): None}) as watch:
            client.create(SERVICES, NS, service("through-a-proxy"))
            assert watch.wait(10)
        client.transport.close()
    assert set(proxy.lines) == {f"CONNECT 127.0.0.1:{tls_cluster.port} HTTP/1.1"}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://p:1", "`ftp://p:1` is no proxy"),
        ("http://127.0.0.1:1", "cannot be reached: Connection refused"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_told(
    cluster: FakeKube, tmp_path: Path, url: str, words: str
) -> None:
    path = cluster.kubeconfig(tmp_path / "kubeconfig", cluster={"proxy-url": url})
    client, _ = connect(path, patience=QUICK)
    with pytest.raises((errors.ConfigError, errors.NotSent), match=words):
        client.groups()
    client.transport.close()


def test_large_answers_may_come_compressed(cluster: FakeKube, kube: KubeClient) -> None:
    cluster.load("", "v1", "services", {"metadata": {"namespace": NS, "name": "s%d"}}, 1200)
    cluster.admin("settings", {"gzip": True})
    assert len(kube.list_objects(Selection(SERVICES, NS)).items) == 1200


def test_a_status_loads_neither_watches_nor_logs_nor_asyncio() -> None:
    script = (
        "import sys; from torchx.schedulers._kube.connect import connect; "
        "import torchx.schedulers._kube.transport; print(*sys.modules)"
    )
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "torchx.schedulers._kube.client" in loaded
    heavy = {"asyncio", "subprocess", "urllib.request", "kubernetes"}
    ours = {f"torchx.schedulers._kube.{name}" for name in ("live", "watch", "logs", "streams")}
    assert set(loaded).isdisjoint(heavy | ours)


def test_missing_packages_are_told_with_the_extra(tmp_path: Path) -> None:
    (tmp_path / "httpcore.py").write_text("raise ModuleNotFoundError('no', name='httpcore')")
    script = (
        "from torchx.errors import NotInstalled\n"
        "from torchx.schedulers._kube.connect import connect\n"
        "try: connect()\n"
        "except NotInstalled as err: print(err)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    assert "need the Python package `httpcore`" in said
    assert "pip install 'torchx[kubernetes]'" in said
