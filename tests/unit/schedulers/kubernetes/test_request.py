"""What would be sent to the cluster, without a cluster."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.fake_kube.pod_env import expanded
from torchx.errors import InvalidInput, MountNotSupported
from torchx.schedulers._kube.apps.indexed import Texts
from torchx.schedulers._kube.apps.overlays import read_overlay
from torchx.schedulers.kubernetes_scheduler import KubernetesJob, Opts, create_scheduler
from torchx.schedulers.kubernetes_scheduler._plan import Facts
from torchx.schedulers.kubernetes_scheduler._request import build_request
from torchx.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    macros,
)
from torchx.specs.overlays import JOIN, set_overlay
from torchx.version import __version__

GOLDEN = Path(__file__).with_name("golden")
OF_KUBERNETES = "1.31"
"""Version of the schemas."""


def role(name="trainer", **more):
    return Role(name, more.pop("image", "i:1"), entrypoint="run", **more)


def build(*roles, overlays=None, **opts):
    facts = Facts("team", overlays or {})
    return build_request(AppDef("My_App", [*roles]), "My_App-x1", Opts(**opts), facts)


def pod_spec(job, index=0):
    return job.jobs[index]["spec"]["template"]["spec"]


def container(job, index=0):
    return pod_spec(job, index)["containers"][0]


def single():
    return build(role(args=["--id", macros.replica_id, "$(date) $$HOME"]))


def full():
    reader = role(
        "reader_A",
        num_replicas=3,
        min_replicas=2,
        args=["--rank0", macros.rank0_env, "--id", f"{macros.replica_id}/{macros.app_id}"],
        env={"A": f"a{macros.replica_id}", "IP": "[FIELD_PATH]status.podIP", "B": "$(C)"},
        port_map={"svc": 9000},
        resource=Resource(
            cpu=2,
            gpu=4,
            memMB=3000,
            devices={"vpc.amazonaws.com/efa": 1, "x.com/y": 2},
            capabilities={"node.kubernetes.io/instance-type": "p4d.24xlarge"},
        ),
        max_retries=2,
        retry_policy=RetryPolicy.REPLICA,
        mounts=[
            BindMount("/s", "/d", read_only=True),
            VolumeMount("claim", "/v"),
            DeviceMount("/dev/a", "/dev/b", "r"),
        ],
    )
    overlay = {
        "spec": {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            JOIN("containers", on="name"): [{"name": "reader-a", "workingDir": "/w"}],
        },
        "metadata": {"labels": {"team": "a", "app.kubernetes.io/name": "stays"}},
    }
    return build(
        reader,
        role("writer"),
        overlays={"reader_A": overlay},
        queue="q1",
        service_account="sa",
        priority_class="high",
        node_selector={"pool": "gpu"},
        image_pull_secrets=["one"],
        image_secret="two",
        env_from_secret=["keys"],
        ttl_s=60,
        active_deadline_s=600,
        grace_s=5,
        gpu_resource="amd.com/gpu",
        efa_device_count=4,
    )


@pytest.mark.parametrize(("name", "make"), [("single", single), ("full", full)])
def test_a_request_is_the_same_as_the_file(name, make):
    text = str(make()).replace(__version__, "VERSION")
    assert text == (GOLDEN / f"{name}.yaml").read_text()


@pytest.mark.parametrize("make", [single, full])
def test_objects_fit_the_schemas_of_kubernetes(make):
    for body in make().objects:
        kubernetes_validate.validate(body, OF_KUBERNETES, strict=True)


def test_the_app_is_left_as_it_is():
    app = AppDef("app", [role(num_replicas=2, env={"A": "$(x)"})])
    before = copy.deepcopy(app)
    build_request(app, "app-x1", Opts(), Facts())
    assert app == before


def test_a_single_replica_needs_no_service_and_starts_at_once():
    job = single()
    assert job.service is None
    assert "suspend" not in job.jobs[0]["spec"]
    assert {"name": "TORCHX_RANK0_HOST", "value": "localhost"} in container(job)["env"]


def test_several_objects_start_together():
    job = build(role(num_replicas=2), role("b"))
    assert [body["spec"]["suspend"] for body in job.jobs] == [True, True]
    assert [body["kind"] for body in job.objects] == ["Job", "Job", "Service", "ConfigMap"]
    for body in job.jobs:  # none of them runs before the last object is there
        spec = body["spec"]["template"]["spec"]
        assert spec["volumes"][-1]["configMap"] == {"name": job.gate["metadata"]["name"]}
        assert spec["volumes"][-1]["name"] == spec["containers"][0]["volumeMounts"][-1]["name"]
    host = {"name": "TORCHX_RANK0_HOST", "value": "my-app-x1-trainer-0.my-app-x1"}
    assert all(host in container(job, i)["env"] for i in range(2))
    assert pod_spec(job)["subdomain"] == "my-app-x1"


def test_the_first_replica_finds_itself_before_dns_does():
    job = build(role(num_replicas=2, args=[macros.rank0_env]))
    command = [expanded(word, {"JOB_COMPLETION_INDEX": "0"}) for word in container(job)["command"]]
    command[-2:] = ["printenv", command[-1]]
    for index, host in (("0", "localhost"), ("1", "far")):
        env = {"JOB_COMPLETION_INDEX": index, "TORCHX_RANK0_HOST": "far", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert done.stdout == f"{host}\n"


@pytest.mark.parametrize("text", ["${replica_id}", "$$${replica_id}$", "$(A)${replica_id}$$(A)"])
def test_the_number_of_the_replica_is_filled_in_by_the_cluster(text):
    env = {"JOB_COMPLETION_INDEX": "7", "A": "replaced"}
    filled = Texts("app", 9).fill(text)
    values = macros.Values("", "app", "7", "TORCHX_RANK0_HOST")
    assert expanded(filled, env) == values.substitute(text)


@pytest.mark.parametrize(
    ("more", "opts", "limits"),
    [
        ({}, {}, {"backoffLimit": 0}),
        ({}, {"on_failure": "wait"}, {"backoffLimitPerIndex": 0}),
        ({"max_retries": 2}, {}, {"backoffLimitPerIndex": 2, "maxFailedIndexes": 0}),
        ({"max_retries": 2}, {"on_failure": "wait"}, {"backoffLimitPerIndex": 2}),
        ({"min_replicas": 3}, {}, {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}),
    ],
)
def test_a_job_survives_as_many_failures_as_the_role_allows(more, opts, limits):
    spec = build(role(num_replicas=4, **more), **opts).jobs[0]["spec"]
    found = ("backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes")
    assert {name: spec[name] for name in found if name in spec} == limits


@pytest.mark.parametrize(
    ("cpu", "limit"),
    [(0.57, "570m"), (0.29, "290m"), (0.0001, "1m"), (1.0004, "1001m"), (2, "2000m")],
)
def test_cpus_are_rounded_up_to_what_the_cluster_counts(cpu, limit):
    job = build(role(resource=Resource(cpu=cpu, gpu=0, memMB=1)), reserved_millicpu=0)
    assert container(job)["resources"]["limits"]["cpu"] == limit


def test_what_is_reserved_is_not_asked_for():
    resource = Resource(cpu=1, gpu=0, memMB=500)
    found = container(build(role(resource=resource)))["resources"]
    assert found == {
        "limits": {"cpu": "1000m", "memory": "500M"},
        "requests": {"cpu": "900m", "memory": "0M"},
    }
    found = container(build(role(resource=resource), reserved_millicpu=0, reserved_memmb=0))
    assert found["resources"]["limits"] == found["resources"]["requests"]


@pytest.mark.parametrize(
    ("opts", "words"),
    [
        ({"job_api": "nonsense"}, "given: `nonsense`"),
        ({"ttl_s": -1}, "`ttl_s` must not be negative, given: -1"),
        ({"on_failure": "never"}, "given: `never`"),
    ],
)
def test_options_that_there_are_not_are_refused_in_one_line(opts, words):
    with pytest.raises(InvalidInput, match=words) as found:
        build(role(), **opts)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"image": ""}, "has no image"),
        ({"num_replicas": 0}, "has 0 replicas"),
        ({"num_replicas": 2, "env": {"JOB_COMPLETION_INDEX": "1"}}, "choose another name"),
        ({"mounts": ["/tmp"]}, "is not a mount"),
    ],
)
def test_roles_that_no_pod_can_be_made_of_are_refused(more, words):
    with pytest.raises((InvalidInput, MountNotSupported), match=words):
        build(role(**more))


def test_an_app_without_roles_is_refused():
    with pytest.raises(InvalidInput, match="no roles"):
        build()


# -- overlays ------------------------------------------------------------------------------------

SPEC = {"spec": {"nodeSelector": {"gpu": "a100"}}}
BOTH = {**SPEC, "metadata": {"annotations": {"a": "b"}}}


@pytest.mark.parametrize(
    ("held", "overlay"),
    [
        (SPEC, SPEC),
        (BOTH, BOTH),
        ({"V1Pod": BOTH}, BOTH),
        ({"V1Pod": {**BOTH, "kind": "Pod", "apiVersion": "v1"}}, BOTH),
        (5, {}),
        ({}, {}),
    ],
)
def test_overlays_are_read_in_all_shapes(held, overlay):
    assert read_overlay(role(metadata={"kubernetes": held})) == overlay


@pytest.mark.parametrize(
    ("written", "overlay"),
    [({"V1Pod": SPEC}, SPEC), (SPEC, SPEC), (BOTH, BOTH), ({"kind": "Pod", **BOTH}, BOTH)],
)
def test_overlays_are_read_from_files(tmp_path, caplog, written, overlay):
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(written))
    held = {"kubernetes": (tmp_path / "pod.yaml").as_uri()}
    assert read_overlay(role(metadata=held)) == overlay
    assert caplog.messages == []  # the docs recommend to write a file like a pod


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "cannot be read: 'utf-8' codec can't decode"),
        (b"{a: b: c", "is neither JSON nor YAML: while parsing a flow mapping"),
        (b"[1]", "must contain a dict"),
    ],
)
def test_a_file_that_holds_no_overlay_is_told_in_one_line(tmp_path, content, words):
    path = tmp_path / "pod.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput) as err:
        read_overlay(role(metadata={"kubernetes": str(path)}))
    assert str(err.value).startswith(f"overlay file `{path}` {words}")
    assert "\n" not in str(err.value)


def test_the_overlay_of_an_app_is_for_roles_that_have_none():
    app = AppDef("app", [], metadata={"kubernetes": SPEC})
    assert read_overlay(role(), app) == SPEC
    assert read_overlay(role(metadata={"kubernetes": BOTH}), app) == BOTH


def test_an_overlay_is_in_the_pods_of_its_role_and_stays_as_it_was():
    with_overlay = role()
    set_overlay(with_overlay, "kubernetes", "V1Pod", BOTH)
    before = copy.deepcopy(with_overlay.metadata)
    app = AppDef("app", [with_overlay, role("b")])
    info = create_scheduler("test").submit_dryrun(app, {"namespace": "team"})
    templates = [body["spec"]["template"] for body in info.request.jobs]
    assert templates[0]["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert templates[0]["metadata"]["annotations"]["a"] == "b"
    assert "nodeSelector" not in templates[1]["spec"]
    assert with_overlay.metadata == before


# -- without a cluster ---------------------------------------------------------------------------

DRYRUN = """
import json, sys
from torchx.schedulers.kubernetes_scheduler import create_scheduler
from torchx.specs import AppDef, Role

app = AppDef("app", [Role("r", "i:1", entrypoint="run", num_replicas=2)])
info = create_scheduler("test").submit_dryrun(app, {})
heavy = {"httpcore", "anyio", "asyncio", "ssl", "docker", "kubernetes"}
print(json.dumps([info.request.namespace, sorted(heavy & {*sys.modules})]))
"""


def test_a_dry_run_needs_no_cluster_and_loads_no_client(tmp_path):
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", DRYRUN], env=env, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["default", []]


def test_ten_thousand_replicas_are_no_more_text_than_ten():
    few, many = (len(str(build(role(num_replicas=n)))) for n in (10, 10_000))
    assert many - few < 100


def test_a_request_is_a_value():
    assert isinstance(full(), KubernetesJob)
    assert full().app_id == "team:my-app-x1"
    assert full() == full()
