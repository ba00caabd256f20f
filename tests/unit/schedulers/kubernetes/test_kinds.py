"""What would be sent as a JobSet and as a Job of Volcano, without a cluster."""

import copy
from pathlib import Path

import pytest
import yaml

from torchx.errors import UnsupportedRequest
from torchx.schedulers.kubernetes_scheduler import RETRY_POLICIES, Opts, create_scheduler
from torchx.schedulers.kubernetes_scheduler._plan import Facts
from torchx.schedulers.kubernetes_scheduler._request import build_request
from torchx.specs import AppDef, BindMount, Resource, RetryPolicy, Role, macros
from torchx.specs.overlays import DEL, JOIN, PUT
from torchx.version import __version__

GOLDEN = Path(__file__).with_name("golden")


def role(name="trainer", **more):
    return Role(name, more.pop("image", "i:1"), entrypoint="run", **more)


def build(api, *roles, overlays=None, name="My_App", **opts):
    facts = Facts("team", overlays or {}, api)
    return build_request(AppDef(name, [*roles]), f"{name}-x1", Opts(**opts), facts)


def full(api):
    retry = {"max_retries": 2, "retry_policy": RetryPolicy.APPLICATION}
    reader = role(
        "reader_A",
        num_replicas=2,
        args=["--rank0", macros.rank0_env, "--id", f"{macros.replica_id}/{macros.app_id}", "$(A)"],
        env={"A": f"a{macros.replica_id}", "IP": "[FIELD_PATH]status.podIP"},
        port_map={"svc": 9000},
        resource=Resource(cpu=2, gpu=4, memMB=3000),
        mounts=[BindMount("/s", "/d", read_only=True)],
        **retry,
    )
    overlay = {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    return build(
        api,
        reader,
        role("writer"),
        overlays={"reader_A": overlay},
        queue="q1",
        service_account="sa",
        priority_class="high",
        ttl_s=60,
        active_deadline_s=600,
        grace_s=5,
    )


@pytest.mark.parametrize("api", ["jobset", "volcano"])
def test_a_request_is_the_same_as_the_file(api):
    text = str(full(api)).replace(__version__, "VERSION")
    assert text == (GOLDEN / f"{api}.yaml").read_text()


# -- JobSets -------------------------------------------------------------------------------------


def replicated(job, index=0):
    return job.resource["spec"]["replicatedJobs"][index]["template"]["spec"]


def test_a_job_set_starts_all_again_but_for_roles_that_must_not_fail():
    retry = {"max_retries": 3, "retry_policy": RetryPolicy.APPLICATION}
    job = build("jobset", role("a", **retry), role("b", **{**retry, "max_retries": 2}), role("c"))
    policy = job.resource["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 2
    (rule,) = policy["rules"]
    assert (rule["action"], rule["targetReplicatedJobs"]) == ("FailJobSet", ["c"])
    assert [replicated(job, i)["backoffLimit"] for i in range(3)] == [0, 0, 0]


def test_a_replica_of_a_job_set_starts_again_by_itself():
    retry = {"max_retries": 3, "retry_policy": RetryPolicy.REPLICA}
    job = build("jobset", role("a", num_replicas=2, **retry))
    assert "failurePolicy" not in job.resource["spec"]
    assert replicated(job)["backoffLimitPerIndex"] == 3


@pytest.mark.parametrize(
    ("roles", "opts", "words"),
    [
        ([role(num_replicas=2, min_replicas=1)], {}, "min_replicas.*job_api=job"),
        ([role("a"), role("b")], {"on_failure": "wait"}, "on_failure=wait.*job_api=job"),
    ],
)
def test_what_a_job_set_cannot_do_is_refused(roles, opts, words):
    with pytest.raises(UnsupportedRequest, match=words):
        build("jobset", *roles, **opts)


# -- Jobs of Volcano -----------------------------------------------------------------------------


def tasks(job):
    return job.resource["spec"]["tasks"]


def main_of(task):
    return task["template"]["spec"]["containers"][0]


def variables(task):
    return {v["name"]: v.get("value") for v in main_of(task)["env"]}


def test_a_job_of_volcano_has_the_published_shape():
    reader = role(
        "reader_A",
        image="r:1",
        args=["--h", macros.rank0_env],
        port_map={"svc": 9000},
        resource=Resource(1, 0, 500),
    )
    trainer = role(
        num_replicas=2,
        min_replicas=1,
        max_retries=2,
        retry_policy=RetryPolicy.REPLICA,
        args=[macros.rank0_env, macros.replica_id],
    )
    job = build("volcano", reader, trainer, name="My_App-9", queue="q1")
    body = job.resource
    assert body["metadata"]["name"] == "myapp-9-x1"
    spec = body["spec"]
    assert (spec["queue"], spec["schedulerName"]) == ("q1", "volcano")
    assert spec["plugins"] == {"svc": ["--publish-not-ready-addresses"], "env": []}
    assert "priorityClassName" not in spec
    first, *others = spec["tasks"]
    assert [task["name"] for task in spec["tasks"]] == ["readera-0", "trainer-0", "trainer-1"]
    assert main_of(first)["command"] == ["run", "--h", "TORCHX_RANK0_HOST"]
    assert variables(first) == {"TORCHX_RANK0_HOST": "localhost", "TORCHX_IMAGE": "r:1"}
    assert main_of(first)["ports"] == [{"name": "svc", "containerPort": 9000}]
    assert main_of(first)["resources"] == {
        "limits": {"cpu": "1000m", "memory": "500M"},
        "requests": {"cpu": "900m", "memory": "0M"},
    }
    assert [task["minAvailable"] for task in others] == [1, 0]
    assert [task["maxRetry"] for task in others] == [2, 2]
    assert main_of(others[1])["command"] == ["run", "VC_READERA_0_HOSTS", "1"]
    assert "TORCHX_RANK0_HOST" not in variables(others[0])
    labels = others[1]["template"]["metadata"]["labels"]
    assert labels["torchx.pytorch.org/replica-id"] == "1"
    assert labels["torchx.pytorch.org/role-index"] == "1"


def test_the_variable_of_the_first_host_has_no_dashes():
    job = build("volcano", role("my-role", num_replicas=2, args=[macros.rank0_env]))
    assert main_of(tasks(job)[1])["command"][1] == "VC_MY_ROLE_0_HOSTS"


def test_what_volcano_would_expand_arrives_as_it_is():
    job = build("volcano", role(args=["$(A) $$(B)"], env={"A": "$(C)", "B": "x$"}))
    (task,) = tasks(job)
    assert main_of(task)["command"] == ["run", "$$(A) $$(B)"]
    assert variables(task)["A"] == "$$(C)"


def test_roles_with_names_that_are_alike_are_different_tasks():
    job = build("volcano", role("a_b"), role("ab"), role("!"))
    names = [task["name"] for task in tasks(job)]
    assert len({*names}) == 3
    assert names[0] == "ab-0"


@pytest.mark.parametrize(
    ("more", "max_retry", "policies"),
    [
        ({}, 0, None),
        ({"retry_policy": RetryPolicy.APPLICATION}, 0, None),
        (
            {"retry_policy": RetryPolicy.APPLICATION, "max_retries": 2},
            3,  # Volcano counts the failure that it does not retry
            RETRY_POLICIES[RetryPolicy.APPLICATION],
        ),
    ],
)
def test_volcano_starts_all_again_as_often_as_asked(more, max_retry, policies):
    job = build("volcano", role(**more))
    assert job.resource["spec"]["maxRetry"] == max_retry
    assert tasks(job)[0].get("policies") == policies


@pytest.mark.parametrize(
    ("more", "opts", "ends"),
    [
        ({}, {}, True),
        ({}, {"on_failure": "wait"}, False),
        ({"min_replicas": 1}, {}, False),
        ({"min_replicas": 2}, {}, True),
    ],
)
def test_volcano_ends_all_unless_some_may_fail(more, opts, ends):
    job = build("volcano", role(num_replicas=2, **more), **opts)
    policies = [{"event": "PodFailed", "action": "TerminateJob"}]
    assert job.resource["spec"].get("policies") == (policies if ends else None)


def test_requests_share_nothing_that_a_user_may_change():
    first, second = (build("volcano", role(max_retries=1)) for _ in range(2))
    before = copy.deepcopy(second.resource)
    tasks(first)[0]["policies"].clear()
    first.resource["spec"]["policies"][0]["event"] = "other"
    assert second.resource == before
    assert build("volcano", role(max_retries=1)).resource == before


def test_the_text_of_many_replicas_is_made_when_it_is_asked_for():
    job = build("volcano", role(num_replicas=300, args=[macros.replica_id]))
    (document,) = yaml.safe_load_all(str(job))
    assert document == job.resource
    assert main_of(document["spec"]["tasks"][299])["command"] == ["run", "299"]


# -- overlays ------------------------------------------------------------------------------------


def pods_of(job):
    spec = job.resource["spec"]
    if "tasks" in spec:
        return [task["template"] for task in spec["tasks"]]
    if "replicatedJobs" in spec:
        return [replicated(job)["template"]]
    return [spec["template"]]


@pytest.mark.parametrize("api", ["job", "jobset", "volcano"])
def test_overlays_apply_to_the_pods_of_every_kind(api):
    container = {"volcano": "trainer-0"}.get(api, "trainer")
    overlay = {
        "spec": {
            "nodeSelector": {"a": "b"},
            PUT("volumes"): [{"name": "only", "emptyDir": {}}],
            DEL("restartPolicy"): None,
            JOIN("containers", on="name"): [
                {"name": container, "workingDir": "/w"},
                {"name": "sidecar", "image": "s"},
            ],
            "tolerations": ({"key": "x"},),
        },
        "metadata": {"labels": {"team": "a", "app.kubernetes.io/instance": "mine"}},
        "status": {"ignored": True},
    }
    before = copy.deepcopy(overlay)
    job = build(api, role(num_replicas=2), overlays={"trainer": overlay})
    pod = pods_of(job)[0]
    assert overlay == before
    assert {*pod} == {"metadata", "spec"}
    assert pod["spec"]["nodeSelector"] == {"a": "b"}
    assert pod["spec"]["volumes"] == [{"name": "only", "emptyDir": {}}]
    assert "restartPolicy" not in pod["spec"]
    assert [c["name"] for c in pod["spec"]["containers"]] == [container, "sidecar"]
    assert pod["spec"]["containers"][0]["workingDir"] == "/w"
    assert pod["spec"]["tolerations"] == [{"key": "x"}]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"]["app.kubernetes.io/instance"] == job.name


@pytest.mark.parametrize("api", ["job", "jobset", "volcano"])
@pytest.mark.parametrize("name", ["my-role", "My_Role"])
def test_the_container_can_be_called_by_its_role_with_every_kind(api, name):
    changes = [{"name": name, "workingDir": "/w"}, {"name": "sidecar", "image": "s"}]
    overlay = {"spec": {JOIN("containers", on="name"): changes}}
    job = build(api, role("My_Role", num_replicas=2), overlays={"My_Role": overlay})
    for k, pod in enumerate(pods_of(job)):
        main, sidecar = pod["spec"]["containers"]
        assert main["workingDir"] == "/w"
        assert main["name"] == ("myrole-" + str(k) if api == "volcano" else "my-role")
        assert sidecar["name"] == "sidecar"


@pytest.mark.parametrize("api", ["job", "jobset", "volcano"])
@pytest.mark.parametrize("shape", ["nested", "flat", "two keys", "JSON file", "YAML file"])
def test_overlays_come_in_all_shapes(api, shape, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    pod = {"spec": {"nodeSelector": {"a": "b"}}}
    if shape == "two keys":
        pod["metadata"] = {"labels": {"team": "a"}}
    files = {
        "JSON file": '{"V1Pod": {"spec": {"nodeSelector": {"a": "b"}}}}',
        "YAML file": "spec:\n  nodeSelector: {a: b}\n  volumes: !!python/tuple []\n",
    }
    held = {"V1Pod": pod} if shape == "nested" else pod
    if shape in files:
        path = tmp_path / "overlay"
        path.write_text(files[shape])
        held = f"file://{path}"
    app = AppDef("app", [role(metadata={"kubernetes": held})])
    job = create_scheduler("test").submit_dryrun(app, {"job_api": api}).request
    spec = pods_of(job)[0]["spec"]
    assert spec["nodeSelector"] == {"a": "b"}
    assert (spec["volumes"] == []) is (shape == "YAML file")
