"""Which objects run an app, by the options and by what the cluster has; on fake clusters."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fake_kube.server import FakeKube
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.runner import get_runner
from torchx.schedulers._kube.calls import LOCAL_QUEUES, PODS, WORKLOADS, Kind, Selection
from torchx.schedulers._kube.client import KubeClient
from torchx.schedulers._kube.connect import connect
from torchx.schedulers.kubernetes_mcad_scheduler import create_scheduler as create_mcad_scheduler
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler, create_scheduler
from torchx.schedulers.kubernetes_scheduler._kinds import KINDS
from torchx.specs import AppDef, AppState, Role

from .conftest import NS, OPTS, ended, until

HOLD = "fake-kube/hold"
APIS = [*KINDS]


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[str], FakeKube]]:
    """Starts a fake cluster with some operators, once each."""
    started: dict[str, FakeKube] = {}
    with ExitStack() as stack:

        def one(operators: str) -> FakeKube:
            if operators not in started:
                started[operators] = stack.enter_context(FakeKube("--operators", operators))
            return started[operators]

        yield one


@pytest.fixture
def use(
    start: Callable[[str], FakeKube], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], FakeKube]:
    """Makes a cluster with some operators that of the user."""

    def one(operators: str) -> FakeKube:
        cluster = start(operators)
        cluster.reset()
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path / "kubeconfig"))
        return cluster

    return one


@pytest.fixture
def scheduler() -> Iterator[KubernetesScheduler]:
    made = create_scheduler("test")
    yield made
    made.close()


@pytest.fixture
def kube(use: Callable[[str], FakeKube]) -> Iterator[KubeClient]:
    """Of a cluster with everything."""
    use("jobset,volcano,kueue")
    client, _ = connect()
    yield client
    client.transport.close()


def an_app(script: str = "true", replicas: int = 1) -> AppDef:
    role = Role("r", "any", entrypoint="sh", args=["-c", script], num_replicas=replicas)
    return AppDef("app", [role])


# -- the choice ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operators", "api"),
    [("volcano,kueue", "volcano"), ("jobset,kueue", "job"), ("jobset", "job")],
)
def test_a_queue_chooses_what_has_queues(use, scheduler, caplog, operators, api):
    use(operators)
    job = scheduler.submit_dryrun(an_app(), {**OPTS, "queue": "q"}).request
    labels = job.resource["metadata"]["labels"]
    assert job.api == api
    assert labels.get("kueue.x-k8s.io/queue-name") == ("q" if operators == "jobset,kueue" else None)
    assert ("`queue` is left out" in caplog.text) is (operators == "jobset")


def test_what_a_cluster_has_is_asked_once(use, scheduler):
    cluster = use("volcano")
    cluster.requests(forget=True)
    for _ in range(2):
        scheduler.submit_dryrun(an_app(), {**OPTS, "queue": "q"})
        scheduler.list()
    asked = [request["target"] for request in cluster.requests()]
    assert asked.count("/apis") == 1


@pytest.mark.parametrize("given", ["none", "away"])
def test_without_a_cluster_a_queue_means_volcano(scheduler, tmp_path, monkeypatch, given):
    path = tmp_path / "kubeconfig"
    if given == "away":
        with FakeKube() as cluster:
            cluster.kubeconfig(path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    job = scheduler.submit_dryrun(an_app(), {"queue": "q", "validate_spec": False}).request
    assert (job.api, job.resource["spec"]["queue"]) == ("volcano", "q")


@pytest.mark.parametrize("api", ["jobset", "volcano"])
@pytest.mark.parametrize("validated", [True, False])
def test_a_kind_that_the_cluster_does_not_have_is_refused_in_one_line(
    use, scheduler, api, validated
):
    use("")
    words = rf"`job_api={api}`, it can run: `job_api=job`"
    with pytest.raises(UnsupportedRequest, match=words) as found:
        scheduler.submit(an_app(), {"job_api": api, "validate_spec": validated})
    assert "\n" not in str(found.value)
    assert scheduler.list() == []


def test_an_app_that_is_too_large_for_one_object_is_refused(kube, scheduler):
    app = an_app("true", 5000)
    info = scheduler.submit_dryrun(app, {**OPTS, "job_api": "volcano"})
    with pytest.raises(InvalidInput, match=r"5000 replicas.*`job_api=job`"):
        scheduler.schedule(info)
    with pytest.raises(InvalidInput, match=r"5000 replicas.*`job_api=job`"):
        scheduler.submit_dryrun(app, {"job_api": "volcano"})  # which asks the cluster


def test_an_app_wrapper_that_is_too_large_is_refused(use):
    cluster = use("mcad")
    cluster.requests(forget=True)
    with pytest.raises(InvalidInput, match=r"5000 replicas.*`appwrapper_version=v1beta2`"):
        create_mcad_scheduler("test").submit(an_app("true", 5000), {})
    assert not [r for r in cluster.requests() if r["method"] == "POST"]


# -- finding it again ----------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS)
def test_another_process_finds_out_what_an_app_is_made_of(kube, scheduler, api):
    app_id = scheduler.submit(an_app("echo hello; sleep 60", 2), {**OPTS, "job_api": api})
    other = create_scheduler("other")
    until(lambda: other.describe(app_id).state is AppState.RUNNING)
    assert {row.app_id: row.state for row in other.list()} == {app_id: AppState.RUNNING}
    until(lambda: [*other.log_iter(app_id, "r", 1)] == ["hello\n"])
    native = other.describe_native(app_id)
    assert native.request.resource["kind"] == KINDS[api].kind.name
    other.cancel(app_id)
    assert ended(other, app_id).state is AppState.CANCELLED
    third = create_scheduler("third")  # its pods are gone
    assert third.describe(app_id).state is AppState.CANCELLED
    third.delete(app_id)
    assert third.list() == []
    for made in (other, third):
        made.close()


MAY_NOT = [
    ["list", "jobsets.jobset.x-k8s.io"],
    ["list", "jobs.batch.volcano.sh"],
    ["deletecollection", "*"],
]


def test_several_apps_are_deleted_with_the_rights_to_delete_one(use, scheduler):
    cluster = use("jobset,volcano,kueue")
    app_ids = [scheduler.submit(an_app(replicas=k + 1), OPTS) for k in range(2)]
    cluster.admin("settings", {"forbidden": MAY_NOT})
    other = create_scheduler("other")
    found = other.look_many(app_ids)
    assert {*found} == {*app_ids}
    assert other.remove_many([*found.values()]) == {}
    assert not other.look_many(app_ids)
    other.close()


def test_kinds_that_one_may_not_look_at_are_named_where_there_are_apps_of_them(use, scheduler):
    cluster = use("jobset,volcano,kueue")
    app_ids = [scheduler.submit(an_app(), {**OPTS, "job_api": "jobset"}) for _ in range(2)]
    until(lambda: ended(scheduler, app_ids[0]))
    cluster.admin("settings", {"forbidden": MAY_NOT})
    with pytest.raises(PermissionError, match=r"list` on `jobsets\.jobset"):
        scheduler.look_many(app_ids)


@pytest.mark.parametrize(
    ("api", "roles", "watched"),
    [("job", 1, False), ("job", 2, True), ("jobset", 2, False), ("volcano", 2, False)],
)
def test_who_ends_the_rest_is_known(kube, scheduler, api, roles, watched):
    app = an_app("sleep 60", 2)
    app.roles += [replace(app.roles[0], name=f"more{i}") for i in range(1, roles)]
    app_id = scheduler.submit(app, {**OPTS, "job_api": api})
    until(lambda: scheduler.describe(app_id).state is AppState.RUNNING)
    assert scheduler.needs_watcher(app_id) is watched


# -- Kueue ---------------------------------------------------------------------------------------


def make_queue(kube: KubeClient, name: str, held: str = "") -> None:
    metadata = {"name": name, "annotations": {HOLD: held} if held else {}}
    body = {"apiVersion": LOCAL_QUEUES.api_version, "kind": "LocalQueue", "metadata": metadata}
    kube.create(LOCAL_QUEUES, NS, {**body, "spec": {"clusterQueue": "c"}})


def listed(kube: KubeClient, kind: Kind) -> list[dict[str, object]]:
    return kube.list_objects(Selection(kind, NS)).items


@pytest.mark.parametrize("api", ["job", "jobset"])
def test_an_app_in_a_queue_runs_when_it_is_admitted(kube, scheduler, api):
    make_queue(kube, "q")
    app_id = scheduler.submit(an_app("true", 2), {**OPTS, "job_api": api, "queue": "q"})
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED
    assert len(listed(kube, WORKLOADS)) == 1


@pytest.mark.parametrize("api", ["job", "jobset"])
def test_an_app_that_waits_in_a_queue_says_why_and_can_be_cancelled(kube, scheduler, api):
    make_queue(kube, "q", "insufficient quota for cpu")
    app_id = scheduler.submit(an_app("true", 2), {**OPTS, "job_api": api, "queue": "q"})
    until(lambda: "insufficient quota for cpu" in scheduler.describe(app_id).msg)
    assert scheduler.describe(app_id).state is AppState.PENDING
    scheduler.cancel(app_id)
    assert ended(scheduler, app_id).state is AppState.CANCELLED
    (workload,) = listed(kube, WORKLOADS)
    assert workload["spec"]["active"] is False
    kube.patch(LOCAL_QUEUES, NS, "q", {"metadata": {"annotations": {HOLD: None}}})
    assert scheduler.describe(app_id).state is AppState.CANCELLED
    assert listed(kube, PODS) == []


@pytest.mark.parametrize("api", ["job", "jobset"])
def test_an_app_that_was_admitted_stays_cancelled(kube, scheduler, api):
    make_queue(kube, "q")
    app_id = scheduler.submit(an_app("sleep 60", 2), {**OPTS, "job_api": api, "queue": "q"})
    until(lambda: scheduler.describe(app_id).state is AppState.RUNNING)
    scheduler.cancel(app_id)
    assert ended(scheduler, app_id).state is AppState.CANCELLED
    assert all("deletionTimestamp" in pod["metadata"] for pod in listed(kube, PODS))


# -- logs ----------------------------------------------------------------------------------------


def test_logs_of_an_app_wrapper_that_was_cancelled_are_said_to_be_gone(use, caplog):
    use("mcad")
    scheduler = create_mcad_scheduler("test")
    app_id = scheduler.submit(an_app("echo hello; sleep 60"), {"grace_s": 1})
    until(lambda: [*scheduler.log_iter(app_id, "r")] == ["hello\n"])
    assert "no logs" not in caplog.text
    scheduler.cancel(app_id)
    with contextlib.closing(connect()[0].transport) as transport:
        until(lambda: not listed(KubeClient(transport), PODS))
    assert scheduler.describe(app_id).state is AppState.CANCELLED
    assert [*scheduler.log_iter(app_id, "r")] == []
    assert "no logs of `r/0`: the pods are deleted" in caplog.text
    scheduler.close()


# -- what `torchx doctor` says -------------------------------------------------------------------


def findings(name: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Text and options of each check but that of the default image, which lies elsewhere."""
    with get_runner() as runner:
        checks = {c.name: c.check() for c in runner.checkups(name) if c.name != "image"}
    return {name: (found.text, dict(found.options)) for name, found in checks.items()}


def test_the_checkup_says_what_the_cluster_has(use, kube):
    found = findings("kubernetes")
    assert found["kinds"][0] == "`job_api` can be: job, jobset, volcano"
    assert found["queues"][1] == {"queue": "default", "job_api": "volcano"}
    make_queue(kube, "q")
    assert findings("kubernetes")["queues"][1] == {"queue": "q", "job_api": "job"}
    use("")
    found = findings("kubernetes")
    assert found["kinds"][0] == "`job_api` can be: job"
    assert found["queues"][1] == {}


@pytest.mark.parametrize(
    ("operators", "options"),
    [
        ("mcad", {"appwrapper_version": "v1beta1"}),
        ("appwrapper", {"appwrapper_version": "v1beta2"}),
        ("", {}),
    ],
)
def test_the_checkup_says_which_app_wrappers_the_cluster_has(use, operators, options):
    use(operators)
    assert findings("kubernetes_mcad")["appwrappers"][1] == options


# -- a client of the official package ------------------------------------------------------------


class Configuration:
    """What an ``ApiClient`` has as ``configuration``, as far as it says whom to ask and how."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.verify_ssl = True
        self.ssl_ca_cert = self.cert_file = self.key_file = None

    def get_api_key_with_prefix(self, identifier: str, alias: str | None = None) -> str:
        assert (identifier, alias) == ("BearerToken", "authorization")
        return "Bearer secret"


class ApiClient:
    def __init__(self, host: str) -> None:
        self.configuration = Configuration(host)


def test_a_client_of_the_official_package_says_which_cluster(use, tmp_path, monkeypatch):
    cluster = use("jobset,volcano,kueue")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    cluster.admin("tokens", ["secret"])
    scheduler = create_scheduler("test", client=ApiClient(cluster.url))
    app_id = scheduler.submit(an_app("echo hello"), OPTS)
    assert ended(scheduler, app_id).state is AppState.SUCCEEDED
    assert [*scheduler.log_iter(app_id, "r")] == ["hello\n"]
    scheduler.delete(app_id)
    scheduler.close()


def test_what_is_no_client_is_refused_in_one_line():
    scheduler = create_scheduler("test", client=object())
    with pytest.raises(InvalidInput, match=r"`client` is an `ApiClient`.*object"):
        scheduler.submit(an_app(), {"validate_spec": False})


# -- replicas that may fail ----------------------------------------------------------------------


@pytest.mark.parametrize("api", ["job", "volcano"])
@pytest.mark.parametrize(("least", "state"), [(1, AppState.SUCCEEDED), (2, AppState.FAILED)])
def test_as_many_replicas_may_fail_as_the_role_allows(kube, scheduler, api, least, state):
    app = an_app("[ ${replica_id} = 0 ] && exit 3; sleep 1", 2)
    app.roles[0].min_replicas = least
    app_id = scheduler.submit(app, {**OPTS, "job_api": api})
    found = ended(scheduler, app_id)
    assert found.state is state
    states = [replica.state for replica in found.roles_statuses[0].replicas]
    assert states[0] is AppState.FAILED
    assert states[1] is (AppState.SUCCEEDED if least == 1 else AppState.CANCELLED)
