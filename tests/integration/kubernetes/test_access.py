"""The role of the docs is enough for all verbs, and has nothing that is not needed."""

import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.calls import PODS, Kind, Selection, call
from torchx.schedulers._kube.errors import MissingKind
from torchx.schedulers.kubernetes_mcad_scheduler._client import KINDS
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler, create_scheduler
from torchx.specs import AppState

from .conftest import OPTS, Notes, ended, until
from .real_cluster import IMAGE, KUBECONFIG, Place, own_place, torchx

DOCS = Path(__file__).parents[3] / "docs/schedulers"
ROLE, MCAD_ROLE = (
    yaml.safe_load((DOCS / name).read_text())
    for name in ("kubernetes-role.yaml", "kubernetes_mcad-role.yaml")
)
RBAC = "rbac.authorization.k8s.io"
ROLES = Kind(RBAC, "v1", "roles", "Role")
BINDINGS = Kind(RBAC, "v1", "rolebindings", "RoleBinding")
ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount")
_PATH = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/v\w+/namespaces/[^/]+/(?P<plural>\w+)(?P<name>/[^/?]+)?(?P<sub>/\w+)?"
)


def allowed() -> set[tuple[str, str, str]]:
    """Group, resource and verb of all that the role allows."""
    return {
        (group, resource, verb)
        for rule in ROLE["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(cluster: FakeKube) -> set[tuple[str, str, str]]:
    """The same of all that was asked of the cluster in a namespace."""
    found = set()
    for request in cluster.requests():
        path = _PATH.match(request["target"])
        if path is None:
            continue
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
        word = verb[request["method"]]
        if word == "get" and not path["name"]:
            word = "watch" if "watch=1" in request["target"] else "list"
        found.add((path["group"] or "", path["plural"] + (path["sub"] or ""), word))
    return found


def test_all_that_is_allowed_is_needed_and_no_more(
    cluster: FakeKube, scheduler: KubernetesScheduler, notes: Notes
) -> None:
    local_queues = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/localqueues"
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue"}
    hold = {"name": "q", "annotations": {"fake-kube/hold": "nothing is free"}}
    _post(cluster, local_queues, {**queue, "metadata": hold, "spec": {"clusterQueue": "c"}})
    cluster.requests(forget=True)
    for kind in ("jobs", "services", "configmaps"):  # an answer that is lost is looked up
        cluster.fault("lose", f"^POST .*/{kind}")
    app = notes.app(2, 1)
    for role in app.roles:
        role.args = ["-c", "echo begun; sleep 2"]
    app_id = scheduler.submit(app, OPTS)
    cluster.fault("cut", "^GET .*/log", places=[3])  # the pod is asked how it is then
    lines = list(scheduler.log_iter(app_id, "r0", 1, should_tail=True))
    assert [line.strip() for line in lines] == ["begun"]
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED
    scheduler.delete(app_id)
    waits = scheduler.submit(notes.app(1), {**OPTS, "job_api": "job", "queue": "q"})
    until(lambda: "nothing is free" in scheduler.describe(waits).msg)
    scheduler.cancel(waits)
    scheduler.delete(waits)
    stuck = notes.app(1)
    stuck.roles[0].metadata["kubernetes"] = {
        "spec": {"volumes": [{"name": "v", "secret": {"secretName": "nosuch"}}]}
    }
    stuck.roles[0].metadata["kubernetes"]["spec"]["__join__:containers:name"] = [
        {"name": "r0", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    ]
    stuck_id = scheduler.submit(stuck, OPTS)
    until(lambda: "FailedMount" in scheduler.describe(stuck_id).msg)
    scheduler.delete(stuck_id)
    assert asked(cluster) == allowed()


def _post(cluster: FakeKube, path: str, body: dict[str, Any]) -> None:
    import urllib.request

    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(cluster.url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201


# -- the real thing ------------------------------------------------------------------------------


def bind(place: Place, name: str, rules: list[dict[str, Any]]) -> None:
    """Gives the user a role."""
    place.create(ROLES, name, rules=rules)
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": place.namespace}
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}
    place.create(BINDINGS, name, subjects=[subject], roleRef=role)


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A service account without rights, whose kubeconfig is used."""
    with own_place() as place:
        place.create(ACCOUNTS, "user")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        request = call(
            "token", "POST", ACCOUNTS, place.namespace, "user", subresource="token", body=body
        )
        token = place.kube.transport.send(request, 10).json()["status"]["token"]
        document = yaml.safe_load(Path(KUBECONFIG).read_text())
        (context,) = document["contexts"][:1]
        context["context"]["namespace"] = place.namespace
        for user in document["users"]:
            user["user"] = {"token": token}
        for cluster in document["clusters"]:
            path = cluster["cluster"].get("certificate-authority")
            if path:
                absolute = str(Path(KUBECONFIG).parent / path)
                cluster["cluster"]["certificate-authority"] = absolute
        (tmp_path / "kubeconfig").write_text(json.dumps(document))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        yield place


@pytest.fixture
def bound(user):
    """A service account with the role."""
    bind(user, "torchx", ROLE["rules"])
    return user


def done(*args: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command line, which succeeds and is allowed all that it asks for."""
    finished = torchx(*args)
    assert finished.returncode == 0, finished.stderr
    assert "not allowed" not in finished.stderr
    return finished


@pytest.mark.kubernetes
@pytest.mark.timeout(200)
def test_the_role_is_enough_on_a_real_server(bound):
    run = ("run", "-s", "kubernetes", "--workspace=", "-cfg", "grace_s=1")
    sh = ("utils.sh", "--image", IMAGE, "--num_replicas", "2")
    handle = done(*run, "--wait", "--log", *sh, "echo", "hello").stdout.split()[-1]
    logs = done("log", handle).stdout
    assert logs.count("hello") == 2
    assert handle in done("list", "-s", "kubernetes").stdout
    done("delete", handle)
    handle = done(*run, *sh, "sleep", "100").stdout.split()[-1]
    done("cancel", handle)
    until(lambda: json.loads(done("status", "--json", handle).stdout)["state"] == "CANCELLED")
    other = done(*run, *sh, "true").stdout.split()[-1]
    assert "2 apps deleted" in done("delete", handle, other).stderr
    scheduler = create_scheduler("x")
    several = Notes(Path("/dev/null")).app(1, 1)
    for role in several.roles:
        role.image = IMAGE
    app_id = scheduler.submit(several, {"grace_s": 1})
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED
    scheduler.delete(app_id)
    scheduler.close()


@pytest.mark.kubernetes
def test_without_a_role_the_verb_and_the_object_are_named(bound):
    bound.kube.delete(BINDINGS, bound.namespace, "torchx")
    done = torchx("list", "-s", "kubernetes")
    assert done.returncode == 1
    words = f"you are not allowed to list jobs.batch in namespace `{bound.namespace}`: "
    assert words in done.stderr
    assert "ask for a role with the verb `list` on `jobs.batch`" in done.stderr
    assert PODS.plural not in done.stderr


@pytest.mark.kubernetes
@pytest.mark.timeout(200)
def test_commands_in_replicas_need_one_right_more(bound):
    run = ("run", "-s", "kubernetes", "--workspace=", "-cfg", "grace_s=1")
    handle = done(*run, "utils.sh", "--image", IMAGE, "sleep", "100").stdout.split()[-1]
    until(lambda: json.loads(done("status", "--json", handle).stdout)["state"] == "RUNNING")
    refused = torchx("exec", handle, "--", "echo", "hello")
    assert refused.returncode == 1
    assert "of pods/exec in namespace" in refused.stderr
    rule = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}
    bind(bound, "exec", [rule])
    assert done("exec", handle, "--", "echo", "hello").stdout == "hello\n"
    done("delete", handle)


@pytest.mark.kubernetes
@pytest.mark.timeout(200)
def test_the_role_of_app_wrappers_is_enough_on_a_real_server(user):
    version = served(user)
    missing = ("create appwrappers", *(["create jobs"] if version == "v1beta2" else ()))
    told = torchx("doctor", "-s", "kubernetes_mcad").stdout
    assert all(right in told for right in missing), told
    bind(user, "torchx-mcad", MCAD_ROLE["rules"])
    cfg = f"appwrapper_version={version},grace_s=1"
    run = ("run", "-s", "kubernetes_mcad", "--workspace=", "-cfg", cfg)
    sh = ("utils.sh", "--image", IMAGE, "--num_replicas", "2")
    handle = done(*run, "--wait", "--log", *sh, "echo", "hello").stdout.split()[-1]
    assert done("log", handle).stdout.count("hello") == 2
    assert handle in done("list", "-s", "kubernetes_mcad").stdout
    failing = "test $HOSTNAME = ${HOSTNAME%-0} && sleep 100; exit 3"
    ended_badly = torchx(*run, "--wait", *sh, "--", "sh", "-c", failing)  # its other pod is ended
    assert ended_badly.returncode == 1
    assert "exited with code 3" in ended_badly.stderr
    assert "not allowed" not in ended_badly.stderr
    other = done(*run, *sh, "sleep", "100").stdout.split()[-1]
    done("cancel", other)
    assert json.loads(done("status", "--json", other).stdout)["state"] == "CANCELLED"
    done("delete", handle, ended_badly.stdout.split()[0])


def served(place: Place) -> str:
    """The generation of AppWrappers that the cluster has."""
    for version, kind in KINDS.items():
        with contextlib.suppress(MissingKind):
            place.kube.list_objects(Selection(kind, place.namespace))
            return version
    pytest.skip("the cluster serves no AppWrappers")
