"""What would be sent as an AppWrapper, without a cluster."""

import copy
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers.kubernetes_mcad_scheduler import (
    Opts,
    app_to_resource,
    cleanup_str,
    create_pod_group,
    create_scheduler,
    get_port_for_service,
    get_role_information,
    get_tasks_status_description,
    get_unique_truncated_appid,
    object_labels,
    pod_labels,
)
from torchx.schedulers.kubernetes_mcad_scheduler._names import fitting_name, pod_name
from torchx.schedulers.kubernetes_mcad_scheduler._request import Facts, build_request
from torchx.specs import AppDef, BindMount, Resource, Role, VolumeMount, macros
from torchx.version import __version__

GOLDEN = Path(__file__).with_name("golden")
HOST = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


def role(name="trainer", **more):
    return Role(name, more.pop("image", "i:1"), entrypoint="run", **more)


def build(*roles, overlays=None, **opts):
    facts = Facts("team", overlays or {})
    return build_request(AppDef("My_App", [*roles]), "myapp-x1", Opts(**opts), facts)


def full(version, **more):
    reader = role(
        "reader_A",
        num_replicas=2,
        args=["--rank0", macros.rank0_env, "--id", f"{macros.replica_id}/{macros.app_id}", "$(A)"],
        env={"A": f"a{macros.replica_id}"},
        port_map={"svc": 9000},
        resource=Resource(cpu=2, gpu=4, memMB=3000, devices={"x.com/y": 2}),
        mounts=[BindMount("/s", "/d", read_only=True), VolumeMount("claim", "/v")],
        max_retries=2,
    )
    return build(
        reader,
        role("writer", max_retries=1),
        appwrapper_version=version,
        service_account="sa",
        priority_class_name="high",
        network="net",
        coscheduler_name="together",
        grace_s=5,
        **more,
    )


@pytest.mark.parametrize(
    ("version", "more"), [("v1beta1", {"priority": 0}), ("v1beta2", {"queue": "q1"})]
)
def test_a_request_is_the_same_as_the_file(version, more):
    text = str(full(version, **more)).replace(__version__, "VERSION")
    assert text == (GOLDEN / f"{version}.yaml").read_text()


def items(job):
    spec = job.resource["spec"]
    if "components" in spec:
        return [component["template"] for component in spec["components"]]
    return [item["generictemplate"] for item in spec["resources"]["GenericItems"]]


def pods(job):
    return [item for item in items(job) if item["kind"] == "Pod"]


def variables(pod):
    return {v["name"]: v["value"] for v in pod["spec"]["containers"][0]["env"]}


def test_the_first_generation_holds_a_pod_for_each_replica():
    job = build(role(num_replicas=2))
    assert [item["kind"] for item in items(job)] == ["Pod", "Pod", "Service"]
    assert [pod["metadata"]["name"] for pod in pods(job)] == ["myapp-x1-0", "myapp-x1-1"]
    assert job.resource["apiVersion"] == "workload.codeflare.dev/v1beta1"


def test_the_second_generation_holds_a_job_for_each_role():
    args = [macros.rank0_env, macros.replica_id]
    job = build(role("a", num_replicas=20, args=args), role("b"), appwrapper_version="v1beta2")
    first, second, service = items(job)
    assert [first["kind"], second["kind"], service["kind"]] == ["Job", "Job", "Service"]
    assert first["metadata"]["name"] == "myapp-x1-0"  # so the host names are those of pods
    assert (first["spec"]["completions"], first["spec"]["backoffLimit"]) == (20, 0)
    pod = first["spec"]["template"]
    assert pod["spec"]["subdomain"] == "myapp-x1"
    assert pod["spec"]["containers"][0]["command"][-2:] == [
        "TORCHX_RANK0_HOST",
        "$(JOB_COMPLETION_INDEX)",
    ]
    env = {
        v["name"]: v.get("value")
        for v in second["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["TORCHX_RANK0_HOST"] == "myapp-x1-0-0.myapp-x1"
    assert env["TORCHX_MCAD_A_0_HOSTS"] == "myapp-x1-0-0.myapp-x1"
    assert env["TORCHX_MCAD_B_0_HOSTS"] == "myapp-x1-1-0.myapp-x1"


def test_more_roles_than_the_controller_takes_are_refused():
    with pytest.raises(UnsupportedRequest, match=r"at most 8 roles, given: 9.*job_api=jobset"):
        build(*[role(str(i)) for i in range(9)], appwrapper_version="v1beta2")


def test_pods_of_several_roles_have_names_of_their_own():
    names = [pod["metadata"]["name"] for pod in pods(build(role("a"), role("b")))]
    assert names == ["myapp-x1-0-0", "myapp-x1-1-0"]


def test_every_replica_knows_the_first_host():
    args = [macros.rank0_env]
    first, second, other = pods(build(role("a", num_replicas=2, args=args), role("b", args=args)))
    assert first["spec"]["containers"][0]["command"] == ["run", "TORCHX_RANK0_HOST"]
    assert variables(first)["TORCHX_RANK0_HOST"] == "localhost"
    for pod in (second, other):
        (_, name) = pod["spec"]["containers"][0]["command"]
        assert name == "TORCHX_MCAD_A_0_HOSTS"
        assert variables(pod)[name] == "myapp-x1-0-0.myapp-x1"
    assert variables(other)["TORCHX_MCAD_B_0_HOSTS"] == "myapp-x1-1-0.myapp-x1"


def test_retries_are_the_least_of_all_roles():
    requeuing = build(role(num_replicas=2, max_retries=3)).resource["spec"]["schedulingSpec"]
    assert requeuing["minAvailable"] == 2
    assert requeuing["requeuing"]["maxNumRequeuings"] == 3
    job = build(role("a", max_retries=3), role("b"))
    assert "schedulingSpec" not in job.resource["spec"]
    job = build(role(max_retries=3), appwrapper_version="v1beta2")
    annotations = job.resource["metadata"]["annotations"]
    assert annotations["workload.codeflare.dev.appwrapper/retryLimit"] == "3"


@pytest.mark.parametrize(
    ("opts", "words"),
    [
        ({"appwrapper_version": "v1"}, "appwrapper_version.*v1beta1, v1beta2, given: `v1`"),
        ({"queue": "q"}, "`queue` needs `appwrapper_version=v1beta2`"),
        ({"priority": 1, "appwrapper_version": "v1beta2"}, "`priority` needs"),
        ({"grace_s": -1}, "`grace_s` must not be negative"),
        ({"on_failure": "never"}, "given: `never`"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(opts, words):
    with pytest.raises(InvalidInput, match=words) as found:
        build(role(), **opts)
    assert "\n" not in str(found.value)


def test_a_role_without_an_image_is_refused():
    with pytest.raises(InvalidInput, match=r"`trainer` has no image"):
        build(role(image=""))


def test_the_app_is_left_as_it_is():
    app = AppDef("x" * 70, [role(num_replicas=2, env={"A": "$(x)"})])
    before = copy.deepcopy(app)
    create_scheduler("test").submit_dryrun(app, {"namespace": "n"})
    assert app == before


@pytest.mark.parametrize("namespace", ["kubernetes_mcad", "kubernetes"])
def test_overlays_are_laid_over_the_pods(namespace):
    overlay = {"V1Pod": {"spec": {"hostNetwork": True}}}
    app = AppDef("app", [role(metadata={namespace: overlay})])
    job = create_scheduler("test").submit_dryrun(app, {"namespace": "n"}).request
    assert pods(job)[0]["spec"]["hostNetwork"] is True


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean"), [("-/_a/b/CD!123!", "abcd123"), ("1234abcd1234", "abcd1234"), ("!!!", "")]
)
def test_names_are_cleaned(text, clean):
    assert cleanup_str(text) == clean


@pytest.mark.parametrize(("length", "longest"), [(5, 20), (50, 56), (68, 59)])
def test_ids_are_cut(length, longest):
    app = AppDef("a" * length, [role()])
    assert len(get_unique_truncated_appid(app)) <= longest
    assert app.name == "a" * length


@given(st.text(max_size=80), st.lists(st.integers(1, 100_000), min_size=1, max_size=12))
def test_pods_have_host_names_that_are_accepted_and_differ(name, counts):
    app = AppDef(name, [role(str(i), num_replicas=n) for i, n in enumerate(counts)])
    fitting = fitting_name(get_unique_truncated_appid(app), counts)
    assert HOST.fullmatch(fitting)
    names = [pod_name(fitting, i, len(counts), n - 1) for i, n in enumerate(counts)]
    assert all(HOST.fullmatch(found) and len(found) <= 63 for found in names)
    assert len({*names}) == len(names)


# -- names of the published package ----------------------------------------------------------------


def test_functions_of_the_published_package():
    app = AppDef("app", [role(num_replicas=2, port_map={"a": 1, "b": 2})])
    resource = app_to_resource(app, "n", None, coscheduler_name="c", priority=0)
    assert resource["spec"]["priority"] == 0
    wrapped = resource["spec"]["resources"]["GenericItems"]
    kinds = [item["generictemplate"]["kind"] for item in wrapped]
    assert kinds == ["PodGroup", "Pod", "Pod", "Service"]
    assert get_port_for_service(app) == "2"
    assert get_port_for_service(AppDef("a", [role(port_map={"a": 70000})])) == "29500"
    group = create_pod_group(app, app.roles[0], 0, "n", "app-x1")["generictemplate"]
    assert group["metadata"]["name"] == "app-x1-pg0"
    assert group["spec"] == {"minMember": 2}
    assert object_labels(app, "app-x1")["app.kubernetes.io/instance"] == "app-x1"
    labels = pod_labels(app, 0, app.roles[0], 1, "c", "app-x1")
    assert labels["torchx.pytorch.org/replica-id"] == "1"
    assert labels["pod-group.scheduling.sigs.k8s.io"] == "app-x1-pg0"
    assert get_tasks_status_description({"running": 2, "other": 1}) == {"running": 2}


def test_roles_are_read_from_the_objects():
    job = full("v1beta1")
    found = get_role_information(job.resource["spec"]["resources"]["GenericItems"])
    assert [*found] == ["reader_A", "writer"]
    reader = found["reader_A"]
    assert (reader.image, reader.num_replicas, reader.port_map) == ("i:1", 2, {"svc": 9000})
    assert reader.args[0] == "run"
    assert reader.resource == Resource(cpu=1.9, gpu=4, memMB=1976)
    assert reader.mounts == [BindMount("/s", "/d", read_only=True), VolumeMount("claim", "/v")]
