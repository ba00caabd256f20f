"""The cause of a wait or a failure on Kubernetes, from its pods and events."""

from typing import Any

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check, explained
from tests.unit.schedulers.kubernetes.test_states import app_of, condition, ended, pod, worker
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers._kube.apps.app import parse_app
from torchx.schedulers._kube.apps.causes import RULES
from torchx.schedulers._kube.apps.snapshots import build_snapshot
from torchx.schedulers.kubernetes_scheduler._states import READERS

K8S = "https://github.com/openshift/microshift/blob/8e16b12f/deps/github.com/openshift/kubernetes/"
"""A copy of the source of Kubernetes."""
KUBELET = K8S + "pkg/kubelet/"
PLUGINS = K8S + "pkg/scheduler/framework/plugins/"
IMAGES = KUBELET + "images/image_manager.go"
CONTAINERS = KUBELET + "kuberuntime/kuberuntime_container.go"
EVICTION = KUBELET + "eviction/helpers.go"
FIT = PLUGINS + "noderesources/fit.go"
VOLUMES = PLUGINS + "volumebinding/volume_binding.go"
TYPES = K8S + "staging/src/k8s.io/api/core/v1/types.go"
QUOTA = K8S + "staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go"
KUEUE = "https://github.com/openshift/kubernetes-sigs-kueue/blob/31bf4791/pkg/"
VOLCANO = "https://github.com/volcano-sh/volcano/blob/ed72c7c8/pkg/"


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


PREEMPTION = (
    " preemption: 0/4 nodes are available: 1 Preemption is not helpful for scheduling, 3 No"
    " preemption victims found for incoming pod."
)
RECORDED = "recorded from Kubernetes 1.34.9"
NO_PREEMPTION = (
    " no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful"
    " for scheduling."
)
CASES = [
    Case("image-pull", RECORDED, waits("InvalidImageName", 'Failed to apply default image tag "Bad Image:": couldn\'t'
         ' parse image name "Bad Image:": invalid reference format: repository name (library/Bad Image) must be lowercase')),
    Case("image-pull", RECORDED, waits("ErrImagePull", 'failed to pull and unpack image "docker.io/torchx-test/python:3.11":'
         ' failed to resolve reference "docker.io/torchx-test/python:3.11": failed to do request: Head'
         ' "https://registry-1.docker.io/v2/torchx-test/python/manifests/3.11": dial tcp: lookup registry-1.docker.io:'
         " connect: no route to host")),
    Case("image-pull", RECORDED, waits(
        "ErrImageNeverPull", 'Container image "nosuch:1" is not present with pull policy of Never')),
    Case("mount", RECORDED, unscheduled(
        '0/1 nodes are available: persistentvolumeclaim "nosuch" not found. not found')),
    Case("bad-option", RECORDED, waits("CreateContainerConfigError", 'secret "nosuch" not found')),
    Case("unschedulable", RECORDED, unscheduled(
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector." + NO_PREEMPTION)),
    Case("unschedulable", RECORDED, unscheduled(
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." + NO_PREEMPTION)),
    Case("launch-failed", RECORDED, ended(0, 128, "StartError")),
    Case("image-pull", IMAGES, waits("ImagePullBackOff", 'Back-off pulling image "ghcr.io/a/b:1"')),
    Case("image-pull", IMAGES, waits("ErrImagePull", "rpc error: code = DeadlineExceeded desc = failed to"
         ' pull and unpack image "docker.io/library/nope:1": context deadline exceeded')),
    Case("image-pull", IMAGES, waits("InvalidImageName", "couldn't parse image name \"a:b:c\"")),
    Case("image-pull", IMAGES, waits("ErrImageNeverPull", 'Container image "a:1" is not present with pull policy of Never')),
    Case("unschedulable", FIT, unscheduled("0/1 nodes are available: 1 Insufficient memory.")),
    Case("unschedulable", FIT, unscheduled("0/4 nodes are available: 1 node(s) had untolerated"
         " taint(s), 3 Insufficient nvidia.com/gpu." + PREEMPTION)),
    Case("unschedulable", FIT, unscheduled("0/9 nodes are available: 9 Too many pods.")),
    Case("unschedulable", PLUGINS + "tainttoleration/taint_toleration.go", unscheduled(
        "0/2 nodes are available: 2 node(s) had untolerated taint(s).")),
    Case("unschedulable", PLUGINS + "nodeaffinity/node_affinity.go", unscheduled(
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.")),
    Case("unschedulable", VOLUMES, unscheduled("0/4 nodes are available: 1 node(s) didn't match"
         " PersistentVolume's node affinity, 3 Insufficient nvidia.com/gpu." + PREEMPTION)),
    Case("unschedulable", K8S + "pkg/scheduler/scheduler.go", unscheduled("no nodes available to schedule pods")),
    Case("unschedulable", KUBELET + "lifecycle/predicate.go", failed("OutOfmemory", "Pod was rejected: Node didn't have"
         " enough resource: memory, requested: 4718592000, used: 2147483648, capacity: 4294967296")),
    Case("mount", VOLUMES, unscheduled(
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")),
    Case("mount", VOLUMES, unscheduled('0/3 nodes are available: persistentvolumeclaim "data" not found.')),
    Case("mount", VOLUMES, unscheduled("0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity.")),
    Case("held", K8S + "pkg/registry/core/pod/strategy.go", unscheduled(
        "Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated")),
    Case("bad-option", CONTAINERS, waits("CreateContainerConfigError", 'secret "hf-token" not found')),
    Case("bad-option", KUBELET + "kubelet_pods.go", waits("CreateContainerConfigError", "couldn't find key token in"
         " Secret default/hf")),
    Case("launch-failed", CONTAINERS, waits("CreateContainerError", "context deadline exceeded")),
    Case("retrying", KUBELET + "kuberuntime/kuberuntime_manager.go", waits("CrashLoopBackOff", "back-off 40s restarting"
         " failed container=w pod=x-0_default(1)")),
    Case("launch-failed", CONTAINERS, ended(0, 127, "ContainerCannotRun")),
    Case("out-of-memory", KUBELET + "kuberuntime/helpers.go", ended(0, 137, "OOMKilled")),
    Case("out-of-memory", EVICTION, failed("Evicted", "The node was low on resource: memory."
         " Threshold quantity: 100Mi, available: 93Mi. ")),
    Case("disk-full", EVICTION, failed("Evicted", "Pod ephemeral local storage usage exceeds the"
         " total limit of containers 1Gi. ")),
    Case("disk-full", EVICTION, failed("Evicted", 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi". ')),
    Case("disk-full", EVICTION, failed("Evicted", "The node was low on resource: ephemeral-storage. Threshold quantity:"
         " 2Gi, available: 1536Mi. ")),
    Case("preempted", EVICTION, failed("Evicted", "The node had condition: [PIDPressure]. ")),
    Case("time-limit", KUBELET + "active_deadline.go", failed(
        "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")),
    Case("node-lost", KUBELET + "nodeshutdown/nodeshutdown_manager.go", failed(
        "Terminated", "Pod was terminated in response to imminent node shutdown.")),
    Case("app-error", TYPES, ended(0, 3)),
    Case("killed", TYPES, ended(0, 137)),
    Case("starting", TYPES, waits("ContainerCreating")),
    Case("none", TYPES, ended(0, 0, "Completed", "Succeeded")),
    Case("unknown", INVENTED, waits("AReasonOfTomorrow", "something else")),
    Case("unknown", INVENTED, failed("AReasonOfTomorrow", "something else")),
    Case("retrying", INVENTED, waits("CrashLoopBackOff", "back-off 40s restarting failed container=evicted"
         " pod=oom-killer-quota-0_preempted(1)")),
    Case("image-pull", INVENTED, waits("ImagePullBackOff", 'Back-off pulling image "ghcr.io/evicted/oomkilled:quota"')),
    Case("unknown", INVENTED, waits("AReasonOfTomorrow", 'volume "FailedMount" of "exceeded quota: " is not ready')),
    Case("unknown", INVENTED, failed("AReasonOfTomorrow", "pod evicted-oomkilled-outofmemory-0 on node preempted")),
    Case("app-error", INVENTED, ended(0, 1, "Error"), "oom-killer of node evicted: exceeded quota\n"),
    Case("killed", INVENTED, ended(0, 137, "Error"), "INFO CUDA out of memory, retrying with half of it\n"),
]  # fmt: skip

GANG = VOLCANO + "scheduler/plugins/"
EVENTS = [
    Case("quota", RECORDED, 'FailedCreate: Error creating: pods "a-1-z9j25" is forbidden: exceeded quota: rq,'
         " requested: pods=1, used: pods=1, limited: pods=1"),
    Case("mount", RECORDED, 'FailedMount: MountVolume.SetUp failed for volume "va-svc" : configmap "va-svc" not found'),
    Case("queue-limit", RECORDED + " with Kueue 0.13", "Pending: couldn't assign flavors to pod set main: insufficient"
         " quota for cpu in flavor default-flavor, request > maximum capacity (8 > 4)"),
    Case("mount", K8S + "pkg/volume/util/operationexecutor/operation_generator.go", "FailedMount: MountVolume.SetUp failed"
         ' for volume "data" : rpc error: code = DeadlineExceeded desc = context deadline exceeded'),
    Case("quota", QUOTA, "FailedCreate: Error creating: pods \"x-0\" is forbidden: exceeded quota:"
         " compute, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=4,"
         " limited: requests.nvidia.com/gpu=4"),
    Case("bad-option", K8S + "plugin/pkg/admission/limitranger/admission.go", 'FailedCreate: Error creating: pods "x-0" is'
         " forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi"),
    Case("bad-option", K8S + "staging/src/k8s.io/pod-security-admission/admission/admission.go", "FailedCreate: Error"
         ' creating: pods "x-0" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'),
    Case("bad-option", K8S + "plugin/pkg/admission/serviceaccount/admission.go", "FailedCreate: Error creating: pods"
         ' "x-0" is forbidden: error looking up service account ns/train: serviceaccount "train" not found'),
    Case("mount", K8S + "pkg/controller/volume/attachdetach/reconciler/reconciler.go", "FailedAttachVolume: Multi-Attach"
         ' error for volume "pvc-1" Volume is already exclusively attached to one node'),
    Case("unschedulable", FIT, "FailedScheduling: 0/3 nodes are available: 3 Insufficient cpu." + PREEMPTION),
    Case("quota", KUEUE + "scheduler/flavorassigner/flavorassigner.go", "Pending: couldn't assign flavors to pod set main:"
         " insufficient unused quota for cpu in flavor default-flavor, 1 more needed"),
    Case("queue-limit", KUEUE + "scheduler/flavorassigner/flavorassigner.go", "Pending: couldn't assign flavors to pod set"
         " main: insufficient quota for cpu in flavor default-flavor, request > maximum capacity (10 > 5)"),
    Case("unschedulable", KUEUE + "scheduler/flavorassigner/flavorassigner.go", "Pending: couldn't assign flavors to pod"
         " set main: flavor spot doesn't match node affinity"),
    Case("queue-limit", KUEUE + "controller/core/workload_controller.go", "Inadmissible: LocalQueue nope doesn't exist"),
    Case("queue-limit", KUEUE + "controller/core/workload_controller.go", "Inadmissible: ClusterQueue quota is inactive"),
    Case("queue-limit", KUEUE + "controller/core/workload_controller.go", "LocalQueueStopped: The LocalQueue is stopped"),
    Case("retrying", KUEUE + "controller/core/workload_controller.go", "PodsReadyTimeout: Exceeded the PodsReady timeout ns/w"),
    Case("held", KUEUE + "controller/core/workload_controller.go", "Deactivated: The workload is deactivated"),
    Case("node-lost", KUEUE + "controller/tas/node_failure_controller.go", "NodeFailures: Workload eviction triggered due to"
         " multiple TAS assigned node failures, including: n1, n2"),
    Case("preempted", KUEUE + "scheduler/preemption/preemption.go", "Preempted: Preempted to accommodate a workload (UID: 1,"
         " JobUID: 2) due to prioritization in the ClusterQueue"),
    Case("quota", GANG + "proportion/proportion.go", "Unschedulable: queue resource quota insufficient: insufficient cpu"),
    Case("resources", GANG + "overcommit/overcommit.go", "Unschedulable: resource in cluster is overused: overused cpu"),
    Case("unschedulable", GANG + "gang/gang.go", "Unschedulable: 3/3 tasks in gang unschedulable: pod group is not ready,"
         " 3 Pending, 3 minAvailable"),
    Case("unknown", INVENTED, "AReasonOfTomorrow: the queue quota-evicted of preempted-1 is not ready"),
]  # fmt: skip
DISRUPTIONS = [
    Case("preempted", K8S + "pkg/scheduler/framework/preemption/executor.go", disrupted("PreemptionByScheduler",
         "default-scheduler: preempting to accommodate a higher priority pod")),
    Case("preempted", K8S + "pkg/registry/core/pod/storage/eviction.go", disrupted("EvictionByEvictionAPI",
         "Eviction API: evicting")),
    Case("preempted", K8S + "pkg/controller/tainteviction/taint_eviction.go", disrupted("DeletionByTaintManager",
         "Taint manager: deleting due to NoExecute taint")),
    Case("node-lost", K8S + "pkg/controller/podgc/gc_controller.go", disrupted("DeletionByPodGC",
         "PodGC: node no longer exists")),
    Case("unknown", INVENTED, disrupted("DisruptionOfTomorrow", "node preempted is evicted")),
]  # fmt: skip


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source[-20:])
def test_what_pods_say(case: Case) -> None:
    check(case, made, RULES)


@pytest.mark.parametrize("case", EVENTS, ids=lambda case: case.source[-20:])
def test_what_events_say(case: Case) -> None:
    check(case, of_event, RULES)


@pytest.mark.parametrize("case", DISRUPTIONS, ids=lambda case: case.source[-20:])
def test_what_disruptions_say(case: Case) -> None:
    check(case, over, RULES)


def test_a_queue_lets_others_go_first() -> None:
    def make(queue: str) -> AppSnapshot:
        jobs = app_of(worker(1), queue=queue)
        for job in jobs:
            job["spec"]["suspend"] = True
        return build_snapshot(parse_app("default:app-x1", jobs, []), READERS["job"])

    check(Case("priority", "src/torchx/schedulers/_kube/apps/snapshots.py", "a"), make, RULES)


@pytest.mark.parametrize("what", ["cpu", "nvidia.com/gpu", "hugepages-2Mi"])
def test_what_the_nodes_have_too_little_of_is_named(what: str) -> None:
    waits_for = f"0/1 nodes are available: 1 Insufficient {what}. no new claims to deallocate"
    line = explained(made(unscheduled(waits_for)), words=RULES).line
    assert line == f"unschedulable: no node has enough {what} free"
