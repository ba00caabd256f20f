"""Names of the published package's Kubernetes schedulers that clients call or replace."""

import sys

import pytest

from torchx.schedulers import kubernetes_mcad_scheduler, kubernetes_scheduler
from torchx.schedulers._kube.apps.official import to_official
from torchx.specs import AppDef, AppState, Resource, RetryPolicy, Role

ROLE = Role(
    "r",
    "i:1",
    entrypoint="run",
    args=["${replica_id}"],
    env={"A": "b", "F": "[FIELD_PATH]status.podIP"},
    resource=Resource(cpu=2, gpu=4, memMB=3000),
)


def test_the_resource_is_a_job_of_volcano():
    app = AppDef("My_App", [ROLE])
    body = kubernetes_scheduler.app_to_resource(app, "q", "sa", priority_class="high")
    assert body["apiVersion"] == "batch.volcano.sh/v1alpha1"
    assert body["metadata"]["name"].startswith("myapp-")
    assert body["spec"]["queue"] == "q"
    assert body["spec"]["priorityClassName"] == "high"
    (task,) = body["spec"]["tasks"]
    assert task["template"]["spec"]["serviceAccountName"] == "sa"


def test_names_of_apps_come_from_the_function_in_the_package(monkeypatch):
    monkeypatch.setattr(kubernetes_scheduler, "make_unique", lambda name: f"{name}-fixed")
    info = kubernetes_scheduler.create_scheduler("s").submit_dryrun(
        AppDef("app", [ROLE]), {"validate_spec": False, "namespace": "n"}
    )
    assert info.request.app_id == "n:app-fixed"


def test_states_and_policies_have_their_names():
    assert kubernetes_scheduler.JOB_STATE["Completed"] is AppState.SUCCEEDED
    assert kubernetes_scheduler.TASK_STATE["Releasing"] is AppState.RUNNING
    assert kubernetes_scheduler.RETRY_POLICIES[RetryPolicy.REPLICA] == []
    assert len(kubernetes_scheduler.RETRY_POLICIES[RetryPolicy.APPLICATION]) == 2
    assert kubernetes_mcad_scheduler.JOB_STATE["Deleted"] is AppState.CANCELLED
    assert kubernetes_mcad_scheduler.TASK_STATE["Pending dispatch"] is AppState.PENDING


def test_containers_beside_that_of_the_role_have_a_prefix():
    assert kubernetes_scheduler.prefix_container_name("r-0", "r", 0) == ""
    assert kubernetes_scheduler.prefix_container_name("proxy", "r", 0) == "proxy "


def test_objects_of_the_official_client_need_that_client(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ModuleNotFoundError, match="need the Python package `kubernetes`"):
        kubernetes_scheduler.role_to_pod("r-0", ROLE, "sa")


def test_a_role_is_a_pod_of_the_official_client():
    pytest.importorskip("kubernetes", reason="the official client is not installed")
    pod = kubernetes_scheduler.role_to_pod("r-0", ROLE, "sa")
    (main,) = pod.spec.containers
    assert main.resources.limits == {"cpu": "2000m", "memory": "3000M", "nvidia.com/gpu": "4"}
    assert main.command == ["run", "${replica_id}"]
    assert main.env[1].value_from.field_ref.field_path == "status.podIP"
    assert pod.spec.service_account_name == "sa"
    plain = kubernetes_scheduler.sanitize_for_serialization(pod)
    assert to_official(plain, "V1Pod") == pod
    service = kubernetes_mcad_scheduler.mcad_svc(AppDef("a", [ROLE]), "svc", "n", "29500")
    assert service.spec.ports[0].port == 29500
