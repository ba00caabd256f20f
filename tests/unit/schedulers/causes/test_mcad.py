"""The cause of a wait or a failure of an AppWrapper, from its conditions and its pods."""

from typing import Any

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check
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

MCAD = "https://github.com/project-codeflare/multi-cluster-app-dispatcher/tree/main/doc"
WRAPPER = "https://project-codeflare.github.io/appwrapper/arch-controller/"
PORTING = "https://github.com/project-codeflare/mcad/blob/main/PORTING.md"

CASES = [
    Case("priority", MCAD, ("Pending", "AwaitingHeadOfLine", "waiting for its turn")),
    Case("priority", MCAD, ("Pending", "FrontOfQueue.", "it is at the head")),
    Case("unschedulable", MCAD, ("Pending", "AppWrapperNotRunnable", "Insufficient resources to dispatch AppWrapper.")),
    Case("quota", MCAD, ("Pending", "AppWrapperNotRunnable", "Insufficient quota to dispatch AppWrapper.")),
    Case("retrying", MCAD, ("Pending", "InsufficientPodsReady", "not enough pods are ready")),
    Case("priority", WRAPPER, ("Suspended", "Suspended", "Suspend is true")),
    Case("unschedulable", WRAPPER, ("Suspended", "Pending", "couldn't assign flavors to pod set w: insufficient unused"
         " capacity for cpu in flavor default")),
    Case("retrying", WRAPPER, ("Resetting", "InsufficientPodsReady", "admission grace period expired")),
    Case("app-error", WRAPPER, ("Failed", "MaxRetryExceeded", "no retries are left")),
    Case("app-error", MCAD, ("Failed", "FoundFailedPods", "found failed pods")),
    Case("bad-option", WRAPPER, ("Failed", "CreateFailed", "error creating components: admission webhook denied it")),
    Case("preempted", WRAPPER, ("Suspended", "Evicted", "PreemptedByKueue to accommodate a workload")),
    Case("none", PORTING, ("Succeeded", "", "")),
    Case("unknown", PORTING, ("Failed", "AReasonOfTomorrow", "words")),
]  # fmt: skip


def wrapper() -> dict[str, Any]:
    role = Role("w", "i:1", entrypoint="run", num_replicas=1)
    return dict(build_request(AppDef("app", [role]), "app-x1", Opts(), Facts("default")).resource)


def seen(body: dict[str, Any], *pods: dict[str, Any]) -> AppSnapshot:
    app = parse_app("default:app-x1", [body], pods)
    assert app is not None
    return build_snapshot(app, READER, {body["metadata"]["name"]: why_not(body)})


def of_wrapper(native: tuple[str, str, str]) -> AppSnapshot:
    phase, reason, message = native
    body = wrapper()
    conditions = [{"type": "x", "status": "True", "reason": reason, "message": message}]
    body["status"] = {"state": phase, "phase": phase, "conditions": conditions if message else []}
    return seen(body)


def of_pod(found: dict[str, Any]) -> AppSnapshot:
    body = wrapper()
    body["status"] = {"state": "Running", "phase": "Running"}
    labels = {LABEL_ROLE_INDEX: "0", LABEL_REPLICA_ID: "0"}
    found = {**found, "metadata": {**found["metadata"], "labels": labels}}
    return seen(body, found)


def test_there_are_enough_cases() -> None:
    assert len(CASES) + len(PODS) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.native[1]}-{case.cause}")
def test_what_wrappers_say(case: Case) -> None:
    check(case, of_wrapper, RULES)


@pytest.mark.parametrize("case", PODS, ids=lambda case: case.cause)
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
