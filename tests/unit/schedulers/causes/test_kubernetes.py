"""The cause of a wait or a failure on Kubernetes, from its pods and events."""

from typing import Any

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, Case, check, explained
from tests.unit.schedulers.kubernetes.test_states import app_of, condition, ended, pod, worker
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers._kube.apps.app import parse_app
from torchx.schedulers._kube.apps.causes import RULES
from torchx.schedulers._kube.apps.snapshots import build_snapshot
from torchx.schedulers.kubernetes_scheduler._states import READERS

K = "https://kubernetes.io/docs/"
IMAGES = K + "concepts/containers/images/#imagepullbackoff"
DEBUG = K + "tasks/debug/debug-application/debug-pods/"
MEMORY = K + "tasks/configure-pod-container/assign-memory-resource/"
EVICTION = K + "concepts/scheduling-eviction/node-pressure-eviction/"
DISRUPTION = K + "concepts/workloads/pods/disruptions/#pod-disruption-conditions"
VOLUMES = K + "concepts/storage/persistent-volumes/"
QUOTA = K + "concepts/policy/resource-quotas/"


def waits(reason: str, message: str = "") -> dict[str, Any]:
    waiting = {"reason": reason, "message": message}
    return pod(0, phase="Pending", containerStatuses=[{"state": {"waiting": waiting}}])


def unscheduled(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    found = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod(0, phase="Pending", conditions=[found])


def failed(reason: str, message: str) -> dict[str, Any]:
    return pod(0, phase="Failed", reason=reason, message=message)


def disrupted(reason: str, message: str) -> dict[str, Any]:
    return ended(0, 143, conditions=[condition("DisruptionTarget", reason, message)])


CASES = [
    Case("image-pull", IMAGES, waits("ImagePullBackOff", 'Back-off pulling image "ghcr.io/a/b:1"')),
    Case("image-pull", IMAGES, waits("ErrImagePull", "rpc error: code = NotFound desc = failed to"
         ' pull and unpack image "docker.io/library/nope:1": not found')),
    Case("image-pull", IMAGES, waits("InvalidImageName", "couldn't parse image name \"a:b:c\"")),
    Case("unschedulable", MEMORY, unscheduled("0/1 nodes are available: 1 Insufficient memory.")),
    Case("unschedulable", DEBUG, unscheduled(
        "0/4 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: },"
        " 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: 1 Preemption is not"
        " helpful for scheduling, 3 No preemption victims found for incoming pod.")),
    Case("unschedulable", K + "concepts/scheduling-eviction/taint-and-toleration/", unscheduled(
        "0/2 nodes are available: 2 node(s) had untolerated taint {dedicated: gpu}.")),
    Case("unschedulable", K + "concepts/scheduling-eviction/assign-pod-node/", unscheduled(
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")),
    Case("mount", VOLUMES, unscheduled(
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")),
    Case("mount", VOLUMES, unscheduled('persistentvolumeclaim "data" not found')),
    Case("held", K + "concepts/scheduling-eviction/pod-scheduling-readiness/", unscheduled(
        "Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated")),
    Case("bad-option", K + "concepts/configuration/secret/", waits(
        "CreateContainerConfigError", 'secret "hf-token" not found')),
    Case("launch-failed", DEBUG, waits("CreateContainerError", "the container name is in use")),
    Case("retrying", DEBUG, waits("CrashLoopBackOff", "back-off 40s restarting failed container=w")),
    Case("launch-failed", DEBUG, ended(0, 128, "StartError")),
    Case("launch-failed", DEBUG, ended(0, 127, "ContainerCannotRun")),
    Case("out-of-memory", MEMORY, ended(0, 137, "OOMKilled")),
    Case("out-of-memory", EVICTION, failed("Evicted", "The node was low on resource: memory."
         " Threshold quantity: 100Mi, available: 93Mi.")),
    Case("disk-full", EVICTION, failed("Evicted", "Pod ephemeral local storage usage exceeds the"
         " total limit of containers 1Gi.")),
    Case("preempted", EVICTION, failed("Evicted", "The node had condition: [PIDPressure].")),
    Case("time-limit", K + "concepts/workloads/controllers/job/", failed(
        "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")),
    Case("node-lost", K + "concepts/cluster-administration/node-shutdown/", failed(
        "Terminated", "Pod was terminated in response to imminent node shutdown.")),
    Case("app-error", DEBUG, ended(0, 3)),
    Case("killed", MEMORY, ended(0, 137)),
    Case("starting", DEBUG, waits("ContainerCreating")),
    Case("none", DEBUG, ended(0, 0, "Completed", "Succeeded")),
    Case("unknown", DEBUG, waits("AReasonOfTomorrow", "something else")),
    Case("unknown", DEBUG, failed("AReasonOfTomorrow", "something else")),
]  # fmt: skip

EVENTS = [
    Case("mount", VOLUMES, "FailedMount: MountVolume.SetUp failed for volume \"data\" : mount failed:"
         " exit status 32"),
    Case("quota", QUOTA, "FailedCreate: Error creating: pods \"x-0\" is forbidden: exceeded quota:"
         " compute, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=4,"
         " limited: requests.nvidia.com/gpu=4"),
    Case("bad-option", K + "concepts/security/pod-security-admission/", "FailedCreate: Error creating:"
         ' pods "x-0" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'),
    Case("bad-option", K + "concepts/security/service-accounts/", "FailedCreate: Error creating: pods"
         ' "x-0" is forbidden: error looking up service account ns/train: serviceaccount "train" not found'),
    Case("mount", VOLUMES, "FailedAttachVolume: Multi-Attach error for volume \"pvc-1\" Volume is"
         " already used by pod(s) x-1"),
]  # fmt: skip
DISRUPTIONS = [
    Case("preempted", DISRUPTION, disrupted("PreemptionByScheduler", "preempting to accommodate")),
    Case("preempted", DISRUPTION, disrupted("EvictionByEvictionAPI", "Eviction API: evicting")),
    Case("preempted", DISRUPTION, disrupted("DeletionByTaintManager", "Taint manager: deleting")),
    Case("node-lost", DISRUPTION, disrupted("DeletionByPodGC", "PodGC: node no longer exists")),
]


def made(found: dict[str, Any]) -> AppSnapshot:
    return build_snapshot(parse_app("default:app-x1", app_of(worker(1)), [found]), READERS["job"])


def of_event(words: str) -> AppSnapshot:
    jobs = app_of(worker(1))
    app = parse_app("default:app-x1", jobs, [pod(0, phase="Pending")])
    return build_snapshot(app, READERS["job"], {job["metadata"]["name"]: words for job in jobs})


def over(found: dict[str, Any]) -> AppSnapshot:
    """Of a pod whose Job has failed, so that nothing replaces it."""
    jobs = app_of(worker(1))
    jobs[0]["status"] = {"failedIndexes": "0", "conditions": [condition("Failed", "FailedIndexes")]}
    return build_snapshot(parse_app("default:app-x1", jobs, [found]), READERS["job"])


def test_there_are_enough_cases() -> None:
    assert len(CASES) + len(EVENTS) + len(DISRUPTIONS) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.cause)
def test_what_pods_say(case: Case) -> None:
    check(case, made, RULES)


@pytest.mark.parametrize("case", EVENTS, ids=lambda case: case.cause)
def test_what_events_say(case: Case) -> None:
    check(case, of_event, RULES)


@pytest.mark.parametrize("case", DISRUPTIONS, ids=lambda case: case.cause)
def test_what_disruptions_say(case: Case) -> None:
    check(case, over, RULES)


def test_a_queue_lets_others_go_first() -> None:
    def make(queue: str) -> AppSnapshot:
        jobs = app_of(worker(1), queue=queue)
        for job in jobs:
            job["spec"]["suspend"] = True
        return build_snapshot(parse_app("default:app-x1", jobs, []), READERS["job"])

    check(
        Case("priority", "https://kueue.sigs.k8s.io/docs/concepts/local_queue/", "a"), make, RULES
    )


@pytest.mark.parametrize("what", ["cpu", "nvidia.com/gpu", "hugepages-2Mi"])
def test_what_the_nodes_have_too_little_of_is_named(what: str) -> None:
    waits_for = f"0/1 nodes are available: 1 Insufficient {what}. no new claims to deallocate"
    line = explained(made(unscheduled(waits_for)), words=RULES).line
    assert line == f"unschedulable: no node has enough {what} free"
