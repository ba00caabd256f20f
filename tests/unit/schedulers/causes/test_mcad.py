"""The cause of a wait or a failure of an AppWrapper, from its conditions and its pods."""

from typing import Any

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check
from tests.unit.schedulers.causes.test_kubernetes import CASES as PODS
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers._kube.apps.app import parse_app
from torchx.schedulers._kube.apps.labels import LABEL_REPLICA_ID, LABEL_ROLE_INDEX
from torchx.schedulers._kube.apps.snapshots import build_snapshot
from torchx.schedulers.kubernetes_mcad_scheduler._causes import RULES
from torchx.schedulers.kubernetes_mcad_scheduler._options import Opts
from torchx.schedulers.kubernetes_mcad_scheduler._request import Facts, build_request
from torchx.schedulers.kubernetes_mcad_scheduler._states import READER, why_not
from torchx.specs import AppDef, Role

MCAD = (
    "https://github.com/project-codeflare/multi-cluster-app-dispatcher/blob/d47de4a4/pkg/controller/"
    "queuejob/queuejob_controller_ex.go"
)
WRAPPER = (
    "https://github.com/project-codeflare/appwrapper/blob/b47a99ee/internal/controller/appwrapper/"
    "appwrapper_controller.go"
)
RECORDED = "recorded from the AppWrapper controller 1.2.1"

CASES = [
    Case("priority", MCAD, ("Pending", "Queueing", "AwaitingHeadOfLine", "")),
    Case("priority", MCAD, ("Pending", "HeadOfLine", "FrontOfQueue.", "")),
    Case("unschedulable", MCAD, ("Pending", "Backoff", "AppWrapperNotRunnable.", "Insufficient resources to dispatch AppWrapper.")),
    Case("quota", MCAD, ("Pending", "Backoff", "quota limit exceeded", "Insufficient quota and/or resources to dispatch"
         " AppWrapper.")),
    Case("quota", MCAD, ("Pending", "Backoff", "AppWrapperNotRunnable.", "Quota evaluation is enabled but not initialized."
         " Insufficient quota to dispatch AppWrapper.")),
    Case("retrying", MCAD, ("Pending", "PreemptCandidate", "MinPodsNotRunning", "Insufficient number of Running and"
         " Completed pods, minimum=1, running=0, completed=0.")),
    Case("unschedulable", MCAD, ("Pending", "PreemptCandidate", "PodsFailedScheduling", "Pods failed scheduling failed=1, running=0.")),
    Case("time-limit", MCAD, ("Failed", "PreemptCandidate", "DispatchDeadlineExceeded", "Dispatch deadline exceeded. allowed"
         " to run for 60 seconds")),
    Case("starting", RECORDED, ("Resuming", "ResourcesDeployed", "Resuming", "Suspend is false")),
    Case("retrying", WRAPPER, ("Resetting", "Unhealthy", "InsufficientPodsReady", "1 pods pending; 0 pods running; 0 pods succeeded")),
    Case("app-error", RECORDED, ("Failed", "Unhealthy", "FoundFailedPods", "")),
    Case("app-error", WRAPPER, ("Failed", "Unhealthy", "FailedComponent", "Found 1 failed components")),
    Case("killed", WRAPPER, ("Failed", "Unhealthy", "MissingComponent", "Only found 0 deployed components, but was expecting 1")),
    Case("bad-option", WRAPPER, ("Failed", "Unhealthy", "CreateFailed", 'error creating components: admission webhook "x" denied it')),
    Case("quota", WRAPPER, ("Failed", "Unhealthy", "CreateFailed", 'error creating components: pods "x" is forbidden: exceeded'
         " quota: compute, requested: pods=1, used: pods=8, limited: pods=8")),
    Case("none", WRAPPER, ("Succeeded", "ResourcesDeployed", "Succeeded", "Resources successfully deleted")),
    Case("unknown", INVENTED, ("Failed", "Failed", "AReasonOfTomorrow", "words")),
    Case("unknown", INVENTED, ("Pending", "Backoff", "AReasonOfTomorrow", "the wrapper evicted of queue quota is not preempted")),
    Case("unknown", INVENTED, ("Failed", "Unhealthy", "AReasonOfTomorrow", 'pod "FoundFailedPods" of CreateFailedness')),
]  # fmt: skip


def wrapper() -> dict[str, Any]:
    role = Role("w", "i:1", entrypoint="run", num_replicas=1)
    return dict(build_request(AppDef("app", [role]), "app-x1", Opts(), Facts("default")).resource)


def seen(body: dict[str, Any], *pods: dict[str, Any]) -> AppSnapshot:
    app = parse_app("default:app-x1", [body], pods)
    assert app is not None
    return build_snapshot(app, READER, {body["metadata"]["name"]: why_not(body)})


def of_wrapper(native: tuple[str, str, str, str]) -> AppSnapshot:
    phase, kind, reason, message = native
    body = wrapper()
    conditions = [{"type": kind, "status": "True", "reason": reason, "message": message}]
    body["status"] = {"state": phase, "phase": phase, "conditions": conditions}
    return seen(body)


def of_pod(found: dict[str, Any]) -> AppSnapshot:
    body = wrapper()
    body["status"] = {"state": "Running", "phase": "Running"}
    labels = {LABEL_ROLE_INDEX: "0", LABEL_REPLICA_ID: "0"}
    found = {**found, "metadata": {**found["metadata"], "labels": labels}}
    return seen(body, found)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.native[2]}-{case.cause}")
def test_what_wrappers_say(case: Case) -> None:
    check(case, of_wrapper, RULES)


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.source[-20:])
def test_what_pods_say(case: Case) -> None:
    check(case, of_pod, RULES)


def test_conditions_of_a_wrapper_that_starts_say_nothing() -> None:
    usual = {"reason": "Resuming", "message": "Suspend is false"}
    started = {"QuotaReserved": "True", "ResourcesDeployed": "True", "PodsReady": "False"}
    conditions = {**started, "Unhealthy": "False"}  # as the controller 1.2 sets them
    body = wrapper()
    body["status"] = {
        "phase": "Running",
        "conditions": [{"type": t, "status": s, **usual} for t, s in conditions.items()],
    }
    assert why_not(body) == ""
    ill = {
        "type": "Unhealthy",
        "status": "True",
        "reason": "FoundFailedPods",
        "message": "1 failed",
    }
    body["status"]["conditions"][-1] = ill
    assert why_not(body) == "FoundFailedPods: 1 failed"
