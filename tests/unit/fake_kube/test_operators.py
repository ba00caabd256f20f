"""JobSet, Volcano, Kueue and AppWrappers, as far as schedulers look at them."""

from typing import Any

from tests.fake_kube.server import FakeKube
from torchx.schedulers._kube.calls import (
    APP_WRAPPERS_V1BETA1,
    APP_WRAPPERS_V1BETA2,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    SERVICES,
    VOLCANO_JOBS,
    WORKLOADS,
    Kind,
    Object,
    Selection,
)
from torchx.schedulers._kube.client import KubeClient

from .conftest import NS, condition, ended, job, log, pod_spec, pods, reached


def obj(kind: Kind, name: str, spec: Object, **metadata: Any) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def job_set(name: str, scripts: dict[str, str], **spec: Any) -> Object:
    replicated = [
        {
            "name": role,
            "template": {"spec": {"backoffLimit": 0, "template": {"spec": pod_spec(script)}}},
        }
        for role, script in scripts.items()
    ]
    return obj(JOB_SETS, name, {"replicatedJobs": replicated, **spec})


def test_a_job_set_succeeds_with_all_its_jobs(kube: KubeClient) -> None:
    kube.create(JOB_SETS, NS, job_set("s", {"a": "echo $HOSTNAME", "b": "true"}))
    assert condition(kube, JOB_SETS, "s", "Completed", "Failed")["type"] == "Completed"
    pod = pods(kube, "jobset.sigs.k8s.io/replicatedjob-name=a")[0]
    assert pod["spec"]["subdomain"] == "s"
    assert log(kube, pod["metadata"]["name"]) == ["s-a-0-0"]
    assert kube.get(SERVICES, NS, "s")["spec"]["clusterIP"] == "None"
    assert kube.get(JOB_SETS, NS, "s")["status"]["terminalState"] == "Completed"


def test_a_failed_job_ends_the_set(kube: KubeClient) -> None:
    kube.create(JOB_SETS, NS, job_set("s", {"a": "exit 1", "b": "sleep 60"}))
    assert condition(kube, JOB_SETS, "s", "Completed", "Failed")["type"] == "Failed"
    reached(lambda: all(p["status"]["phase"] == "Failed" for p in pods(kube)))


def test_a_job_set_restarts_as_a_whole(kube: KubeClient, tmp_path: Any) -> None:
    script = f"test -e {tmp_path}/x || {{ touch {tmp_path}/x; exit 1; }}"
    policy = {"maxRestarts": 1}
    kube.create(JOB_SETS, NS, job_set("s", {"a": script, "b": "true"}, failurePolicy=policy))
    condition(kube, JOB_SETS, "s", "Completed")
    assert kube.get(JOB_SETS, NS, "s")["status"]["restarts"] == 1
    attempts = {p["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for p in pods(kube)}
    assert attempts == {"1"}


def volcano_job(name: str, scripts: dict[str, str], **spec: Any) -> Object:
    tasks = [
        {"name": task, "replicas": 1, "template": {"spec": pod_spec(script)}}
        for task, script in scripts.items()
    ]
    plugins: dict[str, list[str]] = {"svc": [], "env": []}
    spec = {"schedulerName": "volcano", "plugins": plugins, "tasks": tasks, **spec}
    return obj(VOLCANO_JOBS, name, spec)


def volcano_phase(kube: KubeClient, name: str) -> str:
    status = kube.get(VOLCANO_JOBS, NS, name).get("status") or {}
    return str((status.get("state") or {}).get("phase", ""))


def test_a_volcano_job_knows_its_hosts(kube: KubeClient) -> None:
    script = "echo $VC_MY_ROLE_0_HOSTS $VC_TASK_INDEX"
    kube.create(VOLCANO_JOBS, NS, volcano_job("v", {"my-role-0": script, "b-0": "true"}))
    reached(lambda: volcano_phase(kube, "v") == "Completed")
    assert log(kube, "v-my-role-0-0") == ["v-my-role-0-0.v 0"]
    status = kube.get(VOLCANO_JOBS, NS, "v")["status"]
    assert status["taskStatusCount"]["b-0"] == {"phase": {"Succeeded": 1}}
    assert status["succeeded"] == 2


def test_volcano_restarts_jobs_by_policy_until_it_gives_up(kube: KubeClient) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    kube.create(
        VOLCANO_JOBS, NS, volcano_job("v", {"a-0": "exit 1"}, policies=policies, maxRetry=2)
    )
    reached(lambda: volcano_phase(kube, "v") == "Failed")
    assert kube.get(VOLCANO_JOBS, NS, "v")["status"]["retryCount"] == 2


def test_volcano_terminates_all_by_policy(kube: KubeClient) -> None:
    policies = [{"event": "PodFailed", "action": "TerminateJob"}]
    scripts = {"a-0": "exit 1", "b-0": "sleep 60"}
    kube.create(VOLCANO_JOBS, NS, volcano_job("v", scripts, policies=policies))
    reached(lambda: volcano_phase(kube, "v") == "Terminated")


def test_volcano_aborts_on_command(cluster: FakeKube, kube: KubeClient) -> None:
    kube.create(VOLCANO_JOBS, NS, volcano_job("v", {"a-0": "sleep 60"}))
    reached(lambda: volcano_phase(kube, "v") == "Running")
    command = Kind("bus.volcano.sh", "v1alpha1", "commands", "Command")
    target = {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "name": "v"}
    body = {**obj(command, "abort", {}), "action": "AbortJob", "target": target}
    kube.create(command, NS, body)
    reached(lambda: volcano_phase(kube, "v") == "Aborted")
    assert pods(kube) == []


def queued(name: str, script: str, queue: str) -> Object:
    body = job(name, script, suspend=True)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    return body


def workload_condition(kube: KubeClient, type_: str) -> Object | None:
    for workload in kube.list_objects(Selection(WORKLOADS, NS)).items:
        for found in (workload.get("status") or {}).get("conditions") or ():
            if found["type"] == type_:
                return dict(found)
    return None


def test_kueue_releases_what_a_queue_admits(kube: KubeClient) -> None:
    kube.create(LOCAL_QUEUES, NS, obj(LOCAL_QUEUES, "q", {"clusterQueue": "c"}))
    kube.create(JOBS, NS, queued("j", "true", "q"))
    assert ended(kube, "j")["end"] == "Complete"
    admitted = reached(lambda: workload_condition(kube, "Admitted"))
    assert admitted["status"] == "True"


def test_kueue_says_why_it_waits_and_ends_what_is_deactivated(kube: KubeClient) -> None:
    why = {"fake-kube/hold": "insufficient unused quota for cpu"}
    queue = obj(LOCAL_QUEUES, "q", {"clusterQueue": "c"}, annotations=why)
    kube.create(LOCAL_QUEUES, NS, queue)
    kube.create(JOBS, NS, queued("j", "sleep 60", "q"))
    found = reached(lambda: workload_condition(kube, "QuotaReserved"))
    assert (found["status"], found["message"]) == ("False", "insufficient unused quota for cpu")
    assert pods(kube) == []
    kube.patch(LOCAL_QUEUES, NS, "q", {"metadata": {"annotations": {"fake-kube/hold": None}}})
    reached(lambda: [p["status"]["phase"] for p in pods(kube)] == ["Running"])
    workload = kube.list_objects(Selection(WORKLOADS, NS)).items[0]["metadata"]["name"]
    kube.patch(WORKLOADS, NS, workload, {"spec": {"active": False}})
    reached(lambda: pods(kube) == [])
    assert kube.get(JOBS, NS, "j")["spec"]["suspend"]


def test_kueue_tells_of_an_unknown_queue(kube: KubeClient) -> None:
    kube.create(JOBS, NS, queued("j", "true", "nowhere"))
    found = reached(lambda: workload_condition(kube, "QuotaReserved"))
    assert found["message"] == "LocalQueue nowhere doesn't exist"


def wrapped_pod(name: str, script: str) -> Object:
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(script)}


def test_both_generations_of_app_wrappers(kube: KubeClient) -> None:
    item = {"replicas": 1, "generictemplate": wrapped_pod("old", "true")}
    spec = {"resources": {"GenericItems": [item]}}
    kube.create(APP_WRAPPERS_V1BETA1, NS, obj(APP_WRAPPERS_V1BETA1, "w", spec))
    components = {"components": [{"template": wrapped_pod("new", "exit 1")}]}
    kube.create(APP_WRAPPERS_V1BETA2, NS, obj(APP_WRAPPERS_V1BETA2, "w", components))
    reached(
        lambda: kube.get(APP_WRAPPERS_V1BETA1, NS, "w").get("status")
        == {"Succeeded": 1, "state": "Completed"}
    )
    failed = {"phase": "Failed", "resettingCount": 3}
    reached(lambda: kube.get(APP_WRAPPERS_V1BETA2, NS, "w").get("status") == failed)


def test_any_kind_can_be_added(cluster: FakeKube, kube: KubeClient) -> None:
    kind = {"group": "example.org", "version": "v1", "plural": "things", "name": "Thing"}
    cluster.admin("kinds", kind)
    things = Kind("example.org", "v1", "things", "Thing")
    kube.create(things, NS, obj(things, "t", {"x": 1}))
    assert kube.get(things, NS, "t")["spec"] == {"x": 1}
    assert kube.groups()["example.org"] == ["v1"]
